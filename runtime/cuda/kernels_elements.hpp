// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "lang/program.hpp"
#include "runtime/cuda/scalar.hpp"

/// Kernels in which every element is a thread's own: at(i) for i below items(). `add` says whether
/// a result is added to what is there.
namespace plimsoll::runtime::cuda {

/// y = scale x: copies, casts and sums.
struct Scale {
  Array x, y;
  std::int64_t count = 0;
  float scale = 1;
  bool add = false;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const { y.put(i, scale * x.get(i), add); }
};

/// y = a + b, or a b.
struct Pair {
  Array a, b, y;
  std::int64_t count = 0;
  bool times = false, add = false;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const float u = a.get(i), v = b.get(i);
    y.put(i, times ? u * v : u + v, add);
  }
};

/// y (rows x width) += bias.
struct AddBias {
  Array bias, y;
  std::int64_t rows = 0, width = 0;
  PLIMSOLL_HD std::int64_t items() const { return rows * width; }
  PLIMSOLL_HD void at(std::int64_t i) const { y.put(i, bias.get(i % width), true); }
};

/// Elements of weights, pixels, and what absent peers would send: normal(mix(place)) scaled.
struct Noise {
  Array to;
  std::int64_t count = 0, first = 0;
  std::uint64_t seed = 0;
  float scale = 1;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const auto place = static_cast<std::uint64_t>(first + i);
    to.put(i, scale * static_cast<float>(normal(Mixed()(seed)(place).h)));
  }
};

/// A weight's elements by their place in the whole model, as HostStates::initial() has them.
struct WeightNoise {
  Array to;
  std::int64_t first = 0, count = 0;  ///< elements of the rank's part of the weight
  std::int64_t rows = 0, cols = 0, first_copy = 0, whole_rows = 0, whole_cols = 0;
  Runs row_of, col_of;
  std::uint64_t seed = 0, weight = 0;
  double scale = 1, shift = 0, divisor = 1;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const std::int64_t e = first + i, copy = first_copy + e / (rows * cols);
    const std::int64_t row = row_of[e / cols % rows], col = col_of[e % cols];
    float x = 0;
    if (row < whole_rows && col < whole_cols) {
      const auto place = static_cast<std::uint64_t>((copy * whole_rows + row) * whole_cols + col);
      x = static_cast<float>(
          shift + scale * normal(Mixed()(seed)(0x776569676874u)(weight)(place).h) / divisor);
    }
    to.put(i, x);
  }
};

/// Pixels by their place.
struct Pixels {
  Array to;
  std::int64_t rows = 0, width = 0, first_column = 0, first_sequence = 0, sequences = 1;
  Runs positions;
  std::uint64_t seed = 0;
  PLIMSOLL_HD std::int64_t items() const { return rows * width; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const std::int64_t row = i / width;
    const std::uint64_t bits = Mixed()(seed)(0x696d616765u)(static_cast<std::uint64_t>(
        first_sequence + row % sequences))(static_cast<std::uint64_t>(positions[row / sequences]))(
                                   static_cast<std::uint64_t>(first_column + i % width))
                                   .h;
    to.put(i, static_cast<float>(normal(bits)));
  }
};

// --- functions of one number ---------------------------------------------------------------------

PLIMSOLL_HD float sigmoid(float x) { return 1 / (1 + expf(-x)); }

PLIMSOLL_HD float unary_value(OpKind kind, float cap, float x) {
  switch (kind) {
    case OpKind::gelu:
      return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case OpKind::relu:
      return x > 0 ? x : 0;
    case OpKind::squared_relu:
      return x > 0 ? x * x : 0;
    case OpKind::silu:
      return x * sigmoid(x);
    case OpKind::tanh:
      return tanhf(x);
    case OpKind::softcap:
      return cap * tanhf(x / cap);
    default:
      return x;
  }
}

PLIMSOLL_HD float unary_slope(OpKind kind, float cap, float x) {
  switch (kind) {
    case OpKind::gelu:
      return 0.5f * (1 + erff(x * 0.70710678118654752f)) +
             x * 0.39894228040143268f * expf(-0.5f * x * x);
    case OpKind::relu:
      return x > 0 ? 1 : 0;
    case OpKind::squared_relu:
      return x > 0 ? 2 * x : 0;
    case OpKind::silu:
      return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case OpKind::tanh:
    case OpKind::softcap: {
      const float t = tanhf(kind == OpKind::tanh ? x : x / cap);
      return 1 - t * t;
    }
    default:
      return 1;
  }
}

/// The same from what the function made.
PLIMSOLL_HD float unary_slope_of_output(OpKind kind, float cap, float y) {
  switch (kind) {
    case OpKind::relu:
      return y > 0 ? 1 : 0;
    case OpKind::tanh:
      return 1 - y * y;
    case OpKind::softcap:
      return 1 - y / cap * (y / cap);
    default:
      return 1;
  }
}

struct Unary {
  OpKind kind = OpKind::silu;
  float cap = 0;
  Array x, y;
  std::int64_t count = 0;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const { y.put(i, unary_value(kind, cap, x.get(i))); }
};

/// From x or, where there is none, y.
struct UnaryBackward {
  OpKind kind = OpKind::silu;
  float cap = 0;
  Array x, y, dy, dx;
  std::int64_t count = 0;
  bool add = false;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const float slope =
        x.there() ? unary_slope(kind, cap, x.get(i)) : unary_slope_of_output(kind, cap, y.get(i));
    dx.put(i, slope * dy.get(i), add);
  }
};

/// y = f(gate) up; `activated` (f of the gate) is written where wanted.
struct Glu {
  OpKind activation = OpKind::silu;
  Array gate, up, activated, y;
  std::int64_t count = 0;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    float a = unary_value(activation, 0, gate.get(i));
    if (activated.there()) {
      activated.put(i, a);
      a = activated.get(i);
    }
    y.put(i, a * up.get(i));
  }
};

struct GluBackward {
  OpKind activation = OpKind::silu;
  Array gate, up, activated, dy, dgate, dup;  ///< dgate, dup: where wanted
  std::int64_t count = 0;
  bool add_gate = false, add_up = false;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const float g = dy.get(i), x = gate.get(i), u = up.get(i);
    if (dup.there())
      dup.put(i, g * (activated.there() ? activated.get(i) : unary_value(activation, 0, x)),
              add_up);
    if (dgate.there()) dgate.put(i, g * u * unary_slope(activation, 0, x), add_gate);
  }
};

/// Turns the last `last` elements of each head, see host::rope(). An item is an element of a row's
/// first halves and what does not turn.
struct Rope {
  Array x, y;
  Runs positions;
  std::int64_t rows = 0, sequences = 1, heads = 0, head_dim = 0, last = 0;
  bool backward = false, add = false;
  PLIMSOLL_HD std::int64_t each() const { return head_dim - last / 2; }
  PLIMSOLL_HD std::int64_t items() const { return rows * heads * each(); }
  PLIMSOLL_HD void at(std::int64_t item) const {
    const std::int64_t half = last / 2, still = head_dim - 2 * half;
    const std::int64_t i = item % each(), head = item / each(), row = head / heads;
    const std::int64_t begin = head * head_dim;
    if (i < still) {
      y.put(begin + i, x.get(begin + i), add);
      return;
    }
    const std::int64_t j = i - still;
    // In double: at a position of 100,000 an angle in fp32 is off by a hundredth.
    const double angle = static_cast<double>(positions[row / sequences]) *
                         pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(last));
    const double turn = angle - 6.283185307179586 * floor(angle / 6.283185307179586);
    const float s = backward ? -sinf(static_cast<float>(turn)) : sinf(static_cast<float>(turn));
    const float c = cosf(static_cast<float>(turn));
    const float a = x.get(begin + still + j), b = x.get(begin + still + half + j);
    y.put(begin + still + j, a * c - b * s, add);
    y.put(begin + still + half + j, a * s + b * c, add);
  }
};

/// What is dropped follows from step, op, sequence, position and column of the whole value, so that
/// all layouts drop the same.
struct Dropout {
  Array x, y;
  std::int8_t* mask = nullptr;  ///< written where it is there
  double share = 0;
  std::uint64_t seed = 0;
  std::int64_t step = 1, op = 0, first_sequence = 0, sequences = 1, first_column = 0;
  std::int64_t rows = 0, width = 0;
  Runs positions;
  PLIMSOLL_HD std::int64_t items() const { return rows * width; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const std::int64_t row = i / width;
    const std::uint64_t bits = Mixed()(seed)(0x64726f70u)(static_cast<std::uint64_t>(step))(
                                   static_cast<std::uint64_t>(op))(static_cast<std::uint64_t>(
        first_sequence + row % sequences))(static_cast<std::uint64_t>(positions[row / sequences]))(
                                   static_cast<std::uint64_t>(first_column + i % width))
                                   .h;
    const bool kept = uniform(bits) >= share;
    if (mask) mask[i] = kept;
    y.put(i, kept ? x.get(i) / static_cast<float>(1 - share) : 0);
  }
};

struct DropoutBackward {
  Array dy, dx;
  const std::int8_t* mask = nullptr;
  double share = 0;
  std::int64_t count = 0;
  bool add = false;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const float kept = share > 0 ? static_cast<float>(mask[i]) / static_cast<float>(1 - share) : 1;
    dx.put(i, kept * dy.get(i), add);
  }
};

// --- moves ---------------------------------------------------------------------------------------

/// to(r, g, i) = from(r, g, i) for rows, groups and elements of a piece, each with its own strides
/// in elements: concatenation, heads taken out of rows, keys repeated to more heads.
struct Move {
  Array from, to;
  std::int64_t rows = 0, groups = 1, length = 0;
  std::int64_t from_row = 0, from_group = 0, to_row = 0, to_group = 0;
  std::int64_t share = 1;  ///< so many groups in a row read one of `from`
  bool add = false;
  PLIMSOLL_HD std::int64_t items() const { return rows * groups * length; }
  PLIMSOLL_HD void at(std::int64_t item) const {
    const std::int64_t i = item % length, g = item / length % groups, r = item / length / groups;
    to.put(r * to_row + g * to_group + i, from.get(r * from_row + g / share * from_group + i), add);
  }
};

/// to(r, i) = the sum over groups of from(r, g, i).
struct SumGroups {
  Array from, to;
  std::int64_t rows = 0, groups = 1, length = 0, from_row = 0, from_group = 0, to_row = 0;
  bool add = false;
  PLIMSOLL_HD std::int64_t items() const { return rows * length; }
  PLIMSOLL_HD void at(std::int64_t item) const {
    const std::int64_t i = item % length, r = item / length;
    float sum = 0;
    for (std::int64_t g = 0; g < groups; ++g) sum += from.get(r * from_row + g * from_group + i);
    to.put(r * to_row + i, sum, add);
  }
};

/// to(i) = from(index(i)), rows of `width`; a negative index makes zeros.
struct TakeRows {
  Array from, to;
  const std::int32_t* index = nullptr;
  std::int64_t rows = 0, width = 0;
  PLIMSOLL_HD std::int64_t items() const { return rows * width; }
  PLIMSOLL_HD void at(std::int64_t item) const {
    const std::int32_t row = index[item / width];
    to.put(item, row < 0 ? 0 : from.get(row * width + item % width));
  }
};

/// to(i) = the sum of from(index(i, k)) over k: what the experts made of a token, put together.
struct SumRows {
  Array from, to;
  const std::int32_t* index = nullptr;  ///< rows x each
  std::int64_t rows = 0, each = 1, width = 0;
  bool add = false;
  PLIMSOLL_HD std::int64_t items() const { return rows * width; }
  PLIMSOLL_HD void at(std::int64_t item) const {
    float sum = 0;
    for (std::int64_t k = 0; k < each; ++k)
      sum += from.get(index[item / width * each + k] * width + item % width);
    to.put(item, sum, add);
  }
};

/// Row by row of learned positions; backward: an element of the table sums over the sequences.
struct PositionRows {
  Array table, y;
  Runs positions;
  std::int64_t rows = 0, sequences = 1, width = 0;
  bool backward = false;  ///< then y is a gradient and the table's is added to
  PLIMSOLL_HD std::int64_t items() const { return (backward ? rows / sequences : rows) * width; }
  PLIMSOLL_HD void at(std::int64_t item) const {
    const std::int64_t r = item / width, j = item % width;
    if (!backward) {
      y.put(item, table.get(positions[r / sequences] * width + j));
      return;
    }
    float sum = 0;
    for (std::int64_t b = 0; b < sequences; ++b) sum += y.get((r * sequences + b) * width + j);
    table.put(positions[r] * width + j, sum, true);
  }
};

/// The scores of routed rows in the order of the buffer: probs(token, expert) by their places.
struct TakeNumbers {
  Array from, to;
  const std::int32_t* index = nullptr;
  std::int64_t count = 0;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const { to.put(i, from.get(index[i])); }
};
struct PutNumbers {
  Array from, to;
  const std::int32_t* index = nullptr;
  std::int64_t count = 0;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const { to.put(index[i], from.get(i)); }
};

/// Logits that make such scores: logarithms, or of sigmoids log-odds.
struct ScoreLogits {
  Array scores, logits;
  std::int64_t count = 0;
  bool of_sigmoid = false;
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    const float s = scores.get(i);
    logits.put(i, of_sigmoid ? logf(s) - logf(1 - s) : logf(s));
  }
};

// --- the optimizer -------------------------------------------------------------------------------

/// Adam with decoupled decay where there is v, descent with momentum where there is only m, else
/// descent: HostStates::step(). `w` is what is updated, `copy` follows it.
struct Update {
  Array w, copy, g, m, v;
  std::int64_t count = 0;
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0.01;
  double correct1 = 1, correct2 = 1;
  const double* square = nullptr;  ///< of the norm of all gradients
  double most_norm = 0;            ///< 0: not clipped
  PLIMSOLL_HD std::int64_t items() const { return count; }
  PLIMSOLL_HD void at(std::int64_t i) const {
    double grad = g.get(i);
    if (most_norm > 0 && sqrt(*square) > most_norm) grad *= most_norm / sqrt(*square);
    double now = w.get(i), change = grad;
    if (v.there()) {
      m.put(i, static_cast<float>(beta1 * m.get(i) + (1 - beta1) * grad));
      v.put(i, static_cast<float>(beta2 * v.get(i) + (1 - beta2) * grad * grad));
      change = m.get(i) / correct1 / (sqrt(v.get(i) / correct2) + epsilon) + decay * now;
    } else if (m.there()) {
      m.put(i, static_cast<float>(beta1 * m.get(i) + grad));
      change = m.get(i);
    }
    w.put(i, static_cast<float>(now - rate * change));
    if (copy.there()) copy.put(i, w.get(i));
  }
};

}  // namespace plimsoll::runtime::cuda
