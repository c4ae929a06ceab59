// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <memory>

#include "runtime/cuda/peers.hpp"
#include "runtime/wire.hpp"

/// Peers that are other GPUs, by NCCL, which is loaded when it is asked for. The wire carries what
/// NCCL starts with.
namespace plimsoll::runtime::cuda {

/// Every rank of the layout calls it, each on its own GPU. Both outlive it. Throws GpuError where
/// NCCL is not on this machine or fails.
std::unique_ptr<Peers> nccl_peers(Machine&, Wire&, const Layout&, std::int64_t expert_shard);

}  // namespace plimsoll::runtime::cuda
