// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/peak.hpp"
#include "planner/report_style.hpp"

/// A bill as people and programs read it: the answer first, then what it is made of. Text is for a
/// terminal; JSON is `plimsoll.bill/1` (docs/schemas/bill.schema.json). The same bill gives the
/// same bytes.
namespace plimsoll::report {

/// What a report says of a job besides its bill.
struct Heading {
  std::string job, model, framework;
  std::string cluster;  ///< "64 × h100_sxm"
  std::string layout;   ///< describe(): "tp 8 · pp 4 · dp 2 …"
  bool serve = false;
  std::int64_t context = 0;   ///< serve: tokens a sequence holds at most
  std::string reserved_note;  ///< how reserved follows from allocated: "× 1.08, …"
  std::vector<std::string> recompute_modes = {"none", "full"};
  std::vector<std::string> pools;      ///< their names
  double imbalance = 1;                ///< routed tokens over balanced ones
  std::optional<double> step_seconds;  ///< train: of the layout, by the time model
};

Heading heading(const Problem&, const Layout&);

/// What a GPU keeps in host memory: "optimizer states", "activations".
std::string on_host(const Problem&, const Layout&);

/// One sentence: "does not fit: stage 0 needs 91.20 GiB of 79.18 GiB (12.02 GiB over), at backward
/// of layer 19".
std::string answer(const Heading&, const Bill&);

/// "range 71.90 GiB to 73.60 GiB (90 % of 79 measured runs)", or why none is known.
std::string range_text(const Range&);

/// The whole bill. \a stage: whose items are listed, by default those of the peak stage; it must be
/// one of the bill's.
std::string bill_text(const Heading&, const Bill&, const Style&,
                      std::optional<std::int64_t> stage = std::nullopt);

/// Two bills of one job side by side: the difference of each category, and the items that make most
/// of it, at the peak stage of each.
std::string against_text(const Heading&, const Bill&, const Heading& other_heading,
                         const Bill& other, const Style&);

/// `plimsoll.bill/1`, one object, ends with a newline.
std::string bill_json(const Heading&, const Bill&);
/// The object `range` of a bill and of a plan's best.
std::string range_json(const Range&);
/// Two bills set side by side: {"schema": "plimsoll.against/1", "bill": {…}, "against": {…}}.
std::string against_json(const Heading&, const Bill&, const Heading& other_heading,
                         const Bill& other);
/// Likewise where no layout is possible: job, status "infeasible" and the reason.
std::string no_bill_json(const Problem&, const std::string& why);

/// The object `layout` of plimsoll.bill/1 and plimsoll.plan/1. \a pools: names of the cluster's.
std::string layout_json(const Layout&, const std::vector<std::string>& recompute_modes,
                        const std::vector<std::string>& pools = {});

}  // namespace plimsoll::report
