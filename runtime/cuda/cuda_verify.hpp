// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/cuda/cuda_run.hpp"
#include "runtime/verify.hpp"
#include "runtime/wire.hpp"

/// `verify --device cuda`: one rank at full size on one GPU, whose peers are stood in for; or,
/// where as many processes were started as there are ranks, all of them.
namespace plimsoll::runtime::cuda {

/// What \a steps steps of \a rank showed on \a machine or, in words, why they are not run:
/// arithmetic that the device does not do, or a GPU without the free memory that the run needs. The
/// allocator gets what the replay says that its segments come to, or \a limit where that is less. A
/// step's predicted seconds are the time model's for the whole layout, without waiting for other
/// stages.
std::variant<Verification, std::string> verify_on(Machine& machine, const Problem&, const Bill&,
                                                  std::int64_t rank,
                                                  std::optional<std::int64_t> limit, int steps);

/// The same of every rank of the layout, each a process with a GPU of its own (which \a open gives,
/// or throws), with NCCL between them. What comes back is whole on rank 0 alone; `ranks`: those
/// that are set beside the bill. A rank that runs out of memory, fails or ends without a word stops
/// the others, wherever they wait; rank 0 has the report of the first that failed.
using OpenMachine = std::function<std::unique_ptr<Machine>()>;
std::variant<Verification, std::string> verify_together(const OpenMachine& open, Wire&,
                                                        const Problem&, const Bill&,
                                                        const std::vector<std::int64_t>& ranks,
                                                        std::optional<std::int64_t> limit,
                                                        int steps);

}  // namespace plimsoll::runtime::cuda
