// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <string>

#include "planner/explain.hpp"
#include "tests/catch.hpp"
#include "tests/unit/report_bill_fixture.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

TEST_CASE("single steps as a table") {
  const Bill bill = training(50 * kGiB);
  SingleStep zero, tp, mbs;
  zero.change = "zero 1 → 2";
  zero.peak_bytes = bill.peak_bytes - 17 * kGiB / 2;
  zero.excluded = true;
  tp.change = "tp 8 → 16";
  tp.peak_bytes = 49 * kGiB;
  tp.fits = true;
  mbs.change = "mbs 1 → 2";
  mbs.peak_bytes = bill.peak_bytes;
  const report::Style style{80, true, false};
  CHECK(report::finish(style, report::steps_text(bill, {tp, zero, mbs}, style)) ==
        "What one step of a layout variable would do\n"
        "  change           peak  difference\n"
        "  tp 8 → 16   49.00 GiB  −10.57 GiB  fits\n"
        "  zero 1 → 2  51.07 GiB   −8.50 GiB  excluded\n"
        "  mbs 1 → 2   59.57 GiB         0 B  does not fit\n"
        "  Excluded: by what the job pins or requires.\n");
  CHECK(report::steps_text(bill, {}, style).empty());
}
