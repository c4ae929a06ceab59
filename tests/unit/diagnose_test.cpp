// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Messages made from replays that run out of memory: the diagnosis must find what the replay knows.

#include "runtime/diagnose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "runtime/replay.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;
using namespace plimsoll::test;

namespace {

std::string job(const char* fields, const char* layout) {
  return fmt::format(
      "cluster c {{ gpu = h100_sxm nodes = 1 gpus_per_node = 8 }}\n"
      "train t {{ model = llama3_8b cluster = c seq = 8Ki batch = 64 framework = megatron {} }}\n"
      "layout l {{ {} }}\n",
      fields, layout);
}

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

/// The message that PyTorch would have had for a replay that failed.
logs::MemoryLog message(const ReplayFailure& f, std::int64_t limit, std::int64_t capacity) {
  return logs::read_memory_log(fmt::format(
      "CUDA out of memory. Tried to allocate {:.2f} GiB. GPU 0 has a total capacity of {:.2f} GiB "
      "of "
      "which {:.2f} GiB is free. Including non-PyTorch memory, this process has {:.2f} GiB memory "
      "in "
      "use. Of the allocated memory {:.2f} GiB is allocated by PyTorch, and {:.2f} GiB is reserved "
      "by "
      "PyTorch but unallocated.",
      gib(segment_for(f.bytes)), gib(capacity), gib(limit - f.reserved),
      gib(capacity - limit + f.reserved), gib(f.allocated), gib(f.reserved - f.allocated)));
}

std::int64_t outside(const Priced& p) {
  Int128 sum = 0;
  for (const BillLine& line : p.bill.stages[0].lines)
    if (line.item != kNone && p.problem->inventory.items[line.item].outside) sum += line.bytes;
  return static_cast<std::int64_t>(sum);
}

}  // namespace

TEST_CASE("the request of a replay that ran out is found", "[diagnose]") {
  // Too much for the GPU: 8 B parameters with all states on each of two ranks of tp.
  const Priced p = price(job("", "tp = 2 zero = 0 mbs = 2"));
  REQUIRE(!p.bill.fits);
  const auto capacity = static_cast<std::int64_t>(p.bill.hbm_bytes);
  const std::int64_t limit = capacity - outside(p);
  const auto r = replay(*p.problem, p.layout, 0, allocator_options(*p.problem), 2, limit);
  REQUIRE(r.failure);
  const Diagnosis d =
      diagnose(*p.problem, p.bill, message(*r.failure, limit, capacity), std::nullopt);
  INFO(d.verdict);
  CHECK(d.cause == Cause::billed);
  CHECK(d.verdict.starts_with("as the bill says"));
  REQUIRE(d.telling);
  REQUIRE(!d.requests.empty());
  CHECK(d.requests[0].item == r.failure->tensor);
  CHECK(segment_for(d.requests[0].bytes) == segment_for(r.failure->bytes));
  REQUIRE(!d.fixes.empty());
  for (const Fix& f : d.fixes) CHECK(f.peak <= capacity);
}

TEST_CASE("a run that was not the file's is told from one that was", "[diagnose]") {
  // What ran: twice the micro-batch; what the file says fits.
  const Priced ran = price(job("", "tp = 4 zero = 1 mbs = 8"));
  const Priced says = price(job("", "tp = 4 zero = 1 mbs = 4"));
  REQUIRE(!ran.bill.fits);
  REQUIRE(says.bill.fits);
  const auto capacity = static_cast<std::int64_t>(ran.bill.hbm_bytes);
  const std::int64_t limit = capacity - outside(ran);
  const auto r = replay(*ran.problem, ran.layout, 0, allocator_options(*ran.problem), 2, limit);
  REQUIRE(r.failure);
  const logs::MemoryLog log = message(*r.failure, limit, capacity);
  const Diagnosis d = diagnose(*says.problem, says.bill, log, std::nullopt);
  INFO(d.verdict);
  CHECK(d.cause == Cause::more);
  CHECK(std::any_of(d.explanations.begin(), d.explanations.end(),
                    [](const Explanation& e) { return e.change == "mbs = 8"; }));
  for (const Fix& f : d.fixes) CHECK(f.peak + d.over <= capacity);
  CHECK(diagnose(*ran.problem, ran.bill, log, std::nullopt).cause == Cause::billed);
}

TEST_CASE("segments are those of the allocator", "[diagnose]") {
  const std::int64_t mib = 1 << 20;
  CHECK(segment_for(1) == 2 * mib);
  CHECK(segment_for(mib) == 2 * mib);
  CHECK(segment_for(mib + 1) == 20 * mib);
  CHECK(segment_for(10 * mib - 512) == 20 * mib);
  CHECK(segment_for(10 * mib) == 10 * mib);
  CHECK(segment_for(10 * mib + 1) == 12 * mib);
  CHECK(!is_telling({20 * mib, 5 * 1024}));
  CHECK(is_telling({22 * mib, 5 * 1024}));
}
