// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/scratch.hpp"

namespace plimsoll::runtime::cuda {

namespace {

/// A data sheet's GPU in the prelude, by a word of the driver's name for it; dense bf16 FLOP/s.
struct Known {
  const char *word, *gpu;
  double peak_bf16;
};
constexpr Known kKnown[] = {
    {"H100 80GB HBM3", "h100_sxm", 989e12},
    {"H200", "h200", 989e12},
    {"A100-SXM4-80GB", "a100_80gb", 312e12},
    {"A100-SXM4-40GB", "a100_40gb", 312e12},
    {"B200", "b200", 2250e12},
};

/// Seconds of one of several turns of \a work, after one that is not counted.
template <class F>
double timed(Machine& machine, int turns, F work) {
  work();
  const int begin = machine.mark();
  for (int i = 0; i < turns; ++i) work();
  const int end = machine.mark();
  machine.wait();
  const double seconds = machine.seconds(begin, end) / turns;
  machine.forget_marks();
  return seconds;
}

Array noise(Machine& machine, const Room& room, std::int64_t count) {
  const Array a{room.at(), Number::bf16};
  // Numbers that matter to power: products of zeros are faster than any real run's.
  machine.launch(Noise{a, count, 0, 1, 1});
  return a;
}

Rate product_rate(Machine& machine, Scratch& scratch, std::int64_t m, std::int64_t k,
                  std::int64_t n, int turns) {
  const Room a(scratch, 2 * m * k), b(scratch, 2 * k * n), c(scratch, 2 * m * n);
  Product p;
  p.a = noise(machine, a, m * k);
  p.b = noise(machine, b, k * n);
  p.c = {c.at(), Number::bf16};
  p.m = m;
  p.n = n;
  p.k = k;
  const double seconds = timed(machine, turns, [&] { machine.multiply(p); });
  return {fmt::format("{} x {} x {}", m, n, k),
          2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds};
}

Rate attention_rate(Machine& machine, Scratch& scratch, std::int64_t tokens,
                    const CalibrationSizes& sizes) {
  const std::int64_t count = tokens * sizes.heads * sizes.width;
  const Room q(scratch, 2 * count), k(scratch, 2 * count), v(scratch, 2 * count),
      o(scratch, 2 * count);
  FlashForward<Bf16> f;
  f.a.q = noise(machine, q, count);
  f.a.k = noise(machine, k, count);
  f.a.v = noise(machine, v, count);
  f.a.q_positions.count = f.a.k_positions.count = 1;
  f.a.q_positions.length[0] = f.a.k_positions.length[0] = tokens;
  f.a.queries = f.a.keys = tokens;
  f.a.heads = f.a.kv_heads = f.a.all_heads = sizes.heads;
  f.a.q_width = f.a.v_width = sizes.width;
  f.a.causal = true;
  f.output = {o.at(), Number::bf16};
  f.tiles = fitting_tiles(machine.facts(),
                          [&](TileSizes s) { return FlashForward<Bf16>::shared_for(f.a, s); });
  const double seconds = timed(machine, sizes.turns, [&] { machine.launch(f); });
  // Two products over the pairs that are seen: half of all.
  const double pairs = static_cast<double>(tokens) * static_cast<double>(tokens) / 2;
  return {fmt::format("causal, {} tokens, {} heads of {}", tokens, sizes.heads, sizes.width),
          4.0 * pairs * static_cast<double>(sizes.heads * sizes.width) / seconds};
}

double median(const std::vector<Rate>& rates) {
  std::vector<double> all;
  for (const Rate& r : rates) all.push_back(r.per_second);
  std::sort(all.begin(), all.end());
  return all.empty() ? 0 : all[all.size() / 2];
}

double most(const std::vector<Rate>& rates) {
  double largest = 0;
  for (const Rate& r : rates) largest = std::max(largest, r.per_second);
  return largest;
}

}  // namespace

Calibration calibrate(Machine& machine, const CalibrationSizes& sizes) {
  Calibration c;
  c.gpu = machine.name();
  c.driver = machine.driver();
  c.sm = machine.facts().sm;
  c.multiprocessors = machine.facts().multiprocessors;
  try {
    Scratch scratch(machine, CountingBacking::kNoLimit);
    // The first product loads the libraries.
    product_rate(machine, scratch, 64, 64, 64, 1);
    scratch.allocator().release_cached();
    machine.wait();
    const MemoryFacts now = machine.memory();
    c.memory = now.total;
    c.reserved = now.total - now.free;
    {
      const Room from(scratch, sizes.copy_bytes), to(scratch, sizes.copy_bytes);
      machine.clear(from.at(), sizes.copy_bytes);
      const double seconds =
          timed(machine, sizes.turns, [&] { machine.copy(to.at(), from.at(), sizes.copy_bytes); });
      c.bandwidth = 2.0 * static_cast<double>(sizes.copy_bytes) / seconds;
    }
    scratch.allocator().release_cached();
    const Room workspace(scratch, std::int64_t{32} << 20);
    machine.use_workspace(workspace.at(), std::int64_t{32} << 20);
    for (const std::int64_t tokens : sizes.tokens)
      for (const auto& [in, out] : sizes.linears)
        c.products.push_back(product_rate(machine, scratch, tokens, in, out, sizes.turns));
    machine.use_workspace(nullptr, 0);
    for (const std::int64_t tokens : sizes.sequences)
      c.attention.push_back(attention_rate(machine, scratch, tokens, sizes));
  } catch (const ScratchExhausted& out) {
    throw GpuError(
        fmt::format("the GPU has not the {} bytes free that are measured with", out.bytes));
  }
  return c;
}

std::string declarations(const Calibration& c, const std::string& date) {
  const Known* known = nullptr;
  for (const Known& k : kKnown)
    if (!known && c.gpu.find(k.word) != std::string::npos) known = &k;
  const double peak = known ? known->peak_bf16 : most(c.products);
  std::string out = fmt::format("# Measured by plimsoll calibrate on {}: {}, driver {}.\n", date,
                                c.gpu, c.driver);
  out += "# Products in bf16 (rows x columns x inner), TFLOP/s:\n";
  for (const Rate& r : c.products)
    out += fmt::format("#   {:<24} {:7.1f}\n", r.what, r.per_second / 1e12);
  out += "# Attention of this program's own kernel, TFLOP/s:\n";
  for (const Rate& r : c.attention)
    out += fmt::format("#   {:<44} {:7.1f}\n", r.what, r.per_second / 1e12);
  if (!c.rings.empty()) out += "# Collectives over NCCL, GB/s through each GPU's link of a ring:\n";
  for (const Rate& r : c.rings)
    out += fmt::format("#   {:<44} {:7.1f}\n", r.what, r.per_second / 1e9);
  out += fmt::format("gpu measured{} {{\n", known ? fmt::format(" = {}", known->gpu) : "");
  out += fmt::format("  memory = {} B  reserved = {} B  sm = {}  multiprocessors = {}\n", c.memory,
                     c.reserved, c.sm, c.multiprocessors);
  out += fmt::format("  bandwidth = {:.0f} GB/s  bandwidth_efficiency = 1\n", c.bandwidth / 1e9);
  if (!known) out += fmt::format("  peak_bf16 = {:.1f} TFLOP/s\n", peak / 1e12);
  out += fmt::format("  gemm_efficiency = {:.3f}  attention_efficiency = {:.3f}\n",
                     std::min(1.0, median(c.products) / peak),
                     std::min(1.0, median(c.attention) / peak));
  if (c.nvlink > 0)
    out += fmt::format("  nvlink = {:.1f} GB/s  nvlink_efficiency = 1\n", c.nvlink / 1e9);
  if (c.nic > 0) out += fmt::format("  nic = {:.2f} GB/s  nic_efficiency = 1\n", c.nic / 1e9);
  out += "}\n";
  if (c.nvlink <= 0) out += "# No other GPU was there: NVLink is not measured.\n";
  if (c.nic <= 0)
    out +=
        "# No other node was there: the NIC is not measured (start it with mpirun, srun or "
        "torchrun, a "
        "process for each GPU).\n";
  return out + fmt::format("cluster here {{ gpu = measured  nodes = {}  gpus_per_node = {} }}\n",
                           c.nodes, c.gpus);
}

}  // namespace plimsoll::runtime::cuda
