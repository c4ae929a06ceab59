// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <exception>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <variant>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/streams.hpp"
#include "lang/diagnostics.hpp"

namespace plimsoll::cli {
namespace {

using Command = Outcome (*)(const Options&, const Terminal&);

const std::map<std::string, Command>& commands() {
  static const std::map<std::string, Command> all = {
      {"bill", bill},           {"calibrate", calibrate},
      {"check", check},         {"completions", completions},
      {"doctor", doctor},       {"explain", explain},
      {"fmt", format},          {"import", import},
      {"lsp", language_server}, {"man", manual},
      {"plan", plan},           {"timeline", timeline},
      {"verify", verify},
  };
  return all;
}

Outcome our_bug(const char* what) {
  return {
      kInternalError, "",
      fmt::format("plimsoll: internal error: {}\n"
                  "help: this is a bug of plimsoll, not of your file; please report it with the "
                  "file, the command and what 'plimsoll --version' prints\n",
                  what)};
}

Outcome run(int argc, char** argv) {
  try {
    const auto parsed = parse_arguments(argc, argv);
    if (const auto* done = std::get_if<Outcome>(&parsed)) return *done;
    const auto& options = std::get<Options>(parsed);
    return commands().at(options.command)(options, look_at_terminal());
  } catch (const std::bad_alloc&) {
    return our_bug("out of memory");
  } catch (const std::exception& error) {
    return our_bug(error.what());
  }
}

}  // namespace

Outcome user_error(const std::string& message, const std::string& help) {
  return {kUserError, "", fmt::format("plimsoll: {}\nhelp: {}\n", message, help)};
}

}  // namespace plimsoll::cli

int main(int argc, char** argv) {
  plimsoll::cli::prepare_streams();
  return plimsoll::cli::say(plimsoll::cli::run(argc, argv));
}
