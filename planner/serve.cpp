// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/serve.hpp"

namespace plimsoll {

Bill serve_bill(const Problem& p, const Layout&) {
  throw InternalError(fmt::format("serving job '{}': serving is not priced yet", p.job->name));
}

}  // namespace plimsoll
