// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

namespace plimsoll::cli::lsp {

/// Serves one editor over two file descriptors until it says `exit` or goes. Returns what the
/// protocol asks of the program's exit code: 0 after `shutdown`, else 1.
int serve(int in, int out);

}  // namespace plimsoll::cli::lsp
