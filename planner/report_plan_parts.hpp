// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <vector>

#include "planner/enumerate.hpp"
#include "planner/report_bill.hpp"
#include "planner/report_style.hpp"

/// Parts that the reports of plans are made of.
namespace plimsoll::report {

double seconds(const Priced&);  ///< of a step
/// "5.231 s", "812.4 ms".
std::string duration(double seconds);
/// "8,192", rounded.
std::string whole(double);
/// "12.3", "1,135": days.
std::string days_text(double days);

/// What the job leaves open besides the layout: "seq = 16Ki  nodes = 4"; "" where nothing.
std::string open_fields(const Problem&, const Layout&);
/// Used of what there is: "61.32 GiB of 79.18 GiB (17.86 GiB left, 22.6 %)".
std::string memory(const Priced&);

/// What the time of a step is spent on.
struct Cause {
  const char* name;
  double StepTime::*seconds;
};
inline constexpr Cause kCauses[] = {{"compute", &StepTime::compute},
                                    {"recomputation", &StepTime::recompute},
                                    {"tensor-parallel traffic", &StepTime::tp},
                                    {"context-parallel traffic", &StepTime::cp},
                                    {"expert traffic", &StepTime::ep},
                                    {"data-parallel traffic", &StepTime::dp},
                                    {"sends between stages", &StepTime::p2p},
                                    {"pipeline bubble", &StepTime::bubble},
                                    {"optimizer", &StepTime::optimizer}};

/// Steps that differ by less than the time model can tell.
bool is_tie(const Priced& best, const Priced& other);
/// "+2.0 %, a tie: pipeline bubble": the largest difference of a cause.
std::string lost_time(const Priced& best, const Priced& other);
/// "peak +4.2 %": of another objective, whatever preferences add to it.
std::string lost_value(const PlanResult&, const Priced& best, const Priced& other);

/// "pretrain · llama3_70b, 70,553,706,496 parameters · megatron · 64 × h100_sxm (8 nodes)".
std::string plan_title(const Problem&, const Heading&, const Style&);

/// The categories of a stage at its peak, largest first: "activations 31.20 GiB, …".
std::string largest(const StageBill&, std::size_t how_many);
/// Likewise its items.
std::string largest_items(const StageBill&, std::size_t how_many);
const StageBill& peak_stage(const Bill&);

}  // namespace plimsoll::report
