// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/page/add_page.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "runtime/ranks.hpp"
#include "runtime/stage_plan.hpp"

namespace plimsoll::cli {

namespace {

std::string first_line(const std::string& text) {
  // A report wraps its first sentence; the next line of it is indented.
  std::string line = text.substr(0, text.find('\n'));
  for (std::size_t at = line.size(); at + 2 < text.size() && text.compare(at, 3, "\n  ") == 0;) {
    const std::size_t end = text.find('\n', at + 1);
    line += " " + text.substr(at + 3, end - at - 3);
    at = end == std::string::npos ? text.size() : end;
  }
  return line;
}

/// Is it the file that standard output was sent to? A terminal or a pipe can take both.
bool is_standard_output(const std::string& path) {
  struct stat there {
  }, out{};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(STDOUT_FILENO, &out) == 0 &&
         S_ISREG(out.st_mode) && there.st_dev == out.st_dev && there.st_ino == out.st_ino;
}

Outcome written(const Options& options, const std::string& page, Outcome outcome) {
  if (options.html == "-") {
    outcome.out = page;
    return outcome;
  }
  if (const std::string why = write_file(options.html, page); !why.empty())
    return user_error(fmt::format("cannot write '{}': {}", options.html, why),
                      "name a file in a folder that exists and may be written");
  outcome.err += fmt::format("plimsoll: the page is in '{}'\n", options.html);
  return outcome;
}

}  // namespace

std::optional<Outcome> html_mistake(const Options& options) {
  if (options.html.empty()) return std::nullopt;
  if (options.html == "-" && options.json)
    return user_error("--json and --html - both take standard output",
                      "name a file for the page: --html answer.html");
  if (!options.on.empty() || !options.against.empty())
    return user_error(fmt::format("--html shows one answer, and --{} asks for several",
                                  options.on.empty() ? "against" : "on"),
                      "leave one of them out");
  std::error_code ignored;
  if (options.file() != "-" && std::filesystem::equivalent(options.html, options.file(), ignored))
    return user_error(fmt::format("--html would overwrite '{}'", options.file()),
                      "name another file: --html answer.html");
  if (is_standard_output(options.html))
    return user_error(
        fmt::format("--html would overwrite '{}', where the answer goes", options.html),
        "name another file, or print the page in its place: --html -");
  return std::nullopt;
}

Outcome add_page(const Options& options, const Problem& problem, const PageOf& of,
                 const std::string& text, Outcome outcome) {
  if (options.html.empty() || outcome.code == kUserError) return outcome;
  Page page;
  page.command = options.command;
  page.file = options.file() == "-" ? "<stdin>" : options.file();
  page.problem = &problem;
  page.plan = of.plan;
  page.bill = of.bill;
  page.text = text;
  page.answer = first_line(text);
  // The heading stands under the verdict, and its layout below it.
  for (const std::string_view word : {"best: ", "fits: ", "does not fit: "})
    if (page.answer.starts_with(word)) page.answer.erase(0, word.size());
  if (!page.answer.empty() && page.answer[0] >= 'a' && page.answer[0] <= 'z')
    page.answer[0] = static_cast<char>(page.answer[0] - 'a' + 'A');
  const bool train = !problem.job->serve;
  const report::Heading heading =
      report::heading(problem, of.bill != nullptr ? of.bill->layout : Layout{});
  page.heading = &heading;
  std::optional<runtime::StagePlan> plan;
  runtime::Timeline timeline;
  std::optional<Workshop> shop;
  if (of.bill != nullptr && train) {
    const Layout& layout = of.bill->layout;
    plan.emplace(problem, layout,
                 of.rank.value_or(runtime::rank_in_stage(layout, 0, of.bill->peak_stage)));
    timeline = runtime::timeline(*plan, kPageColumns, true);
    page.timeline = &timeline;
    shop = workshop(problem, layout);
    if (shop) page.workshop = &*shop;
  }
  return written(options, html(page), std::move(outcome));
}

}  // namespace plimsoll::cli
