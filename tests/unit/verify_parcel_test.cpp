// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/verify_parcel.hpp"

#include "tests/catch.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;

TEST_CASE("what a rank saw is taken from its message as it was put", "[verify]") {
  LivePeak peak;
  peak.bytes = 123456789012;
  peak.at.step = 2;
  peak.at.micro_batch = 7;
  peak.categories[1] = 42;
  peak.rows = {3, 0, 5};
  VerifyFailure failure;
  failure.rank = 3;
  failure.tensor = "logits, bf16";
  failure.bytes = 17;
  failure.at.step = 1;
  failure.live = 99;
  failure.reserved = 101;
  failure.categories[2] = 99;
  failure.predicted_live = 98;

  Parcel sent;
  put(sent, peak);
  put(sent, std::optional<VerifyFailure>());
  put(sent, std::optional(failure));
  sent.put(std::int64_t{-1});

  Parcel came(sent.bytes());
  LivePeak peak_taken;
  std::optional<VerifyFailure> none = failure, taken;
  std::int64_t end = 0;
  take(came, peak_taken);
  take(came, none);
  take(came, taken);
  came.take(end);
  CHECK(peak_taken.bytes == peak.bytes);
  CHECK(peak_taken.at.step == 2);
  CHECK(peak_taken.at.micro_batch == 7);
  CHECK(peak_taken.categories == peak.categories);
  CHECK(peak_taken.rows == peak.rows);
  CHECK_FALSE(none);
  REQUIRE(taken);
  CHECK(taken->rank == 3);
  CHECK(taken->tensor == failure.tensor);
  CHECK(taken->bytes == 17);
  CHECK(taken->at.step == 1);
  CHECK(taken->live == 99);
  CHECK(taken->reserved == 101);
  CHECK(taken->categories == failure.categories);
  CHECK(taken->predicted_live == failure.predicted_live);
  CHECK(end == -1);
}
