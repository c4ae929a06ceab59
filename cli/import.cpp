// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/import.hpp"

#include <fmt/format.h>

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
  auto input = read_input(options.file());
  if (auto* unreadable = std::get_if<Outcome>(&input)) return std::move(*unreadable);
  request.name = std::get<Input>(input).name;
  request.text = std::move(std::get<Input>(input).text);
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
