// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The split is right: a sharded run's loss, gradients and parameters are those of one rank, from
// nothing but what was declared saved, in memory that is spoilt where it is not written; and the
// most that a rank holds is what its bill says.

#include "runtime/host/host_run.hpp"

#include <cmath>

#include "runtime/host/host_device.hpp"
#include "tests/catch.hpp"
#include "tests/unit/host_chain.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;
using namespace plimsoll::runtime::host;
using test::price;
using test::Priced;

namespace {

constexpr double kTolerance = 1e-5;  // of a gradient's norm
constexpr double kLearningRate = 1e-3;
constexpr double kRounding = 1e-6;

struct Case {
  std::string model, job;
  int batch = 8, seq = 16;
};

/// The case on so many GPUs, in a layout.
std::string plan_text(const Case& c, int gpus, const std::string& layout) {
  return fmt::format(
      "gpu toy {{ memory = 1 GiB  bandwidth = 1 TB/s  nvlink = 100 GB/s }}\n"
      "cluster box {{ gpu = toy  gpus_per_node = {}  nodes = 1 }}\n"
      "{}\n"
      "train run {{ model = tiny  cluster = box  framework = plain  optimizer = adamw\n"
      "  precision = fp32  seq = {}  batch = {}\n  {} }}\n"
      "layout here {{ {} }}\n",
      gpus, c.model, c.seq, c.batch, c.job, layout);
}

double norm(const std::vector<float>& a) {
  double sum = 0;
  for (const float x : a) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

HostOptions options() {
  HostOptions o;
  o.keep_tensors = true;
  o.learning_rate = kLearningRate;
  // Rounding in fp32 is some 1e-7 of the largest gradients, which are about 0.3 here. Where a
  // gradient is near 0, Adam's step changes by up to rounding / epsilon of the learning rate, so
  // that a thousandth asks for an epsilon above 3e-5.
  o.epsilon = 1e-4;
  return o;
}

HostRun run(const Priced& p, const HostOptions& o = options()) {
  REQUIRE(why_not_on_host(*p.problem, p.layout) == "");
  REQUIRE(why_impossible(*p.problem, p.layout) == "");
  return run_on_host(*p.problem, p.layout, o);
}

/// Compares weight by weight; says which one is farthest off.
void check_equal(const Priced& p, const HostRun& expected, const HostRun& found) {
  REQUIRE(found.losses.size() == expected.losses.size());
  for (std::size_t step = 0; step < found.losses.size(); ++step)
    CHECK(found.losses[step] == Approx(expected.losses[step]).epsilon(kTolerance));
  for (std::size_t step = 0; step < found.gradients.size(); ++step) {
    double off = 0, moved = 0, largest = 0;
    for (const auto& gradient : expected.gradients[step])
      largest = std::max(largest, norm(gradient));
    std::string worst_gradient, worst_parameter;
    for (WeightId w = 0; w < p.problem->program->weights.size(); ++w) {
      const Weight& weight = p.problem->program->weights[w];
      if (weight.tied_to != kNone) continue;
      const std::string what = fmt::format("weight {} '{}', {}", w, weight.name, name(weight.role));
      const auto& right = expected.gradients[step][w];
      // A bias of keys shifts all of a query's scores alike: its gradient is 0 but for rounding,
      // and Adam makes steps of what rounding left.
      if (norm(right) <= kRounding * largest) {
        CHECK(norm(found.gradients[step][w]) <= kRounding * largest);
        CHECK(weight.role == Role::bias);
        CHECK(weight.name == "k");
        continue;
      }
      const double error = distance(found.gradients[step][w], right) / norm(right);
      if (!(error <= off)) worst_gradient = what;  // a NaN is worst of all
      if (!(error <= off)) off = error;
      for (std::size_t i = 0; i < right.size(); ++i) {
        const double by = std::abs(found.parameters[step][w][i] - expected.parameters[step][w][i]);
        if (!(by <= moved)) worst_parameter = what;
        if (!(by <= moved)) moved = by;
      }
    }
    INFO("step " << step + 1 << ": gradients of " << worst_gradient << ", values of "
                 << worst_parameter);
    CHECK(off <= kTolerance);
    CHECK(moved <= kLearningRate / 1000);
  }
}

/// Every rank's peak is its stage's bill, and nothing is left over.
void check_memory(const Priced& p, const HostRun& found) {
  CHECK_FALSE(found.failure);
  for (std::size_t rank = 0; rank < found.ranks.size(); ++rank) {
    const auto stage =
        static_cast<std::size_t>(place_of(p.layout, static_cast<std::int64_t>(rank)).stage);
    INFO("rank " << rank << ", stage " << stage);
    CHECK(Int128{found.ranks[rank].peak.bytes} == p.bill.stages[stage].live_bytes);
    CHECK(found.ranks[rank].left == 0);
  }
}

/// The chain rule over the program's ops, in double, each value and gradient in memory of its own:
/// what the executor's order of events must come to on one rank.
void check_chain_rule(const Case& c, const std::string& recompute = "") {
  const Priced p = price(plan_text(c, 1, fmt::format("mbs = {}  {}", c.batch, recompute)));
  HostOptions o = options();
  o.steps = 1;
  const HostRun found = run(p, o);
  o.learning_rate = 0;
  const HostRun start = run(p, o);
  const Problem& problem = *p.problem;
  const Job& job = *problem.job;
  ops::Variant variant;
  variant.attention = job.attention;
  variant.dropout = !job.dropout.is_zero();
  variant.attention_dropout = !job.attention_dropout.is_zero();
  const Program& program = *problem.program;
  testing::HostChain chain(program,
                           ops::Shapes(program, p.module->pool(), problem.inventory.facts.imbalance,
                                       problem.inventory.facts.vocab_multiple),
                           environment(problem, p.layout, 0), variant);
  chain.facts.dropout = job.dropout.to_double();
  chain.facts.attention_dropout = job.attention_dropout.to_double();
  chain.facts.loss_scale = 1.0 / (c.batch * c.seq);
  for (WeightId w = 0; w < program.weights.size(); ++w)
    if (program.weights[w].tied_to == kNone)
      chain.weight(w).assign(start.parameters[0][w].begin(), start.parameters[0][w].end());
  CHECK(chain.objective() == Approx(found.losses[0]).epsilon(kTolerance));
  const auto expected = chain.gradients({});
  double off = 0, largest = 0;
  std::string worst;
  for (const auto& gradient : expected)
    largest = std::max(largest, testing::HostChain::norm(gradient));
  const std::size_t inputs = expected.size() - program.weights.size();
  for (WeightId w = 0; w < program.weights.size(); ++w) {
    if (program.weights[w].tied_to != kNone) continue;
    const std::vector<double>& right = expected[inputs + w];
    std::vector<double> difference(found.gradients[0][w].begin(), found.gradients[0][w].end());
    REQUIRE(difference.size() == right.size());
    for (std::size_t i = 0; i < right.size(); ++i) difference[i] -= right[i];
    const double whole = testing::HostChain::norm(right);
    const double error =
        testing::HostChain::norm(difference) / std::max(whole, kRounding * largest);
    if (whole > kRounding * largest && !(error <= off)) {
      off = error;
      worst = fmt::format("weight {} '{}', {}", w, program.weights[w].name,
                          name(program.weights[w].role));
    }
  }
  INFO("by the chain rule; farthest off: " << worst);
  CHECK(off <= kTolerance);
}

/// Runs each layout of \a layouts (GPUs and fields) and holds it against one rank.
void check_layouts(const Case& c, const std::vector<std::pair<int, std::string>>& layouts) {
  check_chain_rule(c);
  const Priced one = price(plan_text(c, 1, ""));
  const HostRun expected = run(one);
  check_memory(one, expected);
  CHECK(expected.losses.front() > 0);
  for (WeightId w = 0; w < one.problem->program->weights.size(); ++w)
    if (one.problem->program->weights[w].tied_to == kNone)
      CHECK(norm(expected.gradients[0][w]) > 0);
  for (const auto& [gpus, layout] : layouts) {
    INFO(gpus << " GPUs, " << layout);
    const Priced p = price(plan_text(c, gpus, layout));
    const HostRun found = run(p);
    check_equal(p, expected, found);
    check_memory(p, found);
  }
}

const Case kLlama{
    "model tiny = llama { layers = 4  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32 }",
    ""};

}  // namespace

TEST_CASE("host run: one rank computes something that is right", "[host]") {
  const Priced p = price(plan_text(kLlama, 1, ""));
  const HostRun found = run(p);
  check_memory(p, found);
  // Weights are random: the loss begins near that of a guess.
  CHECK(found.losses.front() == Approx(std::log(32.0)).margin(1.0));
}

TEST_CASE("host run: tensor parallelism, with and without sequence parallelism", "[host]") {
  check_layouts(kLlama,
                {{2, "tp = 2"}, {2, "tp = 2  sp = true"}, {4, "tp = 4"}, {4, "tp = 4  sp = true"}});
}

TEST_CASE("host run: pipelines", "[host]") {
  check_layouts(
      kLlama,
      {{2, "pp = 2"}, {4, "pp = 4"}, {2, "pp = 2  vpp = 2"}, {2, "pp = 2  schedule = gpipe"}});
}

TEST_CASE("host run: ZeRO", "[host]") {
  check_layouts(kLlama, {{2, "zero = 0"},
                         {2, "zero = 1"},
                         {2, "zero = 2"},
                         {2, "zero = 3"},
                         {4, "zero = 3"},
                         {4, "zero = 2  mbs = 2"}});
}

TEST_CASE("host run: context parallelism", "[host]") {
  check_layouts(kLlama, {{2, "cp = 2"}, {4, "cp = 4  mbs = 2"}});
  // Heads exchanged instead of keys and values passed around.
  const Priced one = price(plan_text(kLlama, 1, ""));
  const HostRun expected = run(one);
  HostOptions o = options();
  o.ring = false;
  for (const auto& [gpus, layout] :
       {std::pair{2, "cp = 2"}, std::pair{4, "cp = 2  mbs = 2  zero = 3"}}) {
    INFO(layout);
    const Priced p = price(plan_text(kLlama, gpus, layout));
    const HostRun found = run(p, o);
    check_equal(p, expected, found);
    check_memory(p, found);
  }
}

TEST_CASE("host run: mamba2 beside attention", "[host]") {
  const Case hybrid{
      "model tiny {\n  x = embedding(32, 16)\n  repeat 2 {\n"
      "    x = x + mamba2(rmsnorm(x), heads = 4, head_dim = 4, state = 3, groups = 2)\n"
      "    x = x + gqa(rmsnorm(x), 4, 2, 4)\n  }\n"
      "  loss = cross_entropy(linear(rmsnorm(x), 32, split = column, name = head))\n}",
      ""};
  check_layouts(
      hybrid,
      {{2, "tp = 2"}, {2, "tp = 2  sp = true"}, {4, "pp = 2  zero = 1"}, {1, "recompute = full"}});
}

TEST_CASE("host run: mixtures of everything on 8 ranks", "[host]") {
  check_layouts(kLlama, {{8, "tp = 2  pp = 2  sp = true  zero = 1"},
                         {8, "tp = 2  cp = 2  zero = 3"},
                         {8, "pp = 2  vpp = 2  cp = 2  zero = 2"},
                         {8, "tp = 4  pp = 2  sp = true"},
                         {8, "tp = 2  pp = 4"},
                         {8, "zero = 3  mbs = 1  shard = 4"}});
}

TEST_CASE("host run: experts", "[host]") {
  const Case mixtral{
      "model tiny = decoder { layers = 2  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  "
      "vocab = 32  experts = 4  top_k = 2  expert_ffn = 12 }",
      ""};
  check_layouts(mixtral, {{2, "ep = 2"},
                          {4, "ep = 4  zero = 1"},
                          {2, "tp = 2  sp = true  etp = 2"},
                          {4, "tp = 2  sp = true  etp = 1  ep = 2"},
                          {4, "tp = 2  sp = true  etp = 2  ep = 2"},
                          {4, "ep = 2  zero = 3"},
                          {8, "tp = 2  pp = 2  ep = 2  etp = 1  sp = true  zero = 2"},
                          {2, "tp = 2  etp = 1"},
                          {4, "cp = 2  ep = 2"}});
  const Case deepseek{
      "model tiny = decoder { layers = 3  hidden = 16  heads = 2  ffn = 24  vocab = 32  "
      "experts = 4  top_k = 1  expert_ffn = 12  shared = 8  first_dense = 1  score = "
      "sigmoid  kv_lora = 8  q_lora = 12  nope = 6  rope_dim = 4  v_dim = 8 }",
      ""};
  check_layouts(deepseek,
                {{2, "ep = 2"}, {2, "tp = 2"}, {4, "tp = 2  sp = true  ep = 2  etp = 1"}});
}

TEST_CASE("host run: GPT with dropout, biases, tied head and positions", "[host]") {
  for (const char* attention : {"flash", "unfused"}) {
    const Case gpt{
        "model tiny = gpt { layers = 4  hidden = 16  heads = 4  vocab = 30  positions = 16 }",
        fmt::format("dropout = 0.1  attention_dropout = 0.1  attention = {}", attention)};
    check_layouts(gpt, {{2, "tp = 2"},
                        {2, "tp = 2  sp = true"},
                        {2, "pp = 2"},
                        {2, "cp = 2"},
                        {2, "pp = 2  vpp = 2  zero = 0"},
                        {4, "pp = 2  zero = 2"},
                        {4, "pp = 4"},
                        {8, "tp = 2  pp = 2  sp = true  zero = 3"}});
  }
}

TEST_CASE("host run: decoders of every family", "[host]") {
  const std::string base =
      "layers = 2  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32  ";
  for (const char* more :
       {"qk_norm = head  bias_qkv = true", "qk_norm = full", "norms = parallel",
        "norms = parallel2  norm = layernorm  kind = gelu  gated = false", "norms = post",
        "norms = sandwich  plus_one = true  softcap = 5  final_softcap = 8  tied = true  kind = "
        "gelu",
        "window = 4  period = 2", "chunk = 8  nope_global = true  period = 2", "sinks = true",
        "position = alibi  embed_norm = true  norm = layernorm  bias_o = true  bias_mlp = true",
        "kind = squared_relu  gated = false", "kind = relu  gated = false  head_bias = true"}) {
    INFO(more);
    const Case c{"model tiny = decoder { " + base + more + " }", ""};
    check_layouts(c, {{2, "tp = 2"}, {4, "tp = 4  sp = true"}, {2, "cp = 2"}, {2, "pp = 2"}});
  }
}

TEST_CASE("host run: what is recomputed is what was", "[host]") {
  for (const char* job : {"dropout = 0.1", "attention = unfused  attention_dropout = 0.2"}) {
    const Case gpt{"model tiny = gpt { layers = 4  hidden = 16  heads = 4  vocab = 32 }", job};
    check_chain_rule(gpt, "recompute = full");
    check_chain_rule(gpt, "recompute = selective");
    check_layouts(gpt, {{1, "recompute = full"},
                        {1, "recompute = selective"},
                        {4, "tp = 2  pp = 2  sp = true  recompute = full"},
                        {2, "tp = 2  recompute = selective"},
                        {2, "pp = 2  recompute = full  recompute_layers = [1, 2]"}});
  }
}

TEST_CASE("host run: the loss falls over 50 steps of a sharded layout", "[host]") {
  const Case c{kLlama.model, "", 4, 16};
  const Priced p = price(plan_text(c, 8, "tp = 2  pp = 2  sp = true  zero = 2"));
  HostOptions o;
  o.steps = 50;
  o.learning_rate = 1e-2;
  o.same_text = true;
  const HostRun found = run(p, o);
  REQUIRE(found.losses.size() == 50);
  CHECK(found.losses.front() > 3);
  CHECK(found.losses.back() < 1);
}

TEST_CASE("host run: want of memory in mid-step is told, and nothing is left over", "[host]") {
  const Case c{"model tiny = llama { layers = 2  hidden = 64  heads = 4  ffn = 128  vocab = 4096 }",
               "", 8, 32};
  for (const auto& [gpus, layout] :
       {std::pair{1, "mbs = 4"}, std::pair{4, "tp = 2  pp = 2  mbs = 4"}}) {
    INFO(layout);
    const Priced p = price(plan_text(c, gpus, layout));
    const HostRun whole = run(p, {});
    REQUIRE_FALSE(whole.failure);
    std::int64_t most = 0;
    for (const HostRankResult& r : whole.ranks) most = std::max(most, r.allocator.reserved.peak);
    HostOptions o;
    o.capacity = most - 1;
    const HostRun found = run(p, o);
    REQUIRE(found.failure);
    const HostFailure& f = *found.failure;
    CHECK(f.tensor != "");
    CHECK(f.bytes > 0);
    CHECK(f.at.step >= 1);
    std::int64_t sum = 0;
    for (const std::int64_t bytes : f.categories) sum += bytes;
    CHECK(sum == f.live);
    CHECK(f.reserved <= o.capacity);
    CHECK(f.reserved + f.bytes > o.capacity - 2 * kMiB);  // that tensor had no room
    for (const HostRankResult& r : found.ranks) CHECK(r.left == 0);
  }
}

TEST_CASE("host run: memory is spoilt before it is written and after it is freed", "[host]") {
  const Priced p = price(plan_text(kLlama, 1, ""));
  HostWorld world(*p.problem, p.layout, {});
  HostDevice device(world, 0);
  TensorInfo info;
  info.kind = TensorInfo::shared_value;
  info.bytes = 4096;
  const auto spoilt = [&](TensorId t) {
    const float* data = device.data(t);
    return std::all_of(data, data + 1024, [](float x) { return std::isnan(x); });
  };
  const TensorId first = device.allocate(info);
  CHECK(spoilt(first));
  float* data = device.data(first);
  std::fill_n(data, 1024, 1.0f);
  device.free(first);
  CHECK(std::isnan(data[0]));  // the allocator keeps the page
  const TensorId second = device.allocate(info);
  CHECK(device.data(second) == data);
  CHECK(spoilt(second));
  device.free(second);
}

TEST_CASE("host run: a saved value that is gone is missed", "[host]") {
  Priced p = price(plan_text(kLlama, 1, ""));
  int broken = 0;
  // A tensor that forward leaves for backward is freed at forward's end instead.
  for (SegmentTrace& trace : p.problem->inventory.traces[0]) {
    for (std::uint32_t t = 0; t < trace.tensors.size() && broken == 0; ++t) {
      if (trace.tensors[t].role != TensorRole::saved || trace.tensors[t].part != "lse") continue;
      trace.forward.push_back({TraceEvent::free, t, false});
      std::erase_if(trace.backward, [&](const TraceEvent& e) {
        return e.kind == TraceEvent::free && e.index == t;
      });
      ++broken;
    }
  }
  REQUIRE(broken == 1);
  std::string said;
  try {
    run_on_host(*p.problem, p.layout, {});
  } catch (const InternalError& e) {
    said = e.what();
  }
  CHECK(said.find("backward of attention") != std::string::npos);
}

TEST_CASE("host run: bf16 where the job stores it", "[host]") {
  const auto in_bf16 = [](int gpus, const std::string& layout) {
    std::string text = plan_text(kLlama, gpus, layout);
    text.replace(text.find("fp32"), 4, "bf16");
    return price(text);
  };
  const Priced exact = price(plan_text(kLlama, 1, ""));
  const HostRun expected = run(exact);
  for (const auto& [gpus, layout] :
       {std::pair{1, ""}, std::pair{2, "tp = 2  sp = true"}, std::pair{2, "zero = 1"},
        std::pair{2, "zero = 3"}, std::pair{4, "pp = 2  zero = 2"}, std::pair{2, "cp = 2"}}) {
    INFO(layout);
    const Priced p = in_bf16(gpus, layout);
    const HostRun found = run(p);
    check_memory(p, found);
    for (std::size_t step = 0; step < 2; ++step)
      CHECK(found.losses[step] == Approx(expected.losses[step]).epsilon(0.01));
    for (WeightId w = 0; w < exact.problem->program->weights.size(); ++w) {
      const auto& right = expected.gradients[0][w];
      CHECK(distance(found.gradients[0][w], right) <= 0.05 * norm(right));  // 8 bits of mantissa
      CHECK(distance(found.gradients[0][w], right) > 0);
    }
  }
}
