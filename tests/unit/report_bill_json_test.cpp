// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <string>

#include "lang/diagnostics.hpp"
#include "planner/report_bill.hpp"
#include "tests/catch.hpp"
#include "tests/unit/report_bill_fixture.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

// clang-format off
namespace {

const std::string kServing = R"({
  "schema": "plimsoll.bill/1",
  "job": "long",
  "model": "llama3_70b",
  "params": 70553706496,
  "framework": "vllm",
  "layout": {
    "tp": 1,
    "pp": 1,
    "vpp": 1,
    "cp": 1,
    "ep": 1,
    "etp": 1,
    "dp": 1,
    "zero": 0,
    "shard": 0,
    "mbs": 1,
    "microbatches": 1,
    "recompute": "none",
    "recompute_layers": [
      0
    ],
    "stage_layers": [
      80
    ],
    "sp": false,
    "schedule": "1f1b",
    "offload": 0.0
  },
  "sequences": 11,
  "kv_blocks": 22528,
  "kv_tokens": 360448,
  "stages": [
    {
      "stage": 0,
      "layers": 80,
      "items": [
        {
          "name": "weights",
          "category": "weights",
          "bytes": 70866960384,
          "formula": "params_on_gpu",
          "lifetime": "always",
          "source": "serve: weights",
          "divided_by": "tp"
        },
        {
          "name": "KV cache",
          "category": "kv_cache",
          "bytes": 59055800320,
          "formula": "163,840 * sequences * 32,768",
          "lifetime": "always",
          "source": "vLLM: v1/kv_cache_interface.py",
          "divided_by": "tp"
        },
        {
          "name": "context",
          "category": "overhead",
          "bytes": 536870912,
          "formula": "512 MiB",
          "lifetime": "always",
          "source": "",
          "divided_by": ""
        }
      ],
      "categories": {
        "weights": 70866960384,
        "master": 0,
        "moments": 0,
        "activations": 0,
        "kv_cache": 59055800320,
        "buffers": 0,
        "workspace": 0,
        "overhead": 536870912,
        "fragmentation": 0
      },
      "live_bytes": 129922760704,
      "allocated_bytes": 129922760704,
      "reserved_bytes": 129922760704,
      "peak_bytes": 130459631616,
      "hbm_bytes": 150323855360,
      "peak_moment": "a prefill step"
    }
  ],
  "peak_bytes": 130459631616,
  "peak_stage": 0,
  "hbm_bytes": 150323855360,
  "headroom": 0.13214285714285715,
  "fits": true,
  "verdict": "fits"
}
)";

/// After the items of the first of the training's stages.
const std::string kSums = R"(      "categories": {
        "weights": 9126805504,
        "gradients": 18253611008,
        "master": 9126805504,
        "moments": 9126805504,
        "activations": 12888047616,
        "kv_cache": 0,
        "buffers": 0,
        "workspace": 67108864,
        "overhead": 3221225472,
        "fragmentation": 2150629376
      },
      "live_bytes": 58589184000,
      "allocated_bytes": 58592329728,
      "reserved_bytes": 60739813376,
      "peak_bytes": 63961038848,
      "hbm_bytes": 85899345920,
      "peak_moment": "backward of layer 19, linear down",
      "in_flight": 4,
      "first_step_bytes": 54834233344,
      "steady_bytes": 48318382080,
      "update_bytes": 50465865728,
)";

}  // namespace
// clang-format on

TEST_CASE("the bill of a server as JSON") {
  CHECK(bill_json(serving_heading(), serving()) == kServing);
}

TEST_CASE("a stage of a training's bill as JSON") {
  const std::string text = bill_json(training_heading(), training(80 * kGiB));
  const std::size_t at = text.find("      \"categories\"");
  REQUIRE(at != std::string::npos);
  CHECK(text.substr(at, kSums.size()) == kSums);
}

TEST_CASE("a layout as JSON, with the framework's words") {
  Layout layout;
  layout.dp = 8;
  layout.shard = 8;
  layout.zero = 3;
  layout.microbatches = 4;
  layout.sp = true;
  layout.recompute = 2;
  layout.recompute_layers = {3};
  layout.stage_layers = {12};
  layout.offload = Rational::fraction(1, 4);
  CHECK(report::layout_json(layout, {"none", "full", "selective"}) ==
        R"({"tp":1,"pp":1,"vpp":1,"cp":1,"ep":1,"etp":1,"dp":8,"zero":3,"shard":8,"mbs":1,)"
        R"("microbatches":4,"recompute":"selective","recompute_layers":[3],"stage_layers":[12],)"
        R"("sp":true,"schedule":"1f1b","offload":0.25})");
  // Of unlike pools, the one that holds each stage.
  layout.stage_pool = {1};
  CHECK(report::layout_json(layout, {"none", "full", "selective"}, {"old", "new"})
            .find(R"("stage_layers":[12],"stage_pool":["new"],)") != std::string::npos);
}

TEST_CASE("cache tokens that leave no single figure are null") {
  Bill bill = serving();
  bill.kv_tokens.reset();
  CHECK(bill_json(serving_heading(), bill).find("\"kv_tokens\": null,") != std::string::npos);
}

TEST_CASE("a bill that does not add up is our bug, not an answer") {
  Bill bill = training(80 * kGiB);
  bill.stages[2].lines[3].bytes += 1;
  CHECK_THROWS_AS(bill_json(training_heading(), bill), InternalError);
  bill = serving();
  bill.stages[0].categories[0] += 1;
  CHECK_THROWS_AS(bill_json(serving_heading(), bill), InternalError);
}

TEST_CASE("bytes past 64 bits stay a number") {
  Bill bill = serving();
  bill.stages[0].lines[0].bytes = Int128{1} << 70;
  close(bill.stages[0]);
  bill.peak_bytes = bill.stages[0].peak_bytes;
  CHECK(bill_json(serving_heading(), bill).find("\"bytes\": 1.1805916207174113e+21,") !=
        std::string::npos);
}
