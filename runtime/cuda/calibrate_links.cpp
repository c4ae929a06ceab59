// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/cuda/calibrate.hpp"
#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/nccl_peers.hpp"
#include "runtime/cuda/scratch.hpp"
#include "runtime/host/collectives.hpp"
#include "runtime/parcel.hpp"

namespace plimsoll::runtime::cuda {

namespace {

/// Rank 0's list of what each rank has; elsewhere empty.
std::vector<Parcel> at_first(Wire& wire, std::int64_t tag, const Parcel& mine) {
  if (wire.rank() != 0) {
    wire.send(0, Channel::results, tag, mine.bytes().data(), mine.bytes().size());
    return {};
  }
  std::vector<Parcel> all = {mine};
  for (int r = 1; r < wire.size(); ++r) {
    std::vector<std::byte> bytes;
    if (!wire.receive(r, Channel::results, tag, bytes)) throw GpuError(silent(wire, r));
    all.emplace_back(std::move(bytes));
  }
  return all;
}

/// The names of all ranks' machines, on every rank.
std::vector<std::string> machines(Wire& wire, const std::string& mine) {
  constexpr std::int64_t kNames = 11, kAll = 12;
  Parcel p;
  p.put_all(mine);
  std::vector<Parcel> parcels = at_first(wire, kNames, p);
  std::vector<std::string> names(static_cast<std::size_t>(wire.size()));
  if (wire.rank() == 0) {
    Parcel all;
    for (std::size_t r = 0; r < names.size(); ++r) {
      parcels[r].take_all(names[r]);
      all.put_all(names[r]);
    }
    for (int r = 1; r < wire.size(); ++r)
      wire.send(r, Channel::results, kAll, all.bytes().data(), all.bytes().size());
    return names;
  }
  std::vector<std::byte> bytes;
  if (!wire.receive(0, Channel::results, kAll, bytes)) throw GpuError(silent(wire, 0));
  Parcel all(std::move(bytes));
  for (std::string& name : names) all.take_all(name);
  return names;
}

/// Seconds of this rank's all-gathers and all-reduces by size, in a group.
std::vector<double> ring_seconds(Machine& machine, Circle& circle, const CalibrationSizes& sizes) {
  std::vector<double> seconds;
  for (const std::int64_t bytes : sizes.ring_bytes) {
    const std::int64_t count = bytes / 2;
    Scratch scratch(machine, CountingBacking::kNoLimit);
    const Room mine(scratch, bytes), all(scratch, bytes * circle.size());
    const Array from{mine.at(), Number::bf16}, to{all.at(), Number::bf16};
    machine.clear(mine.at(), bytes);
    const auto time = [&](const auto& work) {
      work();
      const int begin = machine.mark();
      for (int i = 0; i < sizes.turns; ++i) work();
      const int end = machine.mark();
      machine.wait();
      seconds.push_back(machine.seconds(begin, end) / sizes.turns);
      machine.forget_marks();
    };
    time([&] { circle.all_gather(from, count, to); });
    time([&] { circle.all_reduce(from, count, false); });
  }
  return seconds;
}

/// What the slowest of all groups' ranks needed, as bytes a second through a ring's links.
std::vector<Rate> ring_rates(const std::string& where, const CalibrationSizes& sizes, int ranks,
                             const std::vector<std::vector<double>>& seconds) {
  std::vector<Rate> rates;
  for (std::size_t i = 0; i < 2 * sizes.ring_bytes.size(); ++i) {
    double slowest = 0;
    for (const std::vector<double>& rank : seconds)
      if (!rank.empty()) slowest = std::max(slowest, rank[i]);
    if (slowest <= 0) continue;
    const auto bytes = static_cast<double>(sizes.ring_bytes[i / 2]);
    // A gather passes each rank's part over every link but one; a sum passes its own twice.
    const double passed = i % 2 == 0 ? bytes * (ranks - 1) : 2 * bytes * (ranks - 1) / ranks;
    rates.push_back(
        {fmt::format("{}, {} ranks, {} of {} MiB", where, ranks,
                     i % 2 == 0 ? "all-gather" : "all-reduce", sizes.ring_bytes[i / 2] >> 20),
         passed / slowest});
  }
  return rates;
}

/// The last all-gather's: what ZeRO, sequence parallelism and gathered weights do most.
double declared(const std::vector<Rate>& rates) {
  return rates.size() < 2 ? 0 : rates[rates.size() - 2].per_second;
}

void measure_links(Machine& machine, Wire& wire, const std::string& name,
                   const CalibrationSizes& sizes, Calibration& c) {
  constexpr std::int64_t kSeconds = 13;
  const Nodes nodes = nodes_of(machines(wire, name));
  const auto circles = nccl_circles(machine, wire, {nodes.inside, nodes.across});
  try {
    std::vector<std::vector<double>> mine(2);
    for (const std::size_t i : {0u, 1u})
      if (Circle* circle = circles->circle(i)) mine[i] = ring_seconds(machine, *circle, sizes);
    Parcel p;
    p.put_all(mine[0]);
    p.put_all(mine[1]);
    std::vector<std::vector<double>> inside, across;
    for (Parcel& theirs : at_first(wire, kSeconds, p)) {
      theirs.take_all(inside.emplace_back());
      theirs.take_all(across.emplace_back());
    }
    if (wire.rank() != 0) return;
    c.nodes = static_cast<int>(nodes.inside.size());
    c.gpus = static_cast<int>(nodes.inside.front().size());
    const auto links = ring_rates("within a node", sizes, c.gpus, inside);
    const auto nics = ring_rates("across nodes", sizes, c.nodes, across);
    c.nvlink = declared(links);
    c.nic = declared(nics);
    c.rings = links;
    c.rings.insert(c.rings.end(), nics.begin(), nics.end());
  } catch (...) {
    circles->stop();
    throw;
  }
}

}  // namespace

Nodes nodes_of(const std::vector<std::string>& machines) {
  std::map<std::string, std::size_t> known;
  Nodes nodes;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    const auto [at, is_new] = known.try_emplace(machines[rank], nodes.inside.size());
    if (is_new) nodes.inside.emplace_back();
    nodes.inside[at->second].push_back(static_cast<std::int64_t>(rank));
  }
  std::size_t fewest = machines.size();
  for (const auto& ranks : nodes.inside) fewest = std::min(fewest, ranks.size());
  if (nodes.inside.size() < 2) return nodes;
  for (std::size_t place = 0; place < fewest; ++place) {
    nodes.across.emplace_back();
    for (const auto& ranks : nodes.inside) nodes.across.back().push_back(ranks[place]);
  }
  return nodes;
}

std::variant<Calibration, std::string> calibrate_together(
    const std::function<std::unique_ptr<Machine>()>& open, Wire& wire, const std::string& name,
    const CalibrationSizes& sizes) {
  std::unique_ptr<Machine> machine;
  Calibration c;
  std::string refused;
  try {
    machine = open();
    if (wire.rank() == 0) c = calibrate(*machine, sizes);  // the others wait
  } catch (const std::exception& e) {
    refused = fmt::format("rank {}: {}", wire.rank(), e.what());
  }
  if (refused = first_word(wire, refused); !refused.empty()) return refused;
  try {
    measure_links(*machine, wire, name, sizes, c);
  } catch (const host::Stopped&) {
    refused = "";
  } catch (const ScratchExhausted& out) {
    refused = fmt::format("rank {}: the GPU has not the {} bytes free that links are measured with",
                          wire.rank(), out.bytes);
  } catch (const std::exception& e) {
    refused = fmt::format("rank {}: {}", wire.rank(), e.what());
  }
  if (!refused.empty()) wire.stop();
  if (refused = first_word(wire, refused); !refused.empty()) return refused;
  return c;
}

}  // namespace plimsoll::runtime::cuda
