// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/lsp/answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli/files.hpp"
#include "lang/assist.hpp"
#include "lang/parse.hpp"
#include "lang/prelude.hpp"
#include "lang/print.hpp"
#include "lang/units.hpp"
#include "planner/report_bill.hpp"
#include "planner/report_parts.hpp"
#include "runtime/segments.hpp"

namespace plimsoll::cli::lsp {

namespace {

Json range(const Places& places, std::uint32_t begin, std::uint32_t end) {
  const Place from = places.of(begin), to = places.of(end);
  return {{"start", {{"line", from.line}, {"character", from.character}}},
          {"end", {{"line", to.line}, {"character", to.character}}}};
}
Json range(std::string_view text, std::uint32_t begin, std::uint32_t end, Encoding encoding) {
  return range(Places(text, encoding), begin, end);
}
Json range(const Sources& sources, Span span, Encoding encoding) {
  return range(sources[span.file].text(), span.begin, span.end, encoding);
}

/// Where editors can open a file of the prelude: a copy in the user's cache, made when it is first
/// asked for. "" where none can be made.
std::string prelude_copy(const SourceFile& file) {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (cache != nullptr && *cache == '/')
    folder = cache;
  else if (home != nullptr && *home == '/')
    folder = fs::path(home) / ".cache";
  else
    return "";
  const fs::path path = folder / "plimsoll" / file.name();
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return "";
  return write_file(path.string(), std::string(file.text())).empty() ? path.string() : "";
}

std::string uri_of_file(const Document& document, const Analysis& analysis, std::uint32_t file) {
  const Sources& sources = analysis.module->sources();
  if (file == analysis.file) return document.uri;
  if (sources[file].is_prelude()) return "";
  return uri_of(sources[file].name());
}

int severity(Severity severity) {
  return severity == Severity::error ? 1 : severity == Severity::warning ? 2 : 3;
}

std::string share_of(Int128 bytes, Int128 hbm) {
  return report::percent(static_cast<double>(bytes), static_cast<double>(hbm));
}

/// "peak 61.20 GiB of 79.18 GiB on stage 0 (fits), at backward of layer 19", and the categories.
std::string tell_bill(const PricedJob& job) {
  const Bill& bill = job.bill;
  const StageBill& stage = report::stage_of(bill, bill.peak_stage);
  std::string text = fmt::format(
      "At `{}`{}: peak **{}** of {} on stage {}, {}\n", describe(*job.problem, job.layout),
      job.searched ? " (the best found)" : "", human_bytes(bill.peak_bytes),
      human_bytes(bill.hbm_bytes), bill.peak_stage, bill.verdict);
  text += "\n| at " + stage.peak_moment + " | |\n|---|--:|\n";
  for (std::size_t i = 0; i < kCategoryCount; ++i)
    if (stage.categories[i] > 0)
      text += fmt::format("| {} | {} |\n", report::label(static_cast<Category>(i)),
                          human_bytes(stage.categories[i]));
  return text;
}

/// The job whose bill an item shows up in: the one that it stands in, else one that runs the
/// framework or optimizer that has it.
std::string tell_item(Analysis& analysis, Span item) {
  for (const Job& job : analysis.module->jobs()) {
    const PricedJob* at = priced(analysis, job.name);
    if (at == nullptr) continue;
    const auto& rows = at->problem->inventory.items;
    const bool has =
        std::any_of(rows.begin(), rows.end(), [&](const Item& row) { return row.origin == item; });
    if (!has) continue;
    const StageBill& stage = report::stage_of(at->bill, at->bill.peak_stage);
    Int128 bytes = 0;
    for (const BillLine& line : stage.lines)
      if (line.item != kNone && rows[line.item].origin == item) bytes += line.bytes;
    return fmt::format("**{}** at the peak of `{}` ({} of {}; {}, stage {})", human_bytes(bytes),
                       job.name, share_of(bytes, at->bill.hbm_bytes),
                       human_bytes(at->bill.hbm_bytes), describe(*at->problem, at->layout),
                       stage.stage);
  }
  return "";
}

/// What a layout comes to for the first job that it can be priced for.
std::string tell_layout(const Analysis& analysis, const std::string& name) {
  if (analysis.diags.has_errors()) return "";
  for (const LayoutDecl& declared : analysis.module->layouts()) {
    if (declared.name != name) continue;
    for (const Job& job : analysis.module->jobs()) try {
        Diagnostics ignored;
        auto problem = make_problem(*analysis.module, job, ignored);
        if (!problem) continue;
        problem->segments = runtime::replayed_segments();
        const auto layout = layout_from(*problem, &declared, ignored);
        if (!layout) continue;
        const Bill priced = bill(*problem, *layout);
        return fmt::format("`{}`: {}", job.name,
                           report::answer(report::heading(*problem, *layout), priced));
      } catch (const ArithmeticError&) {
        continue;
      }
  }
  return "";
}

int completion_kind(assist::Candidate kind) {
  switch (kind) {
    case assist::Candidate::keyword:
      return 14;
    case assist::Candidate::field:
      return 5;
    case assist::Candidate::declaration:
      return 7;
    case assist::Candidate::variable:
      return 6;
    case assist::Candidate::word:
      return 20;
    case assist::Candidate::function:
      return 3;
    case assist::Candidate::unit:
      return 11;
  }
  return 1;
}

int symbol_kind(std::string_view kind) {
  if (kind == "train" || kind == "serve") return 12;  // function
  if (kind == "model" || kind == "block") return 5;   // class
  if (kind == "layout") return 13;                    // variable
  return 23;                                          // struct
}

/// Does an operand come next, so that a blank is worth a list?
bool operand_is_due(std::string_view text, std::uint32_t offset) {
  std::size_t at = offset;
  while (at > 0 && (text[at - 1] == ' ' || text[at - 1] == '\t')) --at;
  if (at == 0) return false;
  if (std::string_view("=,{([:").find(text[at - 1]) != std::string_view::npos) return true;
  return at > 2 && text.substr(at - 2, 2) == "in" && text[at - 3] == ' ';
}

}  // namespace

std::map<std::string, Json> diagnostics(const Document& document, const Analysis& analysis,
                                        Encoding encoding) {
  const Sources& sources = analysis.module->sources();
  std::map<std::string, Json> by_file = {{document.uri, Json::array()}};
  std::map<std::uint32_t, Places> places;
  const auto range_of = [&](Span span) {
    return range(places.try_emplace(span.file, sources[span.file].text(), encoding).first->second,
                 span.begin, span.end);
  };
  for (const Diagnostic* one : analysis.diags.sorted()) {
    const std::string uri = uri_of_file(document, analysis, one->span.file);
    if (uri.empty()) continue;
    Json related = Json::array();
    for (const Label& label : one->labels)
      if (const std::string there = uri_of_file(document, analysis, label.span.file);
          !there.empty())
        related.push_back({{"location", {{"uri", there}, {"range", range_of(label.span)}}},
                           {"message", label.text}});
    Json said = {
        {"range", range_of(one->span)},
        {"severity", severity(one->severity)},
        {"source", "plimsoll"},
        {"message",
         one->help.empty() ? one->message : fmt::format("{}\nhelp: {}", one->message, one->help)}};
    if (!related.empty()) said["relatedInformation"] = std::move(related);
    auto [at, added] = by_file.try_emplace(uri, Json::array());
    at->second.push_back(std::move(said));
  }
  return by_file;
}

Json hover(const Document& document, Analysis& analysis, std::uint32_t offset, Encoding encoding) {
  const auto symbol = assist::symbol_at(*analysis.module, analysis.file, offset);
  if (!symbol) return nullptr;
  std::string text = fmt::format("```plan\n{}\n```\n", symbol->title);
  for (const std::string& part : {symbol->doc, symbol->text})
    if (!part.empty()) text += "\n" + part + "\n";
  std::string bytes;
  if (symbol->item) bytes = tell_item(analysis, symbol->item);
  if (symbol->kind == "layout") bytes = tell_layout(analysis, symbol->name);
  if (symbol->kind == "train" || symbol->kind == "serve")
    if (const PricedJob* job = priced(analysis, symbol->name)) bytes = tell_bill(*job);
  if (!bytes.empty()) text += "\n" + bytes + "\n";
  return {{"contents", {{"kind", "markdown"}, {"value", text}}},
          {"range", range(document.text, symbol->span.begin, symbol->span.end, encoding)}};
}

Json definition(const Document& document, const Analysis& analysis, std::uint32_t offset,
                Encoding encoding) {
  const auto symbol = assist::symbol_at(*analysis.module, analysis.file, offset);
  if (!symbol || !symbol->defined_at) return nullptr;
  const Sources& sources = analysis.module->sources();
  const SourceFile& file = sources[symbol->defined_at.file];
  std::string uri = uri_of_file(document, analysis, symbol->defined_at.file);
  if (file.is_prelude()) {
    const std::string path = prelude_copy(file);
    if (path.empty()) return nullptr;
    uri = uri_of(path);
  }
  return {{"uri", uri}, {"range", range(sources, symbol->defined_at, encoding)}};
}

Json completion(const Document& document, const Analysis& analysis, std::uint32_t offset,
                Encoding encoding, bool after_blank) {
  Json items = Json::array();
  if (!after_blank || operand_is_due(document.text, offset)) {
    const auto found = assist::completions_at(*analysis.module, analysis.file, offset);
    const Json where = range(document.text, found.begin, offset, encoding);
    std::size_t number = 0;
    for (const assist::Completion& one : found.candidates) {
      Json item = {{"label", one.label},
                   {"kind", completion_kind(one.kind)},
                   {"sortText", fmt::format("{:04}", number++)},
                   {"textEdit", {{"range", where}, {"newText", one.insert}}}};
      if (!one.detail.empty()) item["detail"] = one.detail;
      if (!one.doc.empty()) item["documentation"] = one.doc;
      items.push_back(std::move(item));
    }
  }
  return {{"isIncomplete", false}, {"items", std::move(items)}};
}

Json formatting(const Document& document, Encoding encoding) {
  Sources sources;
  Diagnostics diags;
  const ast::File file = parse(sources, sources.add(document.uri, document.text), diags);
  if (diags.has_errors()) return nullptr;
  const std::string text = print(file, sources);
  if (text == document.text) return Json::array();
  const auto end = static_cast<std::uint32_t>(document.text.size());
  return Json::array({{{"range", range(document.text, 0, end, encoding)}, {"newText", text}}});
}

Json symbols(const Document& document, const Analysis& analysis, Encoding encoding) {
  Json all = Json::array();
  const Places places(document.text, encoding);
  for (const assist::Outline& one : assist::outline(*analysis.module, analysis.file))
    all.push_back({{"name", fmt::format("{} {}", one.kind, one.name)},
                   {"detail", one.text},
                   {"kind", symbol_kind(one.kind)},
                   {"range", range(places, one.span.begin, one.span.end)},
                   {"selectionRange", range(places, one.name_span.begin, one.name_span.end)}});
  return all;
}

}  // namespace plimsoll::cli::lsp
