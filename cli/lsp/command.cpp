// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/command.hpp"

#include <unistd.h>

#include "cli/lsp/server.hpp"

namespace plimsoll::cli {

Outcome language_server(const Options&, const Terminal&) {
  Outcome outcome;
  outcome.code = lsp::serve(STDIN_FILENO, STDOUT_FILENO);
  return outcome;
}

}  // namespace plimsoll::cli
