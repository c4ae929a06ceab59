// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/host_results.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "runtime/verify_parcel.hpp"

namespace plimsoll::runtime::host {

namespace {

void put_result(Parcel& p, const HostRankResult& r) {
  put(p, r.peak);
  p.put(r.allocator);
  p.put(r.left);
}
void take_result(Parcel& p, HostRankResult& r) {
  take(p, r.peak);
  p.take(r.allocator);
  p.take(r.left);
}

/// Each rank has the elements of its own part; the others are 0 there.
void put_tensors(Parcel& p, const std::vector<WholeTensors>& all) {
  for (const WholeTensors& step : all)
    for (const std::vector<float>& tensor : step) p.put_all(tensor);
}
void take_tensors(Parcel& p, std::vector<WholeTensors>& all) {
  std::vector<float> theirs;
  for (WholeTensors& step : all)
    for (std::vector<float>& tensor : step) {
      p.take_all(theirs);
      PLIMSOLL_ASSERT(theirs.size() == tensor.size());
      for (std::size_t i = 0; i < tensor.size(); ++i)
        if (theirs[i] != 0) tensor[i] = theirs[i];
    }
}

}  // namespace

void bring_together(Wire& wire, HostWorld& world, std::vector<std::vector<double>>& losses,
                    HostRun& run) {
  const auto self = static_cast<std::size_t>(wire.rank());
  if (self != 0) {
    Parcel p;
    p.put_all(losses[self]);
    put_result(p, run.ranks[self]);
    put(p, run.failure);
    p.put_all(run.trouble);
    put_tensors(p, world.gradients);
    put_tensors(p, world.parameters);
    wire.send(0, Channel::results, 0, p.bytes().data(), p.bytes().size());
    return;
  }
  for (int rank = 1; rank < wire.size(); ++rank) {
    std::vector<std::byte> bytes;
    if (!wire.receive(rank, Channel::results, 0, bytes)) {
      if (run.trouble.empty()) run.trouble = silent(wire, rank);
      continue;
    }
    Parcel p(std::move(bytes));
    p.take_all(losses[static_cast<std::size_t>(rank)]);
    take_result(p, run.ranks[static_cast<std::size_t>(rank)]);
    std::optional<VerifyFailure> failure;
    take(p, failure);
    if (!run.failure) run.failure = std::move(failure);
    std::string trouble;
    p.take_all(trouble);
    if (!trouble.empty() && run.trouble.empty())
      run.trouble = fmt::format("rank {} failed: {}", rank, trouble);
    take_tensors(p, world.gradients);
    take_tensors(p, world.parameters);
  }
}

}  // namespace plimsoll::runtime::host
