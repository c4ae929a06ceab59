// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "runtime/host/op_family.hpp"
#include "runtime/host/random.hpp"

namespace plimsoll::runtime::host {

std::int64_t token(std::uint64_t seed, std::int64_t stream, std::int64_t sequence,
                   std::int64_t position, std::int64_t vocab) {
  const std::uint64_t bits =
      mix({seed, 0x746f6b656eu, static_cast<std::uint64_t>(stream),
           static_cast<std::uint64_t>(sequence), static_cast<std::uint64_t>(position)});
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(vocab));
}

std::int64_t stream_of(const Program& program, const Value& v) {
  for (const Op& op : program.ops)
    if (op.kind == OpKind::embedding) return program.values[op.output].tokens == v.tokens ? 0 : 1;
  return 0;
}

#define PLIMSOLL_OPS(direction)                 \
  switch (c.what().kind) {                      \
    case OpKind::embedding:                     \
      return embedding_##direction##_op(c);     \
    case OpKind::learned_positions:             \
      return positions_##direction##_op(c);     \
    case OpKind::linear:                        \
      return linear_##direction##_op(c);        \
    case OpKind::rmsnorm:                       \
    case OpKind::layernorm:                     \
      return norm_##direction##_op(c);          \
    case OpKind::gelu:                          \
    case OpKind::relu:                          \
    case OpKind::squared_relu:                  \
    case OpKind::silu:                          \
    case OpKind::tanh:                          \
    case OpKind::softcap:                       \
      return unary_##direction##_op(c);         \
    case OpKind::add:                           \
      return add_##direction##_op(c);           \
    case OpKind::mul:                           \
      return mul_##direction##_op(c);           \
    case OpKind::glu:                           \
      return glu_##direction##_op(c);           \
    case OpKind::rope:                          \
      return rope_##direction##_op(c);          \
    case OpKind::concat:                        \
      return concat_##direction##_op(c);        \
    case OpKind::dropout:                       \
      return dropout_##direction##_op(c);       \
    case OpKind::attention:                     \
      return attention_##direction##_op(c);     \
    case OpKind::experts:                       \
      return experts_##direction##_op(c);       \
    case OpKind::combine:                       \
      return combine_##direction##_op(c);       \
    case OpKind::cross_entropy:                 \
      return cross_entropy_##direction##_op(c); \
    case OpKind::input:                         \
      return input_##direction##_op(c);         \
    case OpKind::merge:                         \
      return merge_##direction##_op(c);         \
    case OpKind::mamba2:                        \
      return mamba_##direction##_op(c);         \
    case OpKind::relative_bias:                 \
      break;                                    \
  }                                             \
  PLIMSOLL_ASSERT(false)

template <class T>
void run_forward(OpCall<T>& c) {
  PLIMSOLL_OPS(forward);
}

template <class T>
void run_backward(OpCall<T>& c) {
  PLIMSOLL_OPS(backward);
}

template void run_forward(OpCall<float>&);
template void run_forward(OpCall<double>&);
template void run_backward(OpCall<float>&);
template void run_backward(OpCall<double>&);

}  // namespace plimsoll::runtime::host
