// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

namespace plimsoll::cli {

/// The program's version, and the compiler and libraries it was built with: what a bug report
/// needs.
std::string version_text();
/// "0.1.0"
std::string version_number();
std::string compiler_text();  ///< "g++ 12.2.0"
std::string build_type();     ///< "Release"
std::string z3_built();       ///< the version that the build found
std::string cuda_toolkit();   ///< of the build; "" where it had none

}  // namespace plimsoll::cli
