// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/report_bill.hpp"

#include <algorithm>
#include <regex>
#include <string>

#include "tests/catch.hpp"
#include "tests/unit/report_bill_fixture.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

// What people see, to the letter: a change of any line is meant or it is wrong.
// clang-format off
namespace {

const std::string kFits80 = R"(fits: stage 0 needs 59.57 GiB of 79.18 GiB (19.61 GiB left, 24.8 %), at
  backward of layer 19, linear down
pretrain · llama3_70b, 70,553,706,496 parameters
megatron on 64 × h100_sxm (8 nodes)
tp 8 · pp 4 · dp 2 · zero 1 · mbs 1

stage 0, 20 layers, 4 micro-batches in flight
                                           HBM 79.18 GiB ▼
  weights      ████▌                                     │   8.50 GiB    10.7 %
  gradients        ▐████████▌                            │  17.00 GiB    21.5 %
  master                    ▐████                        │   8.50 GiB    10.7 %
  moments                        ████▌                   │   8.50 GiB    10.7 %
  activations                        ▐██████             │  12.00 GiB    15.2 %
  workspace                                 ▏            │  64.00 MiB     0.1 %
  overhead                                  █▌           │   3.00 GiB     3.8 %
  fragmentation                              ▐▌          │   2.00 GiB     2.5 %
  peak         ███████████████████████████████▌          │  59.57 GiB    75.2 %

All stages
              layers  in flight     states  activations      rest       peak
     stage 0      20          4  42.50 GiB    12.00 GiB  5.07 GiB  59.57 GiB
  stages 1–2      20          2  42.50 GiB     6.00 GiB  5.07 GiB  53.57 GiB
     stage 3      20          1  42.50 GiB     3.00 GiB  5.07 GiB  50.57 GiB

Items
      bytes  item              lifetime             divided by     from
  weights
   8.50 GiB  weights           always               tp, pp         [1]
             = 2 * params_on_gpu
  gradients
  17.00 GiB  gradients         always               tp, pp         [2]
             = 4 * params_on_gpu
  master
   8.50 GiB  master            always               tp, pp, shard  [3]
             = 4 * params_on_gpu / shard
  moments
   8.50 GiB  m                 from the first step  tp, pp, shard  [4]
             = 4 * params_on_gpu / shard
  activations · 12.00 GiB
   8.00 GiB  input of glu      micro-batch          tp, cp         [5]
             = 4 * 28,672 * mbs * seq / (cp * tp) * in_flight * layers_on_stage
   4.00 GiB  input of q, k, v  micro-batch          tp, cp         [5]
             = 2 * 8,192 * mbs * seq / (cp * tp) * in_flight * layers_on_stage
   3.00 MiB  3 smaller items
  workspace
  64.00 MiB  cuBLAS            always                              [6]
             = 2 * 32 MiB
  overhead
   3.00 GiB  NCCL              always                              [7]
             = 12 MiB * channels * peers
  fragmentation · 2.00 GiB
   2.00 GiB  fragmentation
             = 0.04 * allocated
   3.00 MiB  block rounding
  [1]  Megatron-LM: parameters in the job's precision
  [2]  Megatron-LM: param_and_grad_buffer.py
  [3]  Megatron-LM: distrib_optimizer.py
  [4]  adamw
  [5]  TransformerEngine: module/layernorm_linear.py
  [6]  PyTorch
  [7]  NCCL: init.cc
  Smaller items, one by one: --json.

Counters
  live tensors           54.57 GiB
  allocated              54.57 GiB  3.00 MiB of rounding
  reserved               56.57 GiB  allocated × 1.04, framework megatron
  outside the allocator   3.00 GiB  context, libraries, communicators
  peak                   59.57 GiB  63,961,038,848 B

Highest moments
  59.57 GiB  backward of layer 19, linear down
  47.00 GiB  optimizer step
First step 51.07 GiB · between steps 45.00 GiB · optimizer step 47.00 GiB
)";

const std::string kFits120 = R"(fits: stage 0 needs 59.57 GiB of 79.18 GiB (19.61 GiB left, 24.8 %), at backward of layer 19, linear down
pretrain · llama3_70b, 70,553,706,496 parameters
megatron on 64 × h100_sxm (8 nodes)
tp 8 · pp 4 · dp 2 · zero 1 · mbs 1

stage 0, 20 layers, 4 micro-batches in flight
                                                                                   HBM 79.18 GiB ▼
  weights      █████████                                                                         │   8.50 GiB    10.7 %
  gradients             █████████████████▌                                                       │  17.00 GiB    21.5 %
  master                                 ▐████████                                               │   8.50 GiB    10.7 %
  moments                                         █████████                                      │   8.50 GiB    10.7 %
  activations                                              ████████████▌                         │  12.00 GiB    15.2 %
  workspace                                                            ▏                         │  64.00 MiB     0.1 %
  overhead                                                             ▐██▌                      │   3.00 GiB     3.8 %
  fragmentation                                                           ▐█▌                    │   2.00 GiB     2.5 %
  peak         █████████████████████████████████████████████████████████████▌                    │  59.57 GiB    75.2 %

All stages
              layers  in flight   weights  gradients  optimizer  activations    buffers      rest       peak
     stage 0      20          4  8.50 GiB  17.00 GiB  17.00 GiB    12.00 GiB  64.00 MiB  5.00 GiB  59.57 GiB
  stages 1–2      20          2  8.50 GiB  17.00 GiB  17.00 GiB     6.00 GiB  64.00 MiB  5.00 GiB  53.57 GiB
     stage 3      20          1  8.50 GiB  17.00 GiB  17.00 GiB     3.00 GiB  64.00 MiB  5.00 GiB  50.57 GiB

Items
      bytes  item              formula                         lifetime             divided by     from
  weights
   8.50 GiB  weights           2 * params_on_gpu               always               tp, pp         [1]
  gradients
  17.00 GiB  gradients         4 * params_on_gpu               always               tp, pp         [2]
  master
   8.50 GiB  master            4 * params_on_gpu / shard       always               tp, pp, shard  [3]
  moments
   8.50 GiB  m                 4 * params_on_gpu / shard       from the first step  tp, pp, shard  [4]
  activations · 12.00 GiB
   8.00 GiB  input of glu      4 * 28,672 * mbs * seq / (cp *  micro-batch          tp, cp         [5]
                               tp) * in_flight *
                               layers_on_stage
   4.00 GiB  input of q, k, v  2 * 8,192 * mbs * seq / (cp *   micro-batch          tp, cp         [5]
                               tp) * in_flight *
                               layers_on_stage
   3.00 MiB  3 smaller items
  workspace
  64.00 MiB  cuBLAS            2 * 32 MiB                      always                              [6]
  overhead
   3.00 GiB  NCCL              12 MiB * channels * peers       always                              [7]
  fragmentation · 2.00 GiB
   2.00 GiB  fragmentation     0.04 * allocated
   3.00 MiB  block rounding
  [1]  Megatron-LM: parameters in the job's precision
  [2]  Megatron-LM: param_and_grad_buffer.py
  [3]  Megatron-LM: distrib_optimizer.py
  [4]  adamw
  [5]  TransformerEngine: module/layernorm_linear.py
  [6]  PyTorch
  [7]  NCCL: init.cc
  Smaller items, one by one: --json.

Counters
  live tensors           54.57 GiB
  allocated              54.57 GiB  3.00 MiB of rounding
  reserved               56.57 GiB  allocated × 1.04, framework megatron
  outside the allocator   3.00 GiB  context, libraries, communicators
  peak                   59.57 GiB  63,961,038,848 B

Highest moments
  59.57 GiB  backward of layer 19, linear down
  47.00 GiB  optimizer step
First step 51.07 GiB · between steps 45.00 GiB · optimizer step 47.00 GiB
)";

const std::string kOver80 = R"(does not fit: stage 0 needs 59.57 GiB of 50.00 GiB (9.57 GiB over), at
  backward of layer 19, linear down
pretrain · llama3_70b, 70,553,706,496 parameters
megatron on 64 × h100_sxm (8 nodes)
tp 8 · pp 4 · dp 2 · zero 1 · mbs 1

stage 0, 20 layers, 4 micro-batches in flight
                                    HBM 50.00 GiB ▼
  weights      ██████                             │          8.50 GiB    17.0 %
  gradients          ████████████                 │         17.00 GiB    34.0 %
  master                         ██████           │          8.50 GiB    17.0 %
  moments                              ██████     │          8.50 GiB    17.0 %
  activations                                ████████▌      12.00 GiB    24.0 %
  workspace                                       │  ▏      64.00 MiB     0.1 %
  overhead                                        │  ▐█▌     3.00 GiB     6.0 %
  fragmentation                                   │    ▐█    2.00 GiB     4.0 %
  peak         ██████████████████████████████████████████   59.57 GiB   119.1 %

All stages
              layers  in flight     states  activations      rest       peak
     stage 0      20          4  42.50 GiB    12.00 GiB  5.07 GiB  59.57 GiB
  stages 1–2      20          2  42.50 GiB     6.00 GiB  5.07 GiB  53.57 GiB
     stage 3      20          1  42.50 GiB     3.00 GiB  5.07 GiB  50.57 GiB
)";

const std::string kAscii80 = R"(fits: stage 0 needs 59.57 GiB of 79.18 GiB (19.61 GiB left, 24.8 %), at
  backward of layer 19, linear down
pretrain - llama3_70b, 70,553,706,496 parameters
megatron on 64 x h100_sxm (8 nodes)
tp 8 - pp 4 - dp 2 - zero 1 - mbs 1

stage 0, 20 layers, 4 micro-batches in flight
                                           HBM 79.18 GiB v
  weights      #####                                     |   8.50 GiB    10.7 %
  gradients        ##########                            |  17.00 GiB    21.5 %
  master                    #####                        |   8.50 GiB    10.7 %
  moments                        #####                   |   8.50 GiB    10.7 %
  activations                        #######             |  12.00 GiB    15.2 %
  workspace                                 :            |  64.00 MiB     0.1 %
  overhead                                  ##           |   3.00 GiB     3.8 %
  fragmentation                              ##          |   2.00 GiB     2.5 %
  peak         ################################          |  59.57 GiB    75.2 %

All stages
              layers  in flight     states  activations      rest       peak
     stage 0      20          4  42.50 GiB    12.00 GiB  5.07 GiB  59.57 GiB
  stages 1-2      20          2  42.50 GiB     6.00 GiB  5.07 GiB  53.57 GiB
     stage 3      20          1  42.50 GiB     3.00 GiB  5.07 GiB  50.57 GiB
)";

const std::string kStage2 = R"(fits: stage 0 needs 59.57 GiB of 79.18 GiB (19.61 GiB left, 24.8 %), at
  backward of layer 19, linear down
pretrain · llama3_70b, 70,553,706,496 parameters
megatron on 64 × h100_sxm (8 nodes)
tp 8 · pp 4 · dp 2 · zero 1 · mbs 1

stage 2, 20 layers, 2 micro-batches in flight, at backward of layer 19, linear
  down
                                           HBM 79.18 GiB ▼
  weights      ████▌                                     │   8.50 GiB    10.7 %
  gradients        ▐████████▌                            │  17.00 GiB    21.5 %
  master                    ▐████                        │   8.50 GiB    10.7 %
  moments                        ████▌                   │   8.50 GiB    10.7 %
  activations                        ▐██▌                │   6.00 GiB     7.6 %
  workspace                             ▐                │  64.00 MiB     0.1 %
  overhead                               █▌              │   3.00 GiB     3.8 %
  fragmentation                           ▐▌             │   2.00 GiB     2.5 %
  peak         ████████████████████████████▌             │  53.57 GiB    67.7 %
)";

const std::string kServing80 = R"(11 sequences of 32,768 tokens fit: each GPU needs 121.5 GiB of 140.0 GiB
  (18.50 GiB left, 13.2 %), at a prefill step
long · llama3_70b, 70,553,706,496 parameters
vllm on 1 × h200

each GPU, 80 layers
                                           HBM 140.0 GiB ▼
  weights      ████████████████████                      │  66.00 GiB    47.1 %
  KV cache                         ████████████████▌     │  55.00 GiB    39.3 %
  overhead                                         ▏     │  512.0 MiB     0.4 %
  peak         ████████████████████████████████████▌     │  121.5 GiB    86.8 %
The cache holds 22,528 blocks, 360,448 tokens.

Items
      bytes  item      lifetime  divided by  from
  weights
  66.00 GiB  weights   always    tp          [1]
             = params_on_gpu
  KV cache
  55.00 GiB  KV cache  always    tp          [2]
             = 163,840 * sequences * 32,768
  overhead
  512.0 MiB  context   always
             = 512 MiB
  [1]  serve: weights
  [2]  vLLM: v1/kv_cache_interface.py

Counters
  live tensors           121.0 GiB
  allocated              121.0 GiB  0 B of rounding
  reserved               121.0 GiB  as allocated: no segments are counted
  outside the allocator  512.0 MiB  context, libraries, communicators
  peak                   121.5 GiB  130,459,631,616 B

)";

const std::string kAgainst80 = R"(megatron needs 59.57 GiB, textbook 46.07 GiB: 13.50 GiB more (29.3 %)
pretrain · llama3_70b, 70,553,706,496 parameters · 64 × h100_sxm (8 nodes)
tp 8 · pp 4 · dp 2 · zero 1 · mbs 1
Set side by side: stage 0 and stage 0, the peak of each.

                  megatron   textbook  difference
  weights         8.50 GiB   8.50 GiB         0 B
  gradients      17.00 GiB   8.50 GiB   +8.50 GiB
  master          8.50 GiB   8.50 GiB         0 B
  moments         8.50 GiB   8.50 GiB         0 B
  activations    12.00 GiB  12.00 GiB         0 B
  workspace      64.00 MiB  64.00 MiB         0 B
  overhead        3.00 GiB        0 B   +3.00 GiB
  fragmentation   2.00 GiB        0 B   +2.00 GiB
  peak           59.57 GiB  46.07 GiB  +13.50 GiB

Largest differences
  difference  item                            megatron  textbook
   +8.50 GiB  gradients       gradients      17.00 GiB  8.50 GiB
   +3.00 GiB  NCCL            overhead        3.00 GiB      none
   +2.00 GiB  fragmentation   fragmentation   2.00 GiB      none
   +3.00 MiB  block rounding  fragmentation   3.00 MiB      none
)";

}  // namespace
// clang-format on

namespace {

constexpr Int128 kHbm = Int128{7918} * kGiB / 100;

/// The first lines of \a text, as many as \a sample has bytes.
std::string start(const std::string& text, const std::string& sample) {
  return text.substr(0, sample.size());
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0, from = 0;
  while (from < text.size()) {
    const std::size_t end = text.find('\n', from);
    most = std::max(most, report::columns(text.substr(from, end - from)));
    from = end + 1;
  }
  return most;
}

}  // namespace

TEST_CASE("a bill at 80 and at 120 columns") {
  CHECK(bill_text(training_heading(), training(kHbm), {80, true, false}) == kFits80);
  CHECK(bill_text(training_heading(), training(kHbm), {120, true, false}) == kFits120);
}

TEST_CASE("what does not fit stands beyond the line") {
  CHECK(start(bill_text(training_heading(), training(50 * kGiB), {80, true, false}), kOver80) ==
        kOver80);
}

TEST_CASE("a bill in a locale without UTF-8 is ASCII and keeps its columns") {
  const std::string text = bill_text(training_heading(), training(kHbm), {80, false, false});
  CHECK(start(text, kAscii80) == kAscii80);
  CHECK(std::all_of(text.begin(), text.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

TEST_CASE("another stage's items on demand, with its moment") {
  CHECK(start(bill_text(training_heading(), training(kHbm), {80, true, false}, 2), kStage2) ==
        kStage2);
}

TEST_CASE("a bill of a server says how many sequences") {
  CHECK(bill_text(serving_heading(), serving(), {80, true, false}) == kServing80);
}

TEST_CASE("two bills side by side") {
  Bill other = training(kHbm);
  StageBill& first = other.stages.front();
  first.lines.erase(first.lines.end() - 3, first.lines.end());
  first.lines[1].bytes /= 2;
  close(first);
  other.peak_bytes = first.peak_bytes;
  report::Heading heading = training_heading();
  heading.framework = "textbook";
  CHECK(against_text(training_heading(), training(kHbm), heading, other, {80, true, false}) ==
        kAgainst80);
  const std::string same = against_text(heading, other, heading, other, {80, true, false});
  CHECK(start(same, "textbook needs 46.07 GiB, textbook 46.07 GiB: the same\n") ==
        "textbook needs 46.07 GiB, textbook 46.07 GiB: the same\n");
}

TEST_CASE("answers in one sentence") {
  Bill bill = training(kHbm);
  CHECK(answer(training_heading(), bill) ==
        "fits: stage 0 needs 59.57 GiB of 79.18 GiB (19.61 GiB left, 24.8 %), at backward of layer "
        "19, linear down");
  bill.verdict = "edge";
  CHECK(start(answer(training_heading(), bill), "fits, on the edge: ") == "fits, on the edge: ");
  bill.fits = false;
  CHECK(start(answer(training_heading(), bill), "does not fit, on the edge: ") ==
        "does not fit, on the edge: ");
  CHECK(answer(training_heading(), training(50 * kGiB)) ==
        "does not fit: stage 0 needs 59.57 GiB of 50.00 GiB (9.57 GiB over), at backward of layer "
        "19, linear down");
  Bill server = serving();
  server.sequences = 1;
  CHECK(start(answer(serving_heading(), server),
              "1 sequence of 32,768 tokens fits: each GPU needs") ==
        "1 sequence of 32,768 tokens fits: each GPU needs");
  server.fits = false;
  CHECK(start(answer(serving_heading(), server), "1 sequence of 32,768 tokens does not fit:") ==
        "1 sequence of 32,768 tokens does not fit:");
  server.sequences = 0;
  CHECK(start(answer(serving_heading(), server),
              "not one sequence of 32,768 tokens fits: each GPU") ==
        "not one sequence of 32,768 tokens fits: each GPU");
}

TEST_CASE("no line is wider than the terminal, at any width from 80 on") {
  for (std::size_t width = 80; width <= 160; ++width) {
    CAPTURE(width);
    CHECK(widest(bill_text(training_heading(), training(kHbm), {width, true, false})) <= width);
    CHECK(widest(bill_text(training_heading(), training(50 * kGiB), {width, true, true})) <= width);
    CHECK(widest(bill_text(serving_heading(), serving(), {width, true, false})) <= width);
  }
}

TEST_CASE("a fraction is never without its unit") {
  // Formulas have their own numbers; every other fraction is followed by a unit.
  const std::regex bare(R"(\d\.\d+(?!\d)(?! (B|KiB|MiB|GiB|TiB|%)))");
  for (const Int128 hbm : {kHbm, 50 * kGiB}) {
    std::string text = bill_text(training_heading(), training(hbm), {120, true, false});
    text = std::regex_replace(text, std::regex("0\\.04 \\* allocated|× 1\\.04"), "");
    CHECK_FALSE(std::regex_search(text, bare));
  }
}

TEST_CASE("colour is paint only") {
  const std::string plain = bill_text(training_heading(), training(50 * kGiB), {80, true, false});
  const std::string painted = bill_text(training_heading(), training(50 * kGiB), {80, true, true});
  CHECK(plain.find('\x1b') == std::string::npos);
  CHECK(start(painted, "\x1b[31mdoes not fit\x1b[0m: stage 0") ==
        "\x1b[31mdoes not fit\x1b[0m: stage 0");
  CHECK(std::regex_replace(painted, std::regex("\x1b\\[[0-9]*m"), "") == plain);
}

TEST_CASE("text is wrapped by columns, not by bytes") {
  CHECK(report::columns("8 × h100 ÷ tp") == 13);
  CHECK(report::wrap("· · · ·", 3) == std::vector<std::string>{"· ·", "· ·"});
  CHECK(report::wrap("a longword b", 4) == std::vector<std::string>{"a", "longword", "b"});
  CHECK(report::wrap("", 4) == std::vector<std::string>{""});
  CHECK(report::percent(1, 0) == "0.0 %");
}
