// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <cmath>

#include "runtime/host/op_family.hpp"
#include "runtime/host/random.hpp"

namespace plimsoll::runtime::host {

namespace {

/// An attention op on this rank: its shape, and what the shape points to.
template <class T>
struct Attention {
  explicit Attention(OpCall<T>& c);

  AttentionShape shape;
  std::int64_t k_count = 0, v_count = 0;  ///< elements of this rank's keys and values
  std::vector<double> slopes, sinks;
  std::vector<std::int64_t> all_positions;
  T *k_expanded = nullptr, *v_expanded = nullptr;
};

template <class T>
Attention<T>::Attention(OpCall<T>& c) {
  const Op& op = c.what();
  if (op.inputs.size() > 3)
    throw InternalError("attention with a tensor of biases is not computed");
  PLIMSOLL_ASSERT(!c.in(0).sharded && !c.in(1).sharded);
  shape.sequences = c.shapes->mbs;
  shape.q_width = op.q_width;
  shape.v_width = op.v_width;
  shape.heads = c.in(0).width / op.q_width;
  shape.kv_heads = c.in(1).width / op.k_width;
  shape.q_positions = &c.in(0).positions;
  shape.k_positions = &c.in(1).positions;
  shape.causal = op.causal;
  shape.window = op.window;
  shape.chunk = op.chunk;
  if (op.softcap) shape.cap = op.cap.to_double();
  if (!c.facts->flash) shape.drop = c.facts->attention_dropout;
  k_count = c.in(1).count();
  v_count = c.in(2).count();
  const std::int64_t first = c.in(0).first_column / op.q_width;
  if (op.alibi) {  // Press et al. 2021: slopes 2^(-8 h / heads)
    for (std::int64_t h = first; h < first + shape.heads; ++h)
      slopes.push_back(
          std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(op.heads)));
    shape.alibi = &slopes;
  }
  if (op.sinks) {
    sinks.assign(c.w(0), c.w(0) + shape.heads);
    shape.sinks = sinks.data();
  }
  k_expanded = c.part("k_expanded");
  v_expanded = c.part("v_expanded");
}

/// Keys (or values) of kv_heads repeated to all heads.
template <class T>
void expand(const AttentionShape& s, std::int64_t rows, std::int64_t width, const T* from, T* to) {
  for (std::int64_t i = 0; i < rows * s.heads; ++i) {
    const std::int64_t row = i / s.heads, head = i % s.heads / (s.heads / s.kv_heads);
    std::copy_n(from + (row * s.kv_heads + head) * width, width, to + i * width);
  }
}
/// The mask of dropped probabilities, by places in whole sequences and heads of the whole op.
template <class T>
void draw_mask(const OpCall<T>& c, const AttentionShape& s, std::int8_t* mask) {
  const std::int64_t first_head = c.in(0).first_column / c.what().q_width;
  for (std::int64_t row = 0; row < s.q_rows(); ++row)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t key = 0; key < s.keys(); ++key) {
        const auto at = [](const std::vector<std::int64_t>* positions, std::int64_t i) {
          return static_cast<std::uint64_t>((*positions)[static_cast<std::size_t>(i)]);
        };
        const std::uint64_t bits =
            mix({c.facts->seed, 0x6d61736bu, static_cast<std::uint64_t>(c.step), c.op,
                 static_cast<std::uint64_t>(c.first_sequence + row % s.sequences),
                 at(s.q_positions, row / s.sequences), static_cast<std::uint64_t>(first_head + h),
                 at(s.k_positions, key)});
        mask[(row * s.heads + h) * s.keys() + key] = uniform(bits) >= s.drop;
      }
}

/// Keys and values of all context-parallel ranks, side by side.
template <class T>
struct Gathered {
  std::vector<T> k, v;
};
template <class T>
Gathered<T> gather_context(OpCall<T>& c, Attention<T>& a, const T* k, const T* v) {
  Gathered<T> all;
  const std::int64_t cp = c.shapes->cp;
  all.k.resize(static_cast<std::size_t>(a.k_count * cp));
  all.v.resize(static_cast<std::size_t>(a.v_count * cp));
  c.groups->cp.all_gather(k, a.k_count, all.k.data());
  c.groups->cp.all_gather(v, a.v_count, all.v.data());
  for (std::int64_t r = 0; r < cp; ++r)
    for (const std::int64_t p : context_positions(c.in(1).tokens, cp, r))
      a.all_positions.push_back(p);
  a.shape.k_positions = &a.all_positions;
  return all;
}

/// Of \a x, rows of this rank with all heads: the rows of all context-parallel ranks with this
/// one's share of the heads. And back.
template <class T>
std::vector<T> to_heads(const OpCall<T>& c, const T* x, std::int64_t rows, std::int64_t width) {
  const std::int64_t cp = c.shapes->cp, part = width / cp;
  std::vector<T> sent(static_cast<std::size_t>(rows * width)), received(sent.size());
  for (std::int64_t r = 0; r < cp; ++r)
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy_n(x + i * width + r * part, part, sent.data() + (r * rows + i) * part);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(cp), rows * part);
  c.groups->cp.all_to_all(sent.data(), counts, received.data(), counts);
  return received;
}
template <class T>
void from_heads(const OpCall<T>& c, const std::vector<T>& x, std::int64_t rows, std::int64_t width,
                T* to) {
  const std::int64_t cp = c.shapes->cp, part = width / cp;
  std::vector<T> received(x.size());
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(cp), rows * part);
  c.groups->cp.all_to_all(x.data(), counts, received.data(), counts);
  for (std::int64_t r = 0; r < cp; ++r)
    for (std::int64_t i = 0; i < rows; ++i)
      add_to(to + i * width + r * part, received.data() + (r * rows + i) * part, part);
}

/// The shape of this rank's heads over whole sequences (Jacobs et al. 2023).
template <class T>
void take_heads(OpCall<T>& c, Attention<T>& a) {
  AttentionShape& s = a.shape;
  const std::int64_t cp = c.shapes->cp, rank = c.shapes->rank.cp;
  if (s.heads % cp != 0 || s.kv_heads % cp != 0)
    throw InternalError("heads do not divide over the context-parallel ranks that exchange them");
  for (std::int64_t r = 0; r < cp; ++r)
    for (const std::int64_t p : context_positions(c.in(1).tokens, cp, r))
      a.all_positions.push_back(p);
  s.q_positions = s.k_positions = &a.all_positions;
  s.heads /= cp;
  s.kv_heads /= cp;
  if (!a.slopes.empty()) a.slopes.erase(a.slopes.begin(), a.slopes.begin() + rank * s.heads);
  if (!a.sinks.empty()) s.sinks = a.sinks.data() + rank * s.heads;
}

template <class T>
void exchange_forward(OpCall<T>& c, Attention<T>& a, const T* k, const T* v) {
  const std::int64_t q_rows = a.shape.q_rows(), k_rows = a.shape.k_rows();
  take_heads(c, a);
  const std::vector<T> q_heads = to_heads(c, c.inputs[0], q_rows, c.in(0).width);
  const std::vector<T> k_heads = to_heads(c, k, k_rows, c.in(1).width);
  const std::vector<T> v_heads = to_heads(c, v, k_rows, c.in(2).width);
  const std::int64_t heads = a.shape.heads * c.shapes->cp, width = heads * a.shape.v_width;
  std::vector<T> out(static_cast<std::size_t>(q_rows * width));
  std::vector<T> lse(static_cast<std::size_t>(q_rows * heads));
  AttentionKept<T> kept;
  kept.lse = lse.data();
  attention_forward(a.shape, q_heads.data(), k_heads.data(), v_heads.data(), out.data(), kept);
  std::fill_n(c.output, q_rows * width, T(0));
  from_heads(c, out, q_rows, width, c.output);
  T* to = c.part("lse");
  std::vector<T> unwanted(lse.size());
  if (to) std::fill_n(to, q_rows * heads, T(0));
  from_heads(c, lse, q_rows, heads, to ? to : unwanted.data());
}

template <class T>
void exchange_backward(OpCall<T>& c, Attention<T>& a, AttentionSaved<T> saved) {
  const std::int64_t q_rows = a.shape.q_rows(), k_rows = a.shape.k_rows();
  take_heads(c, a);
  const std::int64_t heads = a.shape.heads * c.shapes->cp, width = heads * a.shape.v_width;
  const std::vector<T> q = to_heads(c, saved.q, q_rows, c.in(0).width);
  const std::vector<T> k = to_heads(c, saved.k, k_rows, c.in(1).width);
  const std::vector<T> v = to_heads(c, saved.v, k_rows, c.in(2).width);
  const std::vector<T> output = to_heads(c, saved.output, q_rows, width);
  const std::vector<T> lse = to_heads(c, saved.lse, q_rows, heads);
  const std::vector<T> doutput = to_heads(c, c.output_gradient, q_rows, width);
  saved = {};
  saved.q = q.data();
  saved.k = k.data();
  saved.v = v.data();
  saved.output = output.data();
  saved.lse = lse.data();
  std::vector<T> dq(q.size()), dk(k.size()), dv(v.size());
  T* dsinks = c.what().sinks ? c.dw(0) : nullptr;
  attention_backward(a.shape, saved, doutput.data(), dq.data(), dk.data(), dv.data(),
                     dsinks ? dsinks + c.shapes->rank.cp * a.shape.heads : nullptr);
  std::vector<T> unwanted(std::max({dq.size(), dk.size(), dv.size()}));
  from_heads(c, dq, q_rows, c.in(0).width, c.dx(0) ? c.dx(0) : unwanted.data());
  from_heads(c, dk, k_rows, c.in(1).width, c.dx(1) ? c.dx(1) : unwanted.data());
  from_heads(c, dv, k_rows, c.in(2).width, c.dx(2) ? c.dx(2) : unwanted.data());
}

/// Flash attention with keys and values passed around a ring: each rank's output is put together
/// from those of the blocks by their log-sums (Liu et al. 2023).
template <class T>
void ring_forward(OpCall<T>& c, Attention<T>& a, const T* k, const T* v, T* output, T* lse) {
  AttentionShape& s = a.shape;
  const std::int64_t cp = c.shapes->cp, rank = c.shapes->rank.cp;
  std::vector<T> block_k(k, k + a.k_count), block_v(v, v + a.v_count);
  std::vector<T> next_k(block_k.size()), next_v(block_v.size());
  const auto rows = static_cast<std::size_t>(s.q_rows() * s.heads);
  std::vector<T> block_lse(rows), block_out(rows * static_cast<std::size_t>(s.v_width));
  std::vector<double> sums(rows, -INFINITY), out(block_out.size());
  for (std::int64_t step = 0; step < cp; ++step) {
    const std::vector<std::int64_t> positions =
        context_positions(c.in(1).tokens, cp, (rank - step + cp) % cp);
    s.k_positions = &positions;
    s.sinks = step == 0 && !a.sinks.empty() ? a.sinks.data() : nullptr;
    AttentionKept<T> kept;
    kept.lse = block_lse.data();
    attention_forward(s, c.inputs[0], block_k.data(), block_v.data(), block_out.data(), kept);
    for (std::size_t r = 0; r < rows; ++r) {
      const double l = block_lse[r];
      if (!std::isfinite(l)) continue;
      const double most = std::max(sums[r], l);
      const double sum = most + std::log(std::exp(sums[r] - most) + std::exp(l - most));
      for (std::size_t d = 0; d < static_cast<std::size_t>(s.v_width); ++d) {
        const std::size_t i = r * static_cast<std::size_t>(s.v_width) + d;
        out[i] = out[i] * std::exp(sums[r] - sum) + block_out[i] * std::exp(l - sum);
      }
      sums[r] = sum;
    }
    c.groups->cp.pass_on(block_k.data(), a.k_count, next_k.data());
    c.groups->cp.pass_on(block_v.data(), a.v_count, next_v.data());
    block_k.swap(next_k);
    block_v.swap(next_v);
  }
  for (std::size_t i = 0; i < out.size(); ++i) output[i] = static_cast<T>(out[i]);
  for (std::size_t r = 0; lse && r < rows; ++r) lse[r] = static_cast<T>(sums[r]);
}

/// Gradients of a block travel with it and are home after a whole turn.
template <class T>
void ring_backward(OpCall<T>& c, Attention<T>& a, AttentionSaved<T> saved, T* dk, T* dv) {
  AttentionShape& s = a.shape;
  const std::int64_t cp = c.shapes->cp, rank = c.shapes->rank.cp;
  std::vector<T> block[4], next[4];
  block[0].assign(saved.k, saved.k + a.k_count);
  block[1].assign(saved.v, saved.v + a.v_count);
  block[2].resize(block[0].size());
  block[3].resize(block[1].size());
  for (std::int64_t step = 0; step < cp; ++step) {
    const std::vector<std::int64_t> positions =
        context_positions(c.in(1).tokens, cp, (rank - step + cp) % cp);
    s.k_positions = &positions;
    saved.k = block[0].data();
    saved.v = block[1].data();
    attention_backward(s, saved, c.output_gradient, c.dx(0), block[2].data(), block[3].data(),
                       step == 0 && c.what().sinks ? c.dw(0) : nullptr);
    for (int i = 0; i < 4; ++i) {
      next[i].resize(block[i].size());
      c.groups->cp.pass_on(block[i].data(), static_cast<std::int64_t>(block[i].size()),
                           next[i].data());
      block[i].swap(next[i]);
    }
  }
  if (dk) add_to(dk, block[2].data(), a.k_count);
  if (dv) add_to(dv, block[3].data(), a.v_count);
}

}  // namespace

template <class T>
void attention_forward_op(OpCall<T>& c) {
  Attention<T> a(c);
  const T *k = c.inputs[1], *v = c.inputs[2];
  const std::int64_t k_rows = a.shape.k_rows();
  if (a.k_expanded) expand(a.shape, k_rows, a.shape.q_width, k, a.k_expanded);
  if (a.v_expanded) expand(a.shape, k_rows, a.shape.v_width, v, a.v_expanded);
  if (c.shapes->cp > 1 && c.facts->flash) return ring_forward(c, a, k, v, c.output, c.part("lse"));
  Gathered<T> all;
  if (c.shapes->cp > 1) {
    all = gather_context(c, a, k, v);
    k = all.k.data();
    v = all.v.data();
  }
  AttentionKept<T> kept;
  kept.lse = c.part("lse");
  std::vector<std::int8_t> scratch;
  if (!c.facts->flash) {
    kept.scores = c.part("scores");
    kept.probs = c.part("probs");
    kept.dropped = c.part("dropped");
    if (a.shape.drop > 0) {
      auto* mask = c.template part<std::int8_t>("mask");
      if (!mask) {
        scratch.resize(static_cast<std::size_t>(a.shape.q_rows() * a.shape.heads * a.shape.keys()));
        mask = scratch.data();
      }
      draw_mask(c, a.shape, mask);
      kept.mask = mask;
    }
  }
  attention_forward(a.shape, c.inputs[0], k, v, c.output, kept);
}

template <class T>
void attention_backward_op(OpCall<T>& c) {
  Attention<T> a(c);
  AttentionShape& s = a.shape;
  const bool expanded_k = !c.inputs[1] && a.k_expanded, expanded_v = !c.inputs[2] && a.v_expanded;
  AttentionSaved<T> saved;
  saved.q = c.inputs[0];
  saved.k = c.inputs[1];
  saved.v = c.inputs[2];
  std::vector<T> k, v;  // what one of them, saved for all heads, is of the others' heads
  const std::int64_t k_rows = s.k_rows(), each = s.heads / s.kv_heads;
  const auto first_of_each = [&](const T* from, std::int64_t width, std::vector<T>& to) {
    to.resize(static_cast<std::size_t>(k_rows * s.kv_heads * width));
    for (std::int64_t i = 0; i < k_rows * s.kv_heads; ++i)
      std::copy_n(from + (i / s.kv_heads * s.heads + i % s.kv_heads * each) * width, width,
                  to.data() + i * width);
    return to.data();
  };
  if (expanded_k) saved.k = first_of_each(a.k_expanded, s.q_width, k);
  if (expanded_v) saved.v = first_of_each(a.v_expanded, s.v_width, v);
  if (!saved.q || !saved.k || !saved.v) saved_too_little(c.what());
  if (c.facts->flash) {
    saved.output = c.output;
    saved.lse = c.part("lse");
    if (!saved.output || !saved.lse) saved_too_little(c.what());
  } else {
    saved.probs = c.part("probs");
    if (s.drop > 0) saved.mask = c.template part<std::int8_t>("mask");
    if (!saved.probs || (s.drop > 0 && !saved.mask)) saved_too_little(c.what());
  }
  if (c.shapes->cp > 1 && c.facts->flash) {
    if (!c.facts->ring) return exchange_backward(c, a, saved);
    return ring_backward(c, a, saved, c.dx(1), c.dx(2));
  }
  T* dsinks = c.what().sinks ? c.dw(0) : nullptr;
  if (c.shapes->cp == 1)
    return attention_backward(s, saved, c.output_gradient, c.dx(0), c.dx(1), c.dx(2), dsinks);
  const Gathered<T> all = gather_context(c, a, saved.k, saved.v);
  saved.k = all.k.data();
  saved.v = all.v.data();
  std::vector<T> dk(all.k.size()), dv(all.v.size());
  attention_backward(s, saved, c.output_gradient, c.dx(0), dk.data(), dv.data(), dsinks);
  std::vector<T> part(static_cast<std::size_t>(std::max(a.k_count, a.v_count)));
  c.groups->cp.reduce_scatter(dk.data(), a.k_count, part.data());
  if (c.dx(1)) add_to(c.dx(1), part.data(), a.k_count);
  c.groups->cp.reduce_scatter(dv.data(), a.v_count, part.data());
  if (c.dx(2)) add_to(c.dx(2), part.data(), a.v_count);
}

PLIMSOLL_INSTANTIATE(attention)

}  // namespace plimsoll::runtime::host
