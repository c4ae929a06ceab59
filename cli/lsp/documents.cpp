// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/lsp/documents.hpp"

#include <filesystem>
#include <utility>

#include "lang/load.hpp"
#include "runtime/segments.hpp"

namespace plimsoll::cli::lsp {

namespace {

const Job* job_named(const Module& module, const std::string& name) {
  for (const Job& job : module.jobs())
    if (job.name == name) return &job;
  return nullptr;
}

/// nullopt where the layout is none of this job's.
std::optional<PricedJob> price(const Module& module, const Job& job, const LayoutDecl& declared) {
  PricedJob made;
  Diagnostics ignored;
  std::optional<Problem> problem = make_problem(module, job, ignored);
  if (!problem) return std::nullopt;
  problem->segments = runtime::replayed_segments();
  made.problem = std::make_unique<Problem>(std::move(*problem));
  const std::optional<Layout> layout = layout_from(*made.problem, &declared, ignored);
  if (!layout) return std::nullopt;
  made.layout = *layout;
  made.bill = bill(*made.problem, made.layout);
  return made;
}

}  // namespace

void Documents::open(const std::string& uri, std::string text) {
  Document& document = all_[uri];
  document.uri = uri;
  document.text = std::move(text);
  touch(document);
}

void Documents::close(const std::string& uri) {
  const auto at = all_.find(uri);
  if (at == all_.end()) return;
  touch(at->second);  // those that use it read it from the disk again
  all_.erase(at);
}

Document* Documents::find(const std::string& uri) {
  const auto at = all_.find(uri);
  return at != all_.end() ? &at->second : nullptr;
}

void Documents::touch(Document& changed) {
  const std::string path = path_of(changed.uri);
  for (auto& [uri, document] : all_) {
    const bool concerned =
        &document == &changed || !document.analysis || document.analysis->uses.contains(path);
    if (!concerned) continue;
    document.analysis.reset();
    document.published = false;
  }
}

Analysis& Documents::analysis(Document& document) {
  if (document.analysis) return *document.analysis;
  auto made = std::make_unique<Analysis>();
  CompileOptions options;
  options.load = [&](const std::string& path, std::string& why) -> std::optional<std::string> {
    made->uses.insert(path);
    if (const Document* open = find(uri_of(path))) return open->text;
    return read_from_disk(path, why);
  };
  made->module =
      std::make_unique<Module>(compile(path_of(document.uri), document.text, made->diags, options));
  const Sources& sources = made->module->sources();
  for (std::uint32_t file = 0; file < sources.count(); ++file)
    if (!sources[file].is_prelude()) {
      made->file = file;  // the first that is not the prelude's is the document
      break;
    }
  document.analysis = std::move(made);
  return *document.analysis;
}

const PricedJob* priced(Analysis& analysis, const std::string& job_name) {
  if (const auto at = analysis.priced.find(job_name); at != analysis.priced.end())
    return at->second.problem != nullptr ? &at->second : nullptr;
  if (analysis.diags.has_errors()) return nullptr;
  const Job* job = job_named(*analysis.module, job_name);
  if (job == nullptr || analysis.module->layouts().empty()) return nullptr;
  PricedJob& slot = analysis.priced[job_name];
  try {
    for (const LayoutDecl& layout : analysis.module->layouts())
      if (auto made = price(*analysis.module, *job, layout)) {
        slot = std::move(*made);
        return &slot;
      }
  } catch (const ArithmeticError&) {
    // Not to be priced: `bill` says why.
  }
  return nullptr;
}

void search_ahead(Analysis& analysis, const std::function<bool()>& stop) {
  if (analysis.tried_search || analysis.diags.has_errors()) return;
  try {
    for (const Job& job : analysis.module->jobs()) {
      if (stop()) return;
      if (priced(analysis, job.name) != nullptr) continue;
      if (stop()) return;
      PricedJob made;
      Diagnostics ignored;
      std::optional<Problem> problem = make_problem(*analysis.module, job, ignored);
      if (!problem) continue;
      problem->segments = runtime::replayed_segments();
      made.problem = std::make_unique<Problem>(std::move(*problem));
      PlanOptions options;
      options.top = 1;
      options.stop = stop;
      const PlanResult result = plan(*made.problem, options, ignored);
      if (result.stopped) return;
      const Priced* found = result.best       ? &*result.best
                            : result.tightest ? &*result.tightest
                                              : nullptr;
      if (found == nullptr) continue;
      made.layout = found->layout;
      made.bill = bill(*made.problem, made.layout);
      made.searched = true;
      analysis.priced[job.name] = std::move(made);
    }
  } catch (const ArithmeticError&) {
  }
  analysis.tried_search = true;
}

}  // namespace plimsoll::cli::lsp
