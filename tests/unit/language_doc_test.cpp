// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// docs/language.md has a checked example of everything that can be written: the ```plan files in it
// compile, and between them they hold every kind of declaration and entry, every field of the
// tables that files are checked against, every op, function, unit, operator and word of the
// grammar.

#include <fmt/format.h>

#include <cctype>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "lang/assist.hpp"
#include "lang/fields.hpp"
#include "lang/module.hpp"
#include "lang/parse.hpp"
#include "tests/catch.hpp"

using namespace plimsoll;

namespace {

std::vector<std::string> plan_fences() {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/docs/language.md");
  std::vector<std::string> all;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (inside && line == "```")
      inside = false;
    else if (inside)
      all.back() += line + "\n";
    else if (line == "```plan")
      inside = true, all.emplace_back();
  }
  return all;
}

/// Text without comments and strings.
std::string bare(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (text[i] == '"') {
      while (++i < text.size() && text[i] != '"') {
      }
      out += '"';
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Names; and numbers with what is glued to them, cut into digits and letters ("8Ki" has "Ki").
std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || (digit && !word.empty())) {
      word += c;
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

/// What declarations hold: "train.seq", "item.bytes", "entry prefer".
class Held {
 public:
  void read(const ast::File& file) {
    for (const ast::Declaration& d : file.declarations) {
      names.insert("kind " + d.kind.text);
      if (d.base) names.insert("base");
      if (!d.doc.empty()) names.insert("documentation");
      if (!d.parameters.empty()) names.insert("parameters");
      read(d.kind.text, d.entries);
    }
  }
  std::set<std::string> names;

 private:
  void read(const std::string& body, const std::vector<ast::Entry>& entries) {
    for (const ast::Entry& e : entries) {
      names.insert(fmt::format("entry {}", static_cast<int>(e.kind)));
      if (is_field(e)) names.insert(body + "." + e.name.text);
      for (const ast::Name& word : e.words)
        if (e.kind == ast::EntryKind::item) names.insert("each " + word.text);
      if (!e.label.empty() && e.kind == ast::EntryKind::require) names.insert("label");
      read(std::string(keyword(e.kind)), e.body);
    }
  }
};

}  // namespace

TEST_CASE("docs/language.md has a checked example of every construct", "[language]") {
  const std::vector<std::string> fences = plan_fences();
  REQUIRE(fences.size() >= 2);
  Held held;
  std::string all;
  for (const std::string& text : fences) {
    INFO(text);
    Diagnostics diags;
    const Module module = compile("language.md", text, diags);
    INFO(diags.render(module.sources(), false));
    CHECK(diags.error_count() == 0);
    Sources sources;
    Diagnostics ignored;
    sources.add("language.md", text);
    held.read(parse(sources, 0, ignored));
    all += bare(text);
  }

  std::vector<std::string> missing;
  const auto want = [&](bool found, const std::string& what) {
    if (!found) missing.push_back(what);
  };
  const std::set<std::string> words = words_of(all);
  const assist::Vocabulary vocabulary = assist::vocabulary();
  for (const auto* list : {&vocabulary.keywords, &vocabulary.kinds, &vocabulary.variables,
                           &vocabulary.calls, &vocabulary.constants})
    for (const std::string& word : *list)
      if (word != "use") want(words.contains(word), word);  // a second file has a test of its own
  for (const std::string& unit : vocabulary.units) {
    const bool plain = unit.find('/') == std::string::npos && unit != "%";
    want(plain ? words.contains(unit) : all.find(unit) != std::string::npos, "unit " + unit);
  }
  for (const char* multiplier : {"k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"})
    want(words.contains(multiplier), std::string("multiplier ") + multiplier);
  for (const char* sign : {"+",  "-",  "*",  "/", "//", "^", "==", "!=", "<",   "<=", ">",
                           ">=", "=>", "..", "_", "{",  "[", "(",  "\"", "[0]", ";"})
    want(all.find(sign) != std::string::npos, sign);
  for (const char* part : {"base", "documentation", "parameters", "label"})
    want(held.names.contains(part), part);
  for (const Kind kind : {Kind::gpu, Kind::cluster, Kind::dtype, Kind::optimizer, Kind::framework,
                          Kind::block, Kind::model, Kind::train, Kind::serve, Kind::layout}) {
    std::string body(noun(kind));
    if (body.ends_with(" job")) body.resize(body.size() - 4);
    want(held.names.contains("kind " + body), "kind " + body);
    for (const Field& field : fields_of(kind))
      want(held.names.contains(fmt::format("{}.{}", body, field.name)),
           fmt::format("{}.{}", body, field.name));
  }
  for (int kind = 0; kind <= static_cast<int>(ast::EntryKind::beside); ++kind) {
    const auto entry = static_cast<ast::EntryKind>(kind);
    want(held.names.contains(fmt::format("entry {}", kind)),
         "entry " + std::string(keyword(entry)));
    for (const Field& field : fields_of(entry))
      want(held.names.contains(fmt::format("{}.{}", keyword(entry), field.name)),
           fmt::format("{}.{}", keyword(entry), field.name));
  }
  for (const char* each : {"weight", "shape", "communicator", "layer"})
    want(held.names.contains(std::string("each ") + each), std::string("each ") + each);
  INFO(fmt::format("no example has: {}", fmt::join(missing, ", ")));
  CHECK(missing.empty());
}
