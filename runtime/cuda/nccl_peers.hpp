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

/// Groups of ranks that are measured and no more.
class Circles {
 public:
  virtual ~Circles() = default;
  /// Of this rank's own group of that number; nullptr: it is in none.
  virtual Circle* circle(std::size_t) = 0;
  virtual void stop() = 0;  ///< as Peers::stop()
};

/// \a groups: lists of groups that share no rank; all ranks give the same. Throws as nccl_peers(),
/// and host::Stopped.
std::unique_ptr<Circles> nccl_circles(
    Machine&, Wire&, const std::vector<std::vector<std::vector<std::int64_t>>>& groups);

}  // namespace plimsoll::runtime::cuda
