// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/verify_parcel.hpp"

namespace plimsoll::runtime {

void put(Parcel& p, const LivePeak& peak) {
  p.put(peak.bytes);
  p.put(peak.at);
  p.put(peak.categories);
  p.put_all(peak.rows);
}
void take(Parcel& p, LivePeak& peak) {
  p.take(peak.bytes);
  p.take(peak.at);
  p.take(peak.categories);
  p.take_all(peak.rows);
}

void put(Parcel& p, const std::optional<VerifyFailure>& failure) {
  p.put(failure.has_value());
  if (!failure) return;
  p.put(failure->rank);
  p.put_all(failure->tensor);
  p.put(failure->bytes);
  p.put(failure->at);
  p.put(failure->live);
  p.put(failure->reserved);
  p.put(failure->categories);
  p.put(failure->predicted_live);
}
void take(Parcel& p, std::optional<VerifyFailure>& failure) {
  bool is = false;
  p.take(is);
  failure.reset();
  if (!is) return;
  failure.emplace();
  p.take(failure->rank);
  p.take_all(failure->tensor);
  p.take(failure->bytes);
  p.take(failure->at);
  p.take(failure->live);
  p.take(failure->reserved);
  p.take(failure->categories);
  p.take(failure->predicted_live);
}

}  // namespace plimsoll::runtime
