// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "runtime/cuda/kernels_elements.hpp"
#include "runtime/cuda/kernels_norms.hpp"

/// Kernels of a Mamba-2 mixer; formulas and names as in runtime/host/ops_mamba.cpp. Row r of a
/// sequence comes `sequences` rows after its row before. Sums are made in fp32.
namespace plimsoll::runtime::cuda {

/// Sizes of a mixer on this rank.
struct MambaSizes {
  std::int64_t sequences = 1, tokens = 0, rows = 0;
  std::int64_t heads = 0, dim = 0, state = 0, groups = 1, conv = 0;
  std::int64_t inner = 0, mixed = 0, projected = 0;

  PLIMSOLL_HD std::int64_t at_mixed(std::int64_t r) const { return r * projected + inner; }
  PLIMSOLL_HD std::int64_t at_dt(std::int64_t r) const { return r * projected + inner + mixed; }
  PLIMSOLL_HD std::int64_t at_x(std::int64_t r, std::int64_t head) const {
    return r * mixed + head * dim;
  }
  PLIMSOLL_HD std::int64_t at_b(std::int64_t r, std::int64_t head) const {
    return r * mixed + inner + head / (heads / groups) * state;
  }
  PLIMSOLL_HD std::int64_t at_c(std::int64_t r, std::int64_t head) const {
    return at_b(r, head) + groups * state;
  }
  /// Of gated values: z of element i of inner columns.
  PLIMSOLL_HD std::int64_t at_z(std::int64_t i) const { return i / inner * projected + i % inner; }
};

/// What the convolution's row r makes of column j, before SiLU.
PLIMSOLL_HD float mamba_convolved(const MambaSizes& m, Array projection, Array w, Array bias,
                                  std::int64_t r, std::int64_t j) {
  float sum = bias.get(j);
  for (std::int64_t k = 0; k < m.conv; ++k) {
    const std::int64_t from = r - (m.conv - 1 - k) * m.sequences;
    if (from >= 0) sum += w.get(k * m.mixed + j) * projection.get(m.at_mixed(from) + j);
  }
  return sum;
}

/// x, B and C through convolution and SiLU; dt through softplus.
struct MambaConvolve {
  MambaSizes m;
  Array projection, w, bias, dt_bias, convolved, dt;
  PLIMSOLL_HD std::int64_t items() const { return m.rows * (m.mixed + m.heads); }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const std::int64_t r = i / (m.mixed + m.heads), j = i % (m.mixed + m.heads);
    if (j < m.mixed) {
      const float sum = mamba_convolved(m, projection, w, bias, r, j);
      convolved.put(r * m.mixed + j, sum * sigmoid(sum));
      return;
    }
    const float raw = projection.get(m.at_dt(r) + j - m.mixed) + dt_bias.get(j - m.mixed);
    // softplus, of which exp alone would overflow
    dt.put(r * m.heads + j - m.mixed, (raw > 0 ? raw : 0) + log1pf(expf(-fabsf(raw))));
  }
};

/// y silu(z), which is normed.
struct MambaGate {
  MambaSizes m;
  Array projection, scanned, gated;
  PLIMSOLL_HD std::int64_t items() const { return m.rows * m.inner; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const float z = projection.get(m.at_z(i));
    gated.put(i, scanned.get(i) * z * sigmoid(z));
  }
};

/// The gate's backward: to the scan's output and to z.
struct MambaGateBackward {
  MambaSizes m;
  Array projection, scanned, dgated, dscanned, dprojection;
  PLIMSOLL_HD std::int64_t items() const { return m.rows * m.inner; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const float z = projection.get(m.at_z(i)), s = sigmoid(z), g = dgated.get(i);
    dscanned.put(i, g * z * s);
    dprojection.put(m.at_z(i), g * scanned.get(i) * s * (1 + z * (1 - s)));
  }
};

/// y (rows x width) = x, each column times its weight; may be in place.
struct ScaleColumns {
  Array x, w, y;
  std::int64_t rows = 0, width = 0;
  PLIMSOLL_HD std::int64_t items() const { return rows * width; }
  PLIMSOLL_HD void at(std::int64_t i) const { y.put(i, x.get(i) * w.get(i % width)); }
};

/// A stretch of tokens whose states are held at once, by every scan.
inline constexpr std::int64_t kMambaChunk = 64;

/// What one head's scan of one sequence works with: fp32, for each item of a launch.
struct MambaRoom {
  float* states = nullptr;     ///< (kMambaChunk + 1, dim, state): before each token of a chunk
  float* gradients = nullptr;  ///< the same, of a backward
  float* starts = nullptr;     ///< (chunks, dim, state): before each chunk; nullptr: not kept
  static PLIMSOLL_HD std::int64_t elements(const MambaSizes& m) {
    return (kMambaChunk + 1) * m.dim * m.state;
  }
  static PLIMSOLL_HD std::int64_t chunks(const MambaSizes& m) {
    return (m.tokens + kMambaChunk - 1) / kMambaChunk;
  }
};

/// What the scans of both directions share. An item is a head of a sequence.
struct MambaScanInput {
  MambaSizes m;
  Array convolved, dt, a, d;
  MambaRoom room;

  PLIMSOLL_HD std::int64_t row(std::int64_t item, std::int64_t t) const {
    return t * m.sequences + item / m.heads;
  }
  PLIMSOLL_HD std::int64_t head(std::int64_t item) const { return item % m.heads; }
  PLIMSOLL_HD float rate(std::int64_t item) const { return -expf(a.get(head(item))); }
  PLIMSOLL_HD float* states(std::int64_t item) const {
    return room.states + item * MambaRoom::elements(m);
  }
  PLIMSOLL_HD float* starts(std::int64_t item) const {
    return room.starts + item * MambaRoom::chunks(m) * m.dim * m.state;
  }
  /// From the first state of a chunk those after each of its tokens; each thread has its elements.
  template <class Team>
  PLIMSOLL_HD void play(Team& t, std::int64_t item, std::int64_t first, std::int64_t count) const {
    const std::int64_t h = head(item), size = m.dim * m.state;
    const float slope = rate(item);
    float* all = states(item);
    for (std::int64_t e = t.lane(); e < size; e += t.size()) {
      const std::int64_t x_at = e / m.state, n = e % m.state;
      float s = all[e];
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t r = row(item, first + i);
        const float step = dt.get(r * m.heads + h);
        s = expf(step * slope) * s +
            step * convolved.get(m.at_x(r, h) + x_at) * convolved.get(m.at_b(r, h) + n);
        all[(i + 1) * size + e] = s;
      }
    }
    t.sync();
  }
};

/// h_t = exp(dt A) h_(t-1) + dt x_t B_t, y_t = h_t C_t + D x_t. Where `room.starts` is there each
/// chunk's first state is kept; y is made where it is wanted.
struct MambaScan {
  MambaScanInput in;
  Array scanned;
  PLIMSOLL_HD std::int64_t items() const { return in.m.heads * in.m.sequences; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    const MambaSizes& m = in.m;
    const std::int64_t h = in.head(item), size = m.dim * m.state;
    float* states = in.states(item);
    for (std::int64_t e = t.lane(); e < size; e += t.size()) states[e] = 0;
    for (std::int64_t first = 0; first < m.tokens; first += kMambaChunk) {
      const std::int64_t left = m.tokens - first, count = left < kMambaChunk ? left : kMambaChunk;
      if (in.room.starts)
        for (std::int64_t e = t.lane(); e < size; e += t.size())
          in.starts(item)[first / kMambaChunk * size + e] = states[e];
      in.play(t, item, first, count);
      for (std::int64_t u = t.lane(); scanned.there() && u < count * m.dim; u += t.size()) {
        const std::int64_t i = u / m.dim, x_at = u % m.dim, r = in.row(item, first + i);
        const float* state = states + (i + 1) * size + x_at * m.state;
        float y = in.d.get(h) * in.convolved.get(m.at_x(r, h) + x_at);
        for (std::int64_t n = 0; n < m.state; ++n)
          y += state[n] * in.convolved.get(m.at_c(r, h) + n);
        scanned.put(r * m.inner + h * m.dim + x_at, y);
      }
      t.sync();
      for (std::int64_t e = t.lane(); e < size; e += t.size()) states[e] = states[count * size + e];
      t.sync();
    }
  }
};

/// The scan's gradients: to x, B and C (dconvolved, fp32 and 0 before: heads of a group add
/// theirs), dt, A and D. Chunks are walked from the last to the first, their states had again from
/// `starts`.
struct MambaScanBackward {
  MambaScanInput in;
  Array dscanned, dconvolved, ddt;
  Array da, dd;  ///< added to, where wanted
  PLIMSOLL_HD std::int64_t items() const { return in.m.heads * in.m.sequences; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    const MambaSizes& m = in.m;
    const std::int64_t size = m.dim * m.state;
    float* states = in.states(item);
    float* dh = in.room.gradients + item * MambaRoom::elements(m);
    // What comes from the tokens after a chunk lies behind its last one.
    for (std::int64_t e = t.lane(); e < size; e += t.size()) dh[kMambaChunk * size + e] = 0;
    float da_part = 0, dd_part = 0;
    for (std::int64_t chunk = MambaRoom::chunks(m); chunk-- > 0;) {
      const std::int64_t first = chunk * kMambaChunk, left = m.tokens - first;
      const std::int64_t count = left < kMambaChunk ? left : kMambaChunk;
      for (std::int64_t e = t.lane(); e < size; e += t.size())
        states[e] = in.starts(item)[chunk * size + e];
      in.play(t, item, first, count);
      walk_back(t, item, first, count, dh);
      of_columns(t, item, first, count, dh, dd_part);
      of_states(t, item, first, count, states, dh);
      of_steps(t, item, first, count, states, dh, da_part);
      t.sync();
    }
    const std::int64_t h = in.head(item);
    da_part = t.sum(da_part);
    dd_part = t.sum(dd_part);
    if (t.lane() != 0) return;
    if (da.there()) t.add(da, h, da_part);
    if (dd.there()) t.add(dd, h, dd_part);
  }

 private:
  PLIMSOLL_HD float gradient(std::int64_t r, std::int64_t h, std::int64_t x_at) const {
    return dscanned.get(r * in.m.inner + h * in.m.dim + x_at);
  }
  /// The gradient of the state after each token; each thread has its elements.
  template <class Team>
  PLIMSOLL_HD void walk_back(Team& t, std::int64_t item, std::int64_t first, std::int64_t count,
                             float* dh) const {
    const MambaSizes& m = in.m;
    const std::int64_t h = in.head(item), size = m.dim * m.state;
    const float slope = in.rate(item);
    for (std::int64_t e = t.lane(); e < size; e += t.size()) {
      float g = dh[kMambaChunk * size + e];
      for (std::int64_t i = count; i-- > 0;) {
        const std::int64_t r = in.row(item, first + i);
        g += gradient(r, h, e / m.state) * in.convolved.get(m.at_c(r, h) + e % m.state);
        dh[i * size + e] = g;
        g *= expf(in.dt.get(r * m.heads + h) * slope);
      }
      dh[kMambaChunk * size + e] = g;
    }
    t.sync();
  }
  /// To x, and D's.
  template <class Team>
  PLIMSOLL_HD void of_columns(Team& t, std::int64_t item, std::int64_t first, std::int64_t count,
                              const float* dh, float& dd_part) const {
    const MambaSizes& m = in.m;
    const std::int64_t h = in.head(item), size = m.dim * m.state;
    for (std::int64_t u = t.lane(); u < count * m.dim; u += t.size()) {
      const std::int64_t i = u / m.dim, x_at = u % m.dim, r = in.row(item, first + i);
      const float g = gradient(r, h, x_at), step = in.dt.get(r * m.heads + h);
      const float* own = dh + i * size + x_at * m.state;
      float dx = 0;
      for (std::int64_t n = 0; n < m.state; ++n) dx += own[n] * in.convolved.get(m.at_b(r, h) + n);
      dconvolved.put(m.at_x(r, h) + x_at, g * in.d.get(h) + step * dx);
      dd_part += g * in.convolved.get(m.at_x(r, h) + x_at);
    }
  }
  /// To B and C.
  template <class Team>
  PLIMSOLL_HD void of_states(Team& t, std::int64_t item, std::int64_t first, std::int64_t count,
                             const float* states, const float* dh) const {
    const MambaSizes& m = in.m;
    const std::int64_t h = in.head(item), size = m.dim * m.state;
    for (std::int64_t u = t.lane(); u < count * m.state; u += t.size()) {
      const std::int64_t i = u / m.state, n = u % m.state, r = in.row(item, first + i);
      float db = 0, dc = 0;
      for (std::int64_t x_at = 0; x_at < m.dim; ++x_at) {
        const std::int64_t e = x_at * m.state + n;
        db += dh[i * size + e] * in.convolved.get(m.at_x(r, h) + x_at);
        dc += gradient(r, h, x_at) * states[(i + 1) * size + e];
      }
      t.add(dconvolved, m.at_b(r, h) + n, db * in.dt.get(r * m.heads + h));
      t.add(dconvolved, m.at_c(r, h) + n, dc);
    }
  }
  /// To dt, and A's.
  template <class Team>
  PLIMSOLL_HD void of_steps(Team& t, std::int64_t item, std::int64_t first, std::int64_t count,
                            const float* states, const float* dh, float& da_part) const {
    const MambaSizes& m = in.m;
    const std::int64_t h = in.head(item), size = m.dim * m.state;
    const float slope = in.rate(item);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t r = in.row(item, first + i);
      float dlog = 0, dstep = 0;
      for (std::int64_t e = t.lane(); e < size; e += t.size()) {
        const float g = dh[i * size + e];
        dlog += g * states[i * size + e];
        dstep += g * in.convolved.get(m.at_x(r, h) + e / m.state) *
                 in.convolved.get(m.at_b(r, h) + e % m.state);
      }
      dlog = t.sum(dlog);
      dstep = t.sum(dstep);
      if (t.lane() != 0) continue;
      const float step = in.dt.get(r * m.heads + h);
      dlog *= expf(step * slope);
      ddt.put(r * m.heads + h, dstep + dlog * slope);
      da_part += dlog * step * slope;
    }
  }
};

/// Back through SiLU and softplus, in place: what the convolution and dt's bias had made.
struct MambaSlopes {
  MambaSizes m;
  Array projection, w, bias, dt_bias, dconvolved, ddt;
  PLIMSOLL_HD std::int64_t items() const { return m.rows * (m.mixed + m.heads); }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const std::int64_t r = i / (m.mixed + m.heads), j = i % (m.mixed + m.heads);
    if (j < m.mixed) {
      const float sum = mamba_convolved(m, projection, w, bias, r, j), s = sigmoid(sum);
      const std::int64_t at = r * m.mixed + j;
      dconvolved.put(at, dconvolved.get(at) * s * (1 + sum * (1 - s)));
      return;
    }
    const std::int64_t at = r * m.heads + j - m.mixed;
    const float raw = projection.get(m.at_dt(r) + j - m.mixed) + dt_bias.get(j - m.mixed);
    ddt.put(at, ddt.get(at) * sigmoid(raw));
  }
};

/// From slopes to what in_proj made of x, B, C and dt.
struct MambaConvolveBackward {
  MambaSizes m;
  Array w, dconvolved, ddt, dprojection;
  PLIMSOLL_HD std::int64_t items() const { return m.rows * (m.mixed + m.heads); }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const std::int64_t r = i / (m.mixed + m.heads), j = i % (m.mixed + m.heads);
    if (j >= m.mixed)
      return dprojection.put(m.at_dt(r) + j - m.mixed, ddt.get(r * m.heads + j - m.mixed));
    float sum = 0;
    for (std::int64_t k = 0; k < m.conv; ++k) {
      const std::int64_t to = r + (m.conv - 1 - k) * m.sequences;
      if (to < m.rows) sum += dconvolved.get(to * m.mixed + j) * w.get(k * m.mixed + j);
    }
    dprojection.put(m.at_mixed(r) + j, sum);
  }
};

/// The convolution's weights (conv x mixed): an item is a few of them.
struct MambaConvolveWeights {
  MambaSizes m;
  Array projection, dconvolved, dw;
  static constexpr std::int64_t shared_bytes() { return kSumColumnsBytes; }
  PLIMSOLL_HD std::int64_t items() const { return (m.conv * m.mixed + kColumns - 1) / kColumns; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    sum_columns(
        t, item * kColumns, m.conv * m.mixed, m.rows,
        [&](std::int64_t c, std::int64_t r) {
          const std::int64_t from = r - (m.conv - 1 - c / m.mixed) * m.sequences, j = c % m.mixed;
          return from < 0 ? 0.0f
                          : dconvolved.get(r * m.mixed + j) * projection.get(m.at_mixed(from) + j);
        },
        [&](std::int64_t c, float sum) { dw.put(c, sum, true); });
  }
};

}  // namespace plimsoll::runtime::cuda
