// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime {

/// Values one after the other, for a message between processes of the same program: what is put is
/// taken in the same order.
class Parcel {
 public:
  Parcel() = default;
  explicit Parcel(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  const std::vector<std::byte>& bytes() const { return bytes_; }

  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* at = reinterpret_cast<const std::byte*>(&value);  // NOLINT
    bytes_.insert(bytes_.end(), at, at + sizeof value);
  }
  template <class T>
  void put_all(const T& values) {
    put(values.size());
    for (const auto& value : values) put(value);
  }
  template <class T>
  void take(T& value) {
    PLIMSOLL_ASSERT(next_ + sizeof value <= bytes_.size());
    std::memcpy(&value, bytes_.data() + next_, sizeof value);
    next_ += sizeof value;
  }
  template <class T>
  void take_all(T& values) {
    std::size_t size = 0;
    take(size);
    values.resize(size);
    for (auto& value : values) take(value);
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t next_ = 0;
};

}  // namespace plimsoll::runtime
