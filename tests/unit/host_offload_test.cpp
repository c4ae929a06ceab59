// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Activations that wait in host memory, and outputs that are discarded and made again: losses,
// gradients and parameters are those of a run that keeps everything, in memory that is spoilt where
// it is not written, and the most that a rank holds is what its bill says.

#include "tests/unit/host_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace {

/// The case under a framework of its own in place of `plain`.
std::string under(const std::string& framework, const Case& c, int gpus,
                  const std::string& layout) {
  std::string text = plan_text(c, gpus, layout);
  const auto replace = [&](const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
  };
  replace("framework = plain", "framework = tested");
  replace("nodes = 1 }", "nodes = 1  host_memory = 1 TiB  pcie = 1 TB/s }");
  return "framework tested = plain { " + framework + " }\n" + text;
}

void check_under(const std::string& framework, const Case& c,
                 const std::vector<std::pair<int, std::string>>& layouts) {
  const HostRun expected = run(price(plan_text(c, 1, "")));
  for (const auto& [gpus, layout] : layouts) {
    INFO(framework << ": " << layout);
    const Priced p = price(under(framework, c, gpus, layout));
    const HostRun found = run(p);
    check_equal(p, expected, found);
    check_memory(p, found);
  }
}

const Case kDenseDecoder{
    "model tiny = decoder { layers = 4  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32 "
    "}",
    ""};
const Case kLatentExperts{
    "model tiny = decoder { layers = 3  hidden = 16  heads = 2  ffn = 24  vocab = 32  "
    "experts = 4  top_k = 1  expert_ffn = 12  shared = 8  first_dense = 1  score = "
    "sigmoid  kv_lora = 8  q_lora = 12  nope = 6  rope_dim = 4  v_dim = 8 }",
    ""};

}  // namespace

TEST_CASE("host run: activations in host memory", "[host][offload]") {
  const std::string away = "param offload_activations = true";
  check_under(away, kDenseDecoder,
              {{1, ""},
               {1, "recompute = full"},
               {1, "recompute = selective"},
               {2, "tp = 2  sp = true"},
               {2, "pp = 2"},
               {4, "pp = 4  recompute = full"},
               {2, "pp = 2  vpp = 2"},
               {2, "zero = 3"}});
  check_under(away, kLatentExperts, {{1, ""}, {2, "ep = 2"}, {1, "recompute = full"}});
}

TEST_CASE("activations in host memory are not on the GPU", "[offload]") {
  const Priced kept = price(plan_text(kDenseDecoder, 1, "recompute = full"));
  const Priced away =
      price(under("param offload_activations = true", kDenseDecoder, 1, "recompute = full"));
  CHECK(test::total(test::saved(away, kFullRecompute)) == 0);
  CHECK(away.bill.stages[0].live_bytes < kept.bill.stages[0].live_bytes);
  // Inputs of four layers: one micro-batch of one sequence of 16 tokens of 16 numbers in fp32.
  CHECK(Pricer(*away.problem).peak(away.layout).host_bytes == 4 * 16 * 16 * 4);
  CHECK(Pricer(*kept.problem).peak(kept.layout).host_bytes == 0);
}

TEST_CASE("host run: what single ops keep waits in host memory", "[host][offload]") {
  for (const char* words :
       {"offload = {attention, o}", "drop = {rmsnorm}  offload = {attention, q, gate}",
        "discard = {residual_norms}  offload = {residual_norms, attention, o, down}"})
    check_under(fmt::format("recompute away {{ {} }}", words), kDenseDecoder,
                {{1, "recompute = away"},
                 {2, "tp = 2  sp = true  recompute = away"},
                 {2, "pp = 2  vpp = 2  recompute = away"},
                 {2, "zero = 3  recompute = away"}});
  check_under(
      "recompute away { discard = {expert_activations}  offload = {expert_first_linears, "
      "expert_activations, attention, q_up} }",
      kLatentExperts, {{1, "recompute = away"}, {2, "ep = 2  recompute = away"}});
}

TEST_CASE("what single ops keep in host memory is not on the GPU", "[offload]") {
  const auto saved_with = [](const std::string& words) {
    const Priced p = price(
        under(fmt::format("recompute away {{ {} }}", words), kDenseDecoder, 1, "recompute = away"));
    return std::pair(test::total(test::saved(p, p.layout.recompute, 0)),
                     Pricer(*p.problem).peak(p.layout).host_bytes);
  };
  const auto [kept, none] = saved_with("drop = {dropout}");
  const auto [rest, away] = saved_with("offload = {glu}");
  CHECK(none == 0);
  CHECK(kept - rest == 2 * 24 * 16 * 4);  // what a gated product reads, of a token 2 * 24 numbers
  CHECK(away == 4 * (kept - rest));       // in each of four layers
}

TEST_CASE("host run: discarded outputs are made again", "[host][discard]") {
  const std::vector<std::pair<int, std::string>> layouts = {
      {1, "recompute = slim"},
      {2, "tp = 2  sp = true  recompute = slim"},
      {2, "pp = 2  recompute = slim"},
      {2, "zero = 3  recompute = slim"}};
  for (const char* words :
       {"discard = {residual_norms}", "discard = {rmsnorm, glu}", "discard = {dense_mlp}",
        "drop = {attention}  discard = {residual_norms}"})
    check_under(fmt::format("recompute slim {{ {} }}", words), kDenseDecoder, layouts);
  for (const char* words :
       {"discard = {q_up, k_up, v_up, rope, concat}", "discard = {expert_activations}",
        "discard = {shared_experts, dense_mlp}",
        "discard = {residual_norms, expert_activations, q_up, k_up, v_up, rope, concat}"})
    check_under(fmt::format("recompute slim {{ {} }}", words), kLatentExperts,
                {{1, "recompute = slim"},
                 {2, "ep = 2  recompute = slim"},
                 {2, "tp = 2  recompute = slim"}});
}

TEST_CASE("what discarding saves", "[discard]") {
  const auto saved_bytes = [](const std::string& words, const Case& c, std::uint32_t layer) {
    const Priced p =
        price(under(fmt::format("recompute slim {{ {} }}", words), c, 1, "recompute = slim"));
    return test::total(test::saved(p, 0, layer)) -
           test::total(test::saved(p, p.layout.recompute, layer));
  };
  // Of a token 16 numbers in fp32: the outputs of both norms; their inputs stay.
  CHECK(saved_bytes("discard = {residual_norms}", kDenseDecoder, 0) == 2 * 16 * 16 * 4);
  // The gated product's output.
  CHECK(saved_bytes("discard = {glu}", kDenseDecoder, 0) == 24 * 16 * 4);
  // Of one expert a token: its product.
  CHECK(saved_bytes("discard = {expert_activations}", kLatentExperts, 1) == 12 * 16 * 4);
  CHECK(saved_bytes("discard = {expert_activations}", kLatentExperts, 0) == 0);
  // The feed-forward's two products and the gated one, beside experts or without any.
  CHECK(saved_bytes("discard = {dense_mlp}", kLatentExperts, 0) == 3 * 24 * 16 * 4);
  CHECK(saved_bytes("discard = {dense_mlp}", kLatentExperts, 1) == 0);
  CHECK(saved_bytes("discard = {shared_experts}", kLatentExperts, 1) == 3 * 8 * 16 * 4);
}
