// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/op_call.hpp"

// A Mamba-2 mixer: the order of things of runtime/host/ops_mamba.cpp, which has the formulas.

namespace plimsoll::runtime::cuda {

namespace {

enum { kIn, kConv, kConvBias, kDtBias, kA, kD, kNorm, kOut };

MambaSizes sizes_of(const OpCall& c) {
  const Op& op = c.what();
  MambaSizes m;
  m.sequences = c.shapes().mbs;
  m.tokens = c.in().tokens;
  m.rows = m.tokens * m.sequences;
  m.dim = op.head_dim;
  m.state = op.state;
  m.conv = op.conv;
  m.heads = c.weight(kA).cols;
  m.groups = m.heads / (op.heads / op.groups);
  m.inner = m.heads * m.dim;
  m.mixed = m.inner + 2 * m.groups * m.state;
  m.projected = m.inner + m.mixed + m.heads;
  return m;
}

/// A part that the op keeps where it has memory for it, else scratch.
class Part {
 public:
  Part(OpCall& c, std::string_view name, std::int64_t count, std::optional<Number> number = {})
      : kept_(c.part(name)) {
    if (!kept_) room_.emplace(c, count, number);
  }
  Array array() const { return room_ ? room_->array() : kept_; }
  operator Array() const { return array(); }  // NOLINT: it is one
  bool is_kept() const { return !room_; }

 private:
  Array kept_;
  std::optional<Buffer> room_;
};

/// Steps of the forward, for either direction.
struct Mixer {
  explicit Mixer(OpCall& call) : c(call), m(sizes_of(call)) {}
  OpCall& c;
  MambaSizes m;

  void convolve(Array projection, Array convolved, Array dt) {
    c.machine.launch(
        MambaConvolve{m, projection, c.w(kConv), c.w(kConvBias), c.w(kDtBias), convolved, dt});
  }
  MambaScanInput scan_input(Array convolved, Array dt, const Room& states) {
    MambaScanInput in;
    in.m = m;
    in.convolved = convolved;
    in.dt = dt;
    in.a = c.w(kA);
    in.d = c.w(kD);
    in.room.states = states.as<float>();
    return in;
  }
  Room room_of_states() { return {c.scratch, items() * MambaRoom::elements(m) * 4}; }
  std::int64_t items() const { return m.heads * m.sequences; }
  /// The row of a norm is a group of inner columns; its scale is one a column of all.
  NormRows norm_rows(Array x) const {
    NormRows n;
    n.rows = m.rows * m.groups;
    n.width = n.whole = m.inner / m.groups;
    n.x = x;
    return n;
  }
  /// unit = the normed rows, not scaled; stats where they are there.
  void norm(Array gated, Array unit, Array stats) {
    NormForward f;
    f.norm = norm_rows(gated);
    f.norm.y = unit;
    f.stats = stats;
    c.machine.launch(f);
  }
  void scale(Array x, Array y) {
    c.machine.launch(ScaleColumns{x, c.w(kNorm), y, m.rows, m.inner});
  }
  /// y (rows x n) = x w, or x (rows x k) = y w^T where turned.
  void product(Array x, Array w, Array y, std::int64_t k, std::int64_t n, bool turned = false) {
    Product p;
    p.a = x;
    p.b = w;
    p.c = y;
    p.m = m.rows;
    p.n = turned ? k : n;
    p.k = turned ? n : k;
    p.b_turned = turned;
    multiply(c, p);
  }
  /// dw (k x n) += x^T dy.
  void weight_gradient(Array x, Array dy, Array dw, std::int64_t k, std::int64_t n) {
    if (!dw) return;
    Product p;
    p.a = x;
    p.b = dy;
    p.c = dw;
    p.m = k;
    p.n = n;
    p.k = m.rows;
    p.a_turned = true;
    p.add = true;
    multiply(c, p);
  }
};

}  // namespace

void mamba_forward(OpCall& c) {
  Mixer mixer(c);
  const MambaSizes& m = mixer.m;
  const std::int64_t hidden = c.in().width;
  Circle& tp = c.circle(Bond::tp);
  std::optional<Buffer> whole, partial;
  Array x = c.inputs[0];
  if (c.in().sharded) {
    whole.emplace(c, m.rows * hidden, x.number, "gathered input");
    tp.all_gather(x, c.in().count(), *whole);
    x = *whole;
    partial.emplace(c, m.rows * hidden, c.output.number, "output before its reduce-scatter");
  }
  const Part projection(c, "projected", m.rows * m.projected);
  const Part convolved(c, "convolved", m.rows * m.mixed);
  const Part dt(c, "dt", m.rows * m.heads, Number::fp32);
  const Part scanned(c, "scanned", m.rows * m.inner);
  const Part normalized(c, "normalized", m.rows * m.inner);
  mixer.product(x, c.w(kIn), projection, hidden, m.projected);
  mixer.convolve(projection, convolved, dt);
  {
    const Room states = mixer.room_of_states();
    c.machine.launch(MambaScan{mixer.scan_input(convolved, dt, states), scanned});
  }
  const Buffer gated(c, m.rows * m.inner);
  c.machine.launch(MambaGate{m, projection, scanned, gated});
  mixer.norm(gated, normalized, c.part("stats"));
  mixer.scale(normalized, normalized);
  const Array y = partial ? partial->array() : c.output;
  mixer.product(normalized, c.w(kOut), y, m.inner, hidden);
  if (partial)
    tp.reduce_scatter(y, c.out().count(), c.output);
  else if (tp.size() > 1)
    tp.all_reduce(y, c.out().count());
}

namespace {

/// To what in_proj made, and the gradients of all between in_proj and out_proj.
void mixer_backward(OpCall& c, Mixer& mixer, Array projection, const Part& scanned,
                    const Part& convolved, const Part& dt, Array dnormalized, Array dprojection) {
  const MambaSizes& m = mixer.m;
  const Buffer dscanned(c, m.rows * m.inner);
  {
    const Buffer gated(c, m.rows * m.inner), unit(c, m.rows * m.inner);
    c.machine.launch(MambaGate{m, projection, scanned, gated});
    mixer.norm(gated, unit, {});
    if (const Array dw = c.dw(kNorm)) {
      c.machine.launch(Pair{dnormalized, unit, unit, m.rows * m.inner, true, false});
      c.machine.launch(ColumnSums{unit, dw, m.rows, m.inner});
    }
    mixer.scale(dnormalized, dnormalized);
    NormBackward b;
    b.norm = mixer.norm_rows(gated);
    b.dy = dnormalized;
    b.dx = unit;
    c.machine.launch(b);
    c.machine.launch(MambaGateBackward{m, projection, scanned, unit, dscanned, dprojection});
  }
  const Buffer dconvolved(c, m.rows * m.mixed, Number::fp32),
      ddt(c, m.rows * m.heads, Number::fp32);
  {
    const Room states = mixer.room_of_states(), gradients = mixer.room_of_states();
    const Room starts(c.scratch, mixer.items() * MambaRoom::chunks(m) * m.dim * m.state * 4);
    MambaScanInput in = mixer.scan_input(convolved, dt, states);
    in.room.gradients = gradients.as<float>();
    in.room.starts = starts.as<float>();
    c.machine.launch(MambaScan{in, {}});
    c.machine.clear(dconvolved.array().at, m.rows * m.mixed * 4);
    c.machine.launch(MambaScanBackward{in, dscanned, dconvolved, ddt, c.dw(kA), c.dw(kD)});
  }
  c.machine.launch(
      MambaSlopes{m, projection, c.w(kConv), c.w(kConvBias), c.w(kDtBias), dconvolved, ddt});
  c.machine.launch(MambaConvolveBackward{m, c.w(kConv), dconvolved, ddt, dprojection});
  if (const Array dw = c.dw(kConv))
    c.machine.launch(MambaConvolveWeights{m, projection, dconvolved, dw});
  if (const Array dw = c.dw(kConvBias))
    c.machine.launch(ColumnSums{dconvolved, dw, m.rows, m.mixed});
  if (const Array dw = c.dw(kDtBias)) c.machine.launch(ColumnSums{ddt, dw, m.rows, m.heads});
}

}  // namespace

void mamba_backward(OpCall& c) {
  Mixer mixer(c);
  const MambaSizes& m = mixer.m;
  const std::int64_t hidden = c.in().width;
  Circle& tp = c.circle(Bond::tp);
  const Array projection = c.part("projected");
  if (!projection || !c.inputs[0]) saved_too_little(c);
  const Part convolved(c, "convolved", m.rows * m.mixed);
  const Part dt(c, "dt", m.rows * m.heads, Number::fp32);
  const Part scanned(c, "scanned", m.rows * m.inner);
  const Part normalized(c, "normalized", m.rows * m.inner);
  if (!convolved.is_kept() || !dt.is_kept()) mixer.convolve(projection, convolved, dt);
  if (!scanned.is_kept()) {
    const Room states = mixer.room_of_states();
    c.machine.launch(MambaScan{mixer.scan_input(convolved, dt, states), scanned});
  }
  if (!normalized.is_kept()) {
    const Buffer gated(c, m.rows * m.inner);
    c.machine.launch(MambaGate{m, projection, scanned, gated});
    mixer.norm(gated, normalized, {});
    mixer.scale(normalized, normalized);
  }
  std::optional<Buffer> dy_room, x_room;
  Array dy = c.output_gradient, x = c.inputs[0];
  if (c.in().sharded) {
    dy_room.emplace(c, m.rows * hidden, dy.number, "gathered gradient of the output");
    tp.all_gather(dy, c.out().count(), *dy_room);
    dy = *dy_room;
    x_room.emplace(c, m.rows * hidden, x.number, "gathered input");
    tp.all_gather(x, c.in().count(), *x_room);
    x = *x_room;
  }
  const Buffer dprojection(c, m.rows * m.projected);
  {
    const Buffer dnormalized(c, m.rows * m.inner);
    mixer.product(dy, c.w(kOut), dnormalized, m.inner, hidden, true);
    mixer.weight_gradient(normalized, dy, c.dw(kOut), m.inner, hidden);
    mixer_backward(c, mixer, projection, scanned, convolved, dt, dnormalized, dprojection);
  }
  mixer.weight_gradient(x, dprojection, c.dw(kIn), hidden, m.projected);
  const Target dx = c.dx(0);
  if (!dx) return;
  const Buffer sum(c, m.rows * hidden, dx.to.number,
                   c.in().sharded ? "gradient of the input before its reduce-scatter" : "");
  mixer.product(dprojection, c.w(kIn), sum, hidden, m.projected, true);
  if (!c.in().sharded) {
    if (tp.size() > 1) tp.all_reduce(sum, c.in().count());
    return put(c, sum, dx, c.in().count());
  }
  const Buffer part(c, c.in().count(), dx.to.number);
  tp.reduce_scatter(sum, c.in().count(), part);
  put(c, part, dx, c.in().count());
}

}  // namespace plimsoll::runtime::cuda
