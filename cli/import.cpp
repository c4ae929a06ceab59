// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cli/command.hpp"
#include "cli/files.hpp"

namespace plimsoll::cli {

Outcome import(const Options& options, const Terminal&) {
  imports::Request request;
  for (const std::string& pair : options.set) {
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos)
      return user_error(fmt::format("--set expects FIELD=VALUE, found '{}'", pair),
                        "such as --set te_version=2.11");
    request.set.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string& file : options.files) {
    auto input = read_input(file);
    if (auto* unreadable = std::get_if<Outcome>(&input)) return std::move(*unreadable);
    files.emplace_back(std::get<Input>(input).name, std::move(std::get<Input>(input).text));
  }
  // Of several files, the one that a job can be made of is read, with the others beside it.
  if (files.size() > 1 && !imports::looks_like_deepspeed(files.front().second)) {
    const auto job = std::find_if(files.begin(), files.end(), [](const auto& file) {
      return imports::looks_like_deepspeed(file.second);
    });
    if (job == files.end())
      return user_error("import takes one file, or a DeepSpeed JSON with a config.json",
                        "run it once for each");
    std::iter_swap(files.begin(), job);
  }
  request.name = files.front().first;
  request.text = std::move(files.front().second);
  request.others.assign(std::next(files.begin()), files.end());
  request.gpu = options.gpu;
  request.gpus = options.gpus;
  imports::Imported imported = imports::import_plan(options.from, request);
  Outcome outcome;
  for (const std::string& note : imported.notes) outcome.err += "plimsoll: " + note + "\n";
  for (const imports::Mistake& mistake : imported.mistakes)
    outcome.err += user_error(mistake.what, mistake.help).err;
  if (!imported.mistakes.empty()) outcome.code = kUserError;
  outcome.out = std::move(imported.plan);
  return outcome;
}

}  // namespace plimsoll::cli
