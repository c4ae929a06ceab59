// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "runtime/cuda/kernels_attention.hpp"

/// The backward of attention by tiles: two kernels, of queries and of keys, each of which makes the
/// scores again (docs/decisions/0051).
namespace plimsoll::runtime::cuda {

/// dots = output . doutput, by query and head.
struct RowDots {
  Array output, doutput;
  float* dots = nullptr;
  std::int64_t rows = 0, width = 0;
  PLIMSOLL_HD std::int64_t items() const { return rows; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t r) const {
    float sum = 0;
    for (std::int64_t j = t.lane(); j < width; j += t.size())
      sum += output.get(r * width + j) * doutput.get(r * width + j);
    sum = t.sum(sum);
    if (t.lane() == 0) dots[r] = sum;
  }
};

/// What both halves of the backward read. With P = exp(S - lse): dS = P (dP - dots) (Dao et al.
/// 2022, algorithm 4).
struct FlashSaved {
  Attention a;
  Array doutput;
  const float *lse = nullptr, *dots = nullptr;

  /// From tiles of q k and dP, which become dS; P where wanted. A row of numbers is shared by
  /// kRowParts threads.
  template <class Team, class E>
  PLIMSOLL_HD void scores(Team& t, const Tile<float>& s, const Tile<float>& dp, const Tile<E>* p,
                          const Tile<E>& ds, std::int64_t b, std::int64_t head, std::int64_t q0,
                          std::int64_t q_count, std::int64_t k0, std::int64_t k_count) const {
    for (int u = t.lane(); u < s.rows * kRowParts; u += t.size()) {
      const int r = u / kRowParts;
      const bool is_row = r < q_count;
      const std::int64_t at = is_row ? a.q_row(b, q0 + r) * a.heads + head : 0;
      const std::int64_t qp = is_row ? a.q_positions[q0 + r] : 0;
      const float l = is_row ? lse[at] : 0, dot = is_row ? dots[at] : 0;
      for (int c = u % kRowParts; c < s.cols; c += kRowParts) {
        float x = 0, d = 0;
        if (is_row && c < k_count) {
          const std::int64_t kp = a.k_positions[k0 + c];
          if (a.sees(qp, kp)) {
            float slope = 1;
            x = expf(a.score(s(r, c), head, qp, kp, &slope) - l);
            d = x * (dp(r, c) - dot) * slope;
          }
        }
        if (p) (*p)(r, c) = narrow<E>(x);
        ds(r, c) = narrow<E>(d);
      }
    }
  }
};

/// The tiles of both halves of the backward: queries and gradients of the output by rows, keys and
/// values, scores, what they become; and how they are filled and multiplied.
template <class E>
struct BackwardTiles {
  const FlashSaved& saved;
  Tile<E> q, g, k, v;
  Tile<float> s, dp;
  Tile<E> ds;

  static std::int64_t bytes(const Attention& a, TileSizes sizes) {
    const int qw = up16(a.q_width), vw = up16(a.v_width);
    return tile_bytes<E>(sizes.queries, qw) + tile_bytes<E>(sizes.queries, vw) +
           tile_bytes<E>(sizes.keys, qw) + tile_bytes<E>(sizes.keys, vw) +
           2 * tile_bytes<float>(sizes.queries, sizes.keys) +
           tile_bytes<E>(sizes.queries, sizes.keys);
  }
  PLIMSOLL_HD BackwardTiles(const FlashSaved& of, TileSizes sizes, Carver& shared) : saved(of) {
    const int qw = up16(of.a.q_width), vw = up16(of.a.v_width);
    q = shared.tile<E>(sizes.queries, qw);
    g = shared.tile<E>(sizes.queries, vw);
    k = shared.tile<E>(sizes.keys, qw);
    v = shared.tile<E>(sizes.keys, vw);
    s = shared.tile<float>(sizes.queries, sizes.keys);
    dp = shared.tile<float>(sizes.queries, sizes.keys);
    ds = shared.tile<E>(sizes.queries, sizes.keys);
  }
  template <class Team>
  PLIMSOLL_HD void load_queries(Team& t, std::int64_t b, std::int64_t head, std::int64_t q0,
                                std::int64_t count) const {
    const Attention& a = saved.a;
    const std::int64_t row = a.q_row(b, q0) * a.heads + head, step = a.sequences * a.heads;
    load(t, q, a.q, row * a.q_width, step * a.q_width, count, a.q_width);
    load(t, g, saved.doutput, row * a.v_width, step * a.v_width, count, a.v_width);
  }
  template <class Team>
  PLIMSOLL_HD void load_keys(Team& t, std::int64_t b, std::int64_t kv_head, std::int64_t k0,
                             std::int64_t count) const {
    const Attention& a = saved.a;
    const std::int64_t row = a.q_row(b, k0) * a.kv_heads + kv_head;
    const std::int64_t step = a.sequences * a.kv_heads;
    load(t, k, a.k, row * a.q_width, step * a.q_width, count, a.q_width);
    load(t, v, a.v, row * a.v_width, step * a.v_width, count, a.v_width);
  }
  /// From what was loaded: dS, and P where wanted.
  template <class Team>
  PLIMSOLL_HD void score(Team& t, const Tile<E>* p, std::int64_t b, std::int64_t head,
                         std::int64_t q0, std::int64_t q_count, std::int64_t k0,
                         std::int64_t k_count) const {
    t.sync();
    t.multiply(q, false, k, true, s, false);
    t.multiply(g, false, v, true, dp, false);
    t.sync();
    saved.scores(t, s, dp, p, ds, b, head, q0, q_count, k0, k_count);
    t.sync();
  }
};

/// dq, and what sinks get.
template <class E>
struct FlashBackwardQueries {
  FlashSaved saved;
  Array dq, dsinks;
  bool add = false;
  TileSizes tiles;

  static std::int64_t shared_for(const Attention& a, TileSizes s) {
    return BackwardTiles<E>::bytes(a, s) + tile_bytes<float>(s.queries, up16(a.q_width));
  }
  std::int64_t shared_bytes() const { return shared_for(saved.a, tiles); }
  PLIMSOLL_HD std::int64_t q_tiles() const {
    return (saved.a.queries + tiles.queries - 1) / tiles.queries;
  }
  PLIMSOLL_HD std::int64_t items() const { return saved.a.sequences * saved.a.heads * q_tiles(); }

  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    const Attention& a = saved.a;
    const std::int64_t q0 = item % q_tiles() * tiles.queries, head = item / q_tiles() % a.heads;
    const std::int64_t b = item / q_tiles() / a.heads, kv_head = head / (a.heads / a.kv_heads);
    const int rows = tiles.queries, keys = tiles.keys;
    Carver shared{static_cast<char*>(t.shared())};
    const BackwardTiles<E> held(saved, tiles, shared);
    const auto sum = shared.tile<float>(rows, up16(a.q_width));
    const std::int64_t left = a.queries - q0, count = left < rows ? left : rows;
    held.load_queries(t, b, head, q0, count);
    clear(t, sum);
    for (std::int64_t k0 = 0; k0 < a.keys; k0 += keys) {
      const std::int64_t k_left = a.keys - k0, k_count = k_left < keys ? k_left : keys;
      if (a.apart(q0, count, k0, k_count)) continue;
      t.sync();
      held.load_keys(t, b, kv_head, k0, k_count);
      held.score(t, nullptr, b, head, q0, count, k0, k_count);
      t.multiply(held.ds, false, held.k, false, sum, true);
    }
    t.sync();
    const int width = static_cast<int>(a.q_width);
    for (int u = t.lane(); dq.there() && u < static_cast<int>(count) * width; u += t.size()) {
      const int r = u / width, c = u % width;
      dq.put((a.q_row(b, q0 + r) * a.heads + head) * a.q_width + c, sum(r, c), add);
    }
    if (!dsinks.there()) return;
    float lost = 0;
    for (int r = t.lane(); r < count; r += t.size()) {
      const std::int64_t at = a.q_row(b, q0 + r) * a.heads + head;
      lost -= expf(a.sinks.get(head) - saved.lse[at]) * saved.dots[at];
    }
    lost = t.sum(lost);
    if (t.lane() == 0) t.add(dsinks, head, lost);
  }
};

/// dk and dv: over all queries of all heads that read them.
template <class E>
struct FlashBackwardKeys {
  FlashSaved saved;
  Array dk, dv;
  bool add_k = false, add_v = false;
  TileSizes tiles;

  static std::int64_t shared_for(const Attention& a, TileSizes s) {
    return BackwardTiles<E>::bytes(a, s) + tile_bytes<E>(s.queries, s.keys) +
           tile_bytes<float>(s.keys, up16(a.q_width)) + tile_bytes<float>(s.keys, up16(a.v_width));
  }
  std::int64_t shared_bytes() const { return shared_for(saved.a, tiles); }
  PLIMSOLL_HD std::int64_t k_tiles() const { return (saved.a.keys + tiles.keys - 1) / tiles.keys; }
  PLIMSOLL_HD std::int64_t items() const {
    return saved.a.sequences * saved.a.kv_heads * k_tiles();
  }

  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    const Attention& a = saved.a;
    const std::int64_t k0 = item % k_tiles() * tiles.keys, kv_head = item / k_tiles() % a.kv_heads;
    const std::int64_t b = item / k_tiles() / a.kv_heads, group = a.heads / a.kv_heads;
    const int rows = tiles.queries, keys = tiles.keys;
    Carver shared{static_cast<char*>(t.shared())};
    const BackwardTiles<E> held(saved, tiles, shared);
    const auto p = shared.tile<E>(rows, keys);
    const auto sum_k = shared.tile<float>(keys, up16(a.q_width));
    const auto sum_v = shared.tile<float>(keys, up16(a.v_width));
    const std::int64_t left = a.keys - k0, k_count = left < keys ? left : keys;
    const std::int64_t k_row = a.q_row(b, k0) * a.kv_heads + kv_head;
    const std::int64_t k_step = a.sequences * a.kv_heads;
    held.load_keys(t, b, kv_head, k0, k_count);
    clear(t, sum_k);
    clear(t, sum_v);
    for (std::int64_t turn = 0; turn < group; ++turn)
      for (std::int64_t q0 = 0; q0 < a.queries; q0 += rows) {
        const std::int64_t head = kv_head * group + turn;
        const std::int64_t q_left = a.queries - q0, count = q_left < rows ? q_left : rows;
        if (a.apart(q0, count, k0, k_count)) continue;
        t.sync();
        held.load_queries(t, b, head, q0, count);
        held.score(t, &p, b, head, q0, count, k0, k_count);
        t.multiply(p, true, held.g, false, sum_v, true);
        t.multiply(held.ds, true, held.q, false, sum_k, true);
      }
    t.sync();
    const int q_cols = static_cast<int>(a.q_width), v_cols = static_cast<int>(a.v_width);
    for (int u = t.lane(); dk.there() && u < static_cast<int>(k_count) * q_cols; u += t.size())
      dk.put(k_row * a.q_width + u / q_cols * k_step * a.q_width + u % q_cols,
             sum_k(u / q_cols, u % q_cols), add_k);
    for (int u = t.lane(); dv.there() && u < static_cast<int>(k_count) * v_cols; u += t.size())
      dv.put(k_row * a.v_width + u / v_cols * k_step * a.v_width + u % v_cols,
             sum_v(u / v_cols, u % v_cols), add_v);
  }
};

}  // namespace plimsoll::runtime::cuda
