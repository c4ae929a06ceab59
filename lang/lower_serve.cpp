// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <algorithm>

#include "lang/grouped.hpp"
#include "lang/lowering.hpp"

/// A serving framework gives `utilization` and `batch_tokens`, which a job may set itself; if it
/// has a param `max_sequences`, that many run at once; a param `activations` that is `outside` says
/// that a step's activations live beside the server's share.
namespace plimsoll {

std::optional<Rational> Lowering::framework_number(std::string_view field,
                                                   const eval::Scope& scope) {
  for (const ast::Entry* e : in_.framework->entries)
    if (e->kind == ast::EntryKind::assign && e->name.text == field)
      return eval_.constant(*e->value, scope, kCount);
  return std::nullopt;
}

void Lowering::read_serving() {
  const Job& job = *in_.job;
  Serving& serving = inventory_.serving;
  PlaceScope place(scope_, *in_.framework, job, eval_);
  const std::size_t errors = diags_.error_count();

  std::optional<Rational> share = job.utilization;
  if (!share) share = framework_number("utilization", place.all);
  std::optional<Rational> tokens = job.batch_tokens;
  if (!tokens) tokens = framework_number("batch_tokens", place.all);
  if (diags_.error_count() > errors) return;
  if (!share || !tokens) {
    diags_
        .error(job.span, fmt::format("framework '{}' does not serve: it gives no {}",
                                     in_.framework->name, share ? "batch_tokens" : "utilization"))
        .with_help("framework = vllm or sglang, or set utilization and batch_tokens in the job");
    return;
  }
  if (*share <= 0 || *share > 1)
    diags_
        .error(job.span, fmt::format("utilization is a share of the memory above 0% and up to "
                                     "100%, got {}%",
                                     grouped(*share * 100)))
        .with_help("for example utilization = 90%");
  if (*tokens < 1 || !tokens->is_integer())
    diags_
        .error(job.span,
               fmt::format("batch_tokens must be a positive integer, got {}", grouped(*tokens)))
        .with_help("for example batch_tokens = 8Ki");
  if (diags_.error_count() > errors) return;
  serving.utilization = *share;
  serving.batch_tokens = tokens->to_int64();

  if (const eval::Value* limit = place.all.find("max_sequences"))
    if (const auto* n = limit->as<eval::Number>(); n && pool_.is_constant(n->expr))
      serving.max_sequences = pool_.value(n->expr).floor().to_int64();
  if (const eval::Value* where = place.all.find("activations"))
    if (const auto* word = where->as<eval::Word>())
      serving.activations_inside = word->text != "outside";

  const auto bits = [&](const std::string& dtype, const char* field) -> Rational {
    if (const auto known = dtype_bits(*in_.module, dtype)) return *known;
    diags_.error(job.span, fmt::format("{} = {} is not a known dtype", field, dtype))
        .with_help("bf16, fp8, int8, int4, or declare it: dtype NAME { bits = 4 + 8 / 32 }");
    return 16;
  };
  serving.weight_bits = bits(job.weights, "weights");
  serving.cache_bits = bits(job.kv, "kv");
  for (const Weight& w : program_.weights) {
    const auto named = [&](std::string_view word) {
      return std::find(job.weights_on.begin(), job.weights_on.end(), word) != job.weights_on.end();
    };
    serving.in_weight_bits.push_back(job.weights_on.empty() || named(name(w.role)) ||
                                     (!w.name.empty() && named(w.name)));
  }
}

}  // namespace plimsoll
