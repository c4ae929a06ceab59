// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/report_bill.hpp"

/// Parts that several reports are made of.
namespace plimsoll::report {

/// "kv_cache" as people read it: "KV cache".
std::string_view label(Category);

/// A noun and what its plural adds.
inline constexpr std::string_view kMicroBatch = "micro-batch", kSequence = "sequence",
                                  kBlock = "block", kToken = "token";

/// "1 layer", "1,024 layers", "4 micro-batches".
std::string count_of(Int128 count, std::string_view noun);

/// "+1.00 GiB", "−1.00 GiB", "0 B".
std::string signed_bytes(Int128);

/// The stage of this number; InternalError where the bill has none.
const StageBill& stage_of(const Bill&, std::int64_t stage);

/// Job, model, framework, cluster and layout, each line ended.
std::string title(const Heading&, const Bill&, const Style&);

/// "stage 2, 21 layers, 4 micro-batches in flight"; its moment where the answer has not said it.
std::string stage_heading(const Heading&, const Bill&, const StageBill&);

/// The lines of one category, largest first; equal ones stay in the inventory's order.
std::vector<const BillLine*> lines_of(const StageBill&, Category);

/// A line a category, each starting where the one before it ends, against the memory of the GPU:
/// what stands beyond the line does not fit.
std::string bars(const StageBill&, Int128 hbm_bytes, const Style&);

/// A line a stage with its sums; neighbours that are equal in all of it share one ("stages 1–14").
std::string stage_table(const Heading&, const Bill&, const Style&);

}  // namespace plimsoll::report
