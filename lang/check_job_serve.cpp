// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/check_job_reader.hpp"
#include "lang/grouped.hpp"

/// Fields that only a serve declaration has.
namespace plimsoll {

std::string JobReader::dtype(std::string_view name) {
  const ast::Expr* e = value(name);
  return e == nullptr ? "bf16" : dtype_of(name, *e);
}

std::string JobReader::dtype_of(std::string_view name, const ast::Expr& e) {
  const Field like = word_field(name, "", "bf16");
  const std::optional<std::string> word =
      e.kind == ast::ExprKind::name ? std::optional(e.text) : std::nullopt;
  const auto& known = impl_.dtype_words->words;
  if (word && std::find(known.begin(), known.end(), *word) != known.end()) {
    if (const ast::Declaration* declared = impl_.find(Kind::dtype, *word, false))
      resolve_dtype(impl_, *declared, diags_);
    return *word;
  }
  if (word)
    diags_.error(e.span, fmt::format("unknown dtype '{}'", *word))
        .with_help(suggest(*word, known, "known dtypes"));
  else
    diags_.error(e.span, fmt::format("expected a dtype for '{}', got {}", like.name, describe(e)))
        .with_help(fmt::format("for example {} = fp8", like.name));
  return "bf16";
}

void JobReader::read_serve() {
  job_.context = number("context");
  job_.weights = dtype("weights");
  job_.kv = dtype("kv");
  read_imbalance();
  if (const ast::Expr* e = value("weights_on")) read_weights_on(*e);
  job_.kv_block = number("kv_block", 16).to_int64();
  for (const char* name : {"batch_tokens", "utilization"}) {
    const ast::Expr* e = value(name);
    if (e == nullptr && framework_ != nullptr) e = framework_->field(name);
    if (e == nullptr) continue;
    const std::optional<Rational> given = reader_.number(field(name), *e);
    (std::string_view(name) == "utilization" ? job_.utilization : job_.batch_tokens) = given;
    if (given && given->is_zero())
      diags_.error(e->span, fmt::format("'{}' must be above 0, got 0", name))
          .with_help(fmt::format("for example {} = {}", name, field(name).example));
  }
  const Rational sequences = number_or_choice("sequences");
  if (!sequences.is_zero())
    job_.layout["sequences"] = {
        {{eval::Number{impl_.pool.constant(sequences), kCount, "sequences"},
          value("sequences") != nullptr ? value("sequences")->span : job_.span}},
        merged_.field("sequences")->span};
}

void JobReader::check_no_training() {
  static constexpr std::string_view kOfTraining[] = {
      "zero", "shard", "mbs", "recompute", "recompute_layers", "offload"};
  for (const ast::Entry* entry : merged_.entries) {
    if (!is_field(*entry) || std::find(std::begin(kOfTraining), std::end(kOfTraining),
                                       entry->name.text) == std::end(kOfTraining))
      continue;
    diags_
        .error(entry->name.span,
               fmt::format("'{}' does not belong to a serving job", entry->name.text))
        .with_help("remove the line: a server has no backward pass and no optimizer");
  }
}

void JobReader::read_weights_on(const ast::Expr& e) {
  static const std::vector<std::string> kRoles = {"linear", "expert", "head",   "embedding",
                                                  "norm",   "bias",   "router", "other"};
  std::vector<Span> spans;
  const auto names = reader_.name_set(field("weights_on"), e, &spans);
  if (!names) return;
  for (std::size_t i = 0; i < names->size(); ++i)
    if (std::find(kRoles.begin(), kRoles.end(), (*names)[i]) == kRoles.end())
      diags_.error(spans[i], fmt::format("unknown role '{}' of a weight", (*names)[i]))
          .with_help(suggest((*names)[i], kRoles, "roles"));
  job_.weights_on = *names;
}

}  // namespace plimsoll
