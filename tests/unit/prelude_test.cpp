// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

/// The prelude with a file of the user's that declares next to nothing.
Module prelude(Diagnostics& diags) {
  return compile("test.plan", "dtype unused { bits = 8 }", diags);
}

std::int64_t parameters(const Module& module, const std::string& name) {
  Diagnostics diags;
  const Program* program = module.program(name, diags);
  INFO(name << "\n" << diags.render(module.sources(), false));
  REQUIRE(program);
  REQUIRE(diags.error_count() == 0);
  return static_cast<std::int64_t>(program->parameter_count());
}

}  // namespace

TEST_CASE("every published model has its published number of parameters", "[prelude]") {
  Diagnostics diags;
  const Module module = prelude(diags);
  INFO(diags.render(module.sources(), false));
  REQUIRE(diags.error_count() == 0);
  const auto rows = read_csv(data("models.csv"));
  CHECK(rows.size() == 82);
  for (const auto& row : rows) {
    INFO(row.at("name"));
    CHECK(parameters(module, row.at("prelude")) == std::stoll(row.at("params")));
  }
}

TEST_CASE("short names stand for the same models", "[prelude]") {
  Diagnostics diags;
  const Module module = prelude(diags);
  const std::pair<const char*, const char*> names[] = {{"llama3_8b", "llama_3_1_8b"},
                                                       {"llama3_70b", "llama_3_1_70b"},
                                                       {"llama3_405b", "llama_3_1_405b"},
                                                       {"llama2_7b", "llama_2_7b"},
                                                       {"mistral_7b", "mistral_7b_v0_1"},
                                                       {"gpt2", "gpt_2"},
                                                       {"gemma3_27b", "gemma_3_27b"},
                                                       {"phi4", "phi_4_14b"},
                                                       {"llama4_scout", "llama_4_scout_17b_16e"}};
  for (const auto& [alias, name] : names)
    CHECK(parameters(module, alias) == parameters(module, name));
}

TEST_CASE("models of the prelude beyond the list", "[prelude]") {
  Diagnostics diags;
  const Module module = prelude(diags);
  CHECK(parameters(module, "t5_small") == 60'506'624);  // as published with the weights
  CHECK(parameters(module, "t5_base") == 222'903'552);
  // DeepSeek-V3 with the layer that predicts a second token: 671,026,419,200 +
  // its layer, two norms of its inputs, their projection and its last norm,
  // embedding and head shared.
  CHECK(parameters(module, "deepseek_v3_mtp") - parameters(module, "deepseek_v3") ==
        11'507'286'272 + 3 * 7168 + 2 * 7168 * 7168);
}

TEST_CASE("the llama template makes the published Llama 3 70B", "[prelude]") {
  Diagnostics diags;
  const Module module = compile("test.plan",
                                "model mine = llama { layers = 80  hidden = "
                                "8192  heads = 64  kv_heads = 8  ffn = 28672  "
                                "vocab = 128256 }",
                                diags);
  INFO(diags.render(module.sources(), false));
  REQUIRE(diags.error_count() == 0);
  CHECK(parameters(module, "mine") == parameters(module, "llama3_70b"));
}

TEST_CASE("the GPT of articles: 12 h^2 + 13 h a layer", "[prelude]") {
  for (const std::int64_t h : {64, 768}) {
    Diagnostics diags;
    const Module module = compile("test.plan",
                                  fmt::format("model g = gpt {{ layers = 3  hidden = {}  heads = "
                                              "4  vocab = 1000 }}\n"
                                              "model p = g {{ positions = 128 }}\n"
                                              "model u = g {{ tied = false }}",
                                              h),
                                  diags);
    REQUIRE(diags.error_count() == 0);
    CHECK(parameters(module, "g") == 1000 * h + 3 * (12 * h * h + 13 * h) + 2 * h);
    CHECK(parameters(module, "p") == parameters(module, "g") + 128 * h);
    CHECK(parameters(module, "u") == parameters(module, "g") + 1000 * h);
  }
}

TEST_CASE("every GPU of the list, with its published figures", "[prelude]") {
  Diagnostics diags;
  const Module module = prelude(diags);
  const auto rows = read_csv(data("gpus.csv"));
  CHECK(rows.size() == 20);
  for (const auto& row : rows) {
    INFO(row.at("name"));
    const Gpu* gpu = module.gpu(row.at("prelude"));
    REQUIRE(gpu);
    // Nobody published the GB300's; the prelude takes the B300's and says so.
    const std::string& memory = row.at("memory");
    CHECK(static_cast<std::int64_t>(gpu->memory) ==
          (memory.empty() ? 287'430'000'000 : std::stoll(memory)));
    CHECK(gpu->bandwidth ==
          Rational(std::stoll(row.at("bandwidth_GBs"))) * Rational(1'000'000'000));
    const auto peak = [&](const char* dtype) {
      const auto at = gpu->peak.find(dtype);
      return at == gpu->peak.end() ? Rational(0) : at->second;
    };
    const Rational tera = Rational(1'000'000'000'000);
    CHECK(peak("bf16") == Rational(std::stoll(row.at("bf16_TFLOPs"))) * tera);
    const std::string& fp8 = row.at("fp8_TFLOPs");
    CHECK(peak("fp8") == Rational(fp8.empty() ? 0 : std::stoll(fp8)) * tera);
    CHECK(gpu->nvlink == Rational(std::stoll(row.at("nvlink_GBs"))) * Rational(1'000'000'000));
    CHECK(gpu->nic == Rational(std::stoll(row.at("nic_Gbps"))) * Rational(125'000'000));
    CHECK(gpu->reserved > 0);
  }
}
