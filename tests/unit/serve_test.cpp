// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/serve.hpp"

#include <memory>

#include "lang/module.hpp"
#include "tests/catch.hpp"

using namespace plimsoll;

namespace {

/// A compiled serve job with its module, priced at one layout.
struct Served {
  Diagnostics diags;
  std::unique_ptr<Module> module;
  std::optional<Problem> problem;

  explicit Served(const std::string& text) {
    module = std::make_unique<Module>(compile("serve.plan", text, diags));
    INFO(diags.render(module->sources(), false));
    REQUIRE_FALSE(diags.has_errors());
    problem = make_problem(*module, module->jobs().front(), diags);
    INFO(diags.render(module->sources(), false));
    REQUIRE(problem);
  }
  Layout layout() {
    const LayoutDecl* decl = module->layouts().empty() ? nullptr : &module->layouts().front();
    const auto l = layout_from(*problem, decl, diags);
    INFO(diags.render(module->sources(), false));
    REQUIRE(l);
    return *l;
  }
  Bill bill() { return serve_bill(*problem, layout()); }
};

const std::string kOne = "cluster c { gpu = h200  nodes = 1  gpus_per_node = 1 }\n";

std::string job(const std::string& fields) {
  return "serve s { cluster = c  " + fields + " maximize sequences }\n";
}

Int128 of(const Bill& b, Category category) {
  return b.stages.front().categories[static_cast<std::size_t>(category)];
}

Int128 line(const Bill& b, const std::string& name) {
  for (const BillLine& l : b.stages.front().lines)
    if (l.name == name) return l.bytes;
  return 0;
}

void check_sums(const Bill& b) {
  for (const StageBill& s : b.stages) {
    Int128 lines = 0, categories = 0;
    for (const BillLine& l : s.lines) lines += l.bytes;
    for (const Int128 bytes : s.categories) categories += bytes;
    CHECK(lines == s.peak_bytes);
    CHECK(categories == s.peak_bytes);
  }
  CHECK(b.fits == (b.peak_bytes <= b.hbm_bytes));
}

}  // namespace

TEST_CASE("how many 32Ki sequences of Llama 3 70B one H200 serves", "[serve]") {
  Served s(kOne + job("model = llama3_70b  context = 32Ki  weights = fp8  kv = fp8"));
  const Bill b = s.bill();
  check_sums(b);
  CHECK(b.fits);
  CHECK(of(b, Category::weights) == 70553706496);
  const Int128 one = Int128{32768} * 163840;
  CHECK(of(b, Category::kv_cache) == one * b.sequences);
  const Int128 share = s.problem->cluster->pools[0].gpu.memory * 9 / 10;
  const Int128 room =
      share - of(b, Category::weights) - of(b, Category::activations) - line(b, "outside torch");
  CHECK(b.kv_blocks == static_cast<std::int64_t>(room / (16 * 163840)));
  CHECK(b.kv_tokens == b.kv_blocks * 16);
  CHECK(b.sequences == b.kv_blocks / 2048);
  CHECK(b.sequences > 0);
  CHECK(max_sequences(*s.problem, s.layout()) == b.sequences);

  // One more does not fit, and says so the same way.
  Layout more = s.layout();
  more.sequences = b.sequences + 1;
  const Bill over = serve_bill(*s.problem, more);
  check_sums(over);
  CHECK_FALSE(over.fits);
  more.sequences = 1;
  const Bill fewer = serve_bill(*s.problem, more);
  CHECK(of(fewer, Category::kv_cache) == one);
  CHECK(fewer.peak_bytes == b.peak_bytes);
}

TEST_CASE("seeds of serving, through the compiler", "[serve]") {
  const auto token = [](const std::string& fields) {
    Served s(kOne + job(fields + " kv_block = 1 context = 1024 utilization = 100%"));
    Layout l = s.layout();
    l.sequences = 1;
    return of(serve_bill(*s.problem, l), Category::kv_cache) / 1024;
  };
  CHECK(token("model = llama3_70b") == 327680);
  CHECK(token("model = llama3_70b  kv = fp8") == 163840);
  CHECK(token("model = deepseek_v3") == 70272);
  Served s(kOne + job("model = llama3_70b  weights = int4  context = 8Ki"));
  CHECK(of(s.bill(), Category::weights) == 70553706496 / 2);
}

TEST_CASE("published start-up lines of vLLM", "[serve]") {
  // cases/serving.csv: GiB of weights and of activations; H100 of 79.18 GiB, 1024 sequences.
  struct Row {
    const char* model;
    int tp;
    double weights, activations;
  };
  const Row rows[] = {{"llama_3_1_8b", 1, 14.99, 4.76},
                      {"qwen3_32b", 1, 61.03, 5.64},
                      {"qwen3_32b", 2, 30.59, 5.64}};
  for (const Row& row : rows) {
    INFO(row.model << " tp " << row.tp);
    Served s("cluster c { gpu = h100_sxm  nodes = 1  gpus_per_node = " + std::to_string(row.tp) +
             " }\n" +
             job(std::string("context = 16000  batch_tokens = 2Ki  model = ") + row.model +
                 "  tp = " + std::to_string(row.tp)));
    const Bill b = s.bill();
    check_sums(b);
    const double gib = 1024.0 * 1024 * 1024;
    CHECK(static_cast<double>(of(b, Category::weights)) / gib == Approx(row.weights).epsilon(0.01));
    CHECK(static_cast<double>(of(b, Category::activations)) / gib ==
          Approx(row.activations).epsilon(0.02));
  }
}

TEST_CASE("a prefill of many tokens outgrows the sampler", "[serve]") {
  // vllm#10517: Llama-3.1-8B on one GPU, 109.8 kB a token between 20k and 29k tokens.
  const auto activations = [](const char* tokens) {
    Served s(kOne + job(std::string("model = llama_3_1_8b  context = 8Ki  max_sequences = 16 "
                                    "batch_tokens = ") +
                        tokens));
    return static_cast<double>(of(s.bill(), Category::activations));
  };
  const double slope = (activations("29000") - activations("20000")) / 9000;
  CHECK(slope == Approx(109'800).epsilon(0.01));
}

TEST_CASE("stages, replicas, experts and windows of a server", "[serve]") {
  const std::string node = "cluster c { gpu = h200  nodes = 1  gpus_per_node = 8 }\n";
  Served v3(node + job("model = deepseek_v3  context = 32Ki  weights = fp8  tp = 8"));
  const Bill b = v3.bill();
  check_sums(b);
  CHECK(b.fits);
  // All but what no rank divides: 671.03e9 parameters over eight.
  CHECK(of(b, Category::weights) > 671'000'000'000 / 8);
  CHECK(of(b, Category::weights) < Int128{671'000'000'000} / 8 * 105 / 100);
  CHECK(of(b, Category::kv_cache) == Int128{b.sequences} * 32768 * 70272);

  Served two(node + job("model = llama3_8b  context = 8Ki") + "layout l { tp = 2  pp = 2 }\n");
  const Bill pipe = two.bill();
  check_sums(pipe);
  CHECK(pipe.stages.size() == 2);
  CHECK(pipe.sequences % 2 == 0);     // two replicas
  CHECK(line(pipe, "sampler") == 0);  // the last stage's
  CHECK(line(pipe, "a layer's forward") > 0);
  Served alone("cluster c { gpu = h200  nodes = 1  gpus_per_node = 4 }\n" +
               job("model = llama3_8b  context = 8Ki") + "layout l { tp = 2  pp = 2 }\n");
  CHECK(alone.bill().sequences * 2 == pipe.sequences);
  CHECK(alone.bill().kv_blocks == pipe.kv_blocks);

  Served gemma(kOne + job("model = gemma_3_27b  context = 32Ki  kv = fp8"));
  const Bill windowed = gemma.bill();
  check_sums(windowed);
  CHECK_FALSE(windowed.kv_tokens);
  CHECK(windowed.sequences > 0);
}

TEST_CASE("SGLang keeps a step's activations beside its share", "[serve]") {
  Served s(kOne + job("model = llama3_8b  context = 8Ki  framework = sglang"));
  const Bill b = s.bill();
  check_sums(b);
  const Int128 share = s.problem->cluster->pools[0].gpu.memory * 88 / 100;
  const Int128 inside =
      b.peak_bytes - of(b, Category::activations) - line(b, "CUDA context and libraries");
  CHECK(inside <= share);
  CHECK(inside + 16 * 131072 > share);  // another block would not go in
  CHECK(of(b, Category::activations) > 0);
}

TEST_CASE("a framework that does not serve is named", "[serve]") {
  Diagnostics diags;
  const Module module = compile(
      "serve.plan", kOne + job("model = llama3_8b  context = 8Ki  framework = megatron"), diags);
  if (!diags.has_errors()) make_problem(module, module.jobs().front(), diags);
  REQUIRE(diags.has_errors());
  CHECK(diags.render(module.sources(), false).find("megatron") != std::string::npos);
}
