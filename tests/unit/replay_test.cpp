// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The closed form of a stage's peak against playing its whole step: every micro-batch of the
// schedule, every event of every layer's trace, one after the other.

#include <cstdlib>
#include <iostream>
#include <random>

#include "lang/module.hpp"
#include "planner/peak.hpp"
#include "planner/stage_cost.hpp"
#include "tests/catch.hpp"

using namespace plimsoll;

namespace {

struct Played {
  std::int64_t most = -1;
  bool balanced = true;  ///< every tensor that was made went, and none went twice
};

Played play(const Problem& p, const Layout& l, CostModel& model, std::int64_t stage) {
  const StageCost cost = model.stage(stage);
  Played result;
  std::int64_t live = 0;
  bool any_backward = false;
  std::vector<std::int32_t> alive(cost.chunks.size(), 0);
  bool first_done = false;
  const auto pass = [&](const Run& run, bool backward, std::int64_t extra) {
    const SegmentTrace& trace = p.inventory.traces[run.mode][run.trace];
    const std::vector<std::int64_t>& bytes = model.tensors(run.mode, run.trace);
    const auto& events = backward ? trace.backward : trace.forward;
    for (const TraceEvent& e : events) {
      if (e.kind == TraceEvent::run)
        result.most = std::max(result.most, live + extra);
      else
        live += (e.kind == TraceEvent::alloc ? 1 : -1) * bytes[e.index];
    }
  };
  const auto spilled = [&](const Run& run, bool backward, bool late) {
    std::int64_t sum = 0;
    for (const auto& [row, bytes] : model.spilled(run.trace, backward, late)) sum += bytes;
    return sum;
  };
  for (const Slot& slot : slots(l.schedule, l.pp, l.vpp, l.microbatches, stage)) {
    std::vector<const Run*> order;  // segments as this slot runs them
    for (const Run& run : cost.chunks[static_cast<std::size_t>(slot.chunk)].runs)
      order.insert(order.end(), static_cast<std::size_t>(run.count), &run);
    if (slot.backward) std::reverse(order.begin(), order.end());
    std::int32_t& here = alive[static_cast<std::size_t>(slot.chunk)];
    if (!slot.backward) ++here;
    any_backward = any_backward || slot.backward;
    const bool grows = slot.backward && !first_done && l.vpp == 1;
    std::int64_t base = *std::max_element(alive.begin(), alive.end()) * cost.shared.live;
    base += slot.backward ? cost.backward[grows ? 0 : 1].live + cost.shared_gradients.live
                          : cost.forward[any_backward].live;
    std::int64_t grown = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (grows)
        for (const auto& [row, bytes] : cost.growing[order[i]->trace]) grown += bytes;
      // What the segment before leaves for this one, and what the next one brings early.
      std::int64_t neighbours = 0;
      if (i > 0) neighbours += spilled(*order[i - 1], slot.backward, true);
      if (i + 1 < order.size()) neighbours += spilled(*order[i + 1], slot.backward, false);
      pass(*order[i], slot.backward, base + grown + neighbours);
    }
    if (!slot.backward) continue;
    first_done = true;
    --here;
  }
  result.balanced = live == 0;
  return result;
}

const char* const kModels[] = {
    "model m = decoder { layers = 6 hidden = 64 heads = 8 kv_heads = 4 ffn = 128 vocab = 1024 "
    "head_dim = 8 }",
    "model m = decoder { layers = 6 hidden = 64 heads = 8 kv_heads = 8 ffn = 128 vocab = 1024 "
    "head_dim = 8 tied = true\n"
    "  norm = layernorm kind = gelu gated = false bias_qkv = true bias_o = true bias_mlp = true "
    "window = 32 period = 2 }",
    "model m = decoder { layers = 6 hidden = 64 heads = 8 kv_heads = 8 ffn = 128 vocab = 1024 "
    "experts = 8 top_k = 2\n"
    "  expert_ffn = 64 shared = 64 first_dense = 2 kv_lora = 16 q_lora = 32 nope = 8 rope_dim = 8 "
    "v_dim = 8 head_dim = 1 }",
    "model m = gpt { layers = 6 hidden = 64 heads = 8 vocab = 1024 }",
};

std::string job_text(std::mt19937& random) {
  const auto pick = [&](auto... choices) {
    const std::string all[] = {choices...};
    return all[random() % sizeof...(choices)];
  };
  const int tp = 1 << random() % 3, pp = 1 << random() % 3, cp = 1 << random() % 2;
  const bool interleave = pp > 1 && pp < 4 && random() % 3 == 0;
  const std::string framework = pick("megatron", "plain", "torchtitan");
  const std::string zero = framework == "torchtitan" ? "3"
                           : framework == "plain"    ? pick("0", "1", "2", "3")
                                                     : pick("0", "1");
  std::string text = kModels[random() % std::size(kModels)];
  text += fmt::format(
      "\ncluster c {{ gpu = h100_sxm nodes = 4 gpus_per_node = 8 }}\n"
      "train j {{ model = m cluster = c seq = 256 batch = 256 framework = {} attention = {} {} }}\n"
      "layout l {{ tp = {} pp = {} cp = {} zero = {} mbs = {} recompute = {}{}{} }}\n",
      framework, pick("flash", "unfused"),
      random() % 2 ? "dropout = 10% attention_dropout = 10%" : "", tp, pp, cp, zero, pick("1", "2"),
      framework == "torchtitan" ? pick("none", "full") : pick("none", "full", "selective"),
      interleave ? " schedule = interleaved vpp = " + std::string(pp == 2 ? "3" : "2") : "",
      pp == 2 && !interleave && random() % 2 ? " stage_layers = [4, 2]" : "");
  return text;
}

}  // namespace

TEST_CASE("the closed form equals playing the step, event by event", "[peak][property]") {
  const char* given = std::getenv("PLIMSOLL_SEED");
  const unsigned seed = given ? static_cast<unsigned>(std::atoi(given)) : std::random_device{}();
  INFO("PLIMSOLL_SEED=" << seed);
  std::mt19937 random(seed);
  int compared = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string text = job_text(random);
    INFO(text);
    Diagnostics diags;
    const Module module = compile("random.plan", text, diags);
    INFO(diags.render(module.sources(), false));
    REQUIRE(!diags.has_errors());
    const auto problem = make_problem(module, module.jobs().front(), diags);
    INFO(diags.render(module.sources(), false));
    REQUIRE(problem);
    Diagnostics impossible;  // some degrees do not divide: those layouts are refused, not priced
    const auto layout = layout_from(*problem, &module.layouts().front(), impossible);
    if (!layout) continue;
    CostModel model(*problem);
    model.set(*layout);
    for (std::int64_t stage = 0; stage < layout->pp; ++stage) {
      INFO("stage " << stage);
      const StageCost cost = model.stage(stage);
      std::int64_t most = 0;
      for (const Moment& m : model.moments(cost, false))
        if (m.kind == Moment::forward || m.kind == Moment::backward)
          most = std::max(most, m.bytes.live);
      const Played played = play(*problem, *layout, model, stage);
      CHECK(played.balanced);
      CHECK(played.most == most);
      ++compared;
    }
    const Bill b = bill(*problem, *layout);  // itemise() throws where the lines do not add up
    for (const StageBill& s : b.stages) {
      Int128 sum = 0;
      for (const BillLine& line : s.lines) sum += line.bytes;
      CHECK((sum == s.peak_bytes));
    }
    Pricer pricer(*problem);
    CHECK((pricer.peak(*layout).bytes == b.peak_bytes));
  }
  std::cout << "replay: seed " << seed << ", " << compared << " stages compared\n";
  CHECK(compared > 100);
}
