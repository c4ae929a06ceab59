// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/certificate.hpp"

#include <random>
#include <set>

#include "tests/catch.hpp"

using namespace plimsoll;

namespace {

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> out;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0) out.push_back(d);
  return out;
}

/// tp and pp of some GPUs, dp what they leave, mbs that divides a batch over dp.
Claim layouts(std::int64_t gpus, std::int64_t batch, std::vector<std::size_t> apart) {
  Claim s;
  s.variables.push_back({"tp", divisors(gpus)});
  s.variables.push_back({"pp", divisors(gpus)});
  s.variables.push_back({"dp", divisors(gpus), {0, 1}, [gpus](ClaimValues v) {
                           const std::int64_t model = v[0] * v[1];
                           return gpus % model == 0 ? std::optional(gpus / model) : std::nullopt;
                         }});
  s.variables.push_back({"mbs", {1, 2, 3, 4, 8}});
  s.rules.push_back(
      {"the batch divides", {2, 3}, [batch](ClaimValues v) { return batch % (v[0] * v[1]) == 0; }});
  s.rules.push_back({"tp <= 8", {0}, [](ClaimValues v) { return v[0] <= 8; }});
  s.apart = std::move(apart);
  return s;
}

/// The same points, the plain way.
std::set<ClaimPoint> tried(std::int64_t gpus, std::int64_t batch) {
  std::set<ClaimPoint> out;
  for (std::int64_t tp = 1; tp <= 8; ++tp)
    for (std::int64_t pp = 1; tp * pp <= gpus; ++pp) {
      if (gpus % (tp * pp) != 0) continue;
      const std::int64_t dp = gpus / tp / pp;
      for (const std::int64_t mbs : {1, 2, 3, 4, 8})
        if (batch % (dp * mbs) == 0) out.insert({tp, pp, dp, mbs});
    }
  return out;
}

ClaimPoint point(ClaimValues v) { return {v.begin(), v.end()}; }

}  // namespace

TEST_CASE("certificate: the rules allow what trying finds", "[certificate]") {
  for (const std::int64_t gpus : {1, 6, 16, 24})
    for (const std::int64_t batch : {7, 16, 48}) {
      std::set<ClaimPoint> found;
      for_each_point(layouts(gpus, batch, {}), [&](ClaimValues v) {
        CHECK(found.insert(point(v)).second);
        return true;
      });
      CHECK(found == tried(gpus, batch));
    }
}

TEST_CASE("certificate: a complete search is proven, whatever goes value by value",
          "[certificate]") {
  const std::set<ClaimPoint> all = tried(24, 48);
  for (const std::vector<std::size_t>& apart :
       std::vector<std::vector<std::size_t>>{{}, {0}, {0, 1}, {2}, {0, 1, 2, 3}}) {
    std::int64_t asked = 0;
    const Certificate c = certify(layouts(24, 48, apart), [&](ClaimValues v) {
      ++asked;
      return all.contains(point(v)) ? Verdict::no_better : Verdict::missing;
    });
    CHECK(c.status == Certificate::proven);
    CHECK(c.points == static_cast<std::int64_t>(all.size()));  // each once
    CHECK(asked == c.points);
    CHECK(c.clauses > 0);
    CHECK(c.units > 0);
    CHECK(c.checks == c.nogoods + 1);
    if (apart.empty()) CHECK(c.nogoods == 1);
    if (apart.size() == 4) CHECK(c.nogoods == c.points);
  }
}

TEST_CASE("certificate: a point that the search never met is found", "[certificate]") {
  const std::uint32_t seed = 20'251'129;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const std::set<ClaimPoint> all = tried(24, 48);
  const std::vector<ClaimPoint> list(all.begin(), all.end());
  for (int i = 0; i < 30; ++i) {
    const ClaimPoint& left_out = list[random() % list.size()];
    const auto verdict = i % 2 == 0 ? Verdict::missing : Verdict::better;
    const Certificate c = certify(layouts(24, 48, {random() % 4}), [&](ClaimValues v) {
      return point(v) == left_out ? verdict : Verdict::no_better;
    });
    CHECK(c.status == Certificate::mismatch);
    CHECK(c.witness == left_out);
    CHECK(c.why.find(verdict == Verdict::missing ? "the search never met tp " : "nothing says") ==
          0);
    CHECK(c.smt2.find("(assert") != std::string::npos);
  }
}

TEST_CASE("certificate: rules that allow nothing are proven without a look", "[certificate]") {
  Claim s = layouts(24, 48, {});
  s.rules.push_back({"none", {1}, [](ClaimValues) { return false; }});
  const Certificate c = certify(s, [](ClaimValues) { return Verdict::missing; });
  CHECK(c.status == Certificate::proven);
  CHECK(c.points == 0);
  CHECK(c.nogoods == 0);
  s = layouts(24, 48, {});
  s.variables[3].values.clear();
  CHECK(certify(s, [](ClaimValues) { return Verdict::missing; }).status == Certificate::proven);
}

TEST_CASE("certificate: what the budget does not last for is unknown", "[certificate]") {
  const auto known = [](ClaimValues) { return Verdict::no_better; };
  CertificateBudget few;
  few.units = 10;
  CHECK(certify(layouts(24, 48, {0}), known, few).status == Certificate::unknown);
  CertificateBudget some;
  some.points = 5;
  const Certificate c = certify(layouts(24, 48, {}), known, some);
  CHECK(c.status == Certificate::unknown);
  CHECK(c.points == 5);
  CertificateBudget stopped;
  stopped.stop = [] { return true; };
  CHECK(certify(layouts(24, 48, {}), known, stopped).status == Certificate::unknown);
}

TEST_CASE("certificate: random rules over random variables equal trying", "[certificate]") {
  const std::uint32_t seed = 7;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int world = 0; world < 60; ++world) {
    Claim s;
    const std::size_t n = 2 + random() % 4;
    for (std::size_t v = 0; v < n; ++v) {
      ClaimVariable variable{"v" + std::to_string(v), {}};
      for (std::size_t k = 1 + random() % 5; k > 0; --k)
        variable.values.push_back(static_cast<std::int64_t>(variable.values.size()));
      s.variables.push_back(variable);
    }
    for (std::size_t k = random() % 5; k > 0; --k) {
      std::set<std::size_t> over;
      for (std::size_t j = 1 + random() % 3; j > 0; --j) over.insert(random() % n);
      const auto factor = static_cast<std::int64_t>(1 + random() % 4);
      const auto modulus = static_cast<std::int64_t>(2 + random() % 3);
      s.rules.push_back({"rule", {over.begin(), over.end()}, [=](ClaimValues v) {
                           std::int64_t sum = 1;
                           for (const std::int64_t x : v) sum = sum * factor + x;
                           return sum % modulus != 0;
                         }});
    }
    if (random() % 2 == 0) s.apart = {random() % n};
    std::set<ClaimPoint> all;
    ClaimPoint at(n);
    const auto go = [&](auto&& self, std::size_t v) -> void {
      if (v == n) {
        for (const ClaimRule& rule : s.rules) {
          ClaimPoint values;
          for (const std::size_t o : rule.over) values.push_back(at[o]);
          if (!rule.holds(values)) return;
        }
        all.insert(at);
        return;
      }
      for (const std::int64_t value : s.variables[v].values) {
        at[v] = value;
        self(self, v + 1);
      }
    };
    go(go, 0);
    INFO("world " << world);
    const Certificate whole = certify(s, [&](ClaimValues v) {
      return all.contains(point(v)) ? Verdict::no_better : Verdict::missing;
    });
    CHECK(whole.status == Certificate::proven);
    CHECK(whole.points == static_cast<std::int64_t>(all.size()));
  }
}
