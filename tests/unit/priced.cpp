// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "tests/unit/priced.hpp"

namespace plimsoll::test {

std::string data(const std::string& name) {
  return std::string(PLIMSOLL_SOURCE_DIR) + "/tests/data/" + name;
}

}  // namespace plimsoll::test
