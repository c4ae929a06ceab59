// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/cuda_run.hpp"

#include <chrono>

#include "lang/diagnostics.hpp"
#include "runtime/executor.hpp"
#include "runtime/host/collectives.hpp"

namespace plimsoll::runtime::cuda {

namespace {

std::int64_t in_use(Machine& machine) {
  const MemoryFacts m = machine.memory();
  return m.total - m.free;
}

}  // namespace

RankRun run_rank(const RankWorld& world, Machine& machine, Peers& peers, std::int64_t capacity,
                 const AllocatorOptions& options, const Looks& looks) {
  RankRun run;
  run.driver.before = in_use(machine);
  CudaDevice device(world, machine, peers, capacity, options);
  Executor executor(world.plan, device);
  const auto fail = [&](const std::string& tensor, std::int64_t bytes, std::int64_t reserved) {
    run.failure = VerifyFailure{world.plan.place.rank,
                                tensor,
                                bytes,
                                executor.at(),
                                device.counted().live(),
                                reserved,
                                device.counted().categories()};
  };
  if (looks.gradient)
    device.with_gradients = [&] {
      device.states().look_at_gradients([&](WeightId w, std::int64_t place, float x) {
        looks.gradient(executor.at().step, w, place, x);
      });
    };
  try {
    executor.start();
    device.start();
    for (int step = 1; step <= world.options.steps; ++step) {
      machine.wait();
      const auto begin = std::chrono::steady_clock::now();
      executor.step();
      machine.wait();
      run.seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      run.losses.push_back(device.loss() * world.facts.loss_scale);
      if (looks.parameter)
        device.states().look_at_parameters(
            [&](WeightId w, std::int64_t place, float x) { looks.parameter(step, w, place, x); });
    }
    run.peak = device.counted().peak();
    run.times = device.times();
  } catch (const OutOfMemory& out) {
    fail(out.tensor, out.info.bytes, out.reserved);
    peers.stop();
  } catch (const ScratchExhausted& out) {
    fail("scratch of a kernel", out.bytes, device.allocator().stats().reserved.now);
    peers.stop();
  } catch (const host::Stopped&) {
    run.stopped = true;
    peers.stop();
  } catch (...) {
    peers.stop();  // before the device's memory is freed, which waits for all work
    throw;
  }
  run.driver.most = in_use(machine);
  run.allocator = device.allocator().stats();
  run.scratch = device.scratch().stats().reserved.peak + peers.scratch();
  run.scratch_used = device.scratch().stats().allocated.peak;
  run.driver.libraries = run.driver.most - run.allocator.reserved.now -
                         device.scratch().stats().reserved.now - peers.scratch();
  executor.finish();
  PLIMSOLL_ASSERT(device.counted().tensors() == 0);
  return run;
}

}  // namespace plimsoll::runtime::cuda
