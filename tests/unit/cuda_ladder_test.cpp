// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The runs that tests/gpu/run.sh makes on a GPU, at full size, on a machine that does nothing: what
// is launched, multiplied and copied is looked at, and lies in memory that is held.

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/cuda/cuda_verify.hpp"
#include "runtime/cuda/idle_machine.hpp"
#include "tests/unit/cuda_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace {

/// Memory that is only counted, and that says what lies in a segment.
class Watched final : public Backing {
 public:
  Watched(std::int64_t total, std::int64_t capacity, std::map<Address, std::int64_t>& held)
      : counting_(total, capacity), held_(held), base_(next_base()) {}
  std::optional<Address> reserve(std::int64_t bytes) override {
    auto at = counting_.reserve(bytes);
    if (!at) return at;
    held_[*at + base_] = bytes;
    return *at + base_;
  }
  void release(Address at, std::int64_t bytes) override {
    counting_.release(at - base_, bytes);
    held_.erase(at);
  }
  Address reserve_range(std::int64_t bytes) override {
    return counting_.reserve_range(bytes) + base_;
  }
  void release_range(Address at, std::int64_t bytes) override {
    counting_.release_range(at - base_, bytes);
  }
  bool map(Address at, std::int64_t bytes) override {
    if (!counting_.map(at - base_, bytes)) return false;
    held_[at] = bytes;
    return true;
  }
  void unmap(Address at, std::int64_t bytes) override {
    counting_.unmap(at - base_, bytes);
    held_.erase(at);
  }
  std::int64_t total() const override { return counting_.total(); }

 private:
  static Address next_base() {
    static Address base = 0;
    return base += Address{1} << 48;
  }
  CountingBacking counting_;
  std::map<Address, std::int64_t>& held_;
  Address base_;
};

class WatchedMachine final : public cuda::IdleMachine {
 public:
  std::unique_ptr<Backing> backing(std::int64_t capacity) override {
    return std::make_unique<Watched>(kMemory, capacity, held_);
  }
  void launch(const cuda::Kernel& kernel) override {
    IdleMachine::launch(kernel);
    ++launches;
  }
  void multiply(const cuda::Product& p) override {
    ++products;
    const auto or_own = [](std::int64_t stride, std::int64_t own) { return stride ? stride : own; };
    check(p.a, last(p.a_turned ? p.k : p.m, p.a_turned ? p.m : p.k,
                    or_own(p.a_stride, p.a_turned ? p.m : p.k), p.batch, p.a_step));
    check(p.b, last(p.b_turned ? p.n : p.k, p.b_turned ? p.k : p.n,
                    or_own(p.b_stride, p.b_turned ? p.k : p.n), p.batch, p.b_step));
    check(p.c, last(p.m, p.n, or_own(p.c_stride, p.n), p.batch, p.c_step));
    CHECKED(p.a.number == p.b.number);
    flops += 2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k * p.batch);
  }
  void use_workspace(void*, std::int64_t bytes) override { workspace = std::max(workspace, bytes); }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    check(to, bytes);
    check(from, bytes);
    copied += bytes;
  }
  void clear(void* at, std::int64_t bytes) override { check(at, bytes); }
  void upload(void* to, const void*, std::int64_t bytes) override { check(to, bytes); }
  void download(void* to, const void* from, std::int64_t bytes) override {
    check(from, bytes);
    IdleMachine::download(to, from, bytes);
  }

  std::int64_t launches = 0, products = 0, copied = 0, workspace = 0;
  double flops = 0;

 private:
  static void CHECKED(bool right) {
    if (!right) throw InternalError("work on memory that is not held");
  }
  static std::int64_t last(std::int64_t rows, std::int64_t cols, std::int64_t stride,
                           std::int64_t batch, std::int64_t step) {
    return (batch - 1) * step + (rows - 1) * stride + cols;
  }
  void check(const cuda::Array& a, std::int64_t count) {
    check(a.at, count * cuda::bytes_of(a.number));
  }
  void check(const void* memory, std::int64_t bytes) {
    if (bytes <= 0) return;
    const auto at = reinterpret_cast<Address>(memory);  // NOLINT
    auto segment = held_.upper_bound(at);
    CHECKED(segment != held_.begin());
    --segment;
    CHECKED(at + bytes <= segment->first + segment->second);
  }
  std::map<Address, std::int64_t> held_;
};

std::string ladder_file(const std::string& name) {
  const std::filesystem::path here =
      std::filesystem::path(test::data("x")).parent_path().parent_path();
  std::ifstream file(here / "gpu" / "ladder" / name);
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE_FALSE(text.str().empty());
  return text.str();
}

}  // namespace

TEST_CASE("cuda ladder: the runs of tests/gpu/run.sh, at full size on a machine that is idle",
          "[cuda]") {
  // Scratch is logits that a framework's loss frees before it reads them (8Ki x 128,256 in bf16),
  // and what lies between the products of attention that stores its scores.
  for (const auto& [file, layout, most_scratch] :
       {std::tuple{"1_llama_1b.plan", "whole", 1.0}, std::tuple{"2_llama3_8b.plan", "full", 2.2},
        std::tuple{"2_llama3_8b.plan", "selective", 2.2},
        std::tuple{"3_llama3_70b.plan", "stage", 1.0}, std::tuple{"4_mixtral.plan", "stage", 2.0},
        std::tuple{"5_gpt_unfused.plan", "whole", 2.0},
        std::tuple{"6_one_layer.plan", "whole", 2.0}}) {
    INFO(file << ", " << layout);
    const Priced p = price(ladder_file(file), layout);
    WatchedMachine machine;
    const std::int64_t rank = chosen_ranks(p.bill, {}).front();
    const auto ran = cuda::verify_on(machine, *p.problem, p.bill, rank, std::nullopt, 2);
    if (const auto* why = std::get_if<std::string>(&ran)) FAIL(*why);
    const auto& v = std::get<Verification>(ran);
    CHECK(v.agrees);
    REQUIRE_FALSE(v.failure);
    CHECK(v.ranks.at(0).reserved == v.gpu->predicted_reserved);
    CHECK(machine.launches > 0);
    CHECK(machine.products > 0);
    INFO("scratch " << v.gpu->scratch / 1e9 << " GB");
    CHECK(static_cast<double>(v.gpu->scratch) <= most_scratch * 1e9);
    // All but what a context takes is counted before the run.
    CHECK(v.gpu->scratch == v.gpu->predicted_scratch);
    CHECK(v.gpu->predicted_used ==
          v.gpu->predicted_context + v.ranks.at(0).reserved + v.gpu->scratch);
    std::set<std::string> timed;
    for (const auto& k : v.gpu->kinds)
      if (k.predicted && *k.predicted > 0) timed.insert(k.name);
    for (const char* kind : {"linear", "attention", "optimizer"}) {
      INFO(kind);
      CHECK(timed.contains(kind));
    }
  }
}
