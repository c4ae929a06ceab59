// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Logs as people paste them, in numbers. The texts are made here in the shape that each tool
// prints; the golden tests have whole ones.

#include "planner/memory_log.hpp"

#include <array>
#include <cmath>
#include <random>

#include "tests/catch.hpp"
#include "tests/unit/seed.hpp"

using namespace plimsoll::logs;

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kMiB = 1024.0 * 1024;

std::int64_t gib(double n) { return std::llround(n * kGiB); }
std::int64_t mib(double n) { return std::llround(n * kMiB); }

}  // namespace

TEST_CASE("sizes are read with what their last digit leaves open", "[logs]") {
  CHECK(size_at("1.50 GiB")->bytes == gib(1.5));
  CHECK(size_at("1.50 GiB")->slack == std::llround(std::ceil(kGiB * 0.005)));
  CHECK(size_at("  70000MiB |")->bytes == mib(70000));
  CHECK(size_at("512 bytes") == Seen{512, 0});
  CHECK(size_at("12,345.6", "MB")->bytes == mib(12345.6));
  CHECK(size_at("-0.94GiB")->bytes == -gib(0.94));
  CHECK(!size_at("12 tokens"));
  CHECK(!size_at("GiB"));
  CHECK(!size_at(""));
  CHECK(size_before("of which 1.25 GiB is free", " is free")->bytes == gib(1.25));
  CHECK(!size_before("which is free", " is free"));
  CHECK(count_at("420,912 tokens") == 420912);
}

TEST_CASE("PyTorch's message of 2.1 and later", "[logs]") {
  const MemoryLog log = read_memory_log(
      "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has "
      "a "
      "total capacity of 79.18 GiB of which 1.25 GiB is free. Process 17 has 10.00 GiB memory in "
      "use. Including non-PyTorch memory, this process has 67.93 GiB memory in use. 60.00 GiB "
      "allowed; Of the allocated memory 60.50 GiB is allocated by PyTorch, with 0.50 GiB allocated "
      "in private pools (e.g., CUDA Graphs), and 5.25 GiB is reserved by PyTorch but unallocated.");
  REQUIRE(log.failures.size() == 1);
  const Failure& f = log.failures.front();
  CHECK(f.line == 1);
  CHECK(f.rank == 3);
  CHECK(f.gpu == 3);
  CHECK(!f.outside);
  CHECK(f.segment->bytes == gib(2));
  CHECK(f.capacity->bytes == gib(79.18));
  CHECK(f.free->bytes == gib(1.25));
  CHECK(f.others->bytes == gib(10));
  CHECK(f.in_use->bytes == gib(67.93));
  CHECK(f.allowed->bytes == gib(60));
  CHECK(f.allocated->bytes == gib(60.5));
  CHECK(f.graphs->bytes == gib(0.5));
  CHECK(f.unallocated->bytes == gib(5.25));
}

TEST_CASE("PyTorch's message before 2.1, wrapped by a terminal", "[logs]") {
  // 1.3 and before told what is reserved and not allocated.
  for (const char* reserved : {"77.25 GiB reserved in total by PyTorch)", "6.75 GiB cached)"}) {
    const MemoryLog log = read_memory_log(
        std::string(
            "epoch 1\nRuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB (GPU 2; "
            "79.18 GiB total\n  capacity; 70.50 GiB already allocated; 14.00 MiB free; ") +
        reserved + "\n");
    REQUIRE(log.failures.size() == 1);
    const Failure& f = log.failures.front();
    CHECK(f.line == 2);
    CHECK(f.gpu == 2);
    CHECK(f.segment->bytes == mib(98));
    CHECK(f.capacity->bytes == gib(79.18));
    CHECK(f.free->bytes == mib(14));
    CHECK(f.allocated->bytes == gib(70.5));
    CHECK(f.unallocated->bytes == gib(6.75));
    CHECK(!f.in_use);
  }
}

TEST_CASE("in a container the process finds itself among the others", "[logs]") {
  const MemoryLog log = read_memory_log(
      "CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacty of 79.18 GiB of "
      "which 130.00 MiB is free. Process 4242 has 9.40 GiB memory in use. Process 4243 has 69.65 "
      "GiB memory in use. Of the allocated memory 66.20 GiB is allocated by PyTorch, and 1.02 GiB "
      "is reserved by PyTorch but unallocated.");
  REQUIRE(log.failures.size() == 1);
  CHECK(log.failures[0].capacity->bytes == gib(79.18));
  CHECK(log.failures[0].in_use->bytes == gib(69.65));
  CHECK(log.failures[0].others->bytes == gib(9.4));
}

TEST_CASE("what a traceback says of the part of a step", "[logs]") {
  const auto where = [](const std::string& calls) {
    return read_memory_log("Traceback (most recent call last):\n" + calls +
                           "\nCUDA out of memory. Tried to allocate 2.00 GiB.")
        .failures.at(0)
        .where;
  };
  CHECK(where("  File \"a.py\", line 1, in forward") == Where::forward);
  CHECK(where("  File \"a.py\", line 1, in run_backward\n in forward") == Where::backward);
  CHECK(where("    optimizer.step()") == Where::update);
  CHECK(where("    model.to(device)") == Where::construction);
  CHECK(where("  File \"a.py\", line 1, in main") == Where::unknown);
}

TEST_CASE("one failure that ranks and loggers repeat is one; libraries fail outside", "[logs]") {
  const std::string message = "CUDA out of memory. Tried to allocate 2.00 GiB.\n";
  CHECK(read_memory_log(message + message).failures.size() == 1);
  CHECK(read_memory_log("[rank0]: " + message + "[rank1]: " + message).failures.size() == 2);
  const MemoryLog nccl = read_memory_log("NCCL WARN Cuda failure 2 'out of memory'");
  REQUIRE(nccl.failures.size() == 1);
  CHECK(nccl.failures[0].outside);
  CHECK(read_memory_log("the host ran out of memory").empty());
}

TEST_CASE("counters of training stacks", "[logs]") {
  const MemoryLog log = read_memory_log(
      "[Rank 8] (after 2 iterations) memory (MB) | allocated: 100.5 | max allocated: 200.25 | "
      "reserved: 300 | max reserved: 400.0\r\n"
      "MA 1.5 GB         Max_MA 2.25 GB         CA 3.0 GB         Max_CA 4 GB \n"
      "step: 10  loss:  7.1  \033[32mmemory: 47.54GiB(60.04%)\033[39m  tps: 5,700\n");
  REQUIRE(log.counters.size() == 3);
  CHECK(log.counters[0].tool == "Megatron-LM");
  CHECK(log.counters[0].rank == 8);
  CHECK(log.counters[0].allocated->bytes == mib(100.5));
  CHECK(log.counters[0].most_allocated->bytes == mib(200.25));
  CHECK(log.counters[0].most_reserved->bytes == mib(400));
  CHECK(log.counters[1].tool == "DeepSpeed");
  CHECK(log.counters[1].allocated->bytes == gib(1.5));
  CHECK(log.counters[1].most_allocated->bytes == gib(2.25));
  CHECK(log.counters[1].most_reserved->bytes == gib(4));
  CHECK(log.counters[1].most_reserved->slack == gib(0.5));
  CHECK(log.counters[2].most_reserved->bytes == gib(47.54));
}

TEST_CASE("nvidia-smi's table and its CSV, with a heading or without", "[logs]") {
  const MemoryLog table = read_memory_log(
      "|   1  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 "
      "|\n"
      "| N/A   54C    P0            640W /  700W |   77610MiB /  81559MiB |    100%      Default "
      "|\n"
      "|    0   N/A  N/A            4242      C   /usr/bin/python                       77600MiB "
      "|\n");
  REQUIRE(table.devices.size() == 1);
  CHECK(table.devices[0].gpu == 1);
  CHECK(table.devices[0].used.bytes == mib(77610));
  CHECK(table.devices[0].total->bytes == mib(81559));
  const MemoryLog csv =
      read_memory_log("index, memory.total [MiB], memory.used [MiB]\n4, 81559 MiB, 60110 MiB\n");
  REQUIRE(csv.devices.size() == 1);
  CHECK(csv.devices[0].gpu == 4);
  CHECK(csv.devices[0].used.bytes == mib(60110));
  CHECK(csv.devices[0].total->bytes == mib(81559));
  const MemoryLog bare = read_memory_log("60110 MiB, 81559 MiB\n");
  REQUIRE(bare.devices.size() == 1);
  CHECK(bare.devices[0].used.bytes == mib(60110));
}

TEST_CASE("what no tool has written does no harm", "[logs]") {
  const unsigned seed = plimsoll::test::seed_of_run();
  INFO("PLIMSOLL_SEED=" << seed);
  std::mt19937 random(seed);
  const std::string words[] = {"out of memory",
                               "Tried to allocate ",
                               "(GPU ",
                               "1.5 GiB",
                               " is free",
                               "MA ",
                               "Max_MA ",
                               "|",
                               "MiB /",
                               "memory.used",
                               ",",
                               "\n",
                               "Process ",
                               " has ",
                               "memory (MB) | allocated:",
                               "KV cache is needed",
                               "99999999",
                               "gpu_memory_utilization (",
                               "\033[",
                               "memory:",
                               "tps:",
                               "step:"};
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (unsigned n = random() % 30; n > 0; --n) text += words[random() % std::size(words)];
    const MemoryLog log = read_memory_log(text);
    for (const Failure& f : log.failures) CHECK(f.line >= 1);
  }
}

TEST_CASE("a log reads the same coloured, framed and in UTF-16", "[logs]") {
  const std::string plain =
      "step 1\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total "
      "capacity of 79.18 GiB of which 1.17 GiB is free. Including non-PyTorch memory, this process "
      "has 78.00 GiB memory in use. Of the allocated memory 75.00 GiB is allocated by PyTorch, and "
      "1.50 GiB is reserved by PyTorch but unallocated.\n";
  const auto told = [](const std::string& text) {
    const MemoryLog log = read_memory_log(text);
    REQUIRE(log.failures.size() == 1);
    const Failure& f = log.failures[0];
    CHECK(f.line == 2);
    CHECK(f.gpu == 3);
    return std::array{f.segment->bytes, f.free->bytes, f.in_use->bytes, f.allocated->bytes};
  };
  const auto expected = told(plain);
  std::string coloured, titled = "\033]0;job\a" + plain, utf16 = "\xff\xfe", big = "\xfe\xff";
  for (const char c : plain) {
    coloured += c == ' ' ? "\033[0m \033[1;31m" : std::string(1, c);
    (utf16 += c) += '\0';
    (big += '\0') += c;
  }
  CHECK(told(coloured) == expected);
  CHECK(told(titled) == expected);
  CHECK(told(utf16) == expected);
  CHECK(told(big) == expected);
  // Each line of the message in a frame, as `rich` draws tracebacks.
  std::string framed = "╭─────╮\n";
  std::size_t width = 0;
  for (const char c : plain.substr(plain.find("torch"))) {
    if (width == 0) framed += "│ ";
    const bool turn = c == '\n' || (c == ' ' && width > 50);
    if (turn)
      framed += "     │\n";
    else
      framed += c;
    width = turn ? 0 : width + 1;
  }
  CHECK(told(framed + "╰─────╯\n") == expected);
}
