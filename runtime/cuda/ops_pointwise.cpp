// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/op_call.hpp"
#include "runtime/host/op_family.hpp"

namespace plimsoll::runtime::cuda {

namespace {

double share(const OpCall& c) { return c.what().p < 0 ? c.world.facts.dropout : c.what().p; }

float cap_of(const OpCall& c) { return static_cast<float>(c.what().cap.to_double()); }

}  // namespace

void unary_forward(OpCall& c) {
  c.machine.launch(Unary{c.what().kind, cap_of(c), c.inputs[0], c.output, c.out().count()});
}

void unary_backward(OpCall& c) {
  const OpKind kind = c.what().kind;
  const Target dx = c.dx(0);
  if (!dx) return;
  const bool from_output = kind == OpKind::relu || kind == OpKind::tanh || kind == OpKind::softcap;
  const Array x = c.inputs[0], y = x || !from_output ? Array{} : c.output;
  if (!x && !y) saved_too_little(c);
  c.machine.launch(
      UnaryBackward{kind, cap_of(c), x, y, c.output_gradient, dx.to, c.out().count(), dx.add});
}

void add_forward(OpCall& c) {
  c.machine.launch(Pair{c.inputs[0], c.inputs[1], c.output, c.out().count(), false, false});
}

void add_backward(OpCall& c) {
  for (std::size_t k = 0; k < 2; ++k) {
    const Target dx = c.dx(k);
    if (dx && dx.to.at != c.output_gradient.at) put(c, c.output_gradient, dx, c.out().count());
  }
}

void mul_forward(OpCall& c) {
  c.machine.launch(Pair{c.inputs[0], c.inputs[1], c.output, c.out().count(), true, false});
}

void mul_backward(OpCall& c) {
  if (!c.inputs[0] || !c.inputs[1]) saved_too_little(c);
  for (std::size_t k = 0; k < 2; ++k)
    if (const Target dx = c.dx(k))
      c.machine.launch(
          Pair{c.output_gradient, c.inputs[1 - k], dx.to, c.out().count(), true, dx.add});
}

void glu_forward(OpCall& c) {
  c.machine.launch(Glu{c.what().activation, c.inputs[0], c.inputs[1], c.part("activated"), c.output,
                       c.out().count()});
}

void glu_backward(OpCall& c) {
  if (!c.inputs[0] || !c.inputs[1]) saved_too_little(c);
  const Target gate = c.dx(0), up = c.dx(1);
  c.machine.launch(GluBackward{c.what().activation, c.inputs[0], c.inputs[1], c.part("activated"),
                               c.output_gradient, gate.to, up.to, c.out().count(), gate.add,
                               up.add});
}

namespace {

/// Heads are the units that the value is split in; a value without is one head.
Rope turn(const OpCall& c, Array from, Array to) {
  const ValueShape& v = c.out();
  const Value& value = c.program().values[c.what().output];
  Rope r;
  r.x = from;
  r.y = to;
  r.head_dim = value.units > 0 ? value.width / value.units : value.width;
  r.last = c.what().last > 0 ? c.what().last : r.head_dim;
  r.positions = runs_of(v.positions);
  r.rows = v.rows;
  r.sequences = c.shapes().mbs;
  r.heads = v.width / r.head_dim;
  return r;
}

}  // namespace

void rope_forward(OpCall& c) { c.machine.launch(turn(c, c.inputs[0], c.output)); }

void rope_backward(OpCall& c) {
  const Target dx = c.dx(0);
  if (!dx) return;
  Rope r = turn(c, c.output_gradient, dx.to);
  r.backward = true;
  r.add = dx.add;
  c.machine.launch(r);
}

namespace {

/// How concat puts its inputs side by side: see for_each_piece() in runtime/host/ops_pointwise.cpp.
struct Pieces {
  explicit Pieces(const OpCall& c) {
    const Op& op = c.what();
    length[0] = c.program().values[op.inputs[0]].width / op.groups;
    alike = c.program().values[op.inputs[1]].split == Split::column;
    length[1] = c.program().values[op.inputs[1]].width / (alike ? op.groups : 1);
    groups = c.in(0).width / length[0];
    rows = c.out().rows;
    width = c.out().width;
  }
  /// Elements of a row of input \a k.
  std::int64_t row(std::size_t k) const {
    return k == 1 && !alike ? length[1] : groups * length[k];
  }
  std::int64_t length[2] = {}, groups = 1, rows = 0, width = 0;
  bool alike = false;
};

}  // namespace

void concat_forward(OpCall& c) {
  const Pieces p(c);
  for (std::size_t k = 0; k < 2; ++k) {
    std::optional<Buffer> whole;
    Array from = c.inputs[k];
    if (c.in(k).sharded && !c.out().sharded) {
      whole.emplace(c, c.in(k).count() * c.shapes().tp, from.number);
      c.circle(Bond::tp).all_gather(from, c.in(k).count(), *whole);
      from = *whole;
    }
    Move m;
    m.from = from;
    m.to = c.output.from(k == 0 ? 0 : p.length[0]);
    m.rows = p.rows;
    m.groups = p.groups;
    m.length = p.length[k];
    m.from_row = p.row(k);
    m.from_group = k == 1 && !p.alike ? 0 : p.length[k];
    m.to_row = p.width;
    m.to_group = p.length[0] + p.length[1];
    c.machine.launch(m);
  }
}

/// A whole part of a divided value has a part of its gradient on every rank.
void concat_backward(OpCall& c) {
  const Pieces p(c);
  for (std::size_t k = 0; k < 2; ++k) {
    const Target dx = c.dx(k);
    if (!dx) continue;
    const std::int64_t count = c.in(k).count();
    const bool summed = !c.in(k).divided && c.out().divided;
    std::optional<Buffer> sum, part;
    Target to = dx;
    if (summed) {
      sum.emplace(c, count * (c.in(k).sharded ? c.shapes().tp : 1), dx.to.number);
      to = {*sum, false};
    }
    const Array from = c.output_gradient.from(k == 0 ? 0 : p.length[0]);
    const std::int64_t group = p.length[0] + p.length[1];
    if (k == 1 && !p.alike)
      c.machine.launch(SumGroups{from, to.to, p.rows, p.groups, p.length[1], p.width, group,
                                 p.length[1], to.add});
    else
      c.machine.launch(Move{from, to.to, p.rows, p.groups, p.length[k], p.width, group, p.row(k),
                            p.length[k], 1, to.add});
    if (!summed) continue;
    if (c.in(k).sharded) {
      part.emplace(c, count, dx.to.number);
      c.circle(Bond::tp).reduce_scatter(*sum, count, *part);
      put(c, *part, dx, count);
    } else {
      c.circle(Bond::tp).all_reduce(*sum, count);
      put(c, *sum, dx, count);
    }
  }
}

void dropout_forward(OpCall& c) {
  const double p = share(c);
  const ValueShape& v = c.out();
  if (p <= 0) return put(c, c.inputs[0], {c.output, false}, v.count());
  Dropout d;
  d.x = c.inputs[0];
  d.y = c.output;
  d.mask = c.part_as<std::int8_t>("mask");
  d.share = p;
  d.seed = c.world.facts.seed;
  d.step = c.step;
  d.op = c.op;
  d.first_sequence = c.first_sequence;
  d.sequences = c.shapes().mbs;
  d.first_column = v.first_column;
  d.rows = v.rows;
  d.width = v.width;
  d.positions = runs_of(v.positions);
  c.machine.launch(d);
}

void dropout_backward(OpCall& c) {
  const double p = share(c);
  const Target dx = c.dx(0);
  if (!dx) return;
  const auto* mask = c.part_as<std::int8_t>("mask");
  if (p > 0 && !mask) saved_too_little(c);
  c.machine.launch(DropoutBackward{c.output_gradient, dx.to, mask, p, c.out().count(), dx.add});
}

// --- the ends of the model -----------------------------------------------------------------------

namespace {

LossRows loss_rows(OpCall& c, float* out) {
  const ValueShape& v = c.in();
  LossRows r;
  r.logits = c.inputs[0];
  r.out = out;
  r.rows = v.rows;
  r.width = v.width;
  r.first = v.first_column;
  r.vocab = c.what().vocab;
  r.seed = c.world.facts.seed;
  r.stream = host::stream_of(c.program(), c.program().values[c.what().inputs[0]]);
  r.first_sequence = c.first_sequence;
  r.sequences = c.shapes().mbs;
  r.positions = runs_of(v.positions);
  return r;
}

/// The rows' numbers over all ranks that have columns of them.
void make_rows(OpCall& c, const LossRows& r) {
  c.machine.launch(r);
  if (!c.in().divided) return;
  const Buffer most(c, r.rows, Number::fp32), sums(c, 2 * r.rows, Number::fp32);
  LossShare s;
  s.rows_of = r.out;
  s.rows = r.rows;
  s.most = static_cast<float*>(most.array().at);
  s.sums = static_cast<float*>(sums.array().at);
  s.take = true;
  c.machine.launch(s);
  c.circle(Bond::tp).all_reduce(most, r.rows, true);
  s.take = false;
  c.machine.launch(s);
  c.circle(Bond::tp).all_reduce(sums, 2 * r.rows);
  s.put_back = true;
  c.machine.launch(s);
}

}  // namespace

/// A loss that every rank of the tensor group has in whole is counted by the first.
void cross_entropy_forward(OpCall& c) {
  const Buffer out(c, 3 * c.in().rows, Number::fp32);
  const LossRows r = loss_rows(c, static_cast<float*>(out.array().at));
  make_rows(c, r);
  if (c.loss && (c.in().sharded || c.shapes().rank.tp == 0))
    c.machine.launch(LossTotal{r.out, c.loss, r.rows});
}

void cross_entropy_backward(OpCall& c) {
  if (!c.inputs[0]) saved_too_little(c);
  const Target dx = c.dx(0);
  if (!dx && !c.in().divided) return;
  const Buffer out(c, 3 * c.in().rows, Number::fp32);
  const LossRows r = loss_rows(c, static_cast<float*>(out.array().at));
  make_rows(c, r);
  if (dx)
    c.machine.launch(LossBackward{r, dx.to, static_cast<float>(c.world.facts.loss_scale), dx.add});
}

void input_forward(OpCall& c) {
  const ValueShape& v = c.out();
  c.machine.launch(Pixels{c.output, v.rows, v.width, v.first_column, c.first_sequence,
                          c.shapes().mbs, runs_of(v.positions), c.world.facts.seed});
}

void input_backward(OpCall&) {}

/// The second input's tokens take the first places of the sequence.
void merge_forward(OpCall& c) {
  const std::int64_t n = c.out().width, images = std::min(c.in(1).rows, c.out().rows);
  put(c, c.inputs[1], {c.output, false}, images * n);
  put(c, c.inputs[0].from(images * n), {c.output.from(images * n), false},
      (c.out().rows - images) * n);
}

void merge_backward(OpCall& c) {
  const std::int64_t n = c.out().width, images = std::min(c.in(1).rows, c.out().rows);
  if (const Target dx = c.dx(0)) {
    if (!dx.add) c.machine.clear(dx.to.at, images * n * bytes_of(dx.to.number));
    put(c, c.output_gradient.from(images * n), {dx.to.from(images * n), dx.add},
        (c.out().rows - images) * n);
  }
  if (const Target dx = c.dx(1)) put(c, c.output_gradient, dx, images * n);
}

// --- which op
// --------------------------------------------------------------------------------------

#define PLIMSOLL_CUDA_OPS(direction)       \
  switch (c.what().kind) {                 \
    case OpKind::embedding:                \
      return embedding_##direction(c);     \
    case OpKind::learned_positions:        \
      return positions_##direction(c);     \
    case OpKind::linear:                   \
      return linear_##direction(c);        \
    case OpKind::rmsnorm:                  \
    case OpKind::layernorm:                \
      return norm_##direction(c);          \
    case OpKind::gelu:                     \
    case OpKind::relu:                     \
    case OpKind::squared_relu:             \
    case OpKind::silu:                     \
    case OpKind::tanh:                     \
    case OpKind::softcap:                  \
      return unary_##direction(c);         \
    case OpKind::add:                      \
      return add_##direction(c);           \
    case OpKind::mul:                      \
      return mul_##direction(c);           \
    case OpKind::glu:                      \
      return glu_##direction(c);           \
    case OpKind::rope:                     \
      return rope_##direction(c);          \
    case OpKind::concat:                   \
      return concat_##direction(c);        \
    case OpKind::dropout:                  \
      return dropout_##direction(c);       \
    case OpKind::attention:                \
      return attention_##direction(c);     \
    case OpKind::experts:                  \
      return experts_##direction(c);       \
    case OpKind::combine:                  \
      return combine_##direction(c);       \
    case OpKind::cross_entropy:            \
      return cross_entropy_##direction(c); \
    case OpKind::input:                    \
      return input_##direction(c);         \
    case OpKind::merge:                    \
      return merge_##direction(c);         \
    case OpKind::mamba2:                   \
      return mamba_##direction(c);         \
    case OpKind::relative_bias:            \
      break;                               \
  }                                        \
  PLIMSOLL_ASSERT(false)

void run_forward(OpCall& c) { PLIMSOLL_CUDA_OPS(forward); }
void run_backward(OpCall& c) { PLIMSOLL_CUDA_OPS(backward); }

}  // namespace plimsoll::runtime::cuda
