// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "runtime/cuda/scalar.hpp"

/// Attention by tiles of queries and keys in a block's shared memory, so that no matrix of scores
/// is ever stored (Dao et al. 2022): an item of work is a tile of queries (forward, dq) or of keys
/// (dk and dv) of one head. Products of tiles are the team's multiply(): tensor cores on the GPU.
namespace plimsoll::runtime::cuda {

/// Who attends to whom: host::AttentionShape.
struct Attention {
  Array q, k, v;
  Runs q_positions, k_positions;
  std::int64_t sequences = 1, queries = 0, keys = 0;  ///< of one sequence
  std::int64_t heads = 0, kv_heads = 0, q_width = 0, v_width = 0;
  std::int64_t window = 0, chunk = 0;
  bool causal = false, alibi = false;
  float cap = 0;
  std::int64_t first_head = 0, all_heads = 0;  ///< of the whole op, for alibi and masks
  Array sinks;                                 ///< a logit a head, or none

  PLIMSOLL_HD float scale() const { return 1 / sqrtf(static_cast<float>(q_width)); }
  PLIMSOLL_HD std::int64_t q_row(std::int64_t b, std::int64_t i) const { return i * sequences + b; }
  PLIMSOLL_HD bool sees(std::int64_t qp, std::int64_t kp) const {
    if (causal && kp > qp) return false;
    if (window > 0 && (qp - kp >= window || kp - qp >= window)) return false;
    return chunk == 0 || qp / chunk == kp / chunk;
  }
  /// The score from q k, and how it changes with q k.
  PLIMSOLL_HD float score(float dot, std::int64_t head, std::int64_t qp, std::int64_t kp,
                          float* slope = nullptr) const {
    float s = dot * scale();
    if (slope) *slope = scale();
    if (cap > 0) {
      const float t = tanhf(s / cap);
      s = cap * t;
      if (slope) *slope *= 1 - t * t;
    }
    if (alibi)
      s +=
          exp2f(-8.0f * static_cast<float>(first_head + head + 1) / static_cast<float>(all_heads)) *
          static_cast<float>(kp - qp);
    return s;
  }
  /// Smallest and largest of some positions in a row.
  PLIMSOLL_HD static void reach(const Runs& runs, std::int64_t begin, std::int64_t count,
                                std::int64_t& low, std::int64_t& high) {
    low = INT64_MAX;
    high = -1;
    std::int64_t passed = 0;
    for (int r = 0; r < runs.count; ++r) {
      const std::int64_t from = begin > passed ? begin - passed : 0;
      const std::int64_t left = begin + count - passed;
      const std::int64_t to = left < runs.length[r] ? left : runs.length[r];
      if (from < to) {
        if (runs.first[r] + from < low) low = runs.first[r] + from;
        if (runs.first[r] + to - 1 > high) high = runs.first[r] + to - 1;
      }
      passed += runs.length[r];
    }
  }
  /// Does no query of a tile see any key of another?
  PLIMSOLL_HD bool apart(std::int64_t q0, std::int64_t q_count, std::int64_t k0,
                         std::int64_t k_count) const {
    std::int64_t ql, qh, kl, kh;
    reach(q_positions, q0, q_count, ql, qh);
    reach(k_positions, k0, k_count, kl, kh);
    if (causal && kl > qh) return true;
    if (window > 0 && (ql - kh >= window || kl - qh >= window)) return true;
    return chunk > 0 && (kh / chunk < ql / chunk || kl / chunk > qh / chunk);
  }
};

/// Sizes of tiles: rows of queries and keys, multiples of 16.
struct TileSizes {
  int queries = 64, keys = 64;
};

PLIMSOLL_HD constexpr int up16(std::int64_t n) { return static_cast<int>((n + 15) / 16 * 16); }

/// A matrix in shared memory; rows are padded so that they start in different banks.
template <class E>
struct Tile {
  E* at = nullptr;
  int rows = 0, cols = 0, stride = 0;
  PLIMSOLL_HD E& operator()(int r, int c) const { return at[r * stride + c]; }
};
template <class E>
PLIMSOLL_HD constexpr int tile_stride(int cols) {
  return cols + 16 / static_cast<int>(sizeof(E));
}
template <class E>
constexpr std::int64_t tile_bytes(int rows, int cols) {
  return static_cast<std::int64_t>(rows) * tile_stride<E>(cols) *
         static_cast<std::int64_t>(sizeof(E));
}

/// Hands out a block's shared memory.
struct Carver {
  char* at;
  template <class E>
  PLIMSOLL_HD Tile<E> tile(int rows, int cols) {
    Tile<E> t{reinterpret_cast<E*>(at), rows, cols, tile_stride<E>(cols)};
    at += static_cast<std::size_t>(rows) * static_cast<std::size_t>(t.stride) * sizeof(E);
    return t;
  }
  PLIMSOLL_HD float* floats(int count) {
    auto* f = reinterpret_cast<float*>(at);
    at += static_cast<std::size_t>(count) * sizeof(float);
    return f;
  }
};

/// Rows first .. first + count of a tensor whose rows of this head lie `stride` apart; the rest of
/// the tile is 0.
template <class Team, class E>
PLIMSOLL_HD void load(Team& t, const Tile<E>& to, Array from, std::int64_t begin,
                      std::int64_t stride, std::int64_t count, std::int64_t width) {
  for (int u = t.lane(); u < to.rows * to.cols; u += t.size()) {
    const int r = u / to.cols, c = u % to.cols;
    to(r, c) = narrow<E>(r < count && c < width ? from.get(begin + r * stride + c) : 0.0f);
  }
}
template <class Team>
PLIMSOLL_HD void clear(Team& t, const Tile<float>& tile) {
  for (int u = t.lane(); u < tile.rows * tile.cols; u += t.size())
    tile(u / tile.cols, u % tile.cols) = 0;
}

/// Threads that share a row where rows are looked through.
inline constexpr int kRowParts = 4;

/// Output and (where wanted) the log of the sum of exponentials of each query and head.
template <class E>
struct FlashForward {
  Attention a;
  Array output;
  float* lse = nullptr;
  TileSizes tiles;

  static std::int64_t shared_for(const Attention& a, TileSizes s) {
    const int qw = up16(a.q_width), vw = up16(a.v_width);
    return tile_bytes<E>(s.queries, qw) + tile_bytes<E>(s.keys, qw) + tile_bytes<E>(s.keys, vw) +
           tile_bytes<float>(s.queries, s.keys) + tile_bytes<E>(s.queries, s.keys) +
           tile_bytes<float>(s.queries, vw) + s.queries * (3 + 2 * kRowParts) * 4;
  }
  std::int64_t shared_bytes() const { return shared_for(a, tiles); }
  PLIMSOLL_HD std::int64_t q_tiles() const {
    return (a.queries + tiles.queries - 1) / tiles.queries;
  }
  PLIMSOLL_HD std::int64_t items() const { return a.sequences * a.heads * q_tiles(); }

  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    const std::int64_t q0 = item % q_tiles() * tiles.queries, head = item / q_tiles() % a.heads;
    const std::int64_t b = item / q_tiles() / a.heads, kv_head = head / (a.heads / a.kv_heads);
    const int qw = up16(a.q_width), vw = up16(a.v_width), rows = tiles.queries, keys = tiles.keys;
    Carver shared{static_cast<char*>(t.shared())};
    const auto q = shared.tile<E>(rows, qw);
    const auto k = shared.tile<E>(keys, qw);
    const auto v = shared.tile<E>(keys, vw);
    const auto s = shared.tile<float>(rows, keys);
    const auto p = shared.tile<E>(rows, keys);
    const auto o = shared.tile<float>(rows, vw);
    float* most = shared.floats(rows);
    float* sum = shared.floats(rows);
    float* shrink = shared.floats(rows);
    float* part = shared.floats(rows * kRowParts);
    float* sums = shared.floats(rows * kRowParts);
    const std::int64_t left = a.queries - q0, count = left < rows ? left : rows;
    const std::int64_t q_step = a.sequences * a.heads * a.q_width;
    load(t, q, a.q, (a.q_row(b, q0) * a.heads + head) * a.q_width, q_step, count, a.q_width);
    clear(t, o);
    for (int r = t.lane(); r < rows; r += t.size()) {
      most[r] = a.sinks.there() ? a.sinks.get(head) : -INFINITY;
      sum[r] = a.sinks.there() ? 1 : 0;
    }
    for (std::int64_t k0 = 0; k0 < a.keys; k0 += keys) {
      const std::int64_t k_left = a.keys - k0, k_count = k_left < keys ? k_left : keys;
      if (a.apart(q0, count, k0, k_count)) continue;
      t.sync();
      const std::int64_t k_row = (a.q_row(b, k0) * a.kv_heads + kv_head);
      const std::int64_t k_step = a.sequences * a.kv_heads;
      load(t, k, a.k, k_row * a.q_width, k_step * a.q_width, k_count, a.q_width);
      load(t, v, a.v, k_row * a.v_width, k_step * a.v_width, k_count, a.v_width);
      t.sync();
      t.multiply(q, false, k, true, s, false);
      t.sync();
      for (int u = t.lane(); u < rows * kRowParts; u += t.size()) {
        const int r = u / kRowParts;
        const std::int64_t qp = r < count ? a.q_positions[q0 + r] : 0;
        float m = -INFINITY;
        for (int c = u % kRowParts; c < keys; c += kRowParts) {
          float x = -INFINITY;
          if (r < count && c < k_count) {
            const std::int64_t kp = a.k_positions[k0 + c];
            if (a.sees(qp, kp)) x = a.score(s(r, c), head, qp, kp);
          }
          s(r, c) = x;
          m = fmaxf(m, x);
        }
        part[u] = m;
      }
      t.sync();
      for (int u = t.lane(); u < rows * kRowParts; u += t.size()) {
        const int r = u / kRowParts;
        float m = most[r], total = 0;
        for (int i = 0; i < kRowParts; ++i) m = fmaxf(m, part[r * kRowParts + i]);
        for (int c = u % kRowParts; c < keys; c += kRowParts) {
          const float x = m > -INFINITY ? expf(s(r, c) - m) : 0;
          p(r, c) = narrow<E>(x);
          total += x;
        }
        sums[u] = total;
      }
      t.sync();
      for (int r = t.lane(); r < rows; r += t.size()) {
        float m = most[r];
        for (int i = 0; i < kRowParts; ++i) m = fmaxf(m, part[r * kRowParts + i]);
        shrink[r] = most[r] > -INFINITY ? expf(most[r] - m) : 0;
        sum[r] *= shrink[r];
        for (int i = 0; i < kRowParts; ++i) sum[r] += sums[r * kRowParts + i];
        most[r] = m;
      }
      t.sync();
      for (int u = t.lane(); u < rows * vw; u += t.size()) o(u / vw, u % vw) *= shrink[u / vw];
      t.sync();
      t.multiply(p, false, v, false, o, true);
    }
    t.sync();
    const int width = static_cast<int>(a.v_width);
    for (int u = t.lane(); u < static_cast<int>(count) * width; u += t.size()) {
      const int r = u / width, c = u % width;
      output.put((a.q_row(b, q0 + r) * a.heads + head) * a.v_width + c,
                 sum[r] > 0 ? o(r, c) / sum[r] : 0);
    }
    for (int r = t.lane(); lse && r < count; r += t.size())
      lse[a.q_row(b, q0 + r) * a.heads + head] = most[r] + (sum[r] > 0 ? logf(sum[r]) : 0);
  }
};

/// A ring's blocks put together by their log-sums: out (fp32) and lse so far, and a block's.
struct MergeBlocks {
  float *out = nullptr, *lse = nullptr;
  Array block;
  const float* block_lse = nullptr;
  std::int64_t rows = 0, width = 0;
  PLIMSOLL_HD std::int64_t items() const { return rows; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t r) const {
    const float a = lse[r], b = block_lse[r];
    const float most = fmaxf(a, b);
    t.sync();
    if (!(b > -INFINITY)) return;
    const float sum = most + logf(expf(a - most) + expf(b - most));
    for (std::int64_t j = t.lane(); j < width; j += t.size()) {
      const std::int64_t i = r * width + j;
      out[i] = out[i] * expf(a - sum) + block.get(i) * expf(b - sum);
    }
    if (t.lane() == 0) lse[r] = sum;
  }
};

// --- unfused -------------------------------------------------------------------------------------

/// Probabilities of each query and head from products q k (`in`, which may lie where `probs` go);
/// what is kept besides is written where it is there.
struct Softmax {
  Attention a;
  Array in, scores, probs, dropped;
  std::int8_t* mask = nullptr;
  double drop = 0;
  std::uint64_t seed = 0;
  std::int64_t step = 1, op = 0, first_sequence = 0;

  PLIMSOLL_HD std::int64_t items() const { return a.queries * a.sequences * a.heads; }
  PLIMSOLL_HD bool keeps(std::int64_t row, std::int64_t head, std::int64_t key) const {
    const std::uint64_t bits =
        Mixed()(seed)(0x6d61736bu)(static_cast<std::uint64_t>(step))(static_cast<std::uint64_t>(
            op))(static_cast<std::uint64_t>(first_sequence + row % a.sequences))(
            static_cast<std::uint64_t>(a.q_positions[row / a.sequences]))(
            static_cast<std::uint64_t>(a.first_head + head))(
            static_cast<std::uint64_t>(a.k_positions[key]))
            .h;
    return uniform(bits) >= drop;
  }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    const std::int64_t row = item / a.heads, head = item % a.heads, begin = item * a.keys;
    const std::int64_t qp = a.q_positions[row / a.sequences];
    const auto score = [&](std::int64_t key) {
      const std::int64_t kp = a.k_positions[key];
      // The product comes scaled already.
      return a.sees(qp, kp) ? a.score(in.get(begin + key) / a.scale(), head, qp, kp) : -INFINITY;
    };
    float most = a.sinks.there() ? a.sinks.get(head) : -INFINITY, sum = 0;
    for (std::int64_t j = t.lane(); j < a.keys; j += t.size()) most = fmaxf(most, score(j));
    most = t.most(most);
    for (std::int64_t j = t.lane(); j < a.keys; j += t.size())
      sum += most > -INFINITY ? expf(score(j) - most) : 0;
    sum = t.sum(sum) + (a.sinks.there() ? expf(a.sinks.get(head) - most) : 0);
    for (std::int64_t j = t.lane(); j < a.keys; j += t.size()) {
      const float s = score(j), p = most > -INFINITY ? expf(s - most) / sum : 0;
      if (scores.there()) scores.put(begin + j, s);
      probs.put(begin + j, p);
      float left = probs.get(begin + j);
      if (drop > 0) {
        const bool kept = keeps(row, head, j);
        if (mask) mask[begin + j] = kept;
        left = kept ? left / static_cast<float>(1 - drop) : 0;
      }
      if (dropped.there()) dropped.put(begin + j, left);
    }
  }
};

/// dS in place of dP (`dprobs`); `dropped`: what is left of the probabilities, where wanted. `raw`:
/// scaled products, read where scores are capped.
struct SoftmaxBackward {
  Attention a;
  Array probs, dprobs, dropped, raw, dsinks;
  const std::int8_t* mask = nullptr;
  double drop = 0;
  PLIMSOLL_HD std::int64_t items() const { return a.queries * a.sequences * a.heads; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    const std::int64_t head = item % a.heads, begin = item * a.keys;
    const auto kept = [&](std::int64_t j) {
      return drop > 0 ? static_cast<float>(mask[begin + j]) / static_cast<float>(1 - drop) : 1.0f;
    };
    float dot = 0, seen = 0;
    for (std::int64_t j = t.lane(); j < a.keys; j += t.size()) {
      const float p = probs.get(begin + j);
      dot += p * kept(j) * dprobs.get(begin + j);
      seen += p;
    }
    dot = t.sum(dot);
    seen = t.sum(seen);
    for (std::int64_t j = t.lane(); j < a.keys; j += t.size()) {
      const float p = probs.get(begin + j), k = kept(j);
      float slope = a.scale();
      if (a.cap > 0) a.score(raw.get(begin + j) / a.scale(), head, 0, 0, &slope);
      if (dropped.there()) dropped.put(begin + j, p * k);
      dprobs.put(begin + j, p * (k * dprobs.get(begin + j) - dot) * slope);
    }
    if (dsinks.there() && t.lane() == 0) t.add(dsinks, head, -(1 - seen) * dot);
  }
};

}  // namespace plimsoll::runtime::cuda
