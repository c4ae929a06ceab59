// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lang/units.hpp"
#include "runtime/diagnose.hpp"

namespace plimsoll::runtime {
namespace {

/// A difference of an engine's parts that is worth a word, as a share of the memory.
constexpr double kWorthAWord = 0.005;

std::int64_t in_category(const StageBill& b, Category c) {
  return static_cast<std::int64_t>(b.categories[static_cast<std::size_t>(c)]);
}

/// What a server's own counters call "non-torch": all outside but the context.
std::int64_t outside_torch(const StageBill& b) {
  Int128 sum = 0;
  for (const BillLine& line : b.lines)
    if (line.category == Category::overhead && line.name.find("context") == std::string::npos)
      sum += line.bytes;
  return static_cast<std::int64_t>(sum);
}

std::string gap_text(const Beside& f) {
  const std::int64_t more = *f.seen - *f.billed;
  return fmt::format("{} {} {} than the bill", f.what, human_bytes(std::abs(more)),
                     more > 0 ? "more" : "less");
}

/// Parts that differ most, in words.
std::string what_differs(const std::vector<Beside>& figures, Int128 memory) {
  std::vector<const Beside*> off;
  for (const Beside& f : figures)
    if (f.seen && f.billed && f.what != "the GPU's memory" &&
        std::abs(static_cast<double>(*f.seen - *f.billed)) >
            kWorthAWord * static_cast<double>(memory))
      off.push_back(&f);
  std::stable_sort(off.begin(), off.end(), [](const Beside* a, const Beside* b) {
    return std::abs(*a->seen - *a->billed) > std::abs(*b->seen - *b->billed);
  });
  std::string text;
  for (const Beside* f : off) text += (text.empty() ? "" : "; ") + gap_text(*f);
  return text;
}

}  // namespace

Diagnosis diagnose_server(const Problem& p, const Bill& bill, const logs::Server& s) {
  Diagnosis d;
  d.cause = Cause::server;
  d.stage = bill.peak_stage;
  d.from = fmt::format("line {}, {}", s.line, s.tool);
  const StageBill& b = bill.stages[static_cast<std::size_t>(d.stage)];
  const std::int64_t cache = in_category(b, Category::kv_cache) + in_category(b, Category::buffers);
  const auto add = [&](std::string what, const std::optional<logs::Seen>& seen,
                       std::optional<std::int64_t> billed) {
    if (seen) d.figures.push_back({std::move(what), seen->bytes, billed});
  };
  add("weights", s.weights, in_category(b, Category::weights));
  add("activations of the largest step", s.activations, in_category(b, Category::activations));
  add("outside torch", s.outside, outside_torch(b));
  add("room for the cache", s.cache, cache);
  add("one sequence of full length", s.cache_needed, std::nullopt);
  add("CUDA graphs, beside the share", s.graphs, std::nullopt);
  add(s.tool == "vLLM" ? "the GPU's memory" : "free before the weights", s.total,
      s.tool == "vLLM" ? std::optional<std::int64_t>(static_cast<std::int64_t>(b.hbm_bytes))
                       : std::nullopt);
  const std::string off = what_differs(d.figures, b.hbm_bytes);
  if (s.free_at_start && s.total) {
    d.verdict = fmt::format("others hold the GPU: {} of {} were free when it started{}",
                            human_bytes(s.free_at_start->bytes), human_bytes(s.total->bytes),
                            s.share ? ", its share is " + human_bytes(s.share->bytes) : "");
  } else if (s.no_room) {
    d.verdict =
        s.cache_needed && s.cache
            ? fmt::format("no room for one sequence: its cache needs {}, {} are left",
                          human_bytes(s.cache_needed->bytes), human_bytes(s.cache->bytes))
        : s.cache_tokens && s.context
            ? fmt::format("no room for one sequence: it has {} tokens, the cache holds {}",
                          grouped(*s.context), grouped(*s.cache_tokens))
            : "no room for the cache: weights, activations and the rest take the whole share";
    if (bill.sequences > 0)
      d.notes.push_back(
          fmt::format("By the bill {} sequences of {} tokens fit: the server does not run what the "
                      "file says, or "
                      "others were on the GPU when it measured.",
                      bill.sequences, grouped(p.job->context.to_int64())));
    else
      d.fixes = nearest_fixes(p, bill.layout, 0);
  } else if (s.cache) {
    const double share = (static_cast<double>(s.cache->bytes) - static_cast<double>(cache)) /
                         static_cast<double>(std::max<std::int64_t>(cache, 1));
    d.verdict =
        fmt::format("{}: room for {} of cache, {} in the bill ({:+.1f} %)",
                    std::abs(share) <= 0.05 ? "the bill agrees" : "another room than the bill's",
                    human_bytes(s.cache->bytes), human_bytes(cache), 100 * share);
    d.over = std::max<std::int64_t>(0, cache - s.cache->bytes);
  } else {
    d.verdict =
        off.empty() ? "what it says is what the bill says" : "it differs from the bill: " + off;
  }
  if (!off.empty()) d.notes.push_back("By size: " + off + ".");
  if (s.utilization) {
    const double billed = p.inventory.serving.utilization.to_double();
    if (std::abs(*s.utilization - billed) > 0.005)
      d.notes.push_back(fmt::format(
          "It was started with a share of {:.2f} of the memory, the file says {:.2f}: write "
          "utilization = {:.0f}%.",
          *s.utilization, billed, 100 * *s.utilization));
  }
  if (s.context && Rational(*s.context) != p.job->context)
    d.notes.push_back(fmt::format("It holds sequences of {} tokens, the file says {}.",
                                  grouped(*s.context), grouped(p.job->context.to_int64())));
  if (s.cache_tokens && bill.kv_tokens)
    d.notes.push_back(fmt::format("Its cache holds {} tokens, {} by the bill.",
                                  grouped(*s.cache_tokens), grouped(*bill.kv_tokens)));
  if (s.blocks && bill.kv_blocks > 0)
    d.notes.push_back(fmt::format("Its cache has {} blocks, {} by the bill (of {} tokens).",
                                  grouped(*s.blocks), grouped(bill.kv_blocks), p.job->kv_block));
  return d;
}

}  // namespace plimsoll::runtime
