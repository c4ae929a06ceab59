// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Changes tried for a diagnosis: those that would have fitted, and those that would explain a
// difference.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

#include "planner/edits.hpp"
#include "planner/judge.hpp"
#include "planner/suggest.hpp"
#include "planner/time.hpp"
#include "runtime/diagnose.hpp"
#include "runtime/replay.hpp"

namespace plimsoll::runtime {
namespace {

constexpr std::size_t kFixes = 4;
constexpr std::size_t kExplanations = 3;
/// How near an explanation must come to the bytes of the log, as a share of them.
constexpr double kNear = 0.03;

/// A layout with one thing changed, and what that is.
struct Changed {
  std::string change;
  Layout layout;
};

/// What follows from degrees is worked out anew where they change.
Layout with(const Problem& p, const Layout& l, const std::function<void(Layout&)>& change) {
  Layout out = l;
  if (l.shard == l.dp * l.cp) out.shard = 0;
  if (l.stage_layers == default_stage_layers(p.program->layer_count, l.pp))
    out.stage_layers.clear();
  if (l.recompute_layers == l.stage_layers) out.recompute_layers.clear();
  change(out);
  if (out.pp != l.pp) out.stage_layers.clear(), out.recompute_layers.clear();
  resolve(p, out);
  return out;
}

std::vector<Changed> smaller_layouts(const Problem& p, const Layout& l) {
  std::vector<Changed> out;
  const auto add = [&](std::string text, const std::function<void(Layout&)>& change) {
    out.push_back({std::move(text), with(p, l, change)});
  };
  for (std::int64_t m = l.mbs / 2; m >= 1; m /= 2)
    add(fmt::format("mbs = {}", m), [=](Layout& x) { x.mbs = m; });
  if (l.tp > 1 && !l.sp) add("sp = true", [](Layout& x) { x.sp = true; });
  if (l.recompute == 0)
    for (RecomputeMode mode = 2; mode < p.inventory.recompute_modes.size(); ++mode)
      add(fmt::format("recompute = {}", p.inventory.recompute_modes[mode]),
          [=](Layout& x) { x.recompute = mode; });
  if (l.recompute != kFullRecompute || l.recompute_layers != l.stage_layers)
    add("recompute = full", [](Layout& x) {
      x.recompute = kFullRecompute;
      x.recompute_layers.clear();
    });
  for (int zero = l.zero + 1; zero <= 3; ++zero)
    add(fmt::format("zero = {}", zero), [=](Layout& x) { x.zero = zero; });
  if (l.shard < l.dp * l.cp) add("shard over all replicas", [](Layout& x) { x.shard = 0; });
  const std::pair<const char*, std::int64_t Layout::*> degrees[] = {
      {"tp", &Layout::tp}, {"pp", &Layout::pp}, {"cp", &Layout::cp}, {"ep", &Layout::ep}};
  for (const auto& [word, degree] : degrees)
    for (const std::int64_t times : {2, 4})
      add(fmt::format("{} = {}", word, l.*degree * times), [&, d = degree, t = times](Layout& x) {
        x.*d *= t;
        if (d == &Layout::tp) x.sp = true;
      });
  return out;
}

/// A step's seconds; nullopt where the file's GPUs lack the rates.
std::optional<double> seconds_of(Clock* clock, const Layout& l) {
  if (clock == nullptr) return std::nullopt;
  try {
    return static_cast<double>(clock->step(l).nanoseconds) * 1e-9;
  } catch (const ArithmeticError&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<Fix> nearest_fixes(const Problem& p, const Layout& l, std::int64_t extra) {
  Pricer pricer(p);
  Diagnostics said;
  std::optional<Clock> clock;
  if (!p.job->serve && check_rates(*p.module, *p.job, said)) clock.emplace(p);
  Clock* const ticking = clock ? &*clock : nullptr;
  const std::int64_t peak_now = p.job->serve ? 0 : static_cast<std::int64_t>(pricer.peak(l).bytes);
  const auto now = p.job->serve ? std::nullopt : seconds_of(ticking, l);
  std::vector<Fix> out;
  if (!p.job->serve) {
    for (const Changed& c : smaller_layouts(p, l)) {
      try {
        if (!why_impossible(p, c.layout).empty()) continue;
        const Pricer::Peak peak = pricer.peak(c.layout);
        if (peak.headroom_bytes < extra || peak.bytes >= peak_now) continue;
        if (!broken_requirements(p, c.layout, bill(p, c.layout)).empty()) continue;
        Fix f{c.change, static_cast<std::int64_t>(peak.bytes), std::nullopt, ""};
        if (const auto then = seconds_of(ticking, c.layout); then && now)
          f.slower = *then / *now - 1;
        out.push_back(std::move(f));
      } catch (const ArithmeticError&) {
        continue;
      }
    }
    std::stable_sort(out.begin(), out.end(), [](const Fix& a, const Fix& b) {
      return a.slower.value_or(1e9) < b.slower.value_or(1e9);
    });
  }
  if (out.size() > kFixes) out.resize(kFixes);
  if (!out.empty()) return out;
  for (const Relaxation& r : suggest(p)) {
    if (r.best.hbm_bytes - r.best.peak_bytes < extra) continue;
    out.push_back({r.change, static_cast<std::int64_t>(r.best.peak_bytes), std::nullopt, r.layout});
    if (out.size() == kFixes) break;
  }
  return out;
}

namespace {

/// Tries changes against what the log had in use.
class Guesses {
 public:
  Guesses(const Problem& p, const Layout& l, std::int64_t stage, std::int64_t allocated,
          const std::optional<Shortage>& shortage)
      : p_(p), layout_(l), stage_(stage), allocated_(allocated), shortage_(shortage), edits_(p) {}

  void run() {
    const Layout& l = layout_;
    for (const std::int64_t times : {2, 4, 8})
      guess(fmt::format("mbs = {}", l.mbs * times), [=](Layout& x) { x.mbs *= times; });
    if (l.sp) guess("sp = false", [](Layout& x) { x.sp = false; });
    for (RecomputeMode mode = 0; mode < p_.inventory.recompute_modes.size(); ++mode)
      if (mode != l.recompute)
        guess(fmt::format("recompute = {}", p_.inventory.recompute_modes[mode]),
              [=](Layout& x) { x.recompute = mode, x.recompute_layers.clear(); });
    for (int zero = 0; zero <= 3; ++zero)
      if (zero != l.zero) guess(fmt::format("zero = {}", zero), [=](Layout& x) { x.zero = zero; });
    guess_fields();
  }

  std::vector<Explanation> take() {
    std::stable_sort(found_.begin(), found_.end(), [&](const auto& a, const auto& b) {
      return std::abs(a.allocated - allocated_) < std::abs(b.allocated - allocated_);
    });
    if (found_.size() > kExplanations) found_.resize(kExplanations);
    return std::move(found_);
  }

 private:
  void guess(std::string text, const std::function<void(Layout&)>& change) {
    look(std::move(text), p_, with(p_, layout_, change));
  }

  void guess_fields() {
    const Job& job = *p_.job;
    if (job.seq.is_integer() && !job.layout.contains("seq"))
      for (const std::int64_t times : {2, 4}) {
        const std::int64_t tokens = job.seq.to_int64() * times;
        field("seq",
              tokens % 1024 == 0 ? fmt::format("{}Ki", tokens / 1024) : std::to_string(tokens));
      }
    for (const char* word : {"unfused", "flash", "cudnn"})
      if (job.attention != word) field("attention", word);
    for (const char* word : {"fp32", "bf16"}) {
      if (job.precision != word) field("precision", word);
      if (job.grads != word) field("grads", word);
    }
    if (const auto loss = p_.framework->params.find("loss");
        loss != p_.framework->params.end() && loss->second.words != nullptr)
      for (const std::string& word : loss->second.words->words)
        if (job.loss != word) field("loss", word);
    for (const char* word : {"megatron", "torchtitan", "deepspeed", "huggingface"})
      if (job.framework != word) field("framework", word);
    if (job.optimizer != "adamw") field("optimizer", "adamw");
  }

  /// One field of the job, in the file.
  void field(const char* name, const std::string& value) {
    if (!edits_.usable()) return;
    const auto text = edits_.job_field(name, value);
    if (!text) return;
    Diagnostics diags;
    const auto variant = edits_.compiled(*text, diags);
    if (variant == nullptr || diags.has_errors()) return;
    Layout l = layout_;
    l.seq = 0;
    if (l.recompute >= variant->problem->inventory.recompute_modes.size()) return;
    resolve(*variant->problem, l);
    look(fmt::format("{} = {}", name, value), *variant->problem, l);
  }

  void look(std::string text, const Problem& p, const Layout& l) {
    try {
      if (!why_impossible(p, l).empty()) return;
      std::int64_t billed = 0;
      if (shortage_) {
        // A few micro-batches fill the pipeline, and a step is over sooner.
        Layout few = l;
        few.microbatches = std::min(l.microbatches, 3 * l.pp);
        const auto failure =
            replay(p, few, stage_, allocator_options(p), 2, shortage_->limit).failure;
        if (!failure) return;
        const std::int64_t segment = segment_for(failure->bytes);
        const auto& seen = shortage_->segment;
        if (seen && std::abs(segment - seen->bytes) > seen->slack) return;
        billed = failure->allocated;
      } else {
        billed = static_cast<std::int64_t>(
            bill(p, l).stages[static_cast<std::size_t>(stage_)].allocated_bytes);
      }
      const double off = std::abs(static_cast<double>(billed - allocated_));
      if (off <= kNear * static_cast<double>(allocated_))
        found_.push_back({std::move(text), billed});
    } catch (const ArithmeticError&) {
      return;
    }
  }

  const Problem& p_;
  const Layout& layout_;
  std::int64_t stage_, allocated_;
  std::optional<Shortage> shortage_;
  Edits edits_;
  std::vector<Explanation> found_;
};

}  // namespace

std::vector<Explanation> explain_difference(const Problem& p, const Layout& l, std::int64_t stage,
                                            std::int64_t allocated,
                                            const std::optional<Shortage>& shortage) {
  if (p.job->serve || allocated <= 0) return {};
  Guesses guesses(p, l, stage, allocated, shortage);
  guesses.run();
  return guesses.take();
}

}  // namespace plimsoll::runtime
