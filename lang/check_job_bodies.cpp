// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/check_job_reader.hpp"
#include "lang/models.hpp"

/// `item`, `beside` and `observed` in a job.
namespace plimsoll {

using ast::EntryKind;

namespace {

std::vector<const ast::Entry*> lines(const ast::Entry& entry) {
  std::vector<const ast::Entry*> result;
  for (const ast::Entry& line : entry.body) result.push_back(&line);
  return result;
}

}  // namespace

void JobReader::read_bodies() {
  for (const ast::Entry* entry : merged_.entries) {
    if (entry->kind == EntryKind::item) job_.items.push_back(entry);
    if (entry->kind == EntryKind::beside) read_beside(*entry);
    if (entry->kind == EntryKind::observed) read_observed(*entry);
  }
  if (job_.items.empty()) return;
  static const Behaviour kNobody;
  const OpenScope place(impl_, framework_ != nullptr ? *framework_ : kNobody, Site::stage);
  check_items(impl_, job_.items, place, diags_);
}

void JobReader::read_beside(const ast::Entry& entry) {
  check_body(impl_, "beside", entry.name, lines(entry), {EntryKind::assign}, kBesideFields, {},
             diags_);
  Beside beside;
  beside.name = entry.name.text;
  beside.span = entry.name.span;
  for (const ast::Entry& line : entry.body) {
    if (line.kind != EntryKind::assign || !line.value) continue;
    if (line.name.text == "weights") beside.weights = dtype_of("weights", *line.value);
    if (line.name.text == "model") {
      if (const auto* found = reader_.reference(row(kBesideFields, "model"), *line.value)) {
        beside.model = found->name.text;
        module_.program(beside.model, diags_);
      }
    }
    if (line.name.text == "job") {
      const Field& job = row(kBesideFields, "job");
      const std::optional<std::string> name = reader_.name(job, *line.value);
      if (!name) continue;
      if (impl_.find(Kind::serve, *name, false) == nullptr)
        unknown_name(impl_, Kind::serve, *name, line.value->span, diags_);
      beside.job = *name;
    }
  }
  const bool both = !beside.model.empty() && !beside.job.empty();
  const bool says = std::any_of(entry.body.begin(), entry.body.end(), [](const ast::Entry& line) {
    return line.name.text == "model" || line.name.text == "job";
  });
  if (both || !says)
    diags_
        .error(entry.name.span, fmt::format("beside '{}' expects a model or a job, got {}",
                                            entry.name.text, both ? "both" : "neither"))
        .with_help("for example model = llama3_8b, or job = NAME of a serve job");
  job_.beside.push_back(std::move(beside));
}

void JobReader::read_observed(const ast::Entry& entry) {
  ast::Name name{"", entry.keyword};
  check_body(impl_, "observed", name, lines(entry), {EntryKind::assign}, kObservedFields, {},
             diags_);
  for (const ast::Entry& line : entry.body) {
    if (line.kind != EntryKind::assign || !line.value) continue;
    for (const Field& field : kObservedFields) {
      if (field.name != line.name.text) continue;
      if (field.type == FieldType::reference)
        reader_.reference(field, *line.value);
      else
        reader_.number(field, *line.value);
    }
  }
  job_.observed.push_back(&entry);
}

}  // namespace plimsoll
