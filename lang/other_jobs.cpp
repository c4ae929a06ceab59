// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/other_jobs.hpp"

#include <algorithm>
#include <vector>

#include "lang/module_impl.hpp"

namespace plimsoll {
namespace {

/// The declarations of other jobs, whose mistakes do not concern this one.
std::vector<const ast::Declaration*> strangers(const Module& module, std::string_view job) {
  std::vector<std::string_view> own = {job};
  for (const Job& one : module.jobs())
    if (one.name == job)
      for (const Beside& beside : one.beside) own.push_back(beside.job);
  std::vector<const ast::Declaration*> out;
  for (const auto& [kind, declaration] : module.impl().order)
    if ((kind == Kind::train || kind == Kind::serve) &&
        !module.impl().broken.contains(declaration) &&
        std::find(own.begin(), own.end(), declaration->name.text) == own.end())
      out.push_back(declaration);
  return out;
}

bool within(Span inner, Span outer) {
  return inner.file == outer.file && outer.begin <= inner.begin && inner.end <= outer.end;
}

}  // namespace

Diagnostics for_job(const Module& module, std::string_view job, const Diagnostics& said) {
  const auto others = strangers(module, job);
  Diagnostics out;
  for (const Diagnostic* d : said.sorted()) {
    const bool of_other = std::any_of(others.begin(), others.end(), [&](const ast::Declaration* o) {
      return within(d->span, o->span);
    });
    Diagnostic& told = d->severity == Severity::note ? out.note(d->span, d->message)
                       : d->severity == Severity::warning || of_other
                           ? out.warning(d->span, d->message)
                           : out.error(d->span, d->message);
    told.labels = d->labels;
    told.help = d->help;
  }
  return out;
}

}  // namespace plimsoll
