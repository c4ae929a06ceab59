// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

namespace plimsoll::cli {

/// What the program says to a shell (docs/language.md, "Commands").
enum ExitCode : int {
  kDone = 0,
  kUserError = 1,      ///< a mistake in a file, on the command line or in its surroundings
  kNoLayoutFits = 2,   ///< a valid question whose answer is no
  kInternalError = 3,  ///< our bug
  kDisagreed = 4,      ///< verification saw something else than was predicted
  kInterrupted = 130,  ///< by the user; the best so far was printed and marked so
};

}  // namespace plimsoll::cli
