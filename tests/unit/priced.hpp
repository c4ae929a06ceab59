// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lang/inventory.hpp"
#include "lang/module.hpp"
#include "planner/layout.hpp"
#include "planner/peak.hpp"
#include "tests/catch.hpp"

namespace plimsoll::test {

/// A plan text and its only job, priced at its only layout, as `plimsoll bill`
/// does.
struct Priced {
  std::unique_ptr<Module> module;
  std::unique_ptr<Problem> problem;
  Layout layout;
  Bill bill;
};

inline Priced price(const std::string& text, const std::string& layout_name = "") {
  INFO(text);
  Diagnostics diags;
  Priced p;
  p.module = std::make_unique<Module>(compile("test.plan", text, diags));
  INFO(diags.render(p.module->sources(), false));
  REQUIRE(diags.error_count() == 0);
  REQUIRE(!p.module->jobs().empty());
  auto problem = make_problem(*p.module, p.module->jobs().front(), diags);
  INFO(diags.render(p.module->sources(), false));
  REQUIRE(problem);
  p.problem = std::make_unique<Problem>(std::move(*problem));
  const LayoutDecl* chosen = nullptr;
  for (const LayoutDecl& l : p.module->layouts())
    if (layout_name.empty() || l.name == layout_name) chosen = &l;
  const auto layout = layout_from(*p.problem, chosen, diags);
  INFO(diags.render(p.module->sources(), false));
  REQUIRE(layout);
  p.layout = *layout;
  INFO(why_impossible(*p.problem, p.layout));
  p.bill = plimsoll::bill(*p.problem, p.layout);
  REQUIRE(!p.bill.stages.empty());
  return p;
}

inline std::int64_t category(const StageBill& stage, Category c) {
  return static_cast<std::int64_t>(stage.categories[static_cast<std::size_t>(c)]);
}

/// Weights, gradients, masters and moments.
inline std::int64_t states(const StageBill& stage) {
  return category(stage, Category::weights) + category(stage, Category::gradients) +
         category(stage, Category::master) + category(stage, Category::moments);
}

/// The bytes of the stage's lines whose name begins with \a name.
inline std::int64_t line(const StageBill& stage, std::string_view name) {
  std::int64_t sum = 0;
  for (const BillLine& l : stage.lines)
    if (l.name.substr(0, name.size()) == name) sum += static_cast<std::int64_t>(l.bytes);
  return sum;
}

/// What one layer of class \a layer_class leaves for its backward, by "op
/// value" (the trace's own names): the saved tensors of one micro-batch.
inline std::map<std::string, std::int64_t> saved(const Priced& p, RecomputeMode mode = 0,
                                                 std::uint32_t layer_class = 0,
                                                 std::int64_t stage = 0) {
  const SegmentTrace& trace = p.problem->inventory.traces.at(mode).at(layer_class);
  const Env env = environment(*p.problem, p.layout, stage);
  std::vector<int> live(trace.tensors.size(), 0);
  for (const TraceEvent& e : trace.forward) {
    if (e.kind == TraceEvent::alloc) ++live[e.index];
    if (e.kind == TraceEvent::free) --live[e.index];
  }
  std::map<std::string, std::int64_t> bytes;
  for (std::size_t t = 0; t < live.size(); ++t) {
    if (live[t] == 0) continue;
    const std::int64_t size = p.module->pool().eval(trace.tensors[t].bytes, env).to_int64();
    if (size > 0) bytes[trace.tensors[t].name] += size;
  }
  return bytes;
}

inline std::int64_t total(const std::map<std::string, std::int64_t>& bytes) {
  std::int64_t sum = 0;
  for (const auto& [name, b] : bytes) sum += b;
  return sum;
}

/// Path of a file of tests/data.
std::string data(const std::string& name);

inline std::string read(const std::string& path) {
  std::ifstream in(path);
  REQUIRE(in);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Rows of a CSV file; a field may be quoted. The first row names the columns.
inline std::vector<std::map<std::string, std::string>> read_csv(const std::string& path) {
  std::istringstream in(read(path));
  const auto split = [](const std::string& row) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (const char c : row) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        fields.emplace_back();
      else
        fields.back() += c;
    }
    return fields;
  };
  std::string row;
  std::getline(in, row);
  const std::vector<std::string> names = split(row);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(in, row)) {
    const std::vector<std::string> fields = split(row);
    std::map<std::string, std::string>& at = rows.emplace_back();
    for (std::size_t i = 0; i < names.size() && i < fields.size(); ++i) at[names[i]] = fields[i];
  }
  return rows;
}

}  // namespace plimsoll::test
