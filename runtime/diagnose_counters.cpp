// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>

#include "lang/units.hpp"
#include "runtime/diagnose.hpp"

namespace plimsoll::runtime {
namespace {

std::int64_t bytes_of(const std::optional<logs::Seen>& s) { return s ? s->bytes : 0; }
std::int64_t narrow(Int128 n) { return static_cast<std::int64_t>(n); }

/// Counters of runs that went well: the most of each kind, and which rank had it.
class Tally {
 public:
  Tally(const Problem& p, const Bill& bill, const logs::MemoryLog& log,
        std::optional<std::int64_t> stage)
      : p_(p), bill_(bill), log_(log) {
    d_.stage = stage.value_or(bill.peak_stage);
    told_ = stage.has_value();
  }

  Diagnosis judge() {
    take_counters();
    const StageBill& b = bill_.stages[static_cast<std::size_t>(d_.stage)];
    compare("most allocated", allocated_, narrow(b.allocated_bytes));
    compare("most reserved", reserved_, narrow(b.reserved_bytes));
    take_devices(b);
    decide(b);
    return std::move(d_);
  }

 private:
  void take_counters() {
    for (const logs::Counters& c : log_.counters) {
      const std::int64_t ranks = rank_count(bill_.layout);
      if (told_ && c.rank && *c.rank < ranks && place_of(bill_.layout, *c.rank).stage != d_.stage)
        continue;
      const auto a = c.most_allocated ? c.most_allocated : c.allocated;
      const auto r = c.most_reserved ? c.most_reserved : c.reserved;
      const bool more = bytes_of(a) > bytes_of(allocated_) || bytes_of(r) > bytes_of(reserved_);
      if (bytes_of(a) > bytes_of(allocated_)) allocated_ = a;
      if (bytes_of(r) > bytes_of(reserved_)) reserved_ = r;
      if (!more) continue;
      d_.from = fmt::format("line {}, {}", c.line, c.tool);
      if (!c.rank) continue;
      d_.from += fmt::format(", rank {}", *c.rank);
      if (!told_ && *c.rank < ranks) d_.stage = place_of(bill_.layout, *c.rank).stage;
    }
  }

  void compare(const char* what, const std::optional<logs::Seen>& seen, std::int64_t billed) {
    if (seen) d_.figures.push_back({what, seen->bytes, billed});
  }

  void take_devices(const StageBill& b) {
    const logs::Device* most = nullptr;
    for (const logs::Device& device : log_.devices)
      if (most == nullptr || device.used.bytes > most->used.bytes) most = &device;
    if (most == nullptr) return;
    if (d_.from.empty()) {
      d_.from = fmt::format("line {}, nvidia-smi", most->line);
      if (most->gpu) d_.from += fmt::format(", GPU {}", *most->gpu);
    }
    smi_ = most->used;
    d_.figures.push_back({"used, by the driver's count", most->used.bytes,
                          narrow(b.peak_bytes + p_.cluster->occupied)});
    if (!most->total) return;
    d_.figures.push_back({"memory that the driver counts", most->total->bytes,
                          narrow(b.hbm_bytes + p_.cluster->occupied)});
    d_.notes.push_back(
        "nvidia-smi's total is what the card has; the driver hands out some 0.3 to 0.8 GiB less.");
    if (reserved_)
      d_.notes.push_back(
          fmt::format("Context, communicators and libraries: {} seen, {} in the bill.",
                      human_bytes(std::max<std::int64_t>(0, most->used.bytes - reserved_->bytes)),
                      human_bytes(outside_bytes(p_, b))));
  }

  void try_to_explain() {
    std::int64_t bytes = bytes_of(allocated_);
    // Of segments alone, by what the framework usually has of them over blocks.
    if (bytes == 0 && reserved_)
      bytes = (Rational(reserved_->bytes) / p_.inventory.reserved_factor).floor().to_int64();
    d_.tried = bytes > 0;
    d_.explanations = explain_difference(p_, bill_.layout, d_.stage, bytes, std::nullopt);
  }

  void decide(const StageBill& b) {
    const double margin = error_margin(p_);
    std::int64_t seen = 0, billed = 0;
    const char* what = "";
    if (allocated_)
      seen = allocated_->bytes, billed = narrow(b.allocated_bytes), what = "allocated at most";
    else if (reserved_)
      seen = reserved_->bytes, billed = narrow(b.reserved_bytes), what = "reserved at most";
    else
      seen = bytes_of(smi_), billed = narrow(b.peak_bytes), what = "used";
    const double off = (static_cast<double>(seen) - static_cast<double>(billed)) /
                       static_cast<double>(std::max<std::int64_t>(billed, 1));
    const std::string figures =
        fmt::format("{} {}, {} in the bill of stage {} ({:+.1f} %)", human_bytes(seen), what,
                    human_bytes(billed), d_.stage, 100 * off);
    if (off > margin) {
      d_.cause = Cause::more;
      d_.verdict = "more than the file says: " + figures;
      d_.over = seen - billed;
      try_to_explain();
    } else if (off < -margin) {
      d_.cause = Cause::less;
      d_.verdict = "less than the bill: " + figures;
      d_.notes.push_back(
          "A run that has not yet made its first optimizer step, or that has not met its longest "
          "sequences, holds less than its peak.");
      try_to_explain();
    } else {
      d_.cause = Cause::agrees;
      d_.verdict = "the bill agrees: " + figures;
    }
    if (b.peak_bytes + d_.over > b.hbm_bytes) d_.fixes = nearest_fixes(p_, bill_.layout, d_.over);
  }

  const Problem& p_;
  const Bill& bill_;
  const logs::MemoryLog& log_;
  Diagnosis d_;
  bool told_ = false;
  std::optional<logs::Seen> allocated_, reserved_, smi_;
};

}  // namespace

Diagnosis diagnose_counters(const Problem& p, const Bill& bill, const logs::MemoryLog& log,
                            std::optional<std::int64_t> stage) {
  return Tally(p, bill, log, stage).judge();
}

}  // namespace plimsoll::runtime
