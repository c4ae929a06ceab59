// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The exact dynamic programme over stages.

#include <algorithm>
#include <limits>

#include "planner/inner.hpp"

namespace plimsoll {

namespace {

constexpr Int128 kNever = Int128{1} << 100;

/// What the stages from one on to the last add to a step, for one way of dealing their layers.
struct Label {
  std::int64_t slowest = 0, tail = 0;
  Int128 sum = 0;

  bool covers(const Label& o) const {
    return slowest <= o.slowest && tail <= o.tail && sum <= o.sum;
  }
};

/// Adds a label to a Pareto front.
void add(std::vector<Label>& front, const Label& label) {
  for (const Label& l : front)
    if (l.covers(label)) return;
  std::erase_if(front, [&](const Label& l) { return label.covers(l); });
  front.push_back(label);
}

/// A stage's possible count of layers at an offset.
struct Option {
  std::int64_t count = 0, pace = 0, tail = 0;
};

/// The least that stages in front of an offset add, each of its own.
struct Before {
  Int128 sum = kNever;
  std::int64_t slowest = 0, tail = 0;
  bool reached() const { return sum < kNever; }
};

class Programme {
 public:
  Programme(Inner& inner, std::int64_t cutoff)
      : inner_(inner),
        cutoff_(cutoff),
        stages_(inner.stages()),
        round_(inner.round_layers()),
        composition_(inner.composition()) {}

  /// Is there a way that fits, whatever its time?
  bool feasible();
  /// Where there is: the peak bytes of the one that was found.
  std::int64_t peak_of_found();
  std::optional<InnerSolution> solve(const std::vector<std::int64_t>& usual);

 private:
  std::size_t at(std::int64_t stage, std::int64_t offset) const {
    return static_cast<std::size_t>(stage * (round_ + 1) + offset);
  }
  /// Of a step; past `cutoff_` exactness does not matter.
  Int128 step(std::int64_t slowest, Int128 sum, std::int64_t tail) const {
    const Composition& c = composition_;
    const Int128 scaled = (Int128{c.microbatches} * c.of - c.idle) * slowest + c.idle * sum;
    return (scaled + c.of - 1) / c.of + c.sends + tail;
  }
  /// False where the most layers that each stage can hold, as far as what stands and its time
  /// without recomputation go, do not add up to the model.
  bool may_have_room();
  /// After that, the same of all that they hold and all their time.
  bool has_room();
  /// Where has_room() looks at a stage that holds that many layers.
  std::int64_t looked_at(std::int64_t stage, std::int64_t count) const {
    return stage == 0 ? 0 : stage + 1 == stages_ ? round_ - count : std::int64_t{1};
  }
  bool in_time(std::int64_t pace, std::int64_t tail) const {
    return step(pace, std::max(least_sum_, pace), tail) <= cutoff_;
  }
  bool fill(std::int64_t stage, std::int64_t offset);
  void collect_options();
  void add_options(std::int64_t stage, std::int64_t offset);
  void collect_labels();
  std::optional<std::int64_t> time_of(const std::vector<std::int64_t>& counts);
  InnerSolution with_recomputation(const std::vector<std::int64_t>& counts, std::int64_t ns);
  std::vector<std::int64_t> first_with(std::int64_t ns) const;

  Inner& inner_;
  std::int64_t cutoff_, stages_, round_;
  Composition composition_;
  /// By stage, where has_room() knows it: the most layers that it can hold.
  std::vector<std::int64_t> most_;
  std::int64_t room_ = 0;                     ///< of `most_`, added up
  std::int64_t least_sum_ = 0;                ///< no paces add up to less
  std::vector<std::int64_t> found_;           ///< by stage: layers of a way that fits
  std::vector<bool> dead_;                    ///< [at(stage, offset)]: no way leads on from there
  std::vector<std::vector<Option>> options_;  ///< [at(stage, offset)]
  std::vector<Before> before_;
  std::vector<std::vector<Label>> labels_;  ///< of the stages from `stage` on
};

bool Programme::may_have_room() {
  if (!inner_.uniform() || stages_ < 2) return true;
  most_.assign(static_cast<std::size_t>(stages_), 0);
  // Those between the ends are alike.
  const bool alike = !inner_.numbered_stages() && !inner_.unlike_memories();
  const auto collect = [&](const auto& most_of) {
    room_ = 0;
    for (std::int64_t i = 0; i < stages_; ++i) {
      std::int64_t& n = most_[static_cast<std::size_t>(i)];
      n = alike && i > 1 && i + 1 < stages_ ? most_[1] : most_of(i, n);
      room_ += n;
    }
    return room_ >= round_;
  };
  if (!collect([&](std::int64_t i, std::int64_t) { return inner_.most_standing(i); })) return false;
  if (cutoff_ == Inner::kNoLimit) return true;
  // On equal GPUs all paces add up to no less than that of one stage with the whole model.
  least_sum_ = inner_.unlike_memories() ? 0 : inner_.least_pace(0, 0, round_);
  return collect([&](std::int64_t i, std::int64_t limit) {
    return most_with(limit, [&](std::int64_t count) {
      return in_time(inner_.least_pace(i, looked_at(i, count), count), 0);
    });
  });
}

bool Programme::has_room() {
  if (most_.empty()) return true;
  // What fits with its activations, and in time with what it must recompute: those in front first,
  // since they keep the most micro-batches.
  for (std::int64_t i = 0; i < stages_; ++i)
    for (std::int64_t& n = most_[static_cast<std::size_t>(i)]; n > 0; --n, --room_) {
      if (room_ < round_) return false;
      const StageChoice& choice = inner_.least(i, looked_at(i, n), n);
      if (choice.fits && in_time(choice.pace, choice.tail)) break;
    }
  return room_ >= round_;
}

/// Options of every offset that is reached from the first stage, and the least on the way there.
void Programme::collect_options() {
  const std::size_t cells = static_cast<std::size_t>((stages_ + 1) * (round_ + 1));
  options_.assign(cells, {});
  before_.assign(cells, {});
  before_[at(0, 0)].sum = 0;
  for (std::int64_t i = 0; i < stages_; ++i)
    for (std::int64_t o = i; o <= round_ - (stages_ - i); ++o)
      if (before_[at(i, o)].reached()) add_options(i, o);
}

void Programme::add_options(std::int64_t i, std::int64_t o) {
  const Before& here = before_[at(i, o)];
  const std::int64_t left = stages_ - i - 1;  // stages behind this one need a layer each
  const std::int64_t first = left == 0 ? round_ - o : 1;
  for (std::int64_t count = first; count <= round_ - o - left; ++count) {
    if (cutoff_ < Inner::kNoLimit) {
      const std::int64_t pace = inner_.least_pace(i, o, count);
      if (step(std::max(pace, here.slowest), here.sum + pace, here.tail) > cutoff_) break;
    }
    const StageChoice& choice = inner_.least(i, o, count);
    if (!choice.fits) {
      if (inner_.hopeless(i, o, count)) break;
      continue;
    }
    const Before sofar{here.sum + choice.pace, std::max(here.slowest, choice.pace),
                       std::max(here.tail, choice.tail)};
    if (step(sofar.slowest, sofar.sum, sofar.tail) > cutoff_) continue;
    options_[at(i, o)].push_back({count, choice.pace, choice.tail});
    Before& there = before_[at(i + 1, o + count)];
    if (!there.reached()) {
      there = sofar;
    } else {
      there.sum = std::min(there.sum, sofar.sum);
      there.slowest = std::min(there.slowest, sofar.slowest);
      there.tail = std::min(there.tail, sofar.tail);
    }
  }
}

void Programme::collect_labels() {
  labels_.assign(options_.size(), {});
  labels_[at(stages_, round_)].push_back({});
  for (std::int64_t i = stages_ - 1; i >= 0; --i)
    for (std::int64_t o = i; o <= round_ - (stages_ - i); ++o) {
      const Before& before = before_[at(i, o)];
      std::vector<Label>& front = labels_[at(i, o)];
      for (const Option& option : options_[at(i, o)])
        for (const Label& rest : labels_[at(i + 1, o + option.count)]) {
          const Label label{std::max(rest.slowest, option.pace), std::max(rest.tail, option.tail),
                            rest.sum + option.pace};
          if (step(std::max(label.slowest, before.slowest), label.sum + before.sum,
                   std::max(label.tail, before.tail)) <= cutoff_)
            add(front, label);
        }
    }
}

bool Programme::feasible() {
  if (round_ < stages_ || inner_.too_much() || !may_have_room() || !has_room()) return false;
  found_.assign(static_cast<std::size_t>(stages_), 0);
  dead_.assign(static_cast<std::size_t>(stages_ * (round_ + 1)), false);
  return fill(0, 0);
}

/// Deals the layers from an offset on, to each stage as many as it can hold, to fewer where that
/// leads nowhere.
bool Programme::fill(std::int64_t i, std::int64_t o) {
  if (dead_[at(i, o)]) return false;
  const bool is_last = i + 1 == stages_;
  const std::int64_t left = round_ - o - (stages_ - i - 1);  // stages behind need a layer each
  std::int64_t count =
      most_.empty() ? most_with(left, [&](std::int64_t n) { return !inner_.hopeless(i, o, n); })
                    : std::min(left, most_[static_cast<std::size_t>(i)]);
  for (; count >= (is_last ? left : 1); --count) {
    if (!inner_.least(i, o, count).fits) continue;
    found_[static_cast<std::size_t>(i)] = count;
    if (is_last || fill(i + 1, o + count)) return true;
  }
  dead_[at(i, o)] = true;
  return false;
}

std::int64_t Programme::peak_of_found() {
  std::int64_t most = 0, offset = 0;
  for (std::int64_t i = 0; i < stages_; ++i) {
    const std::int64_t count = found_[static_cast<std::size_t>(i)];
    most =
        std::max(most, inner_.bytes(i, offset, count, inner_.least(i, offset, count).recomputed));
    offset += count;
  }
  return most;
}

/// Of the split with these counts of layers a round; nullopt where it does not fit.
std::optional<std::int64_t> Programme::time_of(const std::vector<std::int64_t>& counts) {
  std::int64_t slowest = 0, tail = 0, offset = 0;
  Int128 sum = 0;
  for (std::int64_t i = 0; i < stages_; ++i) {
    const std::int64_t count = counts[static_cast<std::size_t>(i)];
    const StageChoice& choice = inner_.least(i, offset, count);
    if (!choice.fits) return std::nullopt;
    slowest = std::max(slowest, choice.pace);
    tail = std::max(tail, choice.tail);
    sum += choice.pace;
    offset += count;
  }
  return composition_.step(slowest, sum, tail);
}

InnerSolution Programme::with_recomputation(const std::vector<std::int64_t>& counts,
                                            std::int64_t ns) {
  InnerSolution out;
  out.nanoseconds = ns;
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < stages_; ++i) {
    const std::int64_t count = counts[static_cast<std::size_t>(i)];
    out.stage_layers.push_back(count * inner_.chunks());
    if (inner_.recomputes())
      out.recompute_layers.push_back(inner_.least(i, offset, count).recomputed);
    offset += count;
  }
  return out;
}

/// The first counts, in their order, of a step of \a ns.
std::vector<std::int64_t> Programme::first_with(std::int64_t ns) const {
  std::vector<std::int64_t> counts;
  std::int64_t offset = 0;
  Label sofar;
  for (std::int64_t i = 0; i < stages_; ++i)
    for (const Option& option : options_[at(i, offset)]) {
      const Label next{std::max(sofar.slowest, option.pace), std::max(sofar.tail, option.tail),
                       sofar.sum + option.pace};
      const auto& rest = labels_[at(i + 1, offset + option.count)];
      if (std::none_of(rest.begin(), rest.end(), [&](const Label& l) {
            return step(std::max(next.slowest, l.slowest), next.sum + l.sum,
                        std::max(next.tail, l.tail)) <= ns;
          }))
        continue;
      counts.push_back(option.count);
      offset += option.count;
      sofar = next;
      break;
    }
  return counts;
}

std::optional<InnerSolution> Programme::solve(const std::vector<std::int64_t>& usual) {
  if (round_ < stages_ || inner_.too_much()) return std::nullopt;
  if (!may_have_room()) return std::nullopt;
  std::optional<std::int64_t> of_usual;
  if (!usual.empty()) of_usual = time_of(usual);
  if (of_usual && *of_usual < cutoff_) {
    cutoff_ = *of_usual;
    if (!may_have_room()) return std::nullopt;
  }
  if (!has_room()) return std::nullopt;
  collect_options();
  if (!before_[at(stages_, round_)].reached()) return std::nullopt;
  collect_labels();
  Int128 best = kNever;
  for (const Label& l : labels_[at(0, 0)]) best = std::min(best, step(l.slowest, l.sum, l.tail));
  if (best > cutoff_) return std::nullopt;
  const auto ns = std::max<std::int64_t>(static_cast<std::int64_t>(best), 1);
  if (of_usual == ns) return with_recomputation(usual, ns);
  return with_recomputation(first_with(static_cast<std::int64_t>(best)), ns);
}

/// Layers a round of the default split; empty where it cannot be cut in chunks.
std::vector<std::int64_t> usual_counts(const Inner& inner, const Problem& problem) {
  const std::int64_t vpp = inner.chunks();
  if (inner.round_layers() < inner.stages()) return {};
  std::vector<std::int64_t> layers =
      default_stage_layers(problem.program->layer_count, inner.stages());
  for (std::int64_t& n : layers) {
    if (n % vpp != 0) return {};
    n /= vpp;
  }
  return layers;
}

}  // namespace

Layout with_lists(Layout outer, const InnerSolution& solution) {
  outer.stage_layers = solution.stage_layers;
  outer.recompute_layers = solution.recompute_layers;
  return outer;
}

std::optional<InnerSolution> solve(Inner& inner, const Problem& problem, std::int64_t cutoff) {
  return Programme(inner, cutoff).solve(usual_counts(inner, problem));
}

bool can_fit(Inner& inner) { return Programme(inner, Inner::kNoLimit).feasible(); }

std::optional<InnerSolution> solve_for_peak(Inner& inner, const Problem& problem,
                                            const Layout& outer, std::int64_t cap) {
  // The peak of some way that fits under a cap; -1 where none does.
  const auto peak_under = [&](std::int64_t bytes) {
    inner.set_beyond_memory(outer, bytes);
    Programme programme(inner, Inner::kNoLimit);
    return programme.feasible() ? programme.peak_of_found() : -1;
  };
  std::int64_t fits = peak_under(cap), fails = -1;
  if (fits < 0) return std::nullopt;
  // By halves, and in turns a byte below the best one: that is often the least already.
  for (bool by_half = true; fits - fails > 1; by_half = !by_half) {
    const std::int64_t tried = by_half ? fails + (fits - fails) / 2 : fits - 1;
    const std::int64_t peak = peak_under(tried);
    if (peak >= 0)
      fits = peak;
    else
      fails = tried;
  }
  inner.set_beyond_memory(outer, fits);
  return solve(inner, problem);
}

std::optional<InnerSolution> solve_by_trying(Inner& inner, const Problem& problem) {
  const std::int64_t stages = inner.stages(), round = inner.round_layers();
  if (round < stages) return std::nullopt;
  const std::vector<std::int64_t> usual = usual_counts(inner, problem);
  std::optional<InnerSolution> best;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), 1);
  std::vector<std::int64_t> again(counts.size(), 0);
  const auto is_usual = [&](const InnerSolution& s) {
    if (usual.empty()) return false;
    for (std::size_t i = 0; i < usual.size(); ++i)
      if (s.stage_layers[i] != usual[i] * inner.chunks()) return false;
    return true;
  };
  const auto better = [&](const InnerSolution& a, const InnerSolution& b) {
    if (a.nanoseconds != b.nanoseconds) return a.nanoseconds < b.nanoseconds;
    if (is_usual(a) != is_usual(b)) return is_usual(a);
    if (a.stage_layers != b.stage_layers) return a.stage_layers < b.stage_layers;
    return a.recompute_layers < b.recompute_layers;
  };
  const auto price = [&] {
    std::int64_t slowest = 0, tail = 0, offset = 0;
    Int128 sum = 0;
    InnerSolution s;
    for (std::int64_t i = 0; i < stages; ++i) {
      const auto k = static_cast<std::size_t>(i);
      const StageChoice c = inner.with(i, offset, counts[k], again[k]);
      if (!c.fits) return;
      slowest = std::max(slowest, c.pace);
      tail = std::max(tail, c.tail);
      sum += c.pace;
      offset += counts[k];
      s.stage_layers.push_back(counts[k] * inner.chunks());
      if (inner.recomputes()) s.recompute_layers.push_back(again[k]);
    }
    s.nanoseconds = inner.composition().step(slowest, sum, tail);
    if (!best || better(s, *best)) best = std::move(s);
  };
  const auto recompute = [&](auto&& self, std::size_t i) -> void {
    if (i == again.size()) return price();
    const std::int64_t most = inner.recomputes() ? counts[i] * inner.chunks() : 0;
    for (again[i] = 0; again[i] <= most; ++again[i]) self(self, i + 1);
  };
  const auto deal = [&](auto&& self, std::size_t i, std::int64_t left) -> void {
    if (i + 1 == counts.size()) {
      counts[i] = left;
      return recompute(recompute, 0);
    }
    const auto behind = static_cast<std::int64_t>(counts.size() - i) - 1;
    for (std::int64_t n = 1; n <= left - behind; ++n) {
      counts[i] = n;
      self(self, i + 1, left - n);
    }
  };
  deal(deal, 0, round);
  return best;
}

}  // namespace plimsoll
