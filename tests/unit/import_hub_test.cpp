// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// config.json of every published model: exact counts, and the very weights of the prelude's model.

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "planner/import.hpp"
#include "planner/import_toml.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::imports;

namespace {

Imported imported(const std::string& kind, const std::string& text) {
  Request request;
  request.name = "config.json";
  request.text = text;
  return import_plan(kind, request);
}

/// Name, rows, columns and copies of each weight, in no order.
std::vector<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>> weights(
    const Program& p) {
  std::vector<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>> out;
  for (const Weight& w : p.weights) out.emplace_back(w.name, w.rows, w.cols, w.copies);
  std::sort(out.begin(), out.end());
  return out;
}

bool says(const Imported& i, std::string_view words) {
  return std::any_of(i.mistakes.begin(), i.mistakes.end(),
                     [&](const Mistake& m) { return m.what.find(words) != std::string::npos; });
}

}  // namespace

TEST_CASE("every published config.json imports to its exact parameters", "[import]") {
  std::ifstream rows(test::data("hub_configs.jsonl"));
  REQUIRE(rows);
  std::string row;
  int count = 0;
  while (std::getline(rows, row)) {
    const auto json = nlohmann::json::parse(row);
    INFO(json["name"].get<std::string>());
    const Imported made = imported("", json["config"].dump());
    for (const Mistake& m : made.mistakes) UNSCOPED_INFO(m.what);
    REQUIRE(made.mistakes.empty());
    Diagnostics diags;
    const Module module = compile("imported.plan", made.plan, diags);
    INFO(made.plan << diags.render(module.sources(), false));
    REQUIRE(!diags.has_errors());
    const Program* program = module.program("imported", diags);
    REQUIRE(program != nullptr);
    CHECK(program->parameter_count() == json["params"].get<std::int64_t>());
    const Program* prelude = module.program(json["prelude"].get<std::string>(), diags);
    REQUIRE(prelude != nullptr);
    CHECK(weights(*program) == weights(*prelude));
    ++count;
  }
  CHECK(count == 82);
}

TEST_CASE("an architecture that is not known says what was understood and what not", "[import]") {
  const Imported made = imported(
      "huggingface",
      R"({"model_type": "llamma", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
          "vocab_size": 100, "mixer_width": 7})");
  CHECK(made.plan.empty());
  REQUIRE(made.mistakes.size() == 1);
  CHECK(
      made.mistakes[0].what ==
      "the architecture 'llamma' is not known\n"
      "  understood: num_hidden_layers = 2, hidden_size = 64, num_attention_heads = 4, vocab_size "
      "= 100\n"
      "  not understood: mixer_width");
  CHECK(made.mistakes[0].help.starts_with("did you mean 'llama'?"));
  CHECK(says(imported("huggingface", R"({"hidden_size": 64})"), "no model_type"));
  CHECK(says(imported("huggingface", R"({"model_type": "llama"})"),
             "there is no 'num_hidden_layers'"));
  CHECK(says(imported("huggingface", R"({"model_type": "llama", "num_hidden_layers": "two"})"),
             "whole number"));
  CHECK(says(imported("huggingface", "[1, 2"), "no JSON object"));
}

TEST_CASE("the part of TOML that is read", "[import]") {
  const Toml t = read_toml(
      "# comment\ntop = 1_000\n[a]\nword = \"x # y\" # more\nlit = 'c:\\d'\nyes = true\n"
      "[a.\"b\"]\nlist = [1, 2, # two\n  3,\n]\nnested = [[\"p\", \"q\"], []]\nc.d = 1.5e3\n");
  CHECK(t.mistake == "");
  CHECK(t.values.at("top").text == "1000");
  CHECK(t.values.at("a.word").text == "x # y");
  CHECK(t.values.at("a.lit").text == "c:\\d");
  CHECK(t.values.at("a.yes").kind == TomlValue::flag);
  CHECK(t.values.at("a.b.list").items.size() == 3);
  CHECK(t.values.at("a.b.nested").items[0].items[1].text == "q");
  CHECK(t.values.at("a.b.c.d").text == "1.5e3");
  CHECK(read_toml("a = 1\na = 2\n").mistake == "line 2: 'a' a second time");
  CHECK(read_toml("a = \"x\n").mistake == "line 1: a string does not end on its line");
  CHECK(read_toml("a = {b = 1}\n").mistake == "line 1: inline tables are not read");
  CHECK(read_toml("\n[[a]]\n").mistake == "line 2: arrays of tables are not read");
  CHECK(read_toml("a = [1 2]\n").mistake == "line 1: ',' or ']' was expected in a list");
  CHECK(read_toml("a = [").mistake != "");
  CHECK(read_toml("= 1").mistake == "line 1: a name was expected");
  CHECK(read_toml(std::string(50, '[')).mistake != "");
}

TEST_CASE("torchtitan's TOML and DeepSpeed's JSON: mistakes name what they are about", "[import]") {
  CHECK(says(imported("torchtitan",
                      "[model]\nname = \"llama3\"\nflavor = \"9B\"\n[training]\nseq_len = 1"),
             "flavor = '9B'"));
  CHECK(says(imported("torchtitan",
                      "[training]\nseq_len = 8192\nenable_cpu_offload = true\n[model]\n"
                      "flavor = \"8B\"\n"),
             "enable_cpu_offload"));
  CHECK(says(imported("deepspeed", R"({"zero_optimization": {"stage": 2}})"), "what is trained"));
  CHECK(says(imported("deepspeed", R"({"zero_optimization": {"stage": 9}, "_plimsoll": {"model":
             "llama3_8b"}, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1})"),
             "ZeRO stage 9"));
}
