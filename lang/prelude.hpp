// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

namespace plimsoll::lang {

/// A file of the prelude (lang/prelude/*.plan), embedded in the binary when it is built.
struct PreludeFile {
  const char* name;  ///< as diagnostics show it: "prelude/gpus.plan"
  const char* text;
};
extern const PreludeFile kPreludeFiles[];
extern const unsigned kPreludeFileCount;

}  // namespace plimsoll::lang
