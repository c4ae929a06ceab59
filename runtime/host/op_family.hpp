// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "lang/diagnostics.hpp"
#include "runtime/host/kernels.hpp"
#include "runtime/host/op_call.hpp"

/// What the families of ops share: private to runtime/host/ops_*.cpp. Each has a forward and a
/// backward for float and double.
namespace plimsoll::runtime::host {

/// A temporary of the op: memory that the run counts where the rule declares it, else scratch.
template <class T>
class Room {
 public:
  Room(OpCall<T>& c, std::string_view name, std::int64_t count)
      : at_(c.room ? c.room(name, count) : nullptr) {
    if (at_) return;
    scratch_.resize(static_cast<std::size_t>(count));
    at_ = scratch_.data();
  }
  T* data() { return at_; }
  T* cleared(std::int64_t count) {
    std::fill_n(at_, count, T(0));
    return at_;
  }

 private:
  std::vector<T> scratch_;
  T* at_;
};

template <class T>
void add_to(T* sum, const T* more, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += more[i];
}

/// The whole input of a column-split region, and the way back of its gradient.
template <class T>
const T* gather_rows(OpCall<T>& c, const ValueShape& v, const T* part, Room<T>& whole) {
  c.groups->tp.all_gather(part, v.count(), whole.data());
  return whole.data();
}

/// Positions by row: each token's, once a sequence.
inline std::vector<std::int64_t> by_row(const std::vector<std::int64_t>& positions,
                                        std::int64_t sequences) {
  std::vector<std::int64_t> rows;
  rows.reserve(positions.size() * static_cast<std::size_t>(sequences));
  for (const std::int64_t p : positions)
    rows.insert(rows.end(), static_cast<std::size_t>(sequences), p);
  return rows;
}

/// Backward found no sufficient set of saved values: the executor's mistake or the rule's.
[[noreturn]] inline void saved_too_little(const Op& op) {
  throw InternalError(std::string("nothing that is saved is enough for the backward of ") +
                      std::string(name(op.kind)));
}

/// 0 for the tokens of the text that the model reads first, 1 for another one's (T5's target).
std::int64_t stream_of(const Program&, const Value&);

#define PLIMSOLL_OP_FAMILY(name)      \
  template <class T>                  \
  void name##_forward_op(OpCall<T>&); \
  template <class T>                  \
  void name##_backward_op(OpCall<T>&);
PLIMSOLL_OP_FAMILY(embedding)
PLIMSOLL_OP_FAMILY(positions)
PLIMSOLL_OP_FAMILY(linear)
PLIMSOLL_OP_FAMILY(norm)
PLIMSOLL_OP_FAMILY(unary)
PLIMSOLL_OP_FAMILY(add)
PLIMSOLL_OP_FAMILY(mul)
PLIMSOLL_OP_FAMILY(glu)
PLIMSOLL_OP_FAMILY(rope)
PLIMSOLL_OP_FAMILY(concat)
PLIMSOLL_OP_FAMILY(dropout)
PLIMSOLL_OP_FAMILY(attention)
PLIMSOLL_OP_FAMILY(experts)
PLIMSOLL_OP_FAMILY(combine)
PLIMSOLL_OP_FAMILY(mamba)
PLIMSOLL_OP_FAMILY(cross_entropy)
PLIMSOLL_OP_FAMILY(input)
PLIMSOLL_OP_FAMILY(merge)
#undef PLIMSOLL_OP_FAMILY

/// Makes a family for both types; stands at the end of its file.
#define PLIMSOLL_INSTANTIATE(name)                  \
  template void name##_forward_op(OpCall<float>&);  \
  template void name##_backward_op(OpCall<float>&); \
  template void name##_forward_op(OpCall<double>&); \
  template void name##_backward_op(OpCall<double>&);

}  // namespace plimsoll::runtime::host
