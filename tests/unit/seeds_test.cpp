// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

/// Every figure of the three source articles (tests/data/seeds.json), computed
/// by the program.
namespace {

std::string train(const std::string& model, const std::string& fields, int nodes = 1,
                  const std::string& layout = "") {
  return fmt::format(
      "cluster c {{ gpu = h100_sxm  nodes = {}  gpus_per_node = {} }}\n"
      "train t {{ model = {}  cluster = c  framework = textbook  {} }}\nlayout "
      "l {{ mbs = 1  {} }}\n",
      nodes, nodes == 1 ? 1 : 8, model, fields, layout);
}

/// A layer of the textbook's GPT under `framework = plain`: h = 4096, 32 heads,
/// 2048 tokens.
const Priced& block() {
  static const Priced p = price(
      "model small = gpt { layers = 2  hidden = 4096  heads = 32  vocab "
      "= 50257  activation = relu }\n"
      "cluster c { gpu = h100_sxm  nodes = 1  gpus_per_node = 1 }\n"
      "train t { model = small  cluster = c  framework = plain  "
      "precision = fp16  attention = unfused\n"
      "  dropout = 0.1  attention_dropout = 0.1  seq = 2Ki  batch = 1 }\n"
      "layout l { mbs = 1 }\n");
  return p;
}

/// What the ops of these names save; names are the trace's, "op value", in the
/// order of the block: norm, q, k, v, attention, o, dropout, norm, gate, relu,
/// down, dropout.
std::int64_t saved_by(const std::vector<std::string>& ops) {
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : saved(block()))
    for (const std::string& op : ops)
      if (name.substr(0, name.rfind(' ')) == op) sum += bytes;
  return sum;
}

double states_of(const std::string& model, const std::string& layout = "", int nodes = 1) {
  return static_cast<double>(
      states(price(train(model, "seq = 8Ki  batch = " + std::to_string(nodes * 8), nodes, layout))
                 .bill.stages.front()));
}
double activations(const std::string& model, const std::string& attention) {
  return static_cast<double>(category(
      price(train(model, "seq = 8Ki  batch = 1  attention = " + attention)).bill.stages.front(),
      Category::activations));
}
double peak(const std::string& model, const std::string& attention) {
  return static_cast<double>(
      price(train(model, "seq = 8Ki  batch = 1  attention = " + attention)).bill.peak_bytes);
}

/// Bytes of a category of a server with one sequence, on a GPU that is large
/// enough.
double served(const std::string& model, const std::string& fields, Category what) {
  const Priced p =
      price(fmt::format("gpu large = h200 {{ memory = 4 TB }}\n"
                        "cluster c {{ gpu = large  nodes = 1  gpus_per_node = 1 }}\n"
                        "model mha = llama3_70b {{ kv_heads = 64 }}\n"
                        "serve s {{ model = {}  cluster = c  sequences = 1  {} "
                        "}}\nlayout l {{ tp = 1 }}\n",
                        model, fields));
  return static_cast<double>(category(p.bill.stages.front(), what));
}
double kv(const std::string& model, const std::string& fields) {
  return served(model, fields, Category::kv_cache);
}

const std::map<std::string, std::function<double()>>& answers() {
  const auto params = [](const std::string& model) {
    const Priced p = price(train(model, "seq = 128  batch = 1"));
    return static_cast<double>(p.problem->program->parameter_count());
  };
  static const std::string gpt2 =
      "g = gpt { layers = 12  hidden = 768  heads = 12  vocab = 50257 }";
  static const std::map<std::string, std::function<double()>> all = {
      {"textbook-params",
       [] {
         const Priced p = price("model " + gpt2 + train("g", "seq = 128  batch = 1"));
         return static_cast<double>(p.problem->program->parameter_count());
       }},
      {"textbook-states-fp32",
       [] {
         const Priced p =
             price("model " + gpt2 + train("g", "seq = 128  batch = 1  precision = fp32"));
         return static_cast<double>(states(p.bill.stages.front())) /
                static_cast<double>(p.problem->program->parameter_count());
       }},
      {"textbook-ffn-activations",
       [] {
         return static_cast<double>(saved_by({"gate", "relu", "down", "dropout 2"}));
       }},
      {"textbook-attention-activations",
       [] {
         return static_cast<double>(saved_by({"q", "k", "v", "attention", "o", "dropout"}));
       }},
      {"textbook-norm-activations",
       [] {
         return static_cast<double>(saved_by({"layernorm", "layernorm 2"}));
       }},
      {"textbook-layer-activations", [] { return static_cast<double>(total(saved(block()))); }},
      {"llama3-8b-params", [=] { return params("llama3_8b"); }},
      {"llama3-8b-states", [] { return states_of("llama3_8b"); }},
      {"llama3-8b-act-flash", [] { return activations("llama3_8b", "flash"); }},
      {"llama3-8b-total-flash", [] { return peak("llama3_8b", "flash"); }},
      {"llama3-8b-total-noflash", [] { return peak("llama3_8b", "unfused"); }},
      {"llama3-8b-h100s", [] { return peak("llama3_8b", "flash") / 80e9; }},
      {"llama3-405b-states", [] { return states_of("llama3_405b"); }},
      {"llama3-405b-h100s", [] { return peak("llama3_405b", "flash") / 80e9; }},
      {"llama3-70b-states", [] { return states_of("llama3_70b"); }},
      {"llama3-70b-zero0-64", [] { return states_of("llama3_70b", "zero = 0", 8); }},
      {"llama3-70b-zero1-64", [] { return states_of("llama3_70b", "zero = 1", 8); }},
      {"llama3-70b-zero2-64", [] { return states_of("llama3_70b", "zero = 2", 8); }},
      {"llama3-70b-zero3-64", [] { return states_of("llama3_70b", "zero = 3", 8); }},
      {"llama3-70b-zero3-left-64", [] { return 80e9 - states_of("llama3_70b", "zero = 3", 8); }},
      {"llama3-70b-zero3-comm",
       [] {  // the weights are gathered twice, the gradients reduced once
         const Priced p = price(train("llama3_70b", "seq = 8Ki  batch = 64", 8, "zero = 0"));
         const StageBill& stage = p.bill.stages.front();
         return 2.0 * static_cast<double>(category(stage, Category::weights)) +
                static_cast<double>(category(stage, Category::gradients));
       }},
      {"textbook-70b-linear", [] { return activations("llama3_70b", "flash") / 80; }},
      {"textbook-70b-quadratic",
       [] {
         return (activations("llama3_70b", "unfused") - activations("llama3_70b", "flash")) / 80;
       }},
      {"textbook-70b-80-layers", [] { return activations("llama3_70b", "unfused"); }},
      {"textbook-70b-80-layers-flash", [] { return activations("llama3_70b", "flash"); }},
      {"full-recompute-layer",
       [] {
         const Priced p = price(train("llama3_70b", "seq = 8Ki  batch = 1", 1, "recompute = full"));
         return static_cast<double>(total(saved(p, p.layout.recompute)));
       }},
      {"kv-70b-bf16", [] { return kv("llama3_70b", "context = 8Ki") / 8192; }},
      {"kv-70b-8k", [] { return kv("llama3_70b", "context = 8Ki"); }},
      {"kv-70b-128k", [] { return kv("llama3_70b", "context = 128Ki"); }},
      {"kv-70b-mha", [] { return kv("mha", "context = 8Ki") / 8192; }},
      {"kv-deepseek-v3", [] { return kv("deepseek_v3", "context = 8Ki") / 8192; }},
      {"kv-70b-fp8", [] { return kv("llama3_70b", "context = 8Ki  kv = fp8") / 8192; }},
      {"weights-int4-70b",
       [] { return served("llama3_70b", "context = 8Ki  weights = int4", Category::weights); }},
  };
  return all;
}

}  // namespace

TEST_CASE("figures of the source articles", "[seeds]") {
  const auto seeds = nlohmann::json::parse(read(data("seeds.json")));
  REQUIRE(seeds.at("cases").size() == 33);
  for (const auto& seed : seeds.at("cases")) {
    const std::string id = seed.at("id");
    INFO(id << ": " << seed.at("ask").get<std::string>());
    const auto answer = answers().find(id);
    REQUIRE(answer != answers().end());
    const double expected = seed.at("value"), tolerance = seed.at("rel_tol");
    const double got = answer->second();
    INFO("expected " << expected << ", got " << fmt::format("{}", got));
    CHECK(std::abs(got - expected) <= tolerance * expected);
  }
}
