// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "tests/unit/models.hpp"

#include <fstream>
#include <sstream>

#include "tests/catch.hpp"

namespace plimsoll::test {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  INFO(path);
  REQUIRE(in);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void Models::add(std::string name, std::string text) {
  const std::uint32_t file = sources.add(std::move(name), std::move(text));
  files_.push_back(parse(sources, file, diagnostics));
  for (const ast::Declaration& declaration : files_.back().declarations) {
    if (declaration.kind.text == "model") models_[declaration.name.text] = &declaration;
    if (declaration.kind.text != "block") continue;
    BlockSource& block = block_sources_.emplace_back();
    block.name = declaration.name.text;
    block.span = declaration.name.span;
    for (const ast::Parameter& p : declaration.parameters)
      block.parameters.push_back({p.name.text, p.name.span, p.default_value.get()});
    for (const ast::Entry& entry : declaration.entries) block.entries.push_back(&entry);
    block.sees = &blocks_;
    blocks_[block.name] = &block;
  }
}

void Models::add_prelude() {
  const std::string folder = std::string(PLIMSOLL_SOURCE_DIR) + "/lang/prelude/";
  for (const char* name : {"blocks.plan", "models.plan"}) add(name, read_file(folder + name));
}

ModelSource Models::source(const std::string& model) {
  const ast::Declaration* declaration = models_.at(model);
  ModelSource source;
  if (declaration->base) source = this->source(declaration->base->text);
  source.name = model;
  source.span = declaration->name.span;
  source.sees = &blocks_;
  for (const ast::Entry& entry : declaration->entries) {
    if (entry.kind == ast::EntryKind::param) {
      source.parameters.push_back({&entry, entry.value.get()});
      continue;
    }
    bool is_override = false;
    for (ModelSource::Parameter& p : source.parameters)
      if (entry.kind == ast::EntryKind::assign && declaration->base &&
          p.entry->name.text == entry.name.text) {
        p.value = entry.value.get();
        is_override = true;
      }
    if (!is_override) source.entries.push_back(&entry);
  }
  return source;
}

std::optional<Program> Models::build(const std::string& model) {
  return elaborate(source(model), pool, diagnostics, &items);
}

Built::Built(std::string text) {
  models.add("t.plan", std::move(text));
  std::optional<Program> built = models.build("m");
  INFO(models.said());
  REQUIRE(built.has_value());
  REQUIRE_FALSE(models.diagnostics.has_errors());
  program = std::move(*built);
}

std::string said_of(std::string text, const std::string& model) {
  Models models;
  models.add("t.plan", std::move(text));
  INFO(models.said());
  REQUIRE_FALSE(models.diagnostics.has_errors());
  const bool built = models.build(model).has_value();
  CHECK(built != models.diagnostics.has_errors());
  return models.said();
}

std::string dump(const Program& program, const ExprPool& pool) {
  std::string text;
  for (OpId i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    text += fmt::format("{} {}", i, name(op.kind));
    if (!op.name.empty()) text += " " + op.name;
    text += fmt::format(" ({})", fmt::join(op.inputs, " "));
    if (op.output != kNone) {
      const Value& v = program.values[op.output];
      text += fmt::format(" -> {} [{} x {}", op.output, pool.str(v.tokens), v.width);
      if (v.split == Split::column) text += v.units > 0 ? fmt::format(" / {}", v.units) : " /";
      if (v.sequence_sharded) text += " sp";
      if (v.experts != kNone) text += fmt::format(" experts {}", v.experts);
      text += "]";
    }
    for (const WeightId id : op.weights) {
      const Weight& w = program.weights[id];
      text +=
          fmt::format(" {}:{}{}x{}{}", name(w.role),
                      w.copies > 1 ? fmt::format("{}x", w.copies) : std::string(), w.rows, w.cols,
                      w.split == Split::column ? "c"
                      : w.split == Split::row  ? "r"
                                               : "");
    }
    text += "\n";
  }
  return text;
}

}  // namespace plimsoll::test
