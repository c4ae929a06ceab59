// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "runtime/host/matrix.hpp"
#include "runtime/host/op_family.hpp"

namespace plimsoll::runtime::host {

namespace {

/// The sum of the ranks' outputs, as each rank wants it: whole, or its tokens.
template <class T>
void reduce_output(OpCall<T>& c, T* partial) {
  const Group& tp = c.groups->tp;
  if (c.out().sharded)
    tp.reduce_scatter(partial, c.out().count(), c.output);
  else
    tp.all_reduce(partial, c.out().count());
}

/// The gradient of a row-split op's output for all tokens.
template <class T>
const T* whole_output_gradient(OpCall<T>& c, Room<T>& room) {
  if (!c.out().sharded) return c.output_gradient;
  return gather_rows(c, c.out(), c.output_gradient, room);
}

/// The weight is stored as columns x rows where a head is tied to an embedding.
template <class T>
void product(const OpCall<T>& c, const T* x, const T* w, T* y, std::int64_t rows) {
  multiply(x, As::stored, w, c.transposed ? As::transposed : As::stored, y, rows, c.weight().cols,
           c.weight().rows, false);
}

template <class T>
void product_backward(const OpCall<T>& c, const T* x, const T* w, const T* dy, T* dx, T* dw,
                      std::int64_t rows) {
  const std::int64_t k = c.weight().rows, n = c.weight().cols;
  if (dx)
    multiply(dy, As::stored, w, c.transposed ? As::stored : As::transposed, dx, rows, k, n, true);
  if (!dw) return;
  if (!x) saved_too_little(c.what());
  if (c.transposed)
    multiply(dy, As::transposed, x, As::stored, dw, n, k, rows, true);
  else
    multiply(x, As::transposed, dy, As::stored, dw, k, n, rows, true);
}

template <class T>
void add_bias(const T* bias, T* y, std::int64_t rows, std::int64_t n) {
  if (!bias) return;
  for (std::int64_t i = 0; i < rows; ++i) add_to(y + i * n, bias, n);
}

template <class T>
void add_bias_gradient(T* dbias, const T* dy, std::int64_t rows, std::int64_t n) {
  if (!dbias) return;
  for (std::int64_t i = 0; i < rows; ++i) add_to(dbias, dy + i * n, n);
}

/// Does the experts' last linear make the value that is combined? Its rows are weighted by their
/// scores (see combine in lang/ops/experts.cpp).
template <class T>
bool ends_experts(const OpCall<T>& c) {
  const Program& p = *c.shapes->program;
  for (OpId o = c.op + 1; o < p.ops.size(); ++o)
    if (p.ops[o].kind == OpKind::combine) return p.ops[o].inputs[0] == c.what().output;
  return false;
}

/// Each expert's rows through its own matrix. A row-split one's bias is the first rank's: the sum
/// over ranks has it once.
template <class T>
void expert_linear_forward(OpCall<T>& c) {
  const std::int64_t k = c.weight().rows, n = c.weight().cols;
  const bool weighted = ends_experts(c);
  const bool biased = c.what().split != Split::row || c.shapes->rank.etp == 0;
  std::int64_t row = 0;
  std::vector<T> scaled;
  std::fill_n(c.output, c.out().count(), T(0));
  for (std::size_t e = 0; e < c.routing->of_expert.size(); ++e) {
    const std::int64_t rows = c.routing->of_expert[e];
    const T* x = c.inputs[0] + row * k;
    if (weighted) {
      scaled.assign(x, x + rows * k);
      for (std::int64_t i = 0; i < rows * k; ++i)
        scaled[static_cast<std::size_t>(i)] *=
            c.routing->scores[static_cast<std::size_t>(row + i / k)];
      x = scaled.data();
    }
    const auto expert = static_cast<std::int64_t>(e);
    product(c, x, c.w(0) + expert * k * n, c.output + row * n, rows);
    if (biased && c.w(1)) add_bias(c.w(1) + expert * n, c.output + row * n, rows, n);
    row += rows;
  }
}

template <class T>
void expert_linear_backward(OpCall<T>& c) {
  const std::int64_t k = c.weight().rows, n = c.weight().cols;
  const bool weighted = ends_experts(c);
  const bool biased = c.what().split != Split::row || c.shapes->rank.etp == 0;
  std::int64_t row = 0;
  std::vector<T> scaled, dz;
  for (std::size_t e = 0; e < c.routing->of_expert.size(); ++e) {
    const std::int64_t rows = c.routing->of_expert[e];
    const auto expert = static_cast<std::int64_t>(e);
    const T* x = c.inputs[0] ? c.inputs[0] + row * k : nullptr;
    const T* dy = c.output_gradient + row * n;
    T* dx = c.dx() ? c.dx() + row * k : nullptr;
    T* dw = c.dw(0) ? c.dw(0) + expert * k * n : nullptr;
    if (biased && c.dw(1)) add_bias_gradient(c.dw(1) + expert * n, dy, rows, n);
    if (!weighted) {
      product_backward(c, x, c.w(0) + expert * k * n, dy, dx, dw, rows);
      row += rows;
      continue;
    }
    if (!x) saved_too_little(c.what());
    dz.assign(static_cast<std::size_t>(rows * k), T(0));
    scaled.assign(x, x + rows * k);
    for (std::int64_t i = 0; i < rows * k; ++i)
      scaled[static_cast<std::size_t>(i)] *=
          c.routing->scores[static_cast<std::size_t>(row + i / k)];
    product_backward(c, scaled.data(), c.w(0) + expert * k * n, dy, dz.data(), dw, rows);
    for (std::int64_t i = 0; i < rows * k; ++i) {
      const auto at = static_cast<std::size_t>(row + i / k);
      c.routing->score_gradients[at] += x[i] * dz[static_cast<std::size_t>(i)];
      if (dx) dx[i] += c.routing->scores[at] * dz[static_cast<std::size_t>(i)];
    }
    row += rows;
  }
}

}  // namespace

/// Every rank looks up what its part of the table has.
template <class T>
void embedding_forward_op(OpCall<T>& c) {
  const WeightShape& table = c.weight();
  const std::vector<std::int64_t> positions = c.shapes->full_positions(c.out());
  const std::int64_t rows = c.shapes->full_rows(c.out()), sequences = c.shapes->mbs;
  const std::int64_t stream =
      stream_of(*c.shapes->program, c.shapes->program->values[c.what().output]);
  const std::int64_t n = table.cols;
  std::vector<std::int64_t> scratch;
  auto* ids = c.template part<std::int64_t>("ids");
  if (!ids) {
    scratch.resize(static_cast<std::size_t>(rows));
    ids = scratch.data();
  }
  std::optional<Room<T>> whole;
  if (c.out().sharded) whole.emplace(c, "output before its reduce-scatter", rows * n);
  T* y = whole ? whole->data() : c.output;
  for (std::int64_t i = 0; i < rows; ++i) {
    ids[i] = token(c.facts->seed, stream, c.first_sequence + i % sequences,
                   positions[static_cast<std::size_t>(i / sequences)], c.what().vocab);
    const std::int64_t row = ids[i] - table.row_of.front();
    if (row >= 0 && row < table.rows)
      std::copy_n(c.w(0) + row * n, n, y + i * n);
    else
      std::fill_n(y + i * n, n, T(0));
  }
  if (c.what().split != Split::none) reduce_output(c, y);
}

template <class T>
void embedding_backward_op(OpCall<T>& c) {
  if (!c.dw(0)) return;
  const auto* ids = c.template part<std::int64_t>("ids");
  if (!ids) saved_too_little(c.what());
  const WeightShape& table = c.weight();
  const std::int64_t rows = c.shapes->full_rows(c.out()), n = table.cols;
  std::optional<Room<T>> room;
  if (c.out().sharded) room.emplace(c, "gathered gradient of the output", rows * n);
  const T* dy = room ? whole_output_gradient(c, *room) : c.output_gradient;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t row = ids[i] - table.row_of.front();
    if (row >= 0 && row < table.rows) add_to(c.dw(0) + row * n, dy + i * n, n);
  }
}

template <class T>
void positions_forward_op(OpCall<T>& c) {
  const std::vector<std::int64_t> positions = by_row(c.out().positions, c.shapes->mbs);
  for (std::size_t i = 0; i < positions.size(); ++i)
    std::copy_n(c.w(0) + positions[i] * c.out().width, c.out().width,
                c.output + static_cast<std::int64_t>(i) * c.out().width);
}

template <class T>
void positions_backward_op(OpCall<T>& c) {
  if (!c.dw(0)) return;
  const std::vector<std::int64_t> positions = by_row(c.out().positions, c.shapes->mbs);
  for (std::size_t i = 0; i < positions.size(); ++i)
    add_to(c.dw(0) + positions[i] * c.out().width,
           c.output_gradient + static_cast<std::int64_t>(i) * c.out().width, c.out().width);
}

template <class T>
void linear_forward_op(OpCall<T>& c) {
  const Op& op = c.what();
  const ValueShape &in = c.in(), &out = c.out();
  if (op.experts != kNone) return expert_linear_forward(c);
  const bool column = op.split == Split::column, row = op.split == Split::row;
  const T* x = c.inputs[0];
  std::optional<Room<T>> whole;
  if (column && in.sharded) {
    whole.emplace(c, "gathered input", in.count() * c.shapes->tp);
    x = gather_rows(c, in, x, *whole);
  } else if (row && out.sharded) {
    whole.emplace(c, "output before its reduce-scatter", out.count() * c.shapes->tp);
  }
  T* y = row && whole ? whole->data() : c.output;
  product(c, x, c.w(0), y, row ? in.rows : out.rows);
  if (row) reduce_output(c, y);
  add_bias(c.w(1), c.output, out.rows, out.width);
}

template <class T>
void linear_backward_op(OpCall<T>& c) {
  const Op& op = c.what();
  const ValueShape &in = c.in(), &out = c.out();
  if (op.experts != kNone) return expert_linear_backward(c);
  const bool column = op.split == Split::column, row = op.split == Split::row;
  add_bias_gradient(c.dw(1), c.output_gradient, out.rows, out.width);
  if (row) {
    std::optional<Room<T>> room;
    if (out.sharded) room.emplace(c, "gathered gradient of the output", out.count() * c.shapes->tp);
    const T* dy = room ? whole_output_gradient(c, *room) : c.output_gradient;
    return product_backward(c, c.inputs[0], c.w(0), dy, c.dx(), c.dw(0), in.rows);
  }
  if (!column || c.shapes->tp == 1)
    return product_backward(c, c.inputs[0], c.w(0), c.output_gradient, c.dx(), c.dw(0), in.rows);
  // All ranks have a part of the input's gradient.
  const T* x = c.inputs[0];
  std::optional<Room<T>> whole;
  const std::int64_t count = in.sharded ? in.count() * c.shapes->tp : in.count();
  if (in.sharded && c.dw(0)) {
    if (!x) saved_too_little(op);
    whole.emplace(c, "gathered input", count);
    x = gather_rows(c, in, x, *whole);
  }
  std::optional<Room<T>> sum;
  if (c.dx()) sum.emplace(c, "gradient of the input before its reduce-scatter", count);
  product_backward(c, x, c.w(0), c.output_gradient, sum ? sum->cleared(count) : nullptr, c.dw(0),
                   out.rows);
  if (!sum) return;
  if (in.sharded) {
    std::vector<T> part(static_cast<std::size_t>(in.count()));
    c.groups->tp.reduce_scatter(sum->data(), in.count(), part.data());
    add_to(c.dx(), part.data(), in.count());
  } else {
    c.groups->tp.all_reduce(sum->data(), count);
    add_to(c.dx(), sum->data(), count);
  }
}

namespace {

template <class T>
NormShape norm_shape(const OpCall<T>& c) {
  const Op& op = c.what();
  const ValueShape& v = c.in();
  NormShape s;
  s.whole = c.shapes->program->values[op.inputs[0]].width / op.groups;
  s.width = op.groups > 1 ? s.whole : v.width;
  s.rows = v.count() / s.width;
  s.centred = op.kind == OpKind::layernorm;
  s.plus_one = op.plus_one;
  if (v.divided && op.groups == 1) {
    const bool inside = c.shapes->program->values[op.inputs[0]].experts != kNone;
    const Group group = inside ? c.groups->etp : c.groups->tp;
    // Of a head that several ranks have, each has a part of the gradient and counts in the sums
    // once.
    const std::int64_t units = c.shapes->program->values[op.inputs[0]].units;
    const double copies = units > 0 && units < group.size() ? double(group.size()) / units : 1;
    s.sum = [group, copies](double* data, std::int64_t count) {
      group.all_reduce(data, count);
      for (std::int64_t i = 0; i < count; ++i) data[i] /= copies;
    };
  }
  return s;
}

}  // namespace

template <class T>
void norm_forward_op(OpCall<T>& c) {
  norm_forward(norm_shape(c), c.inputs[0], c.w(0), c.w(1), c.output, c.part("stats"),
               c.part("normalized"));
}

template <class T>
void norm_backward_op(OpCall<T>& c) {
  NormSaved<T> saved;
  saved.stats = c.part("stats");
  saved.x = c.inputs[0];
  if (!saved.x && saved.stats) {
    saved.normalized = c.part("normalized");
    if (!saved.normalized) saved.y = c.output;
  }
  if (!saved.x && !saved.normalized && !saved.y) saved_too_little(c.what());
  norm_backward(norm_shape(c), saved, c.w(0), c.w(1), c.output_gradient, c.dx(), c.dw(0), c.dw(1));
}

PLIMSOLL_INSTANTIATE(embedding)
PLIMSOLL_INSTANTIATE(positions)
PLIMSOLL_INSTANTIATE(linear)
PLIMSOLL_INSTANTIATE(norm)

}  // namespace plimsoll::runtime::host
