// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/layout.hpp"

/// What the fullest GPU would hold at one layout's degrees if the model, the micro-batch, the
/// sequence, attention, recomputation or ZeRO were others: a table of every combination, for the
/// page's workshop.
namespace plimsoll {

struct Workshop {
  struct Point {
    bool possible = false;
    std::int64_t stage = 0;  ///< the tightest one
    Int128 peak_bytes = 0, hbm_bytes = 0;
    std::array<Int128, kCategoryCount> categories{};  ///< add up to peak_bytes
  };
  struct Model {
    std::string name;
    Int128 params = 0;
  };

  std::vector<Model> models;  ///< the job's own first
  std::vector<std::string> attentions, recomputes;
  std::vector<std::int64_t> zeros;    ///< stages of ZeRO
  std::vector<std::int64_t> seqs;     ///< tokens a sequence, ascending
  std::vector<std::int64_t> batches;  ///< sequences a micro-batch, ascending
  /// Where the layout itself stands among them.
  std::size_t attention = 0, recompute = 0, zero = 0, batch = 0, seq = 0;
  /// The last of (model, attention, recompute, zero, batch, seq) runs fastest.
  std::vector<Point> points;

  std::size_t index(std::size_t model, std::size_t attention_, std::size_t recompute_,
                    std::size_t zero_, std::size_t batch_, std::size_t seq_) const {
    std::size_t at = model * attentions.size() + attention_;
    at = at * recomputes.size() + recompute_;
    at = at * zeros.size() + zero_;
    return (at * batches.size() + batch_) * seqs.size() + seq_;
  }
};

/// nullopt for a serve job. Other models are those of the prelude that the layout's degrees can
/// divide. \a layout is resolved.
std::optional<Workshop> workshop(const Problem&, const Layout& layout);

}  // namespace plimsoll
