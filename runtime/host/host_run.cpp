// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/host_run.hpp"

#include <algorithm>
#include <exception>
#include <thread>

#include "lang/diagnostics.hpp"
#include "lang/module.hpp"
#include "planner/peak.hpp"
#include "planner/switches.hpp"
#include "runtime/executor.hpp"
#include "runtime/host/host_device.hpp"
#include "runtime/host/host_results.hpp"

namespace plimsoll::runtime::host {

namespace {

/// Are the slots of a capacity what the turns of ops_experts.cpp fill: each stretch of a sequence
/// that a rank has chooses every expert equally often?
bool fills_slots(const Op& experts, const Layout& l) {
  const std::int64_t stretch = l.seq / (l.cp > 1 ? 2 * l.cp : 1) / (l.sp ? l.tp : 1);
  return experts.capacity == Rational(1) && stretch * experts.top_k % experts.count == 0;
}

}  // namespace

std::string why_not_on_host(const Problem& p, const Layout& l) {
  if (p.job->serve) return "the host runs training jobs only";
  const auto stores = [](const std::string& dtype) {
    return dtype == "fp32" || dtype == "bf16" || dtype == "fp16";
  };
  if (!stores(p.job->precision))
    return fmt::format("the host stores fp32, bf16 and fp16; this job's precision is {}",
                       p.job->precision);
  bool derived = false;
  for (const SegmentTrace& trace : p.inventory.traces.front())
    for (const TraceTensor& t : trace.tensors) derived = derived || t.role != TensorRole::item;
  if (!derived)
    return fmt::format("framework '{}' has formulas for its layers and no tensors to compute",
                       p.framework->name);
  bool frozen = false;
  const bool exchanges = l.cp > 1 && switch_of(p, "cp_comm") == "a2a";
  for (const Op& op : p.program->ops) {
    if (op.kind == OpKind::relative_bias || op.inputs.size() > 3)
      return fmt::format(
          "the host does not compute {} yet",
          op.inputs.size() > 3 ? "attention with a tensor of biases" : plimsoll::name(op.kind));
    if (op.kind == OpKind::experts && !op.capacity.is_zero() && !fills_slots(op, l))
      return fmt::format(
          "the host drops no tokens and leaves no slot empty: experts with capacity = {} (1 can be "
          "computed where {} experts divide the choices of a rank's tokens)",
          op.capacity.to_double(), op.count);
    if (op.kind == OpKind::attention && exchanges &&
        (op.heads / l.tp % l.cp != 0 || std::max<std::int64_t>(op.kv_heads / l.tp, 1) % l.cp != 0))
      return fmt::format(
          "cp_comm = a2a gives each of {} ranks a share of the heads; {} of queries and {} of keys "
          "over tp = {} do not divide",
          l.cp, op.heads, op.kv_heads, l.tp);
    if (op.kind == OpKind::merge && (l.cp > 1 || l.sp))
      return "the host does not merge images where cp or sp divides the sequence";
    if (op.kind == OpKind::mamba2 && (l.cp > 1 || l.tp > op.groups))
      return "the host does not compute mamba2 where cp divides the sequence, or tp its groups";
    for (const WeightId w : op.weights) frozen = frozen || !p.inventory.facts.trained[w];
  }
  if (frozen && l.zero >= 3) return "the host does not divide frozen weights by zero = 3";
  if (!p.job->adapt.kind.empty() && p.job->adapt.kind != "none")
    return fmt::format("the host does not compute adapters ('{}')", p.job->adapt.kind);
  for (const Item& item : p.inventory.items) {
    const bool state = item.category == Category::weights || item.category == Category::gradients ||
                       item.category == Category::master || item.category == Category::moments;
    if (state && !item.dtype.empty() && !stores(item.dtype))
      return fmt::format("the host stores fp32, bf16 and fp16; '{}' are {}", item.name, item.dtype);
    std::string moment = item.name.substr(0, item.name.find(" of the tied copy"));
    moment.erase(0, moment.rfind(' ') + 1);
    if (item.category == Category::moments && moment != "m" && moment != "v" &&
        moment != "momentum")
      return fmt::format("the host has no arithmetic for the optimizer's state '{}'", item.name);
  }
  return "";
}

Int128 bytes_on_host(const Problem& p, const Layout& l) {
  const Bill b = bill(p, l);
  Int128 sum = 0;
  for (const StageBill& stage : b.stages) sum += stage.live_bytes;
  return sum * (rank_count(l) / l.pp);
}

namespace {

/// What the ranks' threads leave behind.
struct Outcome {
  std::mutex mutex;
  std::vector<std::vector<double>> losses;  ///< by rank and step
  HostRun run;
  std::exception_ptr error;
};

void note_failure(Outcome& outcome, std::int64_t rank, const OutOfMemory& e, const StepPoint& at,
                  const CategoryBytes& live) {
  const std::lock_guard lock(outcome.mutex);
  if (!outcome.run.failure || rank < outcome.run.failure->rank)
    outcome.run.failure = VerifyFailure{rank, e.tensor, e.info.bytes, at, e.live, e.reserved, live};
}

void run_rank(HostWorld& world, std::int64_t rank, Outcome& outcome) {
  HostDevice device(world, rank);
  Executor executor(world.plan(rank), device);
  const auto index = static_cast<std::size_t>(rank);
  try {
    executor.start();
    device.start();
    for (int step = 1; step <= world.options.steps; ++step) {
      executor.step();
      device.end_step(step);
      outcome.losses[index].push_back(device.loss());
    }
    outcome.run.ranks[index].peak = device.counted().peak();
  } catch (const OutOfMemory& e) {
    note_failure(outcome, rank, e, executor.at(), device.counted().categories());
    world.post.leave(static_cast<int>(rank));
  } catch (const Stopped&) {
    if (!world.post.wire()) world.post.leave(static_cast<int>(rank));
  } catch (...) {
    const std::lock_guard lock(outcome.mutex);
    if (!outcome.error) outcome.error = std::current_exception();
    world.post.stop();
  }
  HostRankResult& result = outcome.run.ranks[index];
  result.allocator = device.allocator().stats();
  executor.finish();
  result.left = device.live_tensors();
}

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an unknown error";
  }
}

/// Losses of a step are parts that ranks have.
void sum_losses(const HostWorld& world, Outcome& outcome) {
  for (std::size_t step = 0; step < static_cast<std::size_t>(world.options.steps); ++step) {
    double sum = 0;
    for (const std::vector<double>& rank : outcome.losses) sum += rank[step];
    outcome.run.losses.push_back(sum * world.facts.loss_scale);
  }
}

}  // namespace

HostRun run_on_host(const Problem& p, const Layout& l, const HostOptions& options, Wire* wire) {
  if (const std::string why = why_not_on_host(p, l); !why.empty()) throw InternalError(why);
  HostWorld world(p, l, options, wire);
  Outcome outcome;
  outcome.run.ranks.resize(static_cast<std::size_t>(world.ranks()));
  outcome.losses.resize(outcome.run.ranks.size());
  if (wire) {
    PLIMSOLL_ASSERT(wire->size() == world.ranks());
    run_rank(world, wire->rank(), outcome);
    if (outcome.error) outcome.run.trouble = words_of(outcome.error);
    bring_together(*wire, world, outcome.losses, outcome.run);
    if (wire->rank() != 0) return std::move(outcome.run);
    if (outcome.error) std::rethrow_exception(outcome.error);
    if (!outcome.run.trouble.empty()) return std::move(outcome.run);
  } else {
    std::vector<std::thread> threads;
    for (std::int64_t rank = 0; rank < world.ranks(); ++rank)
      threads.emplace_back([&world, &outcome, rank] { run_rank(world, rank, outcome); });
    for (std::thread& t : threads) t.join();
    if (outcome.error) std::rethrow_exception(outcome.error);
  }
  if (outcome.run.failure) return std::move(outcome.run);
  PLIMSOLL_ASSERT(world.post.unread() == 0);
  sum_losses(world, outcome);
  HostRun run = std::move(outcome.run);
  run.gradients = std::move(world.gradients);
  run.parameters = std::move(world.parameters);
  return run;
}

}  // namespace plimsoll::runtime::host
