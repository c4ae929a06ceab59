// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <string_view>

#include "lang/module_impl.hpp"

namespace plimsoll {

namespace {

struct Hint {
  std::string_view begins;  ///< a message
  std::string_view help;
};

/// What to do about errors of expressions whose place says no more: the first that fits.
constexpr Hint kHints[] = {
    {"cannot compare",
     "both sides must be of one kind: bytes take a unit (70 GiB), versions are strings (\"2.11\")"},
    {"cannot add", "both sides must be of one kind: bytes take a unit (2 GiB)"},
    {"cannot subtract", "both sides must be of one kind: bytes take a unit (2 GiB)"},
    {"expected a condition", "compare it with something: tp <= 8"},
    {"expected a count", "write a number without a unit, or divide the unit away"},
    {"expected bytes", "write the unit, as in 4 GiB"},
    {"expected one of", "write one of these words"},
    {"unknown name",
     "layout variables, fields of the job, the model, the cluster and its GPU are "
     "names here"},
    {"unknown function",
     "functions are if, min, max, ceil, floor, round, log2, abs, mod, sum, len"},
    {"'in' takes", "for example tp in {1, 2, 4}, or pp in 1..8"},
    {"index", "lists count from 0; stage_layers has an entry a stage"},
    {"width", "choose widths and heads that divide"},
    {"the number does not fit", "sizes and counts are exact, in 128 bits: write a smaller one"},
};
constexpr std::string_view kLastHint = "docs/language.md says what may stand here";

std::string_view hint_for(std::string_view message) {
  for (const Hint& hint : kHints)
    if (message.starts_with(hint.begins)) return hint.help;
  return kLastHint;
}

}  // namespace

void hand_over(const Module::Impl& module, const Diagnostics& from, Diagnostics& to) {
  for (const Diagnostic* said : from.sorted()) {
    std::vector<Label> labels = said->labels;
    Span where = said->span;
    if (said->severity == Severity::error && module.is_prelude(where)) {
      // The prelude's text is right: the place to change is the user's that led to it.
      const auto users = std::find_if(labels.rbegin(), labels.rend(), [&](const Label& label) {
        return label.span && !module.is_prelude(label.span);
      });
      if (users != labels.rend()) {
        where = users->span;
        labels.erase(std::next(users).base());
        labels.insert(labels.begin(), {said->span, "here"});
      }
    }
    Diagnostic& told = said->severity == Severity::error     ? to.error(where, said->message)
                       : said->severity == Severity::warning ? to.warning(where, said->message)
                                                             : to.note(where, said->message);
    if (told.labels.empty()) told.labels = std::move(labels);
    if (!said->help.empty())
      told.help = said->help;
    else if (said->severity == Severity::error)
      told.help = hint_for(said->message);
  }
}

}  // namespace plimsoll
