// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>

#include "planner/enumerate.hpp"
#include "planner/report_plan.hpp"
#include "planner/segments.hpp"
#include "planner/stage_cost.hpp"
#include "planner/suggest.hpp"
#include "tests/catch.hpp"
#include "tests/unit/seed.hpp"
#include "tests/unit/world.hpp"

namespace plimsoll {
namespace {

using testing::World;

struct Small {
  int gpus, layers, memory_mib, batch;
  bool experts;
  std::string condition;
  int vocab = 4096;
};

std::string text_of(const Small& s) {
  const std::string mlp =
      s.experts ? "experts(rmsnorm(x), 4, 2) { t => swiglu(t, 512) }" : "swiglu(rmsnorm(x), 2048)";
  return fmt::format(R"(
gpu tiny = h100_sxm {{ memory = {} MiB  reserved = 0 MiB }}
cluster c {{ gpu = tiny  nodes = 1  gpus_per_node = {} }}
model m {{
  param layers = {}, hidden = 512
  x = embedding({}, hidden)
  repeat layers {{
    x = x + gqa(rmsnorm(x), 8, 4, 64)
    x = x + {}
  }}
  loss = cross_entropy(linear(rmsnorm(x), {}, split = column, name = head))
}}
train t {{ model = m  cluster = c  seq = 2Ki  batch = {}  framework = plain
  {} }}
)",
                     s.memory_mib, s.gpus, s.layers, s.vocab, mlp, s.vocab, s.batch, s.condition);
}

bool power_of_two(std::int64_t n) { return (n & (n - 1)) == 0; }

/// What the search must find, by loops over everything: its own words, its own order.
struct Brute {
  std::optional<Layout> best;
  Rational score = 0;
  std::int64_t ns = 0;
  Int128 peak = 0;
  std::int64_t feasible = 0, outer = 0;
};

bool usual(const Problem& problem, const Layout& l) {
  return l.stage_layers == default_stage_layers(problem.program->layer_count, l.pp) &&
         (l.recompute_layers.empty() || l.recompute_layers == l.stage_layers);
}

/// What is easier to set up wins a tie, then the values one by one.
auto tie(const Problem& problem, const Layout& l) {
  int set = 0;
  for (const std::int64_t degree : {l.tp, l.pp, l.cp, l.ep, l.etp, l.vpp})
    if (degree != 1) ++set;
  if (l.zero != 0) ++set;
  if (l.shard != l.dp * l.cp) ++set;
  if (l.recompute != 0) ++set;
  if (l.sp) ++set;
  if (l.schedule != Schedule::one_f_one_b) ++set;
  if (!usual(problem, l)) ++set;
  return std::make_tuple(set, l.tp, l.pp, l.cp, l.ep, l.etp, l.vpp, l.zero, l.shard, l.recompute,
                         l.sp, static_cast<int>(l.schedule), -l.mbs);
}

/// One way to deal the layers of an outer layout, as far as it is known.
struct Dealt {
  Layout layout;
  Rational score = 0;
  std::int64_t ns = 0;
  Int128 peak = 0;
};

class Loops {
 public:
  Loops(const Problem& problem, const std::string& condition)
      : problem_(problem), condition_(condition), clock_(problem), pricer_(problem) {}

  Brute out;

  void outer(Layout l) {
    ++out.outer;
    best_.reset();
    l.stage_layers.clear();
    l.recompute_layers.clear();
    deal(l, problem_.program->layer_count / l.vpp);
    if (!best_) return;
    if (!out.best || best_->score < out.score ||
        (best_->score == out.score && tie(problem_, best_->layout) < tie(problem_, *out.best))) {
      out.best = best_->layout;
      out.score = best_->score;
      out.ns = best_->ns;
      out.peak = best_->peak;
    }
  }

 private:
  void deal(Layout& l, std::int64_t left) {
    const auto behind = l.pp - static_cast<std::int64_t>(l.stage_layers.size()) - 1;
    if (behind == 0) {
      l.stage_layers.push_back(left * l.vpp);
      recompute(l);
      l.stage_layers.pop_back();
      return;
    }
    for (std::int64_t n = 1; n <= left - behind; ++n) {
      l.stage_layers.push_back(n * l.vpp);
      deal(l, left - n);
      l.stage_layers.pop_back();
    }
  }
  void recompute(Layout& l) {
    if (l.recompute != 1 || l.recompute_layers.size() == l.stage_layers.size()) return price(l);
    for (std::int64_t r = 0; r <= l.stage_layers[l.recompute_layers.size()]; ++r) {
      l.recompute_layers.push_back(r);
      recompute(l);
      l.recompute_layers.pop_back();
    }
  }
  bool holds(const Layout& l, const Pricer::Peak& peak) const {
    const Int128 hbm = peak.bytes + peak.headroom_bytes;
    const auto [least, most] = std::minmax_element(l.stage_layers.begin(), l.stage_layers.end());
    if (condition_ == "require headroom >= 20%") return 5 * peak.headroom_bytes >= hbm;
    if (condition_ == "require max(stage_layers) - min(stage_layers) <= 1")
      return *most - *least <= 1;
    if (condition_ == "require pp > 1 => stage_layers[0] == 1")
      return l.pp == 1 || l.stage_layers.front() == 1;
    if (condition_ == "require sum(recompute_layers) >= 2")
      return std::accumulate(l.recompute_layers.begin(), l.recompute_layers.end(),
                             std::int64_t{0}) >= 2;
    return true;
  }
  void price(const Layout& l) {
    const Pricer::Peak peak = pricer_.peak(l);
    if (!peak.fits || !holds(l, peak)) return;
    if (replays(problem_)) {
      const Pricer::Peak exact = pricer_.exact(l);
      if (!exact.fits || !holds(l, exact)) return;
    }
    ++out.feasible;
    Dealt d{l, 0, clock_.step(l).nanoseconds, peak.bytes};
    d.score = d.ns;
    if (condition_ == "prefer recompute == none weight 50" && l.recompute != 0)
      d.score = d.score * Rational::fraction(3, 2);
    if (condition_ == "prefer headroom >= 30% weight 20" &&
        10 * peak.headroom_bytes < 3 * (peak.bytes + peak.headroom_bytes))
      d.score = d.score * Rational::fraction(6, 5);
    if (!best_ || before(d, *best_)) best_ = d;
  }
  bool before(const Dealt& a, const Dealt& b) const {
    if (a.score != b.score) return a.score < b.score;
    if (a.ns != b.ns) return a.ns < b.ns;
    const bool default_a = a.layout.stage_layers == split(a.layout),
               default_b = b.layout.stage_layers == split(b.layout);
    if (default_a != default_b) return default_a;
    // Of equal times the smaller peak, where no condition reads more than that.
    if (!default_a && condition_.find("_layers") == std::string::npos &&
        condition_.find("prefer headroom") == std::string::npos && a.peak != b.peak)
      return a.peak < b.peak;
    return std::make_pair(a.layout.stage_layers, a.layout.recompute_layers) <
           std::make_pair(b.layout.stage_layers, b.layout.recompute_layers);
  }
  std::vector<std::int64_t> split(const Layout& l) const {
    return default_stage_layers(problem_.program->layer_count, l.pp);
  }

  const Problem& problem_;
  const std::string condition_;
  Clock clock_;
  Pricer pricer_;
  std::optional<Dealt> best_;
};

Brute brute(const Problem& problem, const Small& world, const std::string& condition) {
  Loops loops(problem, condition);
  const std::int64_t gpus = world.gpus;
  for (std::int64_t tp = 1; tp <= gpus; ++tp)
    for (std::int64_t pp = 1; pp <= std::min<std::int64_t>(gpus, world.layers); ++pp)
      for (std::int64_t cp = 1; cp <= 2; ++cp)
        for (std::int64_t ep = 1; ep <= (world.experts ? 4 : 1); ++ep)
          for (const bool tensor_experts : {false, true})
            for (std::int64_t vpp = 1; vpp <= 8; ++vpp)
              for (std::int64_t mbs = 1; mbs <= 128; ++mbs) {
                if (gpus % (tp * pp * cp) != 0) continue;
                if (problem.job->batch.to_int64() % (mbs * (gpus / (tp * pp * cp))) != 0) continue;
                if (!power_of_two(tp) && 8 % tp != 0) continue;
                if (tensor_experts && (!world.experts || tp == 1)) continue;
                if (vpp > 1 && (pp == 1 || world.layers % vpp != 0)) continue;
                if (world.experts && 4 % ep != 0) continue;
                if (condition == "require tp <= 2" && tp > 2) continue;
                if (condition == "require pp >= 3" && pp < 3) continue;
                if (condition == "require pp == 2" && pp != 2) continue;
                for (int zero = 0; zero <= 3; ++zero)
                  for (std::int64_t shard = 1; shard <= gpus / (tp * pp); ++shard)
                    for (RecomputeMode mode = 0; mode < problem.inventory.recompute_modes.size();
                         ++mode)
                      for (const bool sp : {false, true})
                        for (const Schedule schedule :
                             {Schedule::one_f_one_b, Schedule::interleaved, Schedule::zb_h1,
                              Schedule::zb_v, Schedule::dualpipe_v}) {
                          Layout l;
                          l.tp = tp;
                          l.pp = pp;
                          l.cp = cp;
                          l.ep = ep;
                          l.etp = tensor_experts ? tp : 1;
                          l.vpp = vpp;
                          l.mbs = mbs;
                          l.zero = zero;
                          l.shard = shard;
                          l.recompute = mode;
                          l.sp = sp;
                          l.schedule = schedule;
                          const std::int64_t ranks = gpus / (tp * pp);
                          if (ranks % shard != 0 || (zero == 0 && shard != ranks)) continue;
                          if (zero > 0 && ranks == 1) continue;
                          if (schedule == Schedule::zb_h1 && pp == 1) continue;
                          const bool flat =
                              schedule == Schedule::one_f_one_b || schedule == Schedule::zb_h1;
                          if (flat != (vpp == 1)) continue;
                          resolve(problem, l);
                          if (!why_impossible_outside(problem, l).empty()) continue;
                          loops.outer(l);
                        }
              }
  return loops.out;
}

constexpr const char* kConditions[] = {"",
                                       "require tp <= 2",
                                       "require headroom >= 20%",
                                       "prefer recompute == none weight 50",
                                       "prefer headroom >= 30% weight 20",
                                       "require pp >= 3",
                                       "require max(stage_layers) - min(stage_layers) <= 1",
                                       "require pp > 1 => stage_layers[0] == 1",
                                       "require sum(recompute_layers) >= 2",
                                       "require pp == 2"};

TEST_CASE("the planner finds what loops over everything find", "[plan]") {
  const unsigned seed = test::seed_of_run();
  std::mt19937 random(seed);
  const auto pick = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  int fit = 0, not_fit = 0;
  int uneven = 0, partly = 0;
  for (int i = 0; i < 60; ++i) {
    Small s;
    s.gpus = 1 << pick(0, 3);
    if (pick(0, 5) == 0) s.gpus = 6;
    s.layers = pick(1, 5);
    s.memory_mib = pick(0, 2) == 0 ? pick(20, 200) : pick(200, 1500);
    s.batch = 1 << pick(1, 4);
    if (s.gpus == 6) s.batch *= 3;
    s.experts = pick(0, 3) == 0;
    if (pick(0, 2) == 0) {  // a head as heavy as some layers
      s.vocab = 32768;
      s.memory_mib += 400;
    }
    s.condition = kConditions[pick(0, 9)];
    INFO("PLIMSOLL_SEED=" << seed << ", world " << i << "\n" << text_of(s));
    const World world(text_of(s));
    Diagnostics diags;
    PlanOptions options;
    options.top = 1;
    options.proof = true;  // throws where a core is left out
    const PlanResult found = plan(*world, options, diags);
    REQUIRE_FALSE(diags.has_errors());
    const Brute expected = brute(*world, s, s.condition);
    CHECK(found.space >= expected.outer);
    REQUIRE(found.best.has_value() == expected.best.has_value());
    if (!expected.best) {
      ++not_fit;
      CHECK(found.status == PlanResult::infeasible);
      continue;
    }
    ++fit;
    CHECK(found.status == PlanResult::optimal);
    CHECK(found.proof.has_value());
    CHECK(found.best->score * Rational(1'000'000'000) == expected.score);
    INFO(describe(*world, found.best->layout) << " against " << describe(*world, *expected.best));
    CHECK(found.best->layout.tp == expected.best->tp);
    CHECK(tie(*world, found.best->layout) == tie(*world, *expected.best));
    CHECK(found.best->layout.stage_layers == expected.best->stage_layers);
    CHECK(found.best->layout.recompute_layers == expected.best->recompute_layers);
    CHECK(found.best->peak_bytes == expected.peak);
    uneven += found.best->layout.stage_layers !=
              default_stage_layers((*world).program->layer_count, found.best->layout.pp);
    partly += !usual(*world, found.best->layout) && found.best->layout.recompute == 1;
    CHECK(found.feasible_count <= expected.feasible);
  }
  std::printf("plan: seed %u, %d worlds fit, %d not, %d uneven, %d partly recomputed\n", seed, fit,
              not_fit, uneven, partly);
  CHECK(fit > 12);
  CHECK(not_fit > 4);
}

/// Segments by a rule without any order, but that recomputing no layer is no recomputation: up to a
/// fifth more than the stage's blocks.
class ScatteredSegments final : public Segments {
 public:
  std::int64_t reserved(const Problem& problem, const Layout& l, std::int64_t stage) override {
    CostModel model(problem);
    model.set(l);
    std::int64_t outside = 0;
    const std::int64_t blocks = model.most(stage, outside).blocks;
    std::uint64_t h = 14695981039346656037u + static_cast<std::uint64_t>(stage);
    for (const std::vector<std::int64_t>* list : {&l.stage_layers, &l.recompute_layers})
      h = (h ^ static_cast<std::uint64_t>(
                   list->empty() ? 0 : (*list)[static_cast<std::size_t>(stage)])) *
          1099511628211u;
    h = (h ^ static_cast<std::uint64_t>(l.tp * 64 + l.mbs * 8 + l.zero)) * 1099511628211u;
    return blocks + blocks / 100 * static_cast<std::int64_t>((h >> 40) % 20);
  }
  std::shared_ptr<Segments> fresh() const override { return std::make_shared<ScatteredSegments>(); }
};

TEST_CASE("what the planner finds fits with its segments, and nothing faster does",
          "[plan][reserved]") {
  const unsigned seed = test::seed_of_run();
  std::mt19937 random(seed);
  const auto pick = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  int fit = 0, not_fit = 0, refused = 0;
  for (int i = 0; i < 30; ++i) {
    Small s;
    s.gpus = 1 << pick(0, 3);
    s.layers = pick(2, 5);
    s.memory_mib = pick(0, 2) == 0 ? pick(20, 200) : pick(200, 1500);
    s.batch = 1 << pick(1, 4);
    s.experts = pick(0, 3) == 0;
    s.condition =
        kConditions[std::array<int, 6>{0, 0, 1, 2, 6, 7}[static_cast<std::size_t>(pick(0, 5))]];
    INFO("PLIMSOLL_SEED=" << seed << ", world " << i << "\n" << text_of(s));
    World world(text_of(s));
    Diagnostics diags;
    PlanOptions options;
    options.top = 1;
    const PlanResult before = plan(*world, options, diags);
    world.problem->inventory.counts_blocks = true;
    world.problem->segments = std::make_shared<ScatteredSegments>();
    REQUIRE(replays(*world));
    options.proof = true;
    const PlanResult found = plan(*world, options, diags);
    REQUIRE_FALSE(diags.has_errors());
    const Brute expected = brute(*world, s, s.condition);
    REQUIRE(found.best.has_value() == expected.best.has_value());
    if (before.best &&
        (!found.best || before.best->time.nanoseconds != found.best->time.nanoseconds))
      ++refused;
    if (!expected.best) {
      ++not_fit;
      CHECK(found.status == PlanResult::infeasible);
      continue;
    }
    ++fit;
    CHECK(found.status == PlanResult::optimal);
    CHECK(found.best->score * Rational(1'000'000'000) == expected.score);
    const Bill own = bill(*world, found.best->layout);
    CHECK(own.fits);
    CHECK(own.peak_bytes == found.best->peak_bytes);
  }
  std::printf("plan with segments: seed %u, %d worlds fit, %d not, %d differ by them\n", seed, fit,
              not_fit, refused);
  CHECK(fit > 8);
  CHECK(refused > 2);
}

TEST_CASE("more memory never makes a plan slower", "[plan]") {
  for (const bool experts : {false, true}) {
    std::optional<std::int64_t> before;
    for (int mib = 100; mib <= 1600; mib += 100) {
      const World world(text_of({8, 4, mib, 16, experts, ""}));
      Diagnostics diags;
      const PlanResult r = plan(*world, {}, diags);
      if (!r.best) {
        CHECK_FALSE(before.has_value());
        continue;
      }
      if (before) CHECK(r.best->time.nanoseconds <= *before);
      before = r.best->time.nanoseconds;
    }
    CHECK(before.has_value());
  }
}

TEST_CASE("runners-up are the next best, in order", "[plan]") {
  const World world(text_of({8, 4, 1000, 16, false, ""}));
  Diagnostics diags;
  PlanOptions options;
  options.top = 200;
  const PlanResult all = plan(*world, options, diags);
  REQUIRE(all.best);
  options.top = 4;
  const PlanResult few = plan(*world, options, diags);
  REQUIRE(few.alternatives.size() == 3);
  REQUIRE(all.alternatives.size() > 20);
  CHECK(few.best->layout == all.best->layout);
  for (std::size_t i = 0; i < few.alternatives.size(); ++i)
    CHECK(few.alternatives[i].layout == all.alternatives[i].layout);
  for (std::size_t i = 1; i < all.alternatives.size(); ++i)
    CHECK(all.alternatives[i - 1].score <= all.alternatives[i].score);
}

TEST_CASE("a budget ends the search and says so", "[plan]") {
  const World world(text_of({8, 4, 400, 16, false, ""}));
  Diagnostics diags;
  PlanOptions options;
  options.budget = 1;
  const PlanResult r = plan(*world, options, diags);
  CHECK(r.evaluated == 1);
  CHECK((r.status == PlanResult::feasible || r.status == PlanResult::unknown));
  options.budget.reset();
  options.stop = [] { return true; };
  const PlanResult none = plan(*world, options, diags);
  CHECK(none.status == PlanResult::unknown);
  CHECK(none.stopped);
}

TEST_CASE("pins, choices and lists of the job are respected", "[plan]") {
  const auto best = [](const std::string& pins) {
    const World world(text_of({8, 6, 40'000, 16, false, pins}));
    Diagnostics diags;
    const PlanResult r = plan(*world, {}, diags);
    REQUIRE(r.best);
    return r.best->layout;
  };
  CHECK(best("tp = 4").tp == 4);
  CHECK(best("pp in {2, 4}  stage_layers = [2, 4]").stage_layers ==
        std::vector<std::int64_t>{2, 4});
  CHECK(best("recompute = full").recompute == 1);
  CHECK(best("dp = 2").dp == 2);
  CHECK(best("tp in {2, 4}  sp = tp == 4  minimize peak").sp ==
        (best("tp in {2, 4}  sp = tp == 4  minimize peak").tp == 4));
  CHECK(best("maximize mbs").mbs == 16);
  CHECK(best("schedule = gpipe  pp = 2").schedule == Schedule::gpipe);
}

TEST_CASE("bytes() asks for categories and items by name", "[plan]") {
  const auto plan_with = [](const std::string& condition, Diagnostics& diags) {
    const World world(text_of({8, 6, 40'000, 16, false, condition}));
    return plan(*world, {}, diags);
  };
  Diagnostics diags;
  const PlanResult free = plan_with("minimize bytes(\"weights\")", diags);
  REQUIRE(free.best);
  CHECK(free.best->value.sign() > 0);
  // A limit just below the least is met by nothing, one at it by what was found.
  const std::string least = free.best->value.str();
  CHECK(plan_with("require bytes(\"weights\") <= " + least + " B", diags).best);
  CHECK_FALSE(plan_with("require bytes(\"weights\") < " + least + " B", diags).best);
  // An op's saved value goes by its own name.
  CHECK(plan_with("require bytes(\"logits\") > 0 B", diags).best);
  CHECK_FALSE(diags.has_errors());
  // What could be a row of some job and is none of this one is found when a layout is priced; what
  // can be none at all, by the checker.
  plan_with("require bytes(\"mask\") < 1 GiB", diags);
  CHECK(diags.error_count() == 1);
  CHECK_THROWS(plan_with("require bytes(\"logit\") < 1 GiB", diags));
}

TEST_CASE("the nodes are the planner's where they are free", "[plan]") {
  const std::string text = R"(
gpu tiny = h100_sxm { memory = 600 MiB  reserved = 0 MiB }
cluster c { gpu = tiny  nodes in {1, 2, 4, 8}  gpus_per_node = 2 }
model m = llama { layers = 4  hidden = 1024  heads = 8  ffn = 4096  vocab = 8192 }
train t { model = m  cluster = c  seq = 2Ki  batch = 16  framework = plain  minimize gpus }
)";
  const World world(text);
  Diagnostics diags;
  const PlanResult r = plan(*world, {}, diags);
  REQUIRE(r.best);
  // No fewer do.
  for (const std::int64_t fewer : {1, 2, 4, 8}) {
    if (fewer >= r.best->layout.nodes) continue;
    std::string fixed = text;
    fixed.replace(fixed.find("in {1, 2, 4, 8}"), 15, fmt::format("= {}", fewer));
    const World other(fixed);
    CHECK_FALSE(plan(*other, {}, diags).best);
  }
}

TEST_CASE("the same plan gives the same bytes", "[plan]") {
  std::string json, text;
  for (int run = 0; run < 5; ++run) {
    const World world(text_of({8, 4, 700, 16, true, "require headroom >= 5%"}));
    Diagnostics diags;
    const PlanResult r = plan(*world, {}, diags);
    const std::string now = report::plan_json(*world, r);
    const std::string shown = report::plan_text(*world, r, {});
    if (run == 0) json = now, text = shown;
    CHECK(now == json);
    CHECK(shown == text);
  }
  // Two at once, each with a module of its own.
  std::string at_once[2];
  const auto run = [&](std::string& out) {
    const World world(text_of({8, 4, 700, 16, true, "require headroom >= 5%"}));
    Diagnostics diags;
    PlanOptions options;
    out = report::plan_json(*world, plan(*world, options, diags));
  };
  std::thread first(run, std::ref(at_once[0])), second(run, std::ref(at_once[1]));
  first.join();
  second.join();
  CHECK(at_once[0] == json);
  CHECK(at_once[1] == json);
  const auto parsed = nlohmann::json::parse(json);
  CHECK(parsed["schema"] == "plimsoll.plan/1");
  CHECK(parsed["status"] == "optimal");
  CHECK(parsed["best"]["peak_bytes"].is_number_integer());
  CHECK(parsed["search"]["evaluated"] <= parsed["search"]["space"]);
}

TEST_CASE("the layout that is printed means the layout that was found", "[plan]") {
  for (const char* framework : {"plain", "megatron", "torchtitan"}) {
    const std::string text = fmt::format(R"(
cluster c {{ gpu = h100_sxm  nodes = 2  gpus_per_node = 8 }}
train t {{ model = llama3_8b  cluster = c  seq = 8Ki  batch = 64  framework = {} }}
)",
                                         framework);
    const World world(text);
    Diagnostics diags;
    const PlanResult r = plan(*world, {}, diags);
    REQUIRE(r.best);
    std::vector<Layout> found{r.best->layout};
    for (const Priced& p : r.alternatives) found.push_back(p.layout);
    for (const Layout& layout : found) {
      const std::string line = report::layout_line(*world, layout, "best");
      INFO(framework << ": " << line);
      const World again(text + line + "\n");
      const auto back = layout_from(*again, &again.module.layouts().front(), diags);
      REQUIRE(back);
      CHECK(*back == layout);
    }
  }
}

TEST_CASE("changes that are suggested make it fit", "[plan]") {
  const Small s{2, 4, 150, 8, false, "tp = 1"};
  const World world(text_of(s));
  Diagnostics diags;
  PlanResult r = plan(*world, {}, diags);
  REQUIRE(r.status == PlanResult::infeasible);
  REQUIRE(r.tightest);
  CHECK(r.tightest->peak_bytes > r.tightest->hbm_bytes);
  r.relaxations = suggest(*world);
  REQUIRE_FALSE(r.relaxations.empty());
  for (const Relaxation& change : r.relaxations) {
    INFO(change.change << "\n" << change.plan_text);
    const World changed(change.plan_text);
    const PlanResult fits = plan(*changed, {}, diags);
    REQUIRE(fits.best);
    CHECK(fits.best->time.nanoseconds == change.best.time.nanoseconds);
  }
  const auto json = nlohmann::json::parse(report::plan_json(*world, r));
  CHECK(json["best"].is_null());
  CHECK(json["relaxations"].size() == r.relaxations.size());
}

}  // namespace
}  // namespace plimsoll
