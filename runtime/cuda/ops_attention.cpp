// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <cmath>

#include "runtime/cuda/op_call.hpp"

namespace plimsoll::runtime::cuda {

namespace {

/// The op on this rank: whom it attends to, before any context parallelism.
Attention shape_of(OpCall& c) {
  const Op& op = c.what();
  Attention a;
  a.q = c.inputs[0];
  a.k = c.inputs[1];
  a.v = c.inputs[2];
  a.sequences = c.shapes().mbs;
  a.q_width = op.q_width;
  a.v_width = op.v_width;
  a.heads = c.in(0).width / op.q_width;
  a.kv_heads = c.in(1).width / op.k_width;
  a.q_positions = runs_of(c.in(0).positions);
  a.k_positions = runs_of(c.in(1).positions);
  a.queries = static_cast<std::int64_t>(c.in(0).positions.size());
  a.keys = static_cast<std::int64_t>(c.in(1).positions.size());
  a.causal = op.causal;
  a.window = op.window;
  a.chunk = op.chunk;
  a.alibi = op.alibi;
  if (op.softcap) a.cap = static_cast<float>(op.cap.to_double());
  a.first_head = c.in(0).first_column / op.q_width;
  a.all_heads = op.heads;
  if (op.sinks) a.sinks = c.w(0);
  return a;
}

std::int64_t q_rows(const Attention& a) { return a.queries * a.sequences; }
std::int64_t k_rows(const Attention& a) { return a.keys * a.sequences; }

template <class K>
void launch_tiled(OpCall& c, K k, const Attention& a) {
  k.tiles = fitting_tiles(c.machine.facts(), [&](TileSizes s) { return K::shared_for(a, s); });
  if (k.tiles.queries == 0)
    throw InternalError(fmt::format("no tile of heads of {} fits a block's shared memory",
                                    std::max(a.q_width, a.v_width)));
  c.machine.launch(k);
}

/// Can it be put to a library, whose masks are no more than causal?
bool is_plain(const Attention& a) {
  const bool one_run = a.q_positions.count == 1 && a.k_positions.count == 1 &&
                       a.q_positions.first[0] == a.k_positions.first[0];
  return a.cap <= 0 && a.window == 0 && a.chunk == 0 && !a.alibi && !a.sinks.there() &&
         (!a.causal || (one_run && a.queries == a.keys));
}

/// Between our order of log-sums (queries, sequences, heads) and a library's (sequences, heads,
/// queries).
void turn_sums(OpCall& c, const Attention& a, Array from, Array to, bool to_library) {
  Move m;
  m.from = from;
  m.to = to;
  m.rows = a.queries;
  m.groups = a.sequences * a.heads;
  m.length = 1;
  (to_library ? m.from_row : m.to_row) = a.sequences * a.heads;
  (to_library ? m.from_group : m.to_group) = 1;
  (to_library ? m.to_row : m.from_row) = 1;
  (to_library ? m.to_group : m.from_group) = a.queries;
  c.machine.launch(m);
}

/// Scratch for the time of a call.
struct CallSpace {
  OpCall& c;
  std::vector<Room> rooms{};
  Space space() {
    return [this](std::int64_t bytes) { return rooms.emplace_back(c.scratch, bytes).at(); };
  }
};

bool library_forward(OpCall& c, const Attention& a, Array output, float* lse) {
  LibraryAttention* library = c.machine.attention();
  if (!library || c.number != Number::bf16 || !is_plain(a)) return false;
  const Buffer sums(c, q_rows(a) * a.heads, Number::fp32);
  CallSpace call{c};
  if (!library->forward(a, output, static_cast<float*>(sums.array().at), call.space()))
    return false;
  if (lse) turn_sums(c, a, sums, {lse, Number::fp32}, false);
  return true;
}

bool library_backward(OpCall& c, const Attention& a, const float* lse) {
  LibraryAttention* library = c.machine.attention();
  if (!library || c.number != Number::bf16 || !is_plain(a)) return false;
  const std::int64_t rows = q_rows(a) * a.heads;
  const Buffer sums(c, rows, Number::fp32);
  turn_sums(c, a, {const_cast<float*>(lse), Number::fp32}, sums, true);  // NOLINT: it is read
  const Buffer dq(c, c.in(0).count()), dk(c, c.in(1).count()), dv(c, c.in(2).count());
  CallSpace call{c};
  if (!library->backward(a, c.output, c.output_gradient, static_cast<const float*>(sums.array().at),
                         dq, dk, dv, call.space()))
    return false;
  put(c, dq, c.dx(0), c.in(0).count());
  put(c, dk, c.dx(1), c.in(1).count());
  put(c, dv, c.dx(2), c.in(2).count());
  return true;
}

void flash_forward(OpCall& c, const Attention& a, Array output, float* lse) {
  if (c.number == Number::bf16)
    launch_tiled(c, FlashForward<Bf16>{a, output, lse, {}}, a);
  else
    launch_tiled(c, FlashForward<float>{a, output, lse, {}}, a);
}

template <class E>
void flash_backward(OpCall& c, const FlashSaved& saved, const Target& dq, const Target& dk,
                    const Target& dv, Array dsinks) {
  if (dq || dsinks)
    launch_tiled(c, FlashBackwardQueries<E>{saved, dq.to, dsinks, dq.add, {}}, saved.a);
  if (dk || dv)
    launch_tiled(c, FlashBackwardKeys<E>{saved, dk.to, dv.to, dk.add, dv.add, {}}, saved.a);
}

void flash_backward(OpCall& c, const FlashSaved& saved, const Target& dq, const Target& dk,
                    const Target& dv, Array dsinks) {
  if (c.number == Number::bf16)
    flash_backward<Bf16>(c, saved, dq, dk, dv, dsinks);
  else
    flash_backward<float>(c, saved, dq, dk, dv, dsinks);
}

/// Keys (or values) of kv_heads repeated to all heads.
void expand(OpCall& c, const Attention& a, std::int64_t width, Array from, Array to) {
  Move m;
  m.from = from;
  m.to = to;
  m.rows = k_rows(a);
  m.groups = a.heads;
  m.length = width;
  m.from_row = a.kv_heads * width;
  m.from_group = width;
  m.to_row = a.heads * width;
  m.to_group = width;
  m.share = a.heads / a.kv_heads;
  c.machine.launch(m);
}
/// Back: the first head of each that read the same.
void first_of_each(OpCall& c, const Attention& a, std::int64_t width, Array from, Array to) {
  const std::int64_t each = a.heads / a.kv_heads;
  c.machine.launch(Move{from, to, k_rows(a), a.kv_heads, width, a.heads * width, each * width,
                        a.kv_heads * width, width, 1, false});
}

Runs positions_of(const OpCall& c, std::int64_t cp_rank) {
  return runs_of(host::context_positions(c.in(1).tokens, c.shapes().cp, cp_rank));
}

/// Keys and values passed around a ring: each rank's output is put together from those of the
/// blocks.
void ring_forward(OpCall& c, Attention a, Array output, float* lse) {
  Circle& cp = c.circle(Bond::cp);
  const std::int64_t rows = q_rows(a) * a.heads, ks = c.in(1).count(), vs = c.in(2).count();
  const Buffer out(c, rows * a.v_width, Number::fp32), sums(c, rows, Number::fp32);
  const Buffer block(c, rows * a.v_width), block_lse(c, rows, Number::fp32);
  Buffer k(c, ks), v(c, vs), next_k(c, ks), next_v(c, vs);
  c.machine.copy(k.array().at, a.k.at, ks * bytes_of(c.number));
  c.machine.copy(v.array().at, a.v.at, vs * bytes_of(c.number));
  c.machine.clear(out.array().at, rows * a.v_width * 4);
  const Array sinks = a.sinks;
  for (int step = 0; step < cp.size(); ++step) {
    a.k = k;
    a.v = v;
    a.k_positions = positions_of(c, (cp.rank() - step + cp.size()) % cp.size());
    a.sinks = step == 0 ? sinks : Array{};
    auto* merged = static_cast<float*>(sums.array().at);
    auto* part = step == 0 ? merged : static_cast<float*>(block_lse.array().at);
    flash_forward(c, a, step == 0 ? out.array() : block.array(), part);
    if (step > 0)
      c.machine.launch(
          MergeBlocks{static_cast<float*>(out.array().at), merged, block, part, rows, a.v_width});
    if (step + 1 == cp.size()) break;
    cp.pass_on(k, ks, next_k);
    cp.pass_on(v, vs, next_v);
    std::swap(k, next_k);
    std::swap(v, next_v);
  }
  c.machine.launch(Scale{out, output, rows * a.v_width, 1, false});
  if (lse) c.machine.copy(lse, sums.array().at, rows * 4);
}

/// Gradients of a block travel with it and are home after a whole turn.
void ring_backward(OpCall& c, FlashSaved saved, const Target& dq, Array dsinks) {
  Circle& cp = c.circle(Bond::cp);
  const std::int64_t counts[4] = {c.in(1).count(), c.in(2).count(), c.in(1).count(),
                                  c.in(2).count()};
  const Number numbers[4] = {c.number, c.number, Number::fp32, Number::fp32};
  std::vector<Buffer> block, next;
  for (int i = 0; i < 4; ++i) {
    block.emplace_back(c, counts[i], numbers[i]);
    next.emplace_back(c, counts[i], numbers[i]);
  }
  c.machine.copy(block[0].array().at, saved.a.k.at, counts[0] * bytes_of(c.number));
  c.machine.copy(block[1].array().at, saved.a.v.at, counts[1] * bytes_of(c.number));
  for (std::size_t i = 2; i < 4; ++i) c.machine.clear(block[i].array().at, counts[i] * 4);
  for (int step = 0; step < cp.size(); ++step) {
    saved.a.k = block[0];
    saved.a.v = block[1];
    saved.a.k_positions = positions_of(c, (cp.rank() - step + cp.size()) % cp.size());
    flash_backward(c, saved, {dq.to, dq.add || step > 0}, {block[2], true}, {block[3], true},
                   step == 0 ? dsinks : Array{});
    for (std::size_t i = 0; i < 4; ++i) {
      cp.pass_on(block[i], counts[i], next[i]);
      std::swap(block[i], next[i]);
    }
  }
  put(c, block[2], c.dx(1), counts[2]);
  put(c, block[3], c.dx(2), counts[3]);
}

/// Of one sequence and one of the heads that read a key's head: products over all key heads at
/// once. f(turn, b): which of the heads, which sequence.
template <class F>
void for_each_batch(const Attention& a, F f) {
  for (std::int64_t b = 0; b < a.sequences; ++b)
    for (std::int64_t turn = 0; turn < a.heads / a.kv_heads; ++turn) f(turn, b);
}

/// Where such a batch's data lies in what is by query, and in what is by key.
struct Batch {
  const Attention& a;
  std::int64_t turn, b;
  std::int64_t each() const { return a.heads / a.kv_heads; }
  std::int64_t q_begin(std::int64_t width) const { return (b * a.heads + turn) * width; }
  std::int64_t q_stride(std::int64_t width) const { return a.sequences * a.heads * width; }
  std::int64_t q_step(std::int64_t width) const { return each() * width; }
  std::int64_t k_begin(std::int64_t width) const { return b * a.kv_heads * width; }
  std::int64_t k_stride(std::int64_t width) const { return a.sequences * a.kv_heads * width; }
};

/// c (queries x keys) = scale left right^T, of what is by query and by key.
void by_pairs(OpCall& c, const Attention& a, Array left, Array right, std::int64_t width,
              float scale, Array to) {
  for_each_batch(a, [&](std::int64_t turn, std::int64_t b) {
    const Batch at{a, turn, b};
    Product p;
    p.a = left.from(at.q_begin(width));
    p.b = right.from(at.k_begin(width));
    p.c = to.from(at.q_begin(a.keys));
    p.m = a.queries;
    p.n = a.keys;
    p.k = width;
    p.b_turned = true;
    p.scale = scale;
    p.a_stride = at.q_stride(width);
    p.b_stride = at.k_stride(width);
    p.c_stride = at.q_stride(a.keys);
    p.batch = a.kv_heads;
    p.a_step = at.q_step(width);
    p.b_step = width;
    p.c_step = at.q_step(a.keys);
    c.machine.multiply(p);
  });
}
/// to (by query) = pairs right (by key).
void to_queries(OpCall& c, const Attention& a, Array pairs, Array right, std::int64_t width,
                const Target& to) {
  for_each_batch(a, [&](std::int64_t turn, std::int64_t b) {
    const Batch at{a, turn, b};
    Product p;
    p.a = pairs.from(at.q_begin(a.keys));
    p.b = right.from(at.k_begin(width));
    p.c = to.to.from(at.q_begin(width));
    p.m = a.queries;
    p.n = width;
    p.k = a.keys;
    p.add = to.add;
    p.a_stride = at.q_stride(a.keys);
    p.b_stride = at.k_stride(width);
    p.c_stride = at.q_stride(width);
    p.batch = a.kv_heads;
    p.a_step = at.q_step(a.keys);
    p.b_step = width;
    p.c_step = at.q_step(width);
    c.machine.multiply(p);
  });
}
/// to (by key) = the sum over heads of pairs^T left (by query).
void to_keys(OpCall& c, const Attention& a, Array pairs, Array left, std::int64_t width,
             const Target& to) {
  for_each_batch(a, [&](std::int64_t turn, std::int64_t b) {
    const Batch at{a, turn, b};
    Product p;
    p.a = pairs.from(at.q_begin(a.keys));
    p.b = left.from(at.q_begin(width));
    p.c = to.to.from(at.k_begin(width));
    p.m = a.keys;
    p.n = width;
    p.k = a.queries;
    p.a_turned = true;
    p.add = to.add || turn > 0;
    p.a_stride = at.q_stride(a.keys);
    p.b_stride = at.q_stride(width);
    p.c_stride = at.k_stride(width);
    p.batch = a.kv_heads;
    p.a_step = at.q_step(a.keys);
    p.b_step = at.q_step(width);
    p.c_step = width;
    c.machine.multiply(p);
  });
}

/// Unfused attention under context parallelism sees keys and values of all its ranks side by side.
struct Gathered {
  Gathered(OpCall& c, Attention& a)
      : k(c, c.in(1).count() * c.shapes().cp), v(c, c.in(2).count() * c.shapes().cp) {
    Circle& cp = c.circle(Bond::cp);
    cp.all_gather(a.k, c.in(1).count(), k);
    cp.all_gather(a.v, c.in(2).count(), v);
    std::vector<std::int64_t> all;
    for (int r = 0; r < cp.size(); ++r)
      for (const std::int64_t p : host::context_positions(c.in(1).tokens, cp.size(), r))
        all.push_back(p);
    a.k = k;
    a.v = v;
    a.keys *= cp.size();
    a.k_positions = runs_of(all);
  }
  Buffer k, v;
};

void unfused_forward(OpCall& c, Attention a) {
  std::optional<Gathered> all;
  if (c.shapes().cp > 1) all.emplace(c, a);
  const std::int64_t pairs = q_rows(a) * a.heads * a.keys;
  std::optional<Buffer> scratch, rest;
  Softmax s;
  s.scores = c.part("scores");
  s.probs = c.part("probs");
  if (!s.probs) s.probs = scratch.emplace(c, pairs);
  s.dropped = c.part("dropped");
  s.drop = c.world.facts.attention_dropout;
  if (s.drop > 0) {
    s.mask = c.part_as<std::int8_t>("mask");
    if (!s.dropped) s.dropped = rest.emplace(c, pairs);
  }
  s.seed = c.world.facts.seed;
  s.step = c.step;
  s.op = c.op;
  s.first_sequence = c.first_sequence;
  s.a = a;
  s.in = s.scores ? s.scores : s.probs;
  by_pairs(c, a, a.q, a.k, a.q_width, a.scale(), s.in);
  c.machine.launch(s);
  to_queries(c, a, s.drop > 0 ? s.dropped : s.probs, a.v, a.v_width, {c.output, false});
}

void unfused_backward(OpCall& c, Attention a, Array dsinks) {
  std::optional<Gathered> all;
  if (c.shapes().cp > 1) all.emplace(c, a);
  const std::int64_t pairs = q_rows(a) * a.heads * a.keys;
  SoftmaxBackward s;
  s.probs = c.part("probs");
  s.drop = c.world.facts.attention_dropout;
  s.mask = c.part_as<std::int8_t>("mask");
  if (!s.probs || (s.drop > 0 && !s.mask)) saved_too_little(c);
  const Buffer dprobs(c, pairs);
  std::optional<Buffer> raw, rest;
  by_pairs(c, a, c.output_gradient, a.v, a.v_width, 1, dprobs);
  if (a.cap > 0) {
    s.raw = raw.emplace(c, pairs, Number::fp32);
    by_pairs(c, a, a.q, a.k, a.q_width, a.scale(), s.raw);
  }
  Array left = s.probs;
  if (s.drop > 0) left = s.dropped = rest.emplace(c, pairs);
  s.a = a;
  s.dprobs = dprobs;
  s.dsinks = dsinks;
  c.machine.launch(s);
  if (const Target dq = c.dx(0)) to_queries(c, a, dprobs, a.k, a.q_width, dq);
  if (!all) {
    if (const Target dk = c.dx(1)) to_keys(c, a, dprobs, a.q, a.q_width, dk);
    if (const Target dv = c.dx(2)) to_keys(c, a, left, c.output_gradient, a.v_width, dv);
    return;
  }
  const auto home = [&](Array data, Array by_query, std::size_t input, std::int64_t width) {
    const std::int64_t count = c.in(input).count();
    const Buffer whole(c, count * c.shapes().cp), part(c, count);
    to_keys(c, a, data, by_query, width, {whole, false});
    c.circle(Bond::cp).reduce_scatter(whole, count, part);
    put(c, part, c.dx(input), count);
  };
  home(dprobs, a.q, 1, a.q_width);
  home(left, c.output_gradient, 2, a.v_width);
}

}  // namespace

void attention_forward(OpCall& c) {
  const Attention a = shape_of(c);
  if (const Array all = c.part("k_expanded")) expand(c, a, a.q_width, a.k, all);
  if (const Array all = c.part("v_expanded")) expand(c, a, a.v_width, a.v, all);
  if (!c.world.facts.flash) return unfused_forward(c, a);
  auto* lse = c.part_as<float>("lse");
  if (c.shapes().cp > 1) return ring_forward(c, a, c.output, lse);
  if (library_forward(c, a, c.output, lse)) return;
  flash_forward(c, a, c.output, lse);
}

void attention_backward(OpCall& c) {
  Attention a = shape_of(c);
  std::optional<Buffer> k, v;
  if (const Array all = c.part("k_expanded"); !a.k && all) {
    a.k = k.emplace(c, k_rows(a) * a.kv_heads * a.q_width);
    first_of_each(c, a, a.q_width, all, a.k);
  }
  if (const Array all = c.part("v_expanded"); !a.v && all) {
    a.v = v.emplace(c, k_rows(a) * a.kv_heads * a.v_width);
    first_of_each(c, a, a.v_width, all, a.v);
  }
  if (!a.q || !a.k || !a.v) saved_too_little(c);
  const Array dsinks = c.what().sinks ? c.dw(0) : Array{};
  if (!c.world.facts.flash) return unfused_backward(c, a, dsinks);
  FlashSaved saved;
  saved.a = a;
  saved.doutput = c.output_gradient;
  saved.lse = c.part_as<float>("lse");
  if (!c.output || !saved.lse) saved_too_little(c);
  if (c.shapes().cp == 1 && library_backward(c, a, saved.lse)) return;
  const std::int64_t rows = q_rows(a) * a.heads;
  const Buffer dots(c, rows, Number::fp32);
  saved.dots = static_cast<const float*>(dots.array().at);
  c.machine.launch(
      RowDots{c.output, c.output_gradient, static_cast<float*>(dots.array().at), rows, a.v_width});
  if (c.shapes().cp > 1) return ring_backward(c, saved, c.dx(0), dsinks);
  flash_backward(c, saved, c.dx(0), c.dx(1), c.dx(2), dsinks);
}

}  // namespace plimsoll::runtime::cuda
