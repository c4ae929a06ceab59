// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/host/host_run.hpp"
#include "runtime/verify.hpp"

/// `verify --device host`: all ranks run with real numbers; those that were asked for are set
/// beside the bill.
namespace plimsoll::runtime::host {

/// What \a steps steps showed (of one text, so that the loss falls) or, in words, why they are not
/// run at all: arithmetic that the host does not do, or tensors that
/// would take more than \a limit bytes (nullopt: half of this machine's memory) together. Within
/// the limit an allocation may still fail, for what segments hold beyond tensors. \a wire: to the
/// other ranks where each is a process; rank 0 alone knows what was seen.
std::variant<Verification, std::string> verify_host(const Problem&, const Bill&,
                                                    const std::vector<std::int64_t>& ranks,
                                                    std::optional<std::int64_t> limit,
                                                    int steps = 2, Wire* wire = nullptr);

}  // namespace plimsoll::runtime::host
