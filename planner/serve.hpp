// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>

#include "planner/layout.hpp"
#include "planner/peak.hpp"

/// What a server puts in each GPU's memory, and how many sequences of full context it can hold.
///
/// The server takes a share of the memory that the driver reports (`utilization`). In it lie the
/// weights, what a step of `batch_tokens` needs, and what the framework lists; the rest is the pool
/// of cache blocks (FSDP.md R26, ACCOUNTING.md G). The context and what else the bill calls CUDA
/// context lies beside the share.
namespace plimsoll {

/// The bill of a resolved layout. `Layout::sequences` are those of the whole cluster, dealt out
/// over its dp replicas; 0 asks for as many as fit. `kv_blocks` and `kv_tokens` are of one replica,
/// as its engine prints them. In `StageBill`, the cache of those sequences is kv_cache, the rest of
/// the pool is buffers; where they do not fit in the share, what it leaves free is a line of its
/// own, so that peak_bytes <= hbm_bytes says what `fits` says.
///
/// A model with experts whose layout names neither ep nor etp divides them over tp, as engines do.
Bill serve_bill(const Problem&, const Layout&);

/// The sequences of full context that the cluster can hold at once.
std::int64_t max_sequences(const Problem&, Layout);

}  // namespace plimsoll
