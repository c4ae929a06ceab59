// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The device cuda in the numbers that GPUs are rented for, and on what real stacks keep.

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
