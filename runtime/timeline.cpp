// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/timeline.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "lang/diagnostics.hpp"
#include "planner/bill_lines.hpp"
#include "runtime/executor.hpp"

namespace plimsoll::runtime {

namespace {

constexpr int kSteps = 2;

std::int64_t sum(const CategoryBytes& c) {
  return std::accumulate(c.begin(), c.end(), std::int64_t{0});
}

/// Moments in columns: the fullest of each. Those from `begin` to `end` share one.
class Columns {
 public:
  Columns() = default;
  Columns(std::int64_t moments, std::size_t columns, std::int64_t begin = 0, std::int64_t end = 0)
      : drawn_(moments - (end - begin)), begin_(begin), end_(end) {
    const bool cut = end > begin;
    const auto most = static_cast<std::size_t>(drawn_);
    spread_ = std::min(columns - (cut ? 1 : 0), most);
    columns_.resize(spread_ + (cut ? 1 : 0));
  }

  void add(std::int64_t number, const StepPoint& at, const CategoryBytes& categories) {
    TimelineColumn& column = columns_[place(number)];
    column.many = begin_ <= number && number < end_;
    const std::int64_t bytes = sum(categories);
    if (column.moments++ > 0 && bytes <= column.bytes) return;
    column.at = at;
    column.bytes = bytes;
    column.categories = categories;
    column.number = number;
  }
  std::vector<TimelineColumn> take() { return std::move(columns_); }

 private:
  std::size_t place(std::int64_t number) const {
    const auto spread = [&](std::int64_t n) {
      return static_cast<std::size_t>(Int128{n} * static_cast<std::int64_t>(spread_) / drawn_);
    };
    const std::size_t middle = begin_ > 0 ? spread(begin_ - 1) + 1 : 0;
    if (begin_ == end_ || number < begin_) return spread(number);
    if (number < end_) return middle;
    return std::max(spread(number - (end_ - begin_)) + 1, middle + 1);
  }

  std::int64_t drawn_ = 1, begin_ = 0, end_ = 0;
  std::size_t spread_ = 1;  ///< columns of the moments that are drawn
  std::vector<TimelineColumn> columns_;
};

/// What the first playing finds out: how many moments there are, and where the fullest are.
struct Survey {
  struct Best {
    std::int64_t number = -1, bytes = -1;
  };
  std::array<std::int64_t, kSteps> moments{};
  std::array<std::array<Best, 4>, kSteps> best{};  ///< by step and part
  std::vector<std::int64_t> passes;  ///< moments at which those of the steady step begin

  const Best& peak() const {
    return *std::max_element(best.back().begin(), best.back().end(),
                             [](const Best& a, const Best& b) { return a.bytes < b.bytes; });
  }
  /// The moments of Timeline::around, first and past the last.
  std::pair<std::int64_t, std::int64_t> window() const {
    const auto after = std::upper_bound(passes.begin(), passes.end(), peak().number);
    if (after == passes.begin()) return {0, 0};
    const auto pass = static_cast<std::size_t>(after - passes.begin()) - 1;
    const bool backward = peak().number == best.back()[1].number;
    if (!backward && peak().number != best.back()[0].number) return {0, 0};
    const std::size_t from = backward && pass > 0 ? pass - 1 : pass;
    const std::size_t to = backward ? pass + 1 : pass + 2;
    return {passes[from], to < passes.size() ? passes[to] : moments.back()};
  }
};

/// Passes that are drawn at either end of a step: until the pipeline has filled, and a few more.
std::size_t passes_at_ends(const StagePlan& plan) {
  std::size_t warm_up = 0;
  while (warm_up < plan.slots.size() && !plan.slots[warm_up].backward) ++warm_up;
  return std::max<std::size_t>(warm_up + 3, 6);
}

void play(const StagePlan& plan, DryDevice& device, DryDevice::Observer observer) {
  device.observe(std::move(observer));
  Executor executor(plan, device);
  executor.start();
  for (int step = 0; step < kSteps; ++step) executor.step();
  executor.finish();
}

Survey survey(const StagePlan& plan) {
  Survey s;
  DryDevice device(plan);
  StepPoint last;
  play(plan, device, [&](const StepPoint& at, const CategoryBytes&) {
    const auto step = static_cast<std::size_t>(at.step - 1);
    if (at.step == kSteps && (at.part != last.part || at.chunk != last.chunk ||
                              at.micro_batch != last.micro_batch || s.passes.empty()))
      s.passes.push_back(s.moments[step]);
    last = at;
    Survey::Best& best = s.best[step][static_cast<std::size_t>(at.part)];
    if (device.live() > best.bytes) best = {s.moments[step], device.live()};
    ++s.moments[step];
  });
  return s;
}

std::vector<LiveLine> lines_of(const StagePlan& plan, const std::vector<std::int64_t>& rows) {
  std::map<std::pair<std::string, Category>, std::int64_t> sums;
  for (std::uint32_t row = 0; row < rows.size(); ++row) {
    if (rows[row] == 0) continue;
    const bool shared = row + 1 == rows.size();
    sums[shared ? std::pair{std::string("values that several layers read"), Category::activations}
                : std::pair{plan.item(row).name, plan.item(row).category}] += rows[row];
  }
  std::vector<LiveLine> lines;
  for (const auto& [key, bytes] : sums) lines.push_back({key.first, key.second, bytes});
  std::stable_sort(lines.begin(), lines.end(), [](const LiveLine& a, const LiveLine& b) {
    return a.category != b.category ? a.category < b.category : a.bytes > b.bytes;
  });
  return lines;
}

/// Plays the steps once more, to look at the fullest moment of each column.
void look_into_columns(const StagePlan& plan, Timeline& t) {
  std::multimap<std::int64_t, TimelineColumn*> wanted;
  for (TimelineColumn& column : t.steady.columns) wanted.emplace(column.number, &column);
  for (TimelineColumn& column : t.around) wanted.emplace(column.number, &column);
  DryDevice device(plan);
  std::int64_t number = 0;
  play(plan, device, [&](const StepPoint& at, const CategoryBytes&) {
    if (at.step != kSteps) return;
    const auto [begin, end] = wanted.equal_range(number++);
    for (auto it = begin; it != end; ++it) it->second->lines = lines_of(plan, device.rows());
  });
}

}  // namespace

std::string point_name(const Problem& p, const StepPoint& at) {
  if (at.part == StepPart::update || at.part == StepPart::between)
    return std::string(name(at.part));
  if (at.segment == kNone) return std::string(name(at.part));
  if (at.op == kNone) {
    const Segment& s = p.program->segments[at.segment];
    return s.is_layer ? fmt::format("{} of layer {}", name(at.part), s.layer)
                      : std::string(name(at.part));
  }
  return moment_name(p, at.segment, at.op, at.part == StepPart::backward, at.recomputing);
}

Timeline timeline(const StagePlan& plan, std::size_t columns, bool lines) {
  const Survey found = survey(plan);
  Timeline t;
  t.place = plan.place;
  t.micro_batches = plan.layout.microbatches;
  t.chunks = plan.layout.vpp;
  StepTimeline* steps[kSteps] = {&t.first, &t.steady};
  std::array<Columns, kSteps> pictures;
  for (std::size_t i = 0; i < kSteps; ++i) {
    steps[i]->step = static_cast<int>(i) + 1;
    steps[i]->moments = found.moments[i];
    // The steps have the same passes.
    const std::size_t ends = passes_at_ends(plan), passes = found.passes.size();
    const bool cut = passes > 2 * ends + 4 && 2 * ends < columns;
    pictures[i] = Columns(found.moments[i], columns, cut ? found.passes[ends] : 0,
                          cut ? found.passes[passes - ends] : 0);
  }
  const auto window = found.window();
  const std::int64_t from = window.first, to = window.second;
  t.around_moments = to - from;
  Columns around(std::max<std::int64_t>(to - from, 1), columns);
  DryDevice device(plan);
  std::array<std::int64_t, kSteps> number{};
  play(plan, device, [&](const StepPoint& at, const CategoryBytes& categories) {
    const auto i = static_cast<std::size_t>(at.step - 1);
    const std::int64_t n = number[i]++;
    pictures[i].add(n, at, categories);
    if (at.step == kSteps && from <= n && n < to) around.add(n - from, at, categories);
    const Survey::Best& best = found.best[i][static_cast<std::size_t>(at.part)];
    if (n != best.number) return;
    steps[i]->parts.push_back({at, n, point_name(plan.problem, at), device.live(), categories,
                               lines_of(plan, device.rows())});
  });
  for (std::size_t i = 0; i < kSteps; ++i) {
    StepTimeline& s = *steps[i];
    PLIMSOLL_ASSERT(!s.parts.empty());
    s.columns = pictures[i].take();
    std::stable_sort(s.parts.begin(), s.parts.end(), [](const MomentView& a, const MomentView& b) {
      return a.at.part < b.at.part;
    });
    s.peak = *std::max_element(
        s.parts.begin(), s.parts.end(),
        [](const MomentView& a, const MomentView& b) { return a.bytes < b.bytes; });
  }
  if (to > from) t.around = around.take();
  for (TimelineColumn& column : t.around) column.number += from;
  if (lines) look_into_columns(plan, t);
  return t;
}

}  // namespace plimsoll::runtime
