// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdlib>
#include <random>

namespace plimsoll::test {

/// PLIMSOLL_SEED (`./dev test` sets it, so that a change is judged by what it changes), or one of
/// this run's own.
inline unsigned seed_of_run() {
  const char* given = std::getenv("PLIMSOLL_SEED");
  return given ? static_cast<unsigned>(std::atoll(given)) : std::random_device{}();
}

}  // namespace plimsoll::test
