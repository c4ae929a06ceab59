// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/requests.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "runtime/dry/dry_device.hpp"
#include "runtime/executor.hpp"
#include "runtime/replay.hpp"
#include "runtime/timeline.hpp"

namespace plimsoll::runtime {
namespace {

/// Micro-batches that fill any pipeline, for each of its stages.
constexpr std::int64_t kRounds = 3;

/// The dry device, with its requests watched.
class Watcher final : public Device {
 public:
  Watcher(const StagePlan& plan, Allocator& allocator, const logs::Seen& wanted, std::int64_t near)
      : plan_(plan),
        allocator_(allocator),
        device_(plan, &allocator),
        wanted_(wanted),
        near_(near) {}

  void follow(const Executor& executor) { executor_ = &executor; }

  TensorId allocate(const TensorInfo& info) override {
    const std::int64_t before = allocator_.stats().allocated.now;
    if (std::abs(segment_for(info.bytes) - wanted_.bytes) <= wanted_.slack) note(info, before);
    return device_.allocate(info);
  }
  void free(TensorId id) override { device_.free(id); }
  void shrink(TensorId id, std::int64_t bytes) override { device_.shrink(id, bytes); }
  void hand_on(TensorId id, const TensorInfo& info) override { device_.hand_on(id, info); }
  void run(const OpRun& r) override { device_.run(r); }
  void moment(const StepPoint& at) override { device_.moment(at); }

  std::vector<Request> take() {
    std::vector<Request> out;
    for (auto& [key, request] : found_) out.push_back(std::move(request));
    std::stable_sort(out.begin(), out.end(), [&](const Request& a, const Request& b) {
      return std::abs(a.allocated - near_) < std::abs(b.allocated - near_);
    });
    return out;
  }

 private:
  void note(const TensorInfo& info, std::int64_t before) {
    StepPoint at = executor_->at();
    const std::string item =
        info.row == kNone ? "a value that several segments read" : plan_.item(info.row).name;
    const auto [place, is_new] = found_.try_emplace({item, at.part});
    Request& r = place->second;
    if (!is_new && std::abs(r.allocated - near_) <= std::abs(before - near_)) return;
    // The op whose tensor it is has not run yet.
    if (info.op != kNone)
      at.op = info.op;
    else if (info.value != kNone && at.part == StepPart::forward && at.segment != kNone)
      at.op = plan_.problem.program->values[info.value].producer;
    const bool building = at.part == StepPart::between && at.step == 0;
    r = {item,          building ? "building the model" : point_name(plan_.problem, at),
         info.category, at.part,
         info.bytes,    before};
  }

  const StagePlan& plan_;
  Allocator& allocator_;
  DryDevice device_;
  logs::Seen wanted_;
  std::int64_t near_;
  const Executor* executor_ = nullptr;
  std::map<std::pair<std::string, StepPart>, Request> found_;
};

}  // namespace

std::int64_t segment_for(std::int64_t bytes) {
  const AllocatorOptions o;
  const std::int64_t rounded = in_blocks(std::max<std::int64_t>(bytes, 1));
  if (rounded <= o.small_size) return o.small_segment;
  if (rounded < o.min_large_segment) return o.large_segment;
  return (rounded + o.round_large - 1) / o.round_large * o.round_large;
}

bool is_telling(const logs::Seen& segment) {
  return std::abs(segment.bytes - 2 * kMiB) > segment.slack &&
         std::abs(segment.bytes - 20 * kMiB) > segment.slack;
}

std::vector<Request> requests_like(const Problem& problem, const Layout& layout, std::int64_t rank,
                                   const logs::Seen& segment, std::int64_t allocated) {
  Layout short_step = layout;
  short_step.microbatches = std::min(layout.microbatches, kRounds * layout.pp);
  const StagePlan plan(problem, short_step, rank);
  CountingBacking backing(static_cast<std::int64_t>(problem.cluster->pools.front().gpu.memory),
                          CountingBacking::kNoLimit);
  Allocator allocator(backing, allocator_options(problem));
  Watcher device(plan, allocator, segment, allocated);
  Executor executor(plan, device);
  device.follow(executor);
  executor.start();
  executor.step();
  executor.step();
  std::vector<Request> found = device.take();
  executor.finish();
  return found;
}

}  // namespace plimsoll::runtime
