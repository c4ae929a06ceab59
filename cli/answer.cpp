// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/answer.hpp"

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <variant>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/files.hpp"
#include "lang/diagnostics.hpp"

namespace plimsoll::cli {
namespace {

using Command = Outcome (*)(const Options&, const Terminal&);

const std::map<std::string, Command>& commands() {
  static const std::map<std::string, Command> all = {
      // clang-format off
      {"bill", bill},
      {"calibrate", calibrate},
      {"check", check},
      {"completions", completions},
      {"diagnose", diagnose},
      {"doctor", doctor},
      {"explain", explain},
      {"export", export_to},
      {"fmt", format},
      {"import", import},
      {"lsp", language_server},
      {"man", manual},
      {"plan", plan},
      {"timeline", timeline},
      {"verify", verify},
      // clang-format on
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

}  // namespace

Outcome answer(int argc, const char* const* argv, const Terminal& terminal) {
  try {
    const auto parsed = parse_arguments(argc, argv);
    if (const auto* done = std::get_if<Outcome>(&parsed)) return *done;
    const auto& options = std::get<Options>(parsed);
    return commands().at(options.command)(options, terminal);
  } catch (const std::bad_alloc&) {
    return our_bug("out of memory");
  } catch (const std::exception& error) {
    return our_bug(error.what());
  }
}

Outcome answer(const std::vector<std::string>& arguments, std::string_view input) {
  std::vector<const char*> argv = {"plimsoll"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const GivenInput given(input);
  return answer(static_cast<int>(argv.size()), argv.data(), Terminal{});
}

namespace {

/// What a file or a command line held, fit for a terminal: control characters as \xNN, lines cut
/// where nobody reads on.
std::string shown(const std::string& text) {
  constexpr std::size_t kLongest = 600;
  std::string out;
  std::size_t in_line = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool inside = (byte & 0xc0) == 0x80;  // of a character of several bytes
    in_line = c == '\n' ? 0 : in_line + (inside ? 0 : 1);
    if (in_line == kLongest && !inside) out += "…";
    if (in_line >= kLongest) continue;
    if ((byte < 0x20 && c != '\n') || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out;
}

}  // namespace

Outcome user_error(const std::string& message, const std::string& help) {
  return {kUserError, "", fmt::format("plimsoll: {}\nhelp: {}\n", shown(message), shown(help))};
}

}  // namespace plimsoll::cli
