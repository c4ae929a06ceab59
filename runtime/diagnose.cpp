// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/diagnose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "lang/units.hpp"
#include "runtime/replay.hpp"
#include "runtime/timeline.hpp"

namespace plimsoll::runtime {
namespace {

/// Requests that are told.
constexpr std::size_t kRequests = 3;
/// A bill is not expected to be nearer than this, whatever its framework's margin.
constexpr double kLeastMargin = 0.02;
/// Of the memory: what others or another card take before it is worth a word.
constexpr double kShareOfOthers = 0.01;

std::int64_t bytes_of(const std::optional<logs::Seen>& s) { return s ? s->bytes : 0; }
std::int64_t narrow(Int128 n) { return static_cast<std::int64_t>(n); }

std::string in_words(logs::Where where) {
  switch (where) {
    case logs::Where::construction:
      return "while the model was built";
    case logs::Where::forward:
      return "in the forward";
    case logs::Where::backward:
      return "in the backward";
    case logs::Where::update:
      return "in the optimizer step";
    case logs::Where::unknown:
      break;
  }
  return "";
}

bool may_be(logs::Where where, StepPart part) {
  switch (where) {
    case logs::Where::forward:
      return part == StepPart::forward;
    case logs::Where::backward:
      return part == StepPart::backward;
    case logs::Where::update:
      return part == StepPart::update;
    case logs::Where::construction:
      return part == StepPart::between;
    case logs::Where::unknown:
      break;
  }
  return true;
}

/// One failure set beside the bill.
class Case {
 public:
  Case(const Problem& p, const Bill& bill, const logs::Failure& f) : p_(p), bill_(bill), f_(f) {
    // Where the driver cannot count a container's processes, PyTorch prints nonsense.
    if (f_.in_use && f_.capacity && f_.in_use->bytes > f_.capacity->bytes) f_.in_use.reset();
  }

  Diagnosis judge(std::optional<std::int64_t> stage) {
    choose_stage(stage);
    b_ = &bill_.stages[static_cast<std::size_t>(d_.stage)];
    outside_billed_ = outside_bytes(p_, *b_);
    weigh();
    decide();
    tell_figures();
    d_.from = source();
    replay_in_it();
    d_.tried = d_.cause == Cause::more;
    if (d_.tried)
      d_.explanations = explain_difference(
          p_, bill_.layout, d_.stage, bytes_of(f_.allocated),
          Shortage{f_.segment,
                   bytes_of(f_.allocated) + bytes_of(f_.unallocated) + bytes_of(f_.free)});
    d_.fixes = fixes();
    return std::move(d_);
  }

 private:
  std::int64_t rank_in(std::int64_t stage) const { return rank_in_stage(bill_.layout, 0, stage); }

  std::vector<Request> requests_in(std::int64_t stage) const {
    if (!f_.segment) return {};
    const std::int64_t near =
        f_.allocated ? f_.allocated->bytes
                     : narrow(bill_.stages[static_cast<std::size_t>(stage)].allocated_bytes);
    std::vector<Request> found = requests_like(p_, bill_.layout, rank_in(stage), *f_.segment, near);
    std::stable_partition(found.begin(), found.end(),
                          [&](const Request& r) { return may_be(f_.where, r.part); });
    return found;
  }

  void choose_stage(std::optional<std::int64_t> told) {
    d_.segment = f_.segment;
    d_.telling = f_.segment && is_telling(*f_.segment);
    const std::int64_t ranks = rank_count(bill_.layout);
    if (!told && f_.rank && *f_.rank < ranks) told = place_of(bill_.layout, *f_.rank).stage;
    if (told) {
      d_.stage = *told;
      d_.requests = requests_in(d_.stage);
    } else {
      d_.stage = bill_.peak_stage;
      std::int64_t nearest = -1;
      for (std::int64_t stage = 0; stage < bill_.layout.pp; ++stage) {
        // Stages in the middle are alike.
        if (stage > 1 && stage + 1 < bill_.layout.pp && stage != bill_.peak_stage) continue;
        std::vector<Request> found = requests_in(stage);
        if (found.empty()) continue;
        const std::int64_t far = f_.allocated ? std::abs(found[0].allocated - f_.allocated->bytes)
                                 : stage == bill_.peak_stage ? 0
                                                             : 1;
        if (nearest >= 0 && far >= nearest) continue;
        nearest = far;
        d_.stage = stage;
        d_.requests = std::move(found);
      }
      if (bill_.layout.pp > 1)
        d_.notes.push_back(fmt::format(
            "The log does not say which rank it is of; stage {} explains it best. --stage N says "
            "otherwise.",
            d_.stage));
    }
    if (d_.requests.size() > kRequests) d_.requests.resize(kRequests);
  }

  /// What the log has over the bill: in blocks, and outside the allocator.
  void weigh() {
    if (f_.allocated) {
      const std::int64_t request = bytes_of(f_.segment);
      const std::int64_t most = narrow(b_->allocated_bytes);
      // Where the size tells the tensor, at its moment; else the bill's peak must hold the request.
      at_moment_ = d_.telling && !d_.requests.empty() ? d_.requests.front().allocated
                                                      : std::max<std::int64_t>(0, most - request);
      over_ = f_.allocated->bytes - at_moment_;
    }
    const std::int64_t reserved = bytes_of(f_.allocated) + bytes_of(f_.unallocated);
    if (f_.in_use && f_.allocated)
      outside_seen_ = std::max<std::int64_t>(0, f_.in_use->bytes - reserved);
    else if (f_.capacity && f_.free && f_.allocated && !f_.others)
      outside_seen_ = std::max<std::int64_t>(0, f_.capacity->bytes - f_.free->bytes - reserved);
    if (f_.others)
      others_ = f_.others->bytes;
    else if (f_.capacity && f_.free && f_.in_use)
      others_ = std::max<std::int64_t>(0, f_.capacity->bytes - f_.free->bytes - f_.in_use->bytes);
    d_.over = std::max<std::int64_t>(0, over_);
    if (outside_seen_)
      d_.over += std::max<std::int64_t>(0, *outside_seen_ - outside_billed_ - occupied());
  }
  std::int64_t occupied() const { return narrow(p_.cluster->occupied); }

  void decide() {
    const double margin = error_margin(p_);
    const std::int64_t request = bytes_of(f_.segment);
    const std::int64_t idle = bytes_of(f_.unallocated) + bytes_of(f_.free);
    const auto memory = static_cast<double>(b_->hbm_bytes);
    const bool much = static_cast<double>(over_) >
                      margin * static_cast<double>(std::max<std::int64_t>(at_moment_, 1));
    if (f_.outside) return decide_outside();
    if (f_.capacity && static_cast<double>(f_.capacity->bytes + f_.capacity->slack) <
                           (1 - kShareOfOthers) * memory)
      return decide_smaller();
    if (others_ && static_cast<double>(*others_ - occupied()) > kShareOfOthers * memory &&
        request <= idle + *others_)
      return say(Cause::others,
                 fmt::format("others hold {} of this GPU: without them the {} that were asked for "
                             "would have had room",
                             human_bytes(*others_), human_bytes(request)));
    if (f_.allocated && much) {
      std::string text = fmt::format(
          "more than the file says: {} were in use where the bill has {} ({} over)",
          human_bytes(f_.allocated->bytes), human_bytes(at_moment_), human_bytes(over_));
      if (!stage_fits()) text += "; even by the bill this layout does not fit";
      return say(Cause::more, text);
    }
    if (!stage_fits())
      return say(Cause::billed,
                 fmt::format("as the bill says, this layout does not fit: stage {} needs {} of {}",
                             d_.stage, human_bytes(b_->peak_bytes), human_bytes(b_->hbm_bytes)));
    if (f_.allocated && f_.unallocated && request <= idle)
      return say(Cause::fragmented,
                 fmt::format("in pieces: {} were asked for while {} were reserved and in no use",
                             human_bytes(request), human_bytes(f_.unallocated->bytes)));
    decide_narrow();
  }

  /// Which of the prelude it may be, too.
  void decide_smaller() {
    say(Cause::smaller, fmt::format("a smaller GPU than the file's: {} where it says {}",
                                    human_bytes(f_.capacity->bytes), human_bytes(b_->hbm_bytes)));
    const Gpu* nearest = nullptr;
    const auto off = [&](const Gpu* gpu) {
      const Int128 d = gpu->memory - f_.capacity->bytes;
      return d < 0 ? -d : d;
    };
    for (const std::string& gpu : p_.module->names("gpu"))
      if (const Gpu* one = p_.module->gpu(gpu))
        if (nearest == nullptr || off(one) < off(nearest)) nearest = one;
    if (nearest != nullptr)
      d_.notes.push_back(fmt::format("The cluster's gpu may be meant to be {} ({}).", nearest->name,
                                     human_bytes(nearest->memory)));
  }

  void decide_narrow() {
    const std::int64_t left = narrow(b_->hbm_bytes - b_->peak_bytes);
    if (outside_seen_ && *outside_seen_ - outside_billed_ > left)
      return say(Cause::outside,
                 fmt::format("outside the allocator: {} for context, communicators and libraries, "
                             "where the bill has {}",
                             human_bytes(*outside_seen_), human_bytes(outside_billed_)));
    if (f_.allowed)
      return say(Cause::smaller,
                 fmt::format("a limit: the process may take {} of {}",
                             human_bytes(f_.allowed->bytes), human_bytes(b_->hbm_bytes)));
    say(Cause::narrow,
        fmt::format("too close: by the bill stage {} fits with {} left, less than what the log "
                    "has over it",
                    d_.stage, human_bytes(left)));
  }

  /// CUDA, cuBLAS or NCCL itself found nothing left: the allocator's cache had it.
  void decide_outside() {
    say(stage_fits() ? Cause::outside : Cause::billed,
        stage_fits()
            ? fmt::format("outside the allocator: a library found no memory left, beside the {} "
                          "that the bill has for stage {}",
                          human_bytes(b_->peak_bytes), d_.stage)
            : fmt::format("as the bill says, this layout does not fit: stage {} needs {} of {}",
                          d_.stage, human_bytes(b_->peak_bytes), human_bytes(b_->hbm_bytes)));
    d_.notes.push_back(
        "Context, communicators and workspaces of libraries need memory that PyTorch's allocator "
        "has not taken: NCCL makes its buffers at the first collective of each group.");
  }

  bool stage_fits() const { return b_->peak_bytes <= b_->hbm_bytes; }
  void say(Cause cause, std::string text) {
    d_.cause = cause;
    d_.verdict = std::move(text);
  }

  void tell_figures() {
    const auto seen = [](const std::optional<logs::Seen>& s) {
      return s ? std::optional<std::int64_t>(s->bytes) : std::nullopt;
    };
    const auto add = [&](std::string what, std::optional<std::int64_t> in_log,
                         std::optional<std::int64_t> in_bill) {
      if (in_log) d_.figures.push_back({std::move(what), in_log, in_bill});
    };
    const bool exact = d_.telling && !d_.requests.empty();
    add(exact ? "in use, before the request" : "in use", seen(f_.allocated),
        exact ? at_moment_ : narrow(b_->allocated_bytes));
    add("the request", seen(f_.segment),
        exact ? std::optional<std::int64_t>(d_.requests.front().bytes) : std::nullopt);
    add("reserved and in no use (fragmentation)", seen(f_.unallocated),
        narrow(b_->reserved_bytes - b_->allocated_bytes));
    add("of it in graphs' own pools", seen(f_.graphs), std::nullopt);
    add(f_.in_use ? "context, communicators, libraries" : "context, communicators, others",
        outside_seen_, outside_billed_);
    add("other processes", others_, occupied());
    if (outside_seen_)
      d_.notes.push_back("Outside the allocator the bill has: " + outside_items() + ".");
    add("free", seen(f_.free), std::nullopt);
    add("memory that the GPU has", seen(f_.capacity), narrow(b_->hbm_bytes) + occupied());
  }

  /// What the steps come to where they are played in the memory that the log has for PyTorch.
  void replay_in_it() {
    if (!f_.allocated || !f_.capacity || f_.outside) return;
    const std::int64_t limit =
        bytes_of(f_.allocated) + bytes_of(f_.unallocated) + bytes_of(f_.free);
    const ReplayResult r = replay(p_, bill_.layout, d_.stage, allocator_options(p_), 2, limit);
    if (!r.failure) {
      d_.notes.push_back(fmt::format(
          "Played in the {} that the log has for PyTorch, the file's steps do not run out.",
          human_bytes(limit)));
      return;
    }
    const ReplayFailure& failed = *r.failure;
    const std::string at = failed.at.step == 0 ? "building the model" : point_name(p_, failed.at);
    d_.notes.push_back(fmt::format(
        "Played in the {} that the log has for PyTorch, the file's steps run out too: {} of {}, "
        "after {}, with {} in use.",
        human_bytes(limit), failed.tensor, human_bytes(failed.bytes), at,
        human_bytes(failed.allocated)));
    prefer(failed, at);
  }

  /// The replay's own request is the likeliest where its size and the bytes in use are the log's.
  void prefer(const ReplayFailure& failed, const std::string& at) {
    if (!d_.telling || d_.requests.empty() || !may_be(f_.where, failed.at.part)) return;
    const std::int64_t off = segment_for(failed.bytes) - d_.segment->bytes;
    const double far = std::abs(static_cast<double>(failed.allocated - f_.allocated->bytes));
    if (std::abs(off) > d_.segment->slack ||
        far > kLeastMargin / 4 * static_cast<double>(f_.allocated->bytes))
      return;
    const auto same = [&](const Request& r) {
      return r.item == failed.tensor && r.part == failed.at.part;
    };
    const auto known = std::find_if(d_.requests.begin(), d_.requests.end(), same);
    const Request likeliest{
        failed.tensor,         known != d_.requests.end() ? known->moment : "after " + at,
        Category::activations, failed.at.part,
        failed.bytes,          failed.allocated};
    if (known != d_.requests.end()) d_.requests.erase(known);
    d_.requests.insert(d_.requests.begin(), likeliest);
    if (d_.requests.size() > kRequests) d_.requests.resize(kRequests);
  }

  /// What the bill has outside the allocator.
  std::string outside_items() const {
    std::string text;
    for (const BillLine& line : b_->lines)
      if (line.item != kNone && p_.inventory.items[line.item].outside)
        text +=
            fmt::format("{}{} {}", text.empty() ? "" : ", ", line.name, human_bytes(line.bytes));
    return text;
  }

  std::string source() const {
    std::string text = fmt::format("line {}", f_.line);
    if (f_.rank) text += fmt::format(", rank {}", *f_.rank);
    if (f_.gpu) text += fmt::format(", GPU {}", *f_.gpu);
    if (f_.where != logs::Where::unknown) text += ", " + in_words(f_.where);
    return text;
  }

  std::vector<Fix> fixes() {
    std::vector<Fix> out;
    if (d_.cause == Cause::others) return out;
    if (d_.cause == Cause::fragmented || d_.cause == Cause::narrow) {
      AllocatorOptions options = allocator_options(p_);
      if (!options.expandable_segments) {
        options.expandable_segments = true;
        const ReplayResult r = replay(p_, bill_.layout, d_.stage, options);
        const std::int64_t peak = r.peak_reserved + outside_billed_;
        if (peak + d_.over <= narrow(b_->hbm_bytes))
          out.push_back({"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (the steps replayed)",
                         peak, std::nullopt, ""});
      }
    }
    std::int64_t extra = d_.over;
    if (d_.cause == Cause::smaller && f_.capacity)
      extra += narrow(b_->hbm_bytes) - (f_.allowed ? f_.allowed : f_.capacity)->bytes;
    // Without other segments as much stays in pieces as did.
    extra += std::max<std::int64_t>(
        0, bytes_of(f_.unallocated) - narrow(b_->reserved_bytes - b_->allocated_bytes));
    for (Fix& f : nearest_fixes(p_, bill_.layout, extra)) out.push_back(std::move(f));
    return out;
  }

  const Problem& p_;
  const Bill& bill_;
  logs::Failure f_;
  Diagnosis d_;
  const StageBill* b_ = nullptr;
  std::int64_t at_moment_ = 0;  ///< blocks that the bill has in use there
  std::int64_t over_ = 0;
  std::int64_t outside_billed_ = 0;
  std::optional<std::int64_t> outside_seen_, others_;
};

/// The failure that says most: of several the one with the most in use.
const logs::Failure& worst(const std::vector<logs::Failure>& all) {
  return *std::max_element(all.begin(), all.end(),
                           [](const logs::Failure& a, const logs::Failure& b) {
                             return bytes_of(a.allocated) + (a.segment ? 1 : 0) <
                                    bytes_of(b.allocated) + (b.segment ? 1 : 0);
                           });
}

}  // namespace

std::int64_t outside_bytes(const Problem& p, const StageBill& b) {
  Int128 sum = 0;
  for (const BillLine& line : b.lines)
    if (line.item != kNone && p.inventory.items[line.item].outside) sum += line.bytes;
  return narrow(sum);
}

double error_margin(const Problem& p) {
  return std::max(kLeastMargin, p.inventory.margin.to_double());
}

std::string_view name(Cause cause) {
  switch (cause) {
    case Cause::billed:
      return "billed";
    case Cause::more:
      return "more";
    case Cause::fragmented:
      return "fragmented";
    case Cause::others:
      return "others";
    case Cause::outside:
      return "outside";
    case Cause::smaller:
      return "smaller";
    case Cause::narrow:
      return "narrow";
    case Cause::agrees:
      return "agrees";
    case Cause::less:
      return "less";
    case Cause::server:
      return "server";
  }
  return "";
}

Diagnosis diagnose(const Problem& p, const Bill& bill, const logs::MemoryLog& log,
                   std::optional<std::int64_t> stage) {
  if (p.job->serve && log.server) return diagnose_server(p, bill, *log.server);
  if (log.failures.empty() || p.job->serve) return diagnose_counters(p, bill, log, stage);
  Diagnosis d = Case(p, bill, worst(log.failures)).judge(stage);
  if (log.failures.size() > 1)
    d.notes.push_back(fmt::format("{} more failures are in the log; this one had the most in use.",
                                  log.failures.size() - 1));
  return d;
}

}  // namespace plimsoll::runtime
