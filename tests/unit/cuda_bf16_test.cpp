// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The device cuda in the numbers that GPUs are rented for, and on what real stacks keep.

#include <atomic>

#include "tests/unit/cuda_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace {

const Case kExperts{
    "model tiny = decoder { layers = 4  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32 "
    " "
    "experts = 4  top_k = 2  expert_ffn = 12 }",
    ""};

Priced priced(const Case& c, int gpus, const std::string& layout, const std::string& stack,
              const std::string& precision) {
  std::string text = plan_text(c, gpus, layout);
  text.replace(text.find("plain"), 5, stack);
  text.replace(text.find("fp32"), 4, precision);
  text.replace(text.find("gpu toy {"), 9, "gpu toy = h100_sxm {");
  return price(text);
}

}  // namespace

TEST_CASE("cuda run: bf16 in memory, fp32 in sums", "[cuda]") {
  const HostRun expected = run(price(plan_text(kLlama, 1, "")));
  for (const auto& [gpus, layout] :
       {std::pair{1, ""}, std::pair{2, "tp = 2  sp = true"}, std::pair{2, "zero = 1"},
        std::pair{2, "zero = 3"}, std::pair{4, "pp = 2  zero = 2"}, std::pair{2, "cp = 2"}}) {
    INFO(layout);
    const Priced p = priced(kLlama, gpus, layout, "plain", "bf16");
    const HostRun found = run_emulated(p);
    check_memory(p, found);
    check_reserved(p, found);
    for (std::size_t step = 0; step < 2; ++step)
      CHECK(found.losses[step] == Approx(expected.losses[step]).epsilon(0.01));
    for (WeightId w = 0; w < p.problem->program->weights.size(); ++w) {
      const auto& right = expected.gradients[0][w];
      // 8 bits of mantissa, also of the probabilities that attention's tiles hold.
      CHECK(distance(found.gradients[0][w], right) <= 0.1 * norm(right));
      CHECK(distance(found.gradients[0][w], right) > 0);
    }
  }
}

TEST_CASE("cuda run: what each framework keeps is enough", "[cuda]") {
  for (const Case& c : {kLlama, kExperts}) {
    const HostRun expected = run(price(plan_text(c, 1, "")));
    for (const auto& [stack, layout] :
         {std::pair{"megatron", "tp = 2  pp = 2  zero = 1"},
          std::pair{"megatron", "cp = 2  zero = 1"},
          std::pair{"megatron", "tp = 2  recompute = full"}, std::pair{"deepspeed", "zero = 2"},
          std::pair{"deepspeed", "zero = 3"}, std::pair{"huggingface", "zero = 0"},
          std::pair{"torchtitan", "tp = 2  zero = 3"},
          std::pair{"torchtitan", "zero = 3  recompute = selective"}}) {
      INFO(c.model << ", " << stack << ", " << layout);
      const Priced p = priced(c, 4, layout, stack, "fp32");
      const HostRun found = run_emulated(p);
      check_equal(p, expected, found, kCudaTolerance);
      check_memory(p, found);
      const Priced half = priced(c, 4, layout, stack, "bf16");
      const HostRun rounded = run_emulated(half);
      check_memory(half, rounded);
      check_reserved(half, rounded);
      for (std::size_t step = 0; step < 2; ++step)
        CHECK(rounded.losses[step] == Approx(expected.losses[step]).epsilon(0.01));
    }
  }
}

namespace {

/// A library's attention, by our own kernels: sums in its order, gradients put where it is told.
class PlayedAttention final : public cuda::LibraryAttention {
 public:
  std::atomic<int> forwards = 0, backwards = 0;

  bool forward(const cuda::Attention& a, cuda::Array output, float* sums,
               const cuda::Space& space) override {
    ++forwards;
    auto* ours = static_cast<float*>(space(a.queries * a.sequences * a.heads * 4));
    cuda::EmulatedMachine().launch(cuda::FlashForward<cuda::Bf16>{a, output, ours, {16, 16}});
    turn(a, [&](std::int64_t mine, std::int64_t theirs) { sums[theirs] = ours[mine]; });
    return true;
  }
  bool backward(const cuda::Attention& a, cuda::Array output, cuda::Array doutput,
                const float* sums, cuda::Array dq, cuda::Array dk, cuda::Array dv,
                const cuda::Space& space) override {
    ++backwards;
    const std::int64_t rows = a.queries * a.sequences * a.heads;
    auto *lse = static_cast<float*>(space(rows * 4)), *dots = static_cast<float*>(space(rows * 4));
    turn(a, [&](std::int64_t mine, std::int64_t theirs) { lse[mine] = sums[theirs]; });
    cuda::EmulatedMachine machine;
    machine.launch(cuda::RowDots{output, doutput, dots, rows, a.v_width});
    const cuda::FlashSaved saved{a, doutput, lse, dots};
    machine.launch(cuda::FlashBackwardQueries<cuda::Bf16>{saved, dq, {}, false, {16, 16}});
    machine.launch(cuda::FlashBackwardKeys<cuda::Bf16>{saved, dk, dv, false, false, {16, 16}});
    return true;
  }

 private:
  template <class F>
  static void turn(const cuda::Attention& a, F f) {
    for (std::int64_t q = 0; q < a.queries; ++q)
      for (std::int64_t b = 0; b < a.sequences; ++b)
        for (std::int64_t h = 0; h < a.heads; ++h)
          f((q * a.sequences + b) * a.heads + h, (b * a.heads + h) * a.queries + q);
  }
};

}  // namespace

TEST_CASE("cuda run: attention by a library, where its masks do", "[cuda]") {
  for (const auto& [more, used] :
       {std::pair{"", true}, std::pair{"window = 4  period = 2", true},
        std::pair{"sinks = true", false}, std::pair{"softcap = 5", false}}) {
    INFO(more);
    const Case c{
        std::string("model tiny = decoder { layers = 2  hidden = 16  heads = 4  kv_heads = "
                    "2  ffn = 24  vocab = 32  ") +
            more + " }",
        ""};
    const Priced p = priced(c, 2, "tp = 2  mbs = 2", "plain", "bf16");
    const HostRun expected = run_emulated(p);
    PlayedAttention library;
    const HostRun found = run_emulated(
        p, options(), [&](cuda::EmulatedMachine& machine) { machine.library = &library; });
    CHECK((library.forwards > 0) == used);
    CHECK((library.backwards > 0) == used);
    CHECK(found.losses == expected.losses);
    CHECK(found.gradients == expected.gradients);
    CHECK(found.parameters == expected.parameters);
  }
  PlayedAttention library;
  const Priced p = priced(kLlama, 2, "cp = 2", "plain", "bf16");
  run_emulated(p, options(), [&](cuda::EmulatedMachine& machine) { machine.library = &library; });
  CHECK(library.forwards == 0);
}
