// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/op_call.hpp"
#include "runtime/host/op_family.hpp"

namespace plimsoll::runtime::cuda {

void multiply(OpCall& c, Product p) {
  if (p.a.number == p.b.number) return c.machine.multiply(p);
  PLIMSOLL_ASSERT(p.batch == 1 && p.a_stride == 0 && p.b_stride == 0);
  const bool first = p.a.number == Number::fp32;
  const std::int64_t count = first ? p.m * p.k : p.k * p.n;
  const Buffer cast(c, count, Number::bf16);
  c.machine.launch(Scale{first ? p.a : p.b, cast, count, 1, false});
  (first ? p.a : p.b) = cast;
  c.machine.multiply(p);
}

namespace {

Array gather_rows(OpCall& c, const ValueShape& v, Array part, const Buffer& whole) {
  c.circle(Bond::tp).all_gather(part, v.count(), whole);
  return whole;
}

void reduce_output(OpCall& c, Array partial) {
  Circle& tp = c.circle(Bond::tp);
  if (c.out().sharded)
    tp.reduce_scatter(partial, c.out().count(), c.output);
  else if (tp.size() > 1)
    tp.all_reduce(partial, c.out().count());
}

/// y (rows x cols) = x w; a tied head's weight is stored the other way around.
void product(OpCall& c, Array x, Array w, Array y, std::int64_t rows) {
  Product p;
  p.a = x;
  p.b = w;
  p.c = y;
  p.m = rows;
  p.n = c.weight().cols;
  p.k = c.weight().rows;
  p.b_turned = c.transposed;
  multiply(c, p);
}

void product_backward(OpCall& c, Array x, Array w, Array dy, const Target& dx, Array dw,
                      std::int64_t rows) {
  const std::int64_t k = c.weight().rows, n = c.weight().cols;
  Product p;
  if (dx) {
    p.a = dy;
    p.b = w;
    p.c = dx.to;
    p.m = rows;
    p.n = k;
    p.k = n;
    p.b_turned = !c.transposed;
    p.add = dx.add;
    multiply(c, p);
  }
  if (!dw) return;
  if (!x) saved_too_little(c);
  p = {};
  p.a = c.transposed ? dy : x;
  p.b = c.transposed ? x : dy;
  p.c = dw;
  p.m = c.transposed ? n : k;
  p.n = c.transposed ? k : n;
  p.k = rows;
  p.a_turned = true;
  p.add = true;
  multiply(c, p);
}

bool ends_experts(const OpCall& c) {
  for (OpId o = c.op + 1; o < c.program().ops.size(); ++o)
    if (c.program().ops[o].kind == OpKind::combine)
      return c.program().ops[o].inputs[0] == c.what().output;
  return false;
}

/// Stretches of experts with the same number of rows: each is one batched product.
template <class F>
void for_each_batch(const Counts& of_expert, F f) {
  std::int64_t row = 0;
  for (std::size_t e = 0; e < of_expert.size();) {
    std::size_t end = e + 1;
    while (end < of_expert.size() && of_expert[end] == of_expert[e]) ++end;
    const auto batch = static_cast<std::int64_t>(end - e);
    if (of_expert[e] > 0) f(static_cast<std::int64_t>(e), batch, of_expert[e], row);
    row += batch * of_expert[e];
    e = end;
  }
}

bool has_bias(OpCall& c) {
  return (c.what().split != Split::row || c.peers.circle(Bond::etp).rank() == 0) && c.w(1).there();
}

/// Grouped products: each expert's rows through its own matrix. The last linear's rows are weighted
/// by their scores.
void expert_linear_forward(OpCall& c) {
  const std::int64_t k = c.weight().rows, n = c.weight().cols, rows = c.routes->rows;
  Array x = c.inputs[0];
  std::optional<Buffer> scaled;
  if (ends_experts(c)) {
    scaled.emplace(c, rows * k);
    c.machine.launch(ScaleRows{x, {c.routes->scores.at(), Number::fp32}, *scaled, rows, k});
    x = *scaled;
  }
  const Array w = c.w(0);
  for_each_batch(c.routes->of_expert, [&](std::int64_t e, std::int64_t batch, std::int64_t each,
                                          std::int64_t row) {
    Product p;
    p.a = x.from(row * k);
    p.b = w.from(e * k * n);
    p.c = c.output.from(row * n);
    p.m = each;
    p.n = n;
    p.k = k;
    p.batch = batch;
    p.a_step = each * k;
    p.b_step = k * n;
    p.c_step = each * n;
    c.machine.multiply(p);
    if (!has_bias(c)) return;
    for (std::int64_t i = 0; i < batch; ++i)
      c.machine.launch(AddBias{c.w(1).from((e + i) * n), p.c.from(i * each * n), each, n});
  });
  const std::int64_t left = c.out().rows - rows;
  if (left > 0) c.machine.clear(c.output.from(rows * n).at, left * n * bytes_of(c.output.number));
}

void expert_linear_backward(OpCall& c) {
  const std::int64_t k = c.weight().rows, n = c.weight().cols, rows = c.routes->rows;
  const bool weighted = ends_experts(c);
  const Array x = c.inputs[0], dw = c.dw(0);
  if (!x && (weighted || dw)) saved_too_little(c);
  std::optional<Buffer> scaled, dz;
  Target dx = c.dx(0);
  const Array scores{c.routes->scores.at(), Number::fp32};
  Array read = x;
  Target made = dx;
  if (weighted) {
    scaled.emplace(c, rows * k);
    dz.emplace(c, rows * k);
    c.machine.launch(ScaleRows{x, scores, *scaled, rows, k});
    read = *scaled;
    made = {*dz, false};
  }
  const Array w = c.w(0);
  for_each_batch(c.routes->of_expert, [&](std::int64_t e, std::int64_t batch, std::int64_t each,
                                          std::int64_t row) {
    const Array dy = c.output_gradient.from(row * n);
    Product p;
    p.batch = batch;
    if (made) {
      p.a = dy;
      p.b = w.from(e * k * n);
      p.c = made.to.from(row * k);
      p.m = each;
      p.n = k;
      p.k = n;
      p.b_turned = true;
      p.add = made.add;
      p.a_step = each * n;
      p.b_step = k * n;
      p.c_step = each * k;
      c.machine.multiply(p);
    }
    if (dw) {
      p.a = read.from(row * k);
      p.b = dy;
      p.c = dw.from(e * k * n);
      p.m = k;
      p.n = n;
      p.k = each;
      p.a_turned = true;
      p.b_turned = false;
      p.add = true;
      p.a_step = each * k;
      p.b_step = each * n;
      p.c_step = k * n;
      c.machine.multiply(p);
    }
    if (has_bias(c) && c.dw(1))
      for (std::int64_t i = 0; i < batch; ++i)
        c.machine.launch(ColumnSums{dy.from(i * each * n), c.dw(1).from((e + i) * n), each, n});
  });
  if (weighted)
    c.machine.launch(ScaleRowsBackward{
        x, scores, *dz, dx.to, {c.routes->score_gradients.at(), Number::fp32}, rows, k, dx.add});
  const std::int64_t left = c.in().rows - rows;
  if (left > 0 && dx && !dx.add)
    c.machine.clear(dx.to.from(rows * k).at, left * k * bytes_of(dx.to.number));
}

}  // namespace

void linear_forward(OpCall& c) {
  const Op& op = c.what();
  const ValueShape &in = c.in(), &out = c.out();
  if (op.experts != kNone) return expert_linear_forward(c);
  const bool column = op.split == Split::column, row = op.split == Split::row;
  Array x = c.inputs[0];
  std::optional<Buffer> whole;
  if (column && in.sharded) {
    whole.emplace(c, in.count() * c.shapes().tp, x.number, "gathered input");
    x = gather_rows(c, in, x, *whole);
  } else if (row && out.sharded) {
    whole.emplace(c, out.count() * c.shapes().tp, c.output.number,
                  "output before its reduce-scatter");
  }
  const Array y = row && whole ? whole->array() : c.output;
  product(c, x, c.w(0), y, row ? in.rows : out.rows);
  if (row) reduce_output(c, y);
  if (c.w(1)) c.machine.launch(AddBias{c.w(1), c.output, out.rows, out.width});
}

void linear_backward(OpCall& c) {
  const Op& op = c.what();
  const ValueShape &in = c.in(), &out = c.out();
  if (op.experts != kNone) return expert_linear_backward(c);
  const bool column = op.split == Split::column, row = op.split == Split::row;
  if (c.dw(1)) c.machine.launch(ColumnSums{c.output_gradient, c.dw(1), out.rows, out.width});
  if (row) {
    std::optional<Buffer> room;
    if (out.sharded)
      room.emplace(c, out.count() * c.shapes().tp, c.output_gradient.number,
                   "gathered gradient of the output");
    const Array dy = room ? gather_rows(c, out, c.output_gradient, *room) : c.output_gradient;
    return product_backward(c, c.inputs[0], c.w(0), dy, c.dx(0), c.dw(0), in.rows);
  }
  if (!column || c.shapes().tp == 1)
    return product_backward(c, c.inputs[0], c.w(0), c.output_gradient, c.dx(0), c.dw(0), in.rows);
  // All ranks have a part of the input's gradient.
  Array x = c.inputs[0];
  std::optional<Buffer> whole, sum, part;
  const std::int64_t count = in.sharded ? in.count() * c.shapes().tp : in.count();
  if (in.sharded && c.dw(0)) {
    if (!x) saved_too_little(c);
    whole.emplace(c, count, x.number, "gathered input");
    x = gather_rows(c, in, x, *whole);
  }
  const Target dx = c.dx(0);
  Target all;
  if (dx) {
    sum.emplace(c, count, dx.to.number, "gradient of the input before its reduce-scatter");
    all.to = *sum;
  }
  product_backward(c, x, c.w(0), c.output_gradient, all, c.dw(0), out.rows);
  if (!dx) return;
  Circle& tp = c.circle(Bond::tp);
  if (!in.sharded) {
    tp.all_reduce(*sum, count);
    return put(c, *sum, dx, count);
  }
  if (!dx.add) return tp.reduce_scatter(*sum, in.count(), dx.to);
  part.emplace(c, in.count(), dx.to.number);
  tp.reduce_scatter(*sum, in.count(), *part);
  put(c, *part, dx, in.count());
}

namespace {

/// Every rank looks up what its part of the table has.
Embed embed(OpCall& c) {
  const WeightShape& table = c.weight();
  Embed e;
  e.ids = c.part_as<std::int64_t>("ids");
  e.rows = c.shapes().full_rows(c.out());
  e.width = table.cols;
  e.first_row = table.row_of.front();
  e.table_rows = table.rows;
  e.seed = c.world.facts.seed;
  e.stream = host::stream_of(c.program(), c.program().values[c.what().output]);
  e.first_sequence = c.first_sequence;
  e.sequences = c.shapes().mbs;
  e.vocab = c.what().vocab;
  e.positions = runs_of(c.shapes().full_positions(c.out()));
  return e;
}

}  // namespace

void embedding_forward(OpCall& c) {
  Embed e = embed(c);
  e.table = c.w(0);
  std::optional<Buffer> whole;
  if (c.out().sharded)
    whole.emplace(c, e.rows * e.width, c.output.number, "output before its reduce-scatter");
  e.y = whole ? whole->array() : c.output;
  c.machine.launch(e);
  if (c.what().split != Split::none) reduce_output(c, e.y);
}

void embedding_backward(OpCall& c) {
  if (!c.dw(0)) return;
  Embed e = embed(c);
  if (!e.ids) saved_too_little(c);
  e.backward = true;
  e.table = c.dw(0);
  std::optional<Buffer> room;
  e.y = c.output_gradient;
  if (c.out().sharded) {
    room.emplace(c, e.rows * e.width, e.y.number, "gathered gradient of the output");
    e.y = gather_rows(c, c.out(), e.y, *room);
  }
  c.machine.launch(e);
}

void positions_forward(OpCall& c) {
  c.machine.launch(PositionRows{c.w(0), c.output, runs_of(c.out().positions), c.out().rows,
                                c.shapes().mbs, c.out().width, false});
}

void positions_backward(OpCall& c) {
  if (c.dw(0))
    c.machine.launch(PositionRows{c.dw(0), c.output_gradient, runs_of(c.out().positions),
                                  c.out().rows, c.shapes().mbs, c.out().width, true});
}

namespace {

/// A norm on this rank; `divided`: over which group its rows lie, nullptr: here in whole.
struct Norm {
  explicit Norm(OpCall& c) {
    const Op& op = c.what();
    const ValueShape& v = c.in();
    const Value& value = c.program().values[op.inputs[0]];
    rows.whole = value.width / op.groups;
    rows.width = op.groups > 1 ? rows.whole : v.width;
    rows.rows = v.count() / rows.width;
    rows.centred = op.kind == OpKind::layernorm;
    rows.plus_one = op.plus_one;
    rows.w = c.w(0);
    rows.bias = c.w(1);
    if (!v.divided || op.groups > 1) return;
    divided = &c.circle(value.experts != kNone ? Bond::etp : Bond::tp);
    if (value.units > 0 && value.units < divided->size())
      copies = static_cast<float>(divided->size()) / static_cast<float>(value.units);
  }
  /// Sums over the ranks, a head that several of them have counted once.
  void total(OpCall& c, float* sums, std::int64_t count) const {
    const Array all{sums, Number::fp32};
    divided->all_reduce(all, count);
    if (copies > 1) c.machine.launch(Scale{all, all, count, 1 / copies, false});
  }
  /// Mean and 1/deviation of rows that lie on several ranks.
  void statistics(OpCall& c, Array x, float* pairs) const {
    const auto whole = static_cast<float>(rows.whole);
    const Buffer means(c, rows.rows, Number::fp32), sums(c, rows.rows, Number::fp32);
    auto* mean = rows.centred ? static_cast<float*>(means.array().at) : nullptr;
    auto* sum = static_cast<float*>(sums.array().at);
    if (mean) {
      c.machine.launch(RowSums{x, rows.rows, rows.width, false, nullptr, mean});
      total(c, mean, rows.rows);
      c.machine.launch(FinishSums{mean, nullptr, nullptr, rows.rows, whole});
    }
    c.machine.launch(RowSums{x, rows.rows, rows.width, true, mean, sum});
    total(c, sum, rows.rows);
    c.machine.launch(FinishSums{sum, pairs, mean, rows.rows, whole});
  }

  NormRows rows;
  Circle* divided = nullptr;
  float copies = 1;
};

}  // namespace

void norm_forward(OpCall& c) {
  Norm n(c);
  NormForward k;
  std::optional<Buffer> pairs;
  n.rows.x = c.inputs[0];
  if (n.divided) {
    pairs.emplace(c, 2 * n.rows.rows, Number::fp32);
    n.statistics(c, c.inputs[0], static_cast<float*>(pairs->array().at));
    n.rows.given = static_cast<const float*>(pairs->array().at);
  }
  n.rows.y = c.output;
  n.rows.normalized = c.part("normalized");
  k.norm = n.rows;
  k.stats = c.part("stats");
  c.machine.launch(k);
}

void norm_backward(OpCall& c) {
  Norm n(c);
  NormBackward k;
  k.stats = c.part("stats");
  n.rows.x = c.inputs[0];
  if (!n.rows.x && k.stats) {
    n.rows.normalized = c.part("normalized");
    if (!n.rows.normalized) n.rows.y = c.output;
  }
  if (!n.rows.x && !n.rows.normalized && !n.rows.y) saved_too_little(c);
  std::optional<Buffer> given, sums;
  const Buffer kept(c, 2 * n.rows.rows, Number::fp32);
  k.kept = static_cast<float*>(kept.array().at);
  if (n.divided && !k.stats) {
    given.emplace(c, 2 * n.rows.rows, Number::fp32);
    n.statistics(c, n.rows.x, static_cast<float*>(given->array().at));
    n.rows.given = static_cast<const float*>(given->array().at);
  }
  k.norm = n.rows;
  k.dy = c.output_gradient;
  const Target dx = c.dx(0);
  if (n.divided || !dx) {
    sums.emplace(c, 2 * n.rows.rows, Number::fp32);
    k.sums = static_cast<float*>(sums->array().at);
    k.only_sums = true;
    c.machine.launch(k);
    if (n.divided) n.total(c, k.sums, 2 * n.rows.rows);
    k.only_sums = false;
  }
  if (dx) {
    k.dx = dx.to;
    k.add = dx.add;
    c.machine.launch(k);
  }
  if (c.dw(0) || c.dw(1))
    c.machine.launch(NormWeights{n.rows, c.output_gradient, c.dw(0), c.dw(1), k.kept});
}

}  // namespace plimsoll::runtime::cuda
