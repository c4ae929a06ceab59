// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "runtime/host/op_family.hpp"
#include "runtime/host/random.hpp"

namespace plimsoll::runtime::host {

namespace {

template <class T>
LossShape loss_shape(const OpCall<T>& c) {
  const ValueShape& v = c.in();
  LossShape s{v.rows, v.width, v.first_column, c.what().vocab, {}, {}};
  if (v.divided) {
    const Group tp = c.groups->tp;
    s.largest = [tp](double* data, std::int64_t n) { tp.all_reduce_max(data, n); };
    s.sum = [tp](double* data, std::int64_t n) { tp.all_reduce(data, n); };
  }
  return s;
}

/// The token after each row's.
template <class T>
std::vector<std::int64_t> targets(const OpCall<T>& c) {
  const ValueShape& v = c.in();
  const std::int64_t stream =
      stream_of(*c.shapes->program, c.shapes->program->values[c.what().inputs[0]]);
  std::vector<std::int64_t> ids;
  for (const std::int64_t position : v.positions)
    for (std::int64_t b = 0; b < c.shapes->mbs; ++b)
      ids.push_back(
          token(c.facts->seed, stream, c.first_sequence + b, position + 1, c.what().vocab));
  return ids;
}

}  // namespace

/// A loss that every rank of the tensor group has in whole is counted by the first.
template <class T>
void cross_entropy_forward_op(OpCall<T>& c) {
  const double loss = cross_entropy_forward(loss_shape(c), c.inputs[0], targets(c).data());
  if (c.loss && (c.in().sharded || c.shapes->rank.tp == 0)) *c.loss += loss;
}

template <class T>
void cross_entropy_backward_op(OpCall<T>& c) {
  if (!c.inputs[0]) saved_too_little(c.what());
  if (!c.dx() && !c.in().divided) return;
  std::vector<T> unwanted;
  if (!c.dx()) unwanted.resize(static_cast<std::size_t>(c.in().count()));
  cross_entropy_backward(loss_shape(c), c.inputs[0], targets(c).data(), c.facts->loss_scale,
                         c.dx() ? c.dx() : unwanted.data());
}

/// Pixels: numbers of mean 0 by place.
template <class T>
void input_forward_op(OpCall<T>& c) {
  const ValueShape& v = c.out();
  const std::vector<std::int64_t> positions = by_row(v.positions, c.shapes->mbs);
  for (std::int64_t i = 0; i < v.count(); ++i) {
    const std::int64_t row = i / v.width;
    c.output[i] = static_cast<T>(
        normal(mix({c.facts->seed, 0x696d616765u,
                    static_cast<std::uint64_t>(c.first_sequence + row % c.shapes->mbs),
                    static_cast<std::uint64_t>(positions[static_cast<std::size_t>(row)]),
                    static_cast<std::uint64_t>(v.first_column + i % v.width)})));
  }
}

template <class T>
void input_backward_op(OpCall<T>&) {}

namespace {

/// The second input's tokens take the first places of the sequence. f(row of the output, row of the
/// second, or -1 where the first stays).
template <class T, class F>
void for_each_merged(const OpCall<T>& c, F f) {
  if (c.shapes->cp > 1 || c.out().sharded)
    throw InternalError("merge is not computed where the sequence is divided over ranks");
  for (std::int64_t r = 0; r < c.out().rows; ++r) f(r, r < c.in(1).rows ? r : -1);
}

}  // namespace

template <class T>
void merge_forward_op(OpCall<T>& c) {
  const std::int64_t n = c.out().width;
  for_each_merged(c, [&](std::int64_t r, std::int64_t image) {
    std::copy_n(image < 0 ? c.inputs[0] + r * n : c.inputs[1] + image * n, n, c.output + r * n);
  });
}

template <class T>
void merge_backward_op(OpCall<T>& c) {
  const std::int64_t n = c.out().width;
  for_each_merged(c, [&](std::int64_t r, std::int64_t image) {
    T* to = image < 0 ? c.dx(0) : c.dx(1);
    if (to) add_to(to + (image < 0 ? r : image) * n, c.output_gradient + r * n, n);
  });
}

PLIMSOLL_INSTANTIATE(cross_entropy)
PLIMSOLL_INSTANTIATE(input)
PLIMSOLL_INSTANTIATE(merge)

}  // namespace plimsoll::runtime::host
