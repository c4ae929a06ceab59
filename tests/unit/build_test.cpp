// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/build.hpp"

#include "lang/diagnostics.hpp"
#include "lang/module.hpp"
#include "lang/parse.hpp"
#include "lang/print.hpp"
#include "tests/catch.hpp"

namespace plimsoll {
namespace {

using namespace build;

std::string formatted(const std::string& text) {
  Sources sources;
  Diagnostics diagnostics;
  const ast::File tree = parse(sources, sources.add("text.plan", text), diagnostics);
  INFO(diagnostics.render(sources, false));
  REQUIRE_FALSE(diagnostics.has_errors());
  return print(tree, sources);
}

TEST_CASE("a built file reads as the file that one would type", "[build]") {
  File file;
  file.add(cluster("pod")
               .set("gpu", word("h100_sxm"))
               .narrow("nodes", range(1, 64))
               .set("gpus_per_node", 8));
  file.add(
      train("pretrain")
          .set("model", word("llama3_70b"))
          .set("cluster", word("pod"))
          .set("seq", 8_Ki)
          .set("batch", 512)
          .set("te_version", string("2.11"))
          .set("adapt", call("lora", {named("rank", 16), named("on", build::set({word("q")}))}))
          .narrow("tp", build::set({1, 2, 4, 8}))
          .require("inside a node", word("tp") <= word("gpus_per_node"))
          .require(word("headroom") >= 5_percent)
          .require(implies(word("zero") == 3, !(word("pp") > 1 && word("sp"))))
          .prefer(word("recompute") == word("none"))
          .minimize(word("gpus")));
  file.add(layout("hand").set("tp", 8).set("sp", true).set("stage_layers", list({40, 40})));
  const std::string typed = R"(
    cluster pod {
      gpu = h100_sxm
      nodes in 1..64
      gpus_per_node = 8
    }

    train pretrain {
      model = llama3_70b
      cluster = pod
      seq = 8Ki
      batch = 512
      te_version = "2.11"
      adapt = lora(rank = 16, on = {q})
      tp in {1, 2, 4, 8}
      require "inside a node": tp <= gpus_per_node
      require headroom >= 5%
      require zero == 3 => not (pp > 1 and sp)
      prefer recompute == none
      minimize gpus
    }

    layout hand {
      tp = 8
      sp = true
      stage_layers = [40, 40]
    }
  )"_plan;
  REQUIRE(file.text() == formatted(typed));
  Diagnostics diagnostics;
  const Module module = compile("built.plan", file.text(), diagnostics);
  INFO(diagnostics.render(module.sources(), false));
  REQUIRE_FALSE(diagnostics.has_errors());
  std::vector<std::string> own;
  for (const Condition& condition : module.jobs().at(0).require)
    if (!condition.from_framework) own.push_back(condition.name);
  REQUIRE(own == std::vector<std::string>{"inside a node", "headroom >= 5%",
                                          "zero == 3 => not (pp > 1 and sp)"});
}

TEST_CASE("operators keep the order in which they were applied", "[build]") {
  const Formula a = word("a"), b = word("b"), c = word("c");
  REQUIRE(((a + b) * c).text() == "(a + b) * c");
  REQUIRE((a + b * c).text() == "a + b * c");
  REQUIRE((a - b - c).text() == "a - b - c");
  REQUIRE((a - (b - c)).text() == "a - (b - c)");
  REQUIRE((-(a + b)).text() == "-(a + b)");
  REQUIRE((a - -1).text() == "a - -1");
  REQUIRE(((a == b) == c).text() == "(a == b) == c");
  REQUIRE(((a || b) && c).text() == "(a or b) and c");
  REQUIRE((!(a == b)).text() == "not a == b");
  REQUIRE(implies(implies(a, b), c).text() == "(a => b) => c");
  REQUIRE(in(a + 1, range(1, b)).text() == "a + 1 in 1..b");
}

TEST_CASE("bodies stand inside one another", "[build]") {
  Declaration tiny = model("tiny");
  tiny.body()
      .param("layers", 2)
      .set("x", call("embedding", {1000, 64}))
      .repeat(word("layers"), Body().set("x", word("x") + call("linear", {word("x"), 64})))
      .set("loss", call("cross_entropy", {call("linear", {word("x"), 1000})}))
      .item("spare", Body()
                         .set("bytes", 1_GiB)
                         .set("category", word("buffers"))
                         .set("lifetime", word("always")));
  const std::string text = File().add(tiny).text();
  Diagnostics diagnostics;
  const Module module = compile("built.plan", text, diagnostics);
  INFO(text << diagnostics.render(module.sources(), false));
  REQUIRE_FALSE(diagnostics.has_errors());
  const Program* program = module.program("tiny", diagnostics);
  REQUIRE(program != nullptr);
  REQUIRE(module.model_items("tiny").size() == 1);
}

TEST_CASE("what is no name or string of the language is our caller's bug", "[build]") {
  REQUIRE_THROWS_AS(word("a b"), InternalError);
  REQUIRE_THROWS_AS(word(""), InternalError);
  REQUIRE_THROWS_AS(word("8gpus"), InternalError);
  REQUIRE(word("1f1b").text() == "1f1b");
  REQUIRE_THROWS_AS(build::string("a\"b"), InternalError);
  REQUIRE_THROWS_AS(File().add(train("if")).text(), InternalError);
}

TEST_CASE("a literal loses the indent that its lines share", "[build]") {
  REQUIRE(R"(
      cluster a {
        nodes = 1

      }
  )"_plan == "cluster a {\n  nodes = 1\n\n}\n");
  REQUIRE(""_plan.empty());
}

}  // namespace
}  // namespace plimsoll
