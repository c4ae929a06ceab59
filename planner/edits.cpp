// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/edits.hpp"

#include <fmt/format.h>

#include <utility>

#include "lang/parse.hpp"
#include "planner/segments.hpp"

namespace plimsoll {
namespace {

const ast::Declaration* find(const ast::File& file, std::string_view kind, std::string_view name) {
  for (const ast::Declaration& d : file.declarations)
    if (d.kind.text == kind && d.name.text == name) return &d;
  return nullptr;
}

const ast::Entry* field_of(const ast::Declaration& d, std::string_view field) {
  for (const ast::Entry& e : d.entries)
    if ((e.kind == ast::EntryKind::assign || e.kind == ast::EntryKind::narrow) &&
        e.name.text == field)
      return &e;
  return nullptr;
}

/// The text with [begin, end) replaced.
std::string spliced(std::string_view text, std::size_t begin, std::size_t end,
                    std::string_view with) {
  return std::string(text.substr(0, begin)) + std::string(with) + std::string(text.substr(end));
}

}  // namespace

Edits::Edits(const Problem& problem, const CompileOptions& options)
    : problem_(problem),
      options_(options),
      sources_(problem.module->sources()),
      number_(problem.job->span.file),
      kind_(problem.job->serve ? "serve" : "train") {
  options_.check_models = false;
  if (sources_[number_].is_prelude()) return;
  Diagnostics ignored;
  file_ = parse(sources_, number_, ignored);
  usable_ = !ignored.has_errors() && find(file_, kind_, problem.job->name) != nullptr;
}

std::optional<Span> Edits::job_field_span(std::string_view field) const {
  const ast::Declaration* d = find(file_, kind_, problem_.job->name);
  const ast::Entry* e = d == nullptr ? nullptr : field_of(*d, field);
  return e == nullptr ? std::nullopt : std::optional(e->span);
}

std::optional<Span> Edits::declaration_span(std::string_view kind, std::string_view name) const {
  const ast::Declaration* d = find(file_, kind, name);
  return d == nullptr ? std::nullopt : std::optional(d->name.span);
}

std::optional<std::string> Edits::job_field(std::string_view field, std::string_view value) const {
  return with_field(sources_, file_, kind_, problem_.job->name, field, value);
}

std::optional<std::string> Edits::without_job_field(std::string_view field) const {
  return without_entry(sources_, file_, kind_, problem_.job->name, field);
}

std::optional<std::string> Edits::cluster_field(std::string_view field,
                                                std::string_view value) const {
  const Cluster& cluster = *problem_.cluster;
  if (cluster.pools.size() != 1 || !cluster.pools.front().name.empty()) return std::nullopt;
  if (auto here = with_field(sources_, file_, "cluster", cluster.name, field, value)) return here;
  const std::string copy = cluster.name + "_changed";
  auto text = job_field("cluster", copy);
  if (text)
    *text += fmt::format("\ncluster {} = {} {{ {} = {} }}\n", copy, cluster.name, field, value);
  return text;
}

std::optional<std::string> Edits::without_requirement(const Condition& condition) const {
  if (condition.from_framework || condition.span.file != number_) return std::nullopt;
  const ast::Declaration* d = find(file_, kind_, problem_.job->name);
  if (d == nullptr) return std::nullopt;
  for (const ast::Entry& e : d->entries)
    if (e.kind == ast::EntryKind::require && e.value != nullptr &&
        e.value->span == condition.expr->span)
      return spliced(sources_[number_].text(), e.span.begin, e.span.end, "");
  return std::nullopt;
}

std::unique_ptr<Variant> Edits::compiled(const std::string& text, Diagnostics& diags) const {
  auto made = std::make_unique<Variant>(compile(sources_[number_].name(), text, diags, options_));
  if (diags.has_errors()) return nullptr;
  const Job* job = find_job(made->module, problem_.job->name, diags);
  if (job == nullptr || diags.has_errors()) return nullptr;
  made->problem = make_problem(made->module, *job, diags);
  if (!made->problem || diags.has_errors()) return nullptr;
  if (problem_.segments) made->problem->segments = problem_.segments->fresh();
  made->text = text;
  return made;
}

std::optional<std::string> with_field(const Sources& sources, const ast::File& file,
                                      std::string_view kind, std::string_view name,
                                      std::string_view field, std::string_view value) {
  const ast::Declaration* d = find(file, kind, name);
  if (d == nullptr) return std::nullopt;
  const std::string_view text = sources[file.file].text();
  const std::string entry = fmt::format("{} = {}", field, value);
  if (const ast::Entry* e = field_of(*d, field))
    return spliced(text, e->span.begin, e->span.end, entry);
  if (!d->has_body) return spliced(text, d->span.end, d->span.end, " { " + entry + " }");
  const std::size_t brace = text.find('{', d->base ? d->base->span.end : d->name.span.end);
  if (brace == std::string_view::npos || brace >= d->span.end) return std::nullopt;
  // On a line of its own where the body has lines.
  const bool lines = brace + 1 < text.size() && text[brace + 1] == '\n';
  return spliced(text, brace + 1, brace + 1, (lines ? "\n  " : " ") + entry + (lines ? "" : " "));
}

std::optional<std::string> without_entry(const Sources& sources, const ast::File& file,
                                         std::string_view kind, std::string_view name,
                                         std::string_view field) {
  const ast::Declaration* d = find(file, kind, name);
  const ast::Entry* e = d == nullptr ? nullptr : field_of(*d, field);
  if (e == nullptr) return std::nullopt;
  return spliced(sources[file.file].text(), e->span.begin, e->span.end, "");
}

}  // namespace plimsoll
