// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <cmath>

#include "runtime/host/op_family.hpp"
#include "runtime/host/random.hpp"

namespace plimsoll::runtime::host {

namespace {

template <class T>
double cap_of(const OpCall<T>& c) {
  return static_cast<double>(c.what().cap.to_double());
}

/// The share that the op drops: its own or the job's.
template <class T>
double share(const OpCall<T>& c) {
  return c.what().p < 0 ? c.facts->dropout : c.what().p;
}

}  // namespace

template <class T>
void unary_forward_op(OpCall<T>& c) {
  unary_forward(c.what().kind, cap_of(c), c.inputs[0], c.output, c.out().count());
}

template <class T>
void unary_backward_op(OpCall<T>& c) {
  if (!c.dx()) return;
  const OpKind kind = c.what().kind;
  const bool from_output = kind == OpKind::relu || kind == OpKind::tanh || kind == OpKind::softcap;
  const T* y = c.inputs[0] || !from_output ? nullptr : c.output;
  if (!c.inputs[0] && !y) saved_too_little(c.what());
  unary_backward(kind, cap_of(c), c.inputs[0], y, c.output_gradient, c.dx(), c.out().count());
}

template <class T>
void add_forward_op(OpCall<T>& c) {
  for (std::int64_t i = 0; i < c.out().count(); ++i) c.output[i] = c.inputs[0][i] + c.inputs[1][i];
}

template <class T>
void add_backward_op(OpCall<T>& c) {
  for (std::size_t k = 0; k < 2; ++k)
    if (c.dx(k) && c.dx(k) != c.output_gradient)
      add_to(c.dx(k), c.output_gradient, c.out().count());
}

template <class T>
void mul_forward_op(OpCall<T>& c) {
  for (std::int64_t i = 0; i < c.out().count(); ++i) c.output[i] = c.inputs[0][i] * c.inputs[1][i];
}

template <class T>
void mul_backward_op(OpCall<T>& c) {
  if (!c.inputs[0] || !c.inputs[1]) saved_too_little(c.what());
  for (std::int64_t i = 0; i < c.out().count(); ++i) {
    const T g = c.output_gradient[i];
    if (c.dx(0)) c.dx(0)[i] += g * c.inputs[1][i];
    if (c.dx(1)) c.dx(1)[i] += g * c.inputs[0][i];
  }
}

template <class T>
void glu_forward_op(OpCall<T>& c) {
  const std::int64_t count = c.out().count();
  T* activated = c.part("activated");
  std::vector<T> scratch;
  if (!activated) {
    scratch.resize(static_cast<std::size_t>(count));
    activated = scratch.data();
  }
  unary_forward(c.what().activation, 0, c.inputs[0], activated, count);
  for (std::int64_t i = 0; i < count; ++i) c.output[i] = activated[i] * c.inputs[1][i];
}

template <class T>
void glu_backward_op(OpCall<T>& c) {
  if (!c.inputs[0] || !c.inputs[1]) saved_too_little(c.what());
  const std::int64_t count = c.out().count();
  std::vector<T> scratch(static_cast<std::size_t>(count));
  if (c.dx(1)) {
    const T* activated = c.part("activated");
    if (!activated) {
      unary_forward(c.what().activation, 0, c.inputs[0], scratch.data(), count);
      activated = scratch.data();
    }
    for (std::int64_t i = 0; i < count; ++i) c.dx(1)[i] += c.output_gradient[i] * activated[i];
  }
  if (!c.dx(0)) return;
  for (std::int64_t i = 0; i < count; ++i)
    scratch[static_cast<std::size_t>(i)] = c.output_gradient[i] * c.inputs[1][i];
  unary_backward<T>(c.what().activation, 0, c.inputs[0], nullptr, scratch.data(), c.dx(0), count);
}

namespace {

/// Heads are the units that the value is split in; a value without is one head.
template <class T>
void turn(const OpCall<T>& c, const T* from, T* to, bool backward) {
  const ValueShape& v = c.out();
  const Value& value = c.shapes->program->values[c.what().output];
  const std::int64_t head = value.units > 0 ? value.width / value.units : value.width;
  const std::int64_t last = c.what().last > 0 ? c.what().last : head;
  rope(from, to, by_row(v.positions, c.shapes->mbs), v.width / head, head, last, backward);
}

}  // namespace

template <class T>
void rope_forward_op(OpCall<T>& c) {
  turn(c, c.inputs[0], c.output, false);
}

template <class T>
void rope_backward_op(OpCall<T>& c) {
  if (c.dx()) turn(c, c.output_gradient, c.dx(), true);
}

namespace {

/// Goes over the pieces that concat moves: f(which input, its offset, the output's offset, length).
template <class T, class F>
void for_each_piece(const OpCall<T>& c, F f) {
  const Op& op = c.what();
  const Program& p = *c.shapes->program;
  const std::int64_t a = p.values[op.inputs[0]].width / op.groups;
  const bool alike = p.values[op.inputs[1]].split == Split::column;
  const std::int64_t b = p.values[op.inputs[1]].width / (alike ? op.groups : 1);
  const std::int64_t groups = c.in(0).width / a, width = c.out().width;
  const std::int64_t b_width = alike ? groups * b : b;
  for (std::int64_t r = 0; r < c.out().rows; ++r)
    for (std::int64_t g = 0; g < groups; ++g) {
      f(0u, (r * groups + g) * a, r * width + g * (a + b), a);
      f(1u, r * b_width + (alike ? g * b : 0), r * width + g * (a + b) + a, b);
    }
}

}  // namespace

template <class T>
void concat_forward_op(OpCall<T>& c) {
  std::vector<T> whole[2];
  const T* from[2] = {c.inputs[0], c.inputs[1]};
  for (std::size_t k = 0; k < 2; ++k) {
    if (!c.in(k).sharded || c.out().sharded) continue;
    whole[k].resize(static_cast<std::size_t>(c.in(k).count() * c.shapes->tp));
    c.groups->tp.all_gather(from[k], c.in(k).count(), whole[k].data());
    from[k] = whole[k].data();
  }
  for_each_piece(c, [&](unsigned k, std::int64_t i, std::int64_t o, std::int64_t n) {
    std::copy_n(from[k] + i, n, c.output + o);
  });
}

/// A whole part of a divided value has a part of its gradient on every rank.
template <class T>
void concat_backward_op(OpCall<T>& c) {
  std::vector<T> sum[2];
  T* to[2] = {c.dx(0), c.dx(1)};
  for (std::size_t k = 0; k < 2; ++k) {
    if (!to[k] || c.in(k).divided || !c.out().divided) continue;
    sum[k].resize(static_cast<std::size_t>(c.in(k).count() * (c.in(k).sharded ? c.shapes->tp : 1)));
    to[k] = sum[k].data();
  }
  for_each_piece(c, [&](unsigned k, std::int64_t i, std::int64_t o, std::int64_t n) {
    if (to[k]) add_to(to[k] + i, c.output_gradient + o, n);
  });
  for (std::size_t k = 0; k < 2; ++k) {
    if (sum[k].empty()) continue;
    const std::int64_t count = c.in(k).count();
    if (c.in(k).sharded) {
      std::vector<T> part(static_cast<std::size_t>(count));
      c.groups->tp.reduce_scatter(sum[k].data(), count, part.data());
      add_to(c.dx(k), part.data(), count);
    } else {
      c.groups->tp.all_reduce(sum[k].data(), count);
      add_to(c.dx(k), sum[k].data(), count);
    }
  }
}

/// What is dropped follows from the step, the sequence, the position and the column of the whole
/// value, so that all layouts drop the same.
template <class T>
void dropout_forward_op(OpCall<T>& c) {
  const double p = share(c);
  if (p <= 0) {
    if (c.output != c.inputs[0]) std::copy_n(c.inputs[0], c.out().count(), c.output);
    return;
  }
  const ValueShape& v = c.out();
  const std::vector<std::int64_t> positions = by_row(v.positions, c.shapes->mbs);
  std::vector<std::int8_t> scratch;
  auto* mask = c.template part<std::int8_t>("mask");
  if (!mask) {
    scratch.resize(static_cast<std::size_t>(v.count()));
    mask = scratch.data();
  }
  for (std::int64_t i = 0; i < v.count(); ++i) {
    const std::int64_t row = i / v.width;
    const std::uint64_t bits =
        mix({c.facts->seed, 0x64726f70u, static_cast<std::uint64_t>(c.step), c.op,
             static_cast<std::uint64_t>(c.first_sequence + row % c.shapes->mbs),
             static_cast<std::uint64_t>(positions[static_cast<std::size_t>(row)]),
             static_cast<std::uint64_t>(v.first_column + i % v.width)});
    mask[i] = uniform(bits) >= p;
    c.output[i] = mask[i] ? static_cast<T>(c.inputs[0][i] / (1 - p)) : T(0);
  }
}

template <class T>
void dropout_backward_op(OpCall<T>& c) {
  if (!c.dx()) return;
  const double p = share(c);
  const auto* mask = c.template part<std::int8_t>("mask");
  if (p > 0 && !mask) saved_too_little(c.what());
  for (std::int64_t i = 0; i < c.out().count(); ++i) {
    const double kept = p > 0 ? mask[i] / (1 - p) : 1;
    c.dx()[i] += static_cast<T>(kept * c.output_gradient[i]);
  }
}

PLIMSOLL_INSTANTIATE(unary)
PLIMSOLL_INSTANTIATE(add)
PLIMSOLL_INSTANTIATE(mul)
PLIMSOLL_INSTANTIATE(glu)
PLIMSOLL_INSTANTIATE(rope)
PLIMSOLL_INSTANTIATE(concat)
PLIMSOLL_INSTANTIATE(dropout)

}  // namespace plimsoll::runtime::host
