// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "lang/assist.hpp"
#include "lang/elaborate.hpp"
#include "lang/program.hpp"
#include "tests/catch.hpp"

/// The grammar of docs/editors colours exactly the language's words.
namespace plimsoll {
namespace {

nlohmann::json grammar() {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) +
                     "/docs/editors/vscode/syntaxes/plan.tmLanguage.json");
  REQUIRE(file);
  return nlohmann::json::parse(file);
}

/// The words of the first "(?:a|b|c)" in a pattern.
std::set<std::string> alternatives(const std::string& pattern) {
  const std::size_t open = pattern.find("(?:"), close = pattern.find(')', open);
  REQUIRE(open != std::string::npos);
  REQUIRE(close != std::string::npos);
  std::set<std::string> words;
  std::string word;
  for (std::size_t i = open + 3; i <= close; ++i) {
    if (pattern[i] == '|' || pattern[i] == ')') {
      words.insert(word);
      word.clear();
    } else {
      word += pattern[i];
    }
  }
  return words;
}

std::set<std::string> as_set(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

TEST_CASE("the editors' grammar knows the language's words and no others", "[editors]") {
  const nlohmann::json rules = grammar()["repository"];
  const assist::Vocabulary words = assist::vocabulary();
  const auto of = [&](const char* rule) { return alternatives(rules[rule]["match"]); };
  CHECK(of("keywords") == as_set(words.keywords));
  CHECK(of("kinds") == as_set(words.kinds));
  CHECK(of("variables") == as_set(words.variables));
  CHECK(of("calls") == as_set(words.calls));
  CHECK(of("constants") == as_set(words.constants));
  std::set<std::string> units;
  for (const std::string& unit : words.units)
    if (unit.find('/') == std::string::npos && unit != "%") units.insert(unit);
  CHECK(of("units") == units);
}

TEST_CASE("what editors offer as a call is one, and every op is offered", "[editors]") {
  const std::set<std::string> calls = as_set(assist::vocabulary().calls);
  for (const std::string& call : calls) {
    CAPTURE(call);
    CHECK(is_builtin_call(call));
    CHECK(!assist::word_doc(call).empty());
  }
  for (const OpKind kind : {
#define X(name) OpKind::name,
           PLIMSOLL_OP_KINDS(X)
#undef X
       }) {
    const std::string op(name(kind));
    if (is_builtin_call(op)) CHECK(calls.contains(op));
  }
  for (const std::string& variable : assist::vocabulary().variables) {
    CAPTURE(variable);
    CHECK(!assist::word_doc(variable).empty());
  }
}

}  // namespace
}  // namespace plimsoll
