// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/exit_codes.hpp"
#include "cli/version.hpp"

int main(int argc, char** argv) {
  using namespace plimsoll::cli;
  CLI::App app(
      "Plans GPU memory: what a training or serving job puts in each GPU, and which layout fits.",
      "plimsoll");
  app.set_version_flag("--version", version_text(), "Print the version and what it was built with");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& mistake) {
    std::cerr << "plimsoll: " << mistake.what() << '\n';
    return kUserError;
  }
  std::cout << app.help();
  return kDone;
}
