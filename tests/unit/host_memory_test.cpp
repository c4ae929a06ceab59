// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The host's memory: spoilt before it is written and after it is freed, 16-bit numbers, and want of
// it.

#include <cmath>
#include <tuple>

#include "runtime/host/half.hpp"
#include "tests/unit/host_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

TEST_CASE("host run: the loss falls over 50 steps of a sharded layout", "[host]") {
  const Case c{kLlama.model, "", 4, 16};
  const Priced p = price(plan_text(c, 8, "tp = 2  pp = 2  sp = true  zero = 2"));
  HostOptions o;
  o.steps = 50;
  o.learning_rate = 1e-2;
  o.same_text = true;
  const HostRun found = run(p, o);
  REQUIRE(found.losses.size() == 50);
  CHECK(found.losses.front() > 3);
  CHECK(found.losses.back() < 1);
}

TEST_CASE("host run: want of memory in mid-step is told, and nothing is left over", "[host]") {
  const Case c{"model tiny = llama { layers = 2  hidden = 64  heads = 4  ffn = 128  vocab = 4096 }",
               "", 8, 32};
  for (const auto& [gpus, layout] :
       {std::pair{1, "mbs = 4"}, std::pair{4, "tp = 2  pp = 2  mbs = 4"}}) {
    INFO(layout);
    const Priced p = price(plan_text(c, gpus, layout));
    const HostRun whole = run(p, {});
    REQUIRE_FALSE(whole.failure);
    std::int64_t most = 0;
    for (const HostRankResult& r : whole.ranks) most = std::max(most, r.allocator.reserved.peak);
    HostOptions o;
    o.capacity = most - 1;
    const HostRun found = run(p, o);
    REQUIRE(found.failure);
    const VerifyFailure& f = *found.failure;
    CHECK(f.tensor != "");
    CHECK(f.bytes > 0);
    CHECK(f.at.step >= 1);
    std::int64_t sum = 0;
    for (const std::int64_t bytes : f.categories) sum += bytes;
    CHECK(sum == f.live);
    CHECK(f.reserved <= o.capacity);
    CHECK(f.reserved + f.bytes > o.capacity - 2 * kMiB);  // that tensor had no room
    for (const HostRankResult& r : found.ranks) CHECK(r.left == 0);
    for (int again = 0; again < 4; ++again) {  // however the threads are scheduled
      const HostRun other = run(p, o);
      REQUIRE(other.failure);
      CHECK(other.failure->rank == f.rank);
      CHECK(other.failure->tensor == f.tensor);
      CHECK(other.failure->live == f.live);
      CHECK(other.failure->at.micro_batch == f.at.micro_batch);
    }
  }
}

TEST_CASE("host run: memory is spoilt before it is written and after it is freed", "[host]") {
  const Priced p = price(plan_text(kLlama, 1, ""));
  HostWorld world(*p.problem, p.layout, {});
  HostDevice device(world, 0);
  TensorInfo info;
  info.kind = TensorInfo::shared_value;
  info.bytes = 4096;
  const auto spoilt = [&](TensorId t) {
    const float* data = device.data(t);
    return std::all_of(data, data + 1024, [](float x) { return std::isnan(x); });
  };
  const TensorId first = device.allocate(info);
  CHECK(spoilt(first));
  float* data = device.data(first);
  std::fill_n(data, 1024, 1.0f);
  device.free(first);
  CHECK(std::isnan(data[0]));  // the allocator keeps the page
  const TensorId second = device.allocate(info);
  CHECK(device.data(second) == data);
  CHECK(spoilt(second));
  device.free(second);
}

TEST_CASE("host run: a saved value that is gone is missed", "[host]") {
  Priced p = price(plan_text(kLlama, 1, ""));
  int broken = 0;
  // A tensor that forward leaves for backward is freed at forward's end instead.
  for (SegmentTrace& trace : p.problem->inventory.traces[0]) {
    for (std::uint32_t t = 0; t < trace.tensors.size() && broken == 0; ++t) {
      if (trace.tensors[t].role != TensorRole::saved || trace.tensors[t].part != "lse") continue;
      trace.forward.push_back({TraceEvent::free, t, false});
      std::erase_if(trace.backward, [&](const TraceEvent& e) {
        return e.kind == TraceEvent::free && e.index == t;
      });
      ++broken;
    }
  }
  REQUIRE(broken == 1);
  std::string said;
  try {
    run_on_host(*p.problem, p.layout, {});
  } catch (const InternalError& e) {
    said = e.what();
  }
  CHECK(said.find("backward of attention") != std::string::npos);
}

TEST_CASE("host: numbers of 16 bits", "[host]") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float x = from_fp16(half);
    if (std::isnan(x)) {
      CHECK(std::isnan(from_fp16(to_fp16(x))));
      continue;
    }
    if (to_fp16(x) != half) FAIL(bits);  // every number of 16 bits is itself
    // Half of the way to the next one the even one is taken.
    if ((half & 0x7fffu) >= 0x7bffu) continue;
    const float next = from_fp16(static_cast<std::uint16_t>(half + 1));
    const std::uint16_t middle = to_fp16((x + next) / 2);
    if (middle != (half % 2 == 0 ? half : half + 1)) FAIL(bits);
  }
  CHECK(to_fp16(65504.0f) == 0x7bffu);
  CHECK(to_fp16(65520.0f) == 0x7c00u);
  CHECK(to_fp16(-1e9f) == 0xfc00u);
  CHECK(to_fp16(1e-9f) == 0);
}

TEST_CASE("host run: halves where the job stores them", "[host]") {
  const auto halved = [](int gpus, const std::string& layout, const char* dtype) {
    std::string text = plan_text(kLlama, gpus, layout);
    text.replace(text.find("fp32"), 4, dtype);
    return price(text);
  };
  const Priced exact = price(plan_text(kLlama, 1, ""));
  const HostRun expected = run(exact);
  for (const auto& [gpus, layout, dtype] :
       {std::tuple{1, "", "bf16"}, std::tuple{2, "tp = 2  sp = true", "bf16"},
        std::tuple{2, "zero = 1", "bf16"}, std::tuple{2, "zero = 3", "bf16"},
        std::tuple{4, "pp = 2  zero = 2", "bf16"}, std::tuple{2, "cp = 2", "bf16"},
        std::tuple{1, "", "fp16"}, std::tuple{4, "pp = 2  zero = 2", "fp16"},
        std::tuple{2, "tp = 2  zero = 1", "fp16"}}) {
    INFO(layout << ' ' << dtype);
    const Priced p = halved(gpus, layout, dtype);
    const HostRun found = run(p);
    check_memory(p, found);
    for (std::size_t step = 0; step < 2; ++step)
      CHECK(found.losses[step] == Approx(expected.losses[step]).epsilon(0.01));
    for (WeightId w = 0; w < exact.problem->program->weights.size(); ++w) {
      const auto& right = expected.gradients[0][w];
      CHECK(distance(found.gradients[0][w], right) <= 0.05 * norm(right));  // 8 bits of mantissa
      CHECK(distance(found.gradients[0][w], right) > 0);
    }
  }
}

TEST_CASE("host run: what each framework keeps is enough", "[host]") {
  const Case experts{
      "model tiny = decoder { layers = 4  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = "
      "32  "
      "experts = 4  top_k = 2  expert_ffn = 12 }",
      ""};
  const auto with = [](const Case& c, int gpus, const std::string& layout, const std::string& stack,
                       const std::string& precision) {
    std::string text = plan_text(c, gpus, layout);
    text.replace(text.find("plain"), 5, stack);
    text.replace(text.find("fp32"), 4, precision);
    text.replace(text.find("gpu toy {"), 9, "gpu toy = h100_sxm {");
    return price(text);
  };
  for (const Case& c : {kLlama, experts}) {
    const Priced exact = price(plan_text(c, 1, ""));
    const HostRun expected = run(exact);
    for (const auto& [stack, layout] :
         {std::pair{"megatron", "tp = 2  pp = 2  zero = 1"},
          std::pair{"megatron", "cp = 2  zero = 1"},
          std::pair{"megatron", "tp = 2  recompute = full"}, std::pair{"deepspeed", "zero = 2"},
          std::pair{"deepspeed", "zero = 3"}, std::pair{"huggingface", "zero = 0"},
          std::pair{"torchtitan", "tp = 2  zero = 3"},
          std::pair{"torchtitan", "zero = 3  recompute = selective"}}) {
      INFO(c.model << ", " << stack << ", " << layout);
      const Priced p = with(c, 4, layout, stack, "fp32");
      const HostRun found = run(p);
      check_equal(p, expected, found);
      check_memory(p, found);
      const Priced half = with(c, 4, layout, stack, "bf16");
      const HostRun rounded = run(half);
      check_memory(half, rounded);
      for (std::size_t step = 0; step < 2; ++step)
        CHECK(rounded.losses[step] == Approx(expected.losses[step]).epsilon(0.01));
    }
  }
}
