// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "planner/coupled_tables.hpp"
#include "planner/list_terms.hpp"
#include "planner/smt.hpp"

/// The tables of solve_coupled() as clauses. Private to it.
///
/// Layers of a stage are an integer, bounds of which are the order encoding's literals; a cell's
/// pace and tail are lower bounds of further integers, so that the time of a step is a sum that the
/// solver need only keep below a bound. What two neighbours of a stage make of its offset enters
/// only where a cell depends on it.
namespace plimsoll {

/// Ways of dealing the layers, as counts of a round and recomputed layers of each stage.
struct Dealt {
  std::vector<std::int64_t> counts, recomputed;
  std::int64_t nanoseconds = 0;
};

class CoupledQuery {
 public:
  CoupledQuery(const StageTables&, const Composition&, std::int64_t chunks);

  smt::Solver& solver() { return solver_; }
  const smt::Solver& solver() const { return solver_; }
  /// The lists as conditions see them; the second is empty unless the tables are by recomputed.
  std::vector<Linear> stage_layers() const;
  std::vector<Linear> recompute_layers() const;

  /// A literal to assume.
  smt::Term within(std::int64_t nanoseconds);
  smt::Term layers_at_most(std::size_t stage, std::int64_t count);
  smt::Term layers_at_least(std::size_t stage, std::int64_t count);
  smt::Term recomputed_at_most(std::size_t stage, std::int64_t recomputed);
  smt::Term recomputed_at_least(std::size_t stage, std::int64_t recomputed);

  /// One of these lists of layers (recomputed layers) from now on.
  void require_layers(const std::vector<std::vector<std::int64_t>>&);
  void require_recomputed(const std::vector<std::vector<std::int64_t>>&);
  /// Anything but this from now on: another value of at least one entry of those, where there are
  /// any, else of all.
  void block(const Dealt&, const EntriesRead&);

  struct Found {
    smt::Answer answer = smt::Answer::unknown;
    Dealt dealt;  ///< where sat; its time follows from the tables
  };
  Found check(std::int64_t units, std::span<const smt::Term> assumptions,
              const std::function<bool()>& stop = {});
  /// Past every way's.
  std::int64_t most_nanoseconds() const { return most_; }

 private:
  using Bound = std::pair<std::uint32_t, std::int64_t>;  ///< a term and a bound of it

  void deal();
  void forbid_gaps(std::size_t stage);
  void allow_recomputed(std::size_t stage);
  void price();
  void bound_below(std::size_t stage, smt::Term what, bool tail);
  void relate_sum_to_slowest(smt::Term sum);
  void cut_below(std::size_t stage, smt::Term what, bool recomputed);
  smt::Term offset(std::size_t stage);
  smt::Term literal(smt::Term atom);
  smt::Term at_least(smt::Term, std::int64_t);
  smt::Term at_most(smt::Term, std::int64_t);
  smt::Term not_at_least(smt::Term x, std::int64_t v) { return at_most(x, v - 1); }
  /// The literals of "not this count (at these offsets)".
  std::vector<smt::Term> elsewhere(std::size_t stage, std::int64_t count, std::int64_t first,
                                   std::int64_t last);
  void require_one(const std::vector<smt::Term>& of,
                   const std::vector<std::vector<std::int64_t>>& lists, std::int64_t unit);
  std::optional<Dealt> decode();

  const StageTables& tables_;
  const Composition composition_;
  const std::int64_t chunks_;
  smt::Solver solver_;
  std::vector<smt::Term> counts_, recomputed_;
  std::vector<std::pair<std::int64_t, std::int64_t>> count_range_, recomputed_range_, offset_range_;
  std::vector<std::optional<smt::Term>> offsets_;
  std::map<Bound, smt::Term> at_least_, at_most_, assumed_;
  std::optional<smt::Term> slowest_, tail_;
  smt::Term time_;       ///< `of` times the nanoseconds of a step, less what is constant
  Int128 constant_ = 0;  ///< of `time_`
  std::int64_t most_ = 0;
};

}  // namespace plimsoll
