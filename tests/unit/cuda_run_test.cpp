// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The device cuda, but for the GPU: its orders and the arithmetic of its kernels give the host's
// loss, gradients and parameters, in the memory that the bill says.

#include "tests/unit/cuda_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

TEST_CASE("cuda run: one rank, tensor parallelism, pipelines", "[cuda]") {
  check_on_cuda(kLlama, {{1, ""},
                         {1, "recompute = full"},
                         {2, "tp = 2"},
                         {4, "tp = 4  sp = true"},
                         {2, "pp = 2"},
                         {2, "pp = 2  vpp = 2"}});
}

TEST_CASE("cuda run: ZeRO and context parallelism", "[cuda]") {
  check_on_cuda(kLlama, {{2, "zero = 0"},
                         {2, "zero = 1"},
                         {2, "zero = 2"},
                         {4, "zero = 3"},
                         {2, "cp = 2"},
                         {4, "cp = 4  mbs = 2"},
                         {8, "tp = 2  cp = 2  zero = 3"},
                         {8, "tp = 2  pp = 2  sp = true  zero = 1"}});
}

TEST_CASE("cuda run: experts", "[cuda]") {
  check_on_cuda(kMixtral, {{1, ""},
                           {2, "ep = 2"},
                           {4, "ep = 4  zero = 1"},
                           {2, "tp = 2  sp = true  etp = 2"},
                           {4, "tp = 2  sp = true  etp = 2  ep = 2"},
                           {4, "ep = 2  zero = 3"},
                           {2, "tp = 2  etp = 1"},
                           {4, "cp = 2  ep = 2"}});
  check_on_cuda(kDeepseek, {{1, ""}, {2, "ep = 2"}, {4, "tp = 2  sp = true  ep = 2  etp = 1"}});
}

TEST_CASE("cuda run: GPT with dropout, biases, tied head and positions", "[cuda]") {
  for (const char* attention : {"flash", "unfused"}) {
    check_on_cuda(gpt_with(attention), {{1, ""},
                                        {1, "recompute = selective"},
                                        {2, "tp = 2  sp = true"},
                                        {2, "cp = 2"},
                                        {4, "pp = 2  zero = 2"},
                                        {8, "tp = 2  pp = 2  sp = true  zero = 3"}});
  }
}

TEST_CASE("cuda run: decoders of every family", "[cuda]") {
  for (const char* more : kDecoderFamilies) {
    INFO(more);
    check_on_cuda(decoder_with(more), {{1, ""}, {2, "tp = 2"}, {4, "tp = 4  sp = true"}});
  }
}

TEST_CASE("cuda run: mamba2 beside attention", "[cuda]") {
  check_on_cuda(kHybrid, {{1, ""},
                          {2, "tp = 2"},
                          {2, "tp = 2  sp = true"},
                          {4, "pp = 2  zero = 1"},
                          {2, "zero = 3"},
                          {1, "recompute = full"}});
  // Longer than the stretches whose states a scan holds: two whole ones and a half.
  check_on_cuda({kHybrid.model, "", 4, 160}, {{1, ""}, {2, "tp = 2  sp = true"}});
}
