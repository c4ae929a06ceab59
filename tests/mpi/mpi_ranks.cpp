// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Run by mpirun -np 4 (mpi_test.py): ranks that are processes make the gradients, parameters and
// peaks that threads make, bit for bit.

#include "runtime/wire.hpp"
#include "tests/unit/host_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace {

Wire& wire() {
  static const std::unique_ptr<Wire> opened = [] {
    auto answer = open_wire();
    if (auto* why = std::get_if<std::string>(&answer)) throw std::runtime_error(*why);
    return std::get<std::unique_ptr<Wire>>(std::move(answer));
  }();
  return *opened;
}

/// Rank 0 has what all found of a run: only then does a rank begin the next one, whose end by a
/// lack of memory would stop those that are still in this one.
void go_on_together() {
  constexpr std::int64_t kGo = -1;
  std::vector<std::byte> nothing;
  if (wire().rank() != 0) {
    REQUIRE(wire().receive(0, Channel::results, kGo, nothing));
    return;
  }
  for (int rank = 1; rank < wire().size(); ++rank)
    wire().send(rank, Channel::results, kGo, nullptr, 0);
}

void check_processes(const Case& c, const std::string& layout) {
  INFO(layout << ", rank " << wire().rank());
  const Priced p = price(plan_text(c, 4, layout));
  REQUIRE(rank_count(p.layout) == 4);
  const HostRun found = run_on_host(*p.problem, p.layout, options(), &wire());
  go_on_together();
  if (wire().rank() != 0) return;
  const HostRun expected = run_on_host(*p.problem, p.layout, options());
  CHECK(found.losses == expected.losses);
  CHECK(found.gradients == expected.gradients);
  CHECK(found.parameters == expected.parameters);
  check_memory(p, found);
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK(found.ranks[r].peak.bytes == expected.ranks[r].peak.bytes);
    CHECK(found.ranks[r].peak.rows == expected.ranks[r].peak.rows);
    CHECK(found.ranks[r].allocator.reserved.peak == expected.ranks[r].allocator.reserved.peak);
  }
}

}  // namespace

TEST_CASE("mpi: processes make what threads make", "[mpi]") {
  REQUIRE(processes_started() == 4);
  for (const char* layout :
       {"tp = 2  pp = 2  sp = true", "tp = 4", "cp = 2  zero = 3", "pp = 2  zero = 2", "zero = 1"})
    check_processes(kLlama, layout);
  const Case experts{
      "model tiny = decoder { layers = 2  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  "
      "vocab = 32  experts = 4  top_k = 2  expert_ffn = 12 }",
      ""};
  for (const char* layout : {"ep = 4  zero = 1", "tp = 2  sp = true  etp = 1  ep = 2"})
    check_processes(experts, layout);
  const Case tied{
      "model tiny = gpt { layers = 4  hidden = 16  heads = 4  vocab = 30  positions = 16 }", ""};
  check_processes(tied, "pp = 4");
}

TEST_CASE("mpi: a rank without memory stops them all", "[mpi]") {
  const Priced p = price(plan_text(kLlama, 4, "tp = 2  pp = 2"));
  HostOptions o = options();
  // One rank has less than it needs: the others wait for it in vain.
  if (wire().rank() == 3) o.capacity = 1;
  const HostRun found = run_on_host(*p.problem, p.layout, o, &wire());
  if (wire().rank() != 0) return;
  REQUIRE(found.failure);
  CHECK(found.failure->rank == 3);
  CHECK(found.failure->bytes > 0);
}
