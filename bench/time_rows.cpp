// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Step times of many files under many sets of constants, for bench/fit_time.py.
//
// usage: plimsoll_time_rows ROWS.json < SETS > TIMES
// ROWS.json: [{"plan": text of a file with one job and one layout, "gpu": class of machine}, …].
// Each line of SETS changes constants ("alpha=2e-05 beta=…"); each answer is a line of JSON: the
// seconds of every row, or of those named ("@0,3,7"), null for a row that cannot be priced.
// `--constants` prints the defaults.

#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lang/module.hpp"
#include "planner/layout.hpp"
#include "planner/time.hpp"
#include "planner/time_constants.hpp"

namespace plimsoll {
namespace {

/// Machines whose measured efficiencies are constants of the fit (bench/published.py).
struct Machine {
  const char* name;
  double TimeConstants::*gemm;
  double TimeConstants::*fp8;
};
constexpr Machine kMachines[] = {
    {"h100_500w", &TimeConstants::gemm_h100_500w, &TimeConstants::fp8_h100_500w},
    {"b200 power-limited", &TimeConstants::gemm_b200_limited, &TimeConstants::fp8_b200_limited}};

struct Row {
  Diagnostics diags;
  std::unique_ptr<Module> module;
  std::optional<Problem> problem;
  std::optional<Layout> layout;
  Cluster cluster;
  const Machine* machine = nullptr;
  TimeConstants constants;
  std::unique_ptr<Clock> clock;

  Row(const std::string& plan, const std::string& gpu) {
    module = std::make_unique<Module>(compile("row.plan", plan, diags));
    if (diags.has_errors()) return;
    problem = make_problem(*module, module->jobs().front(), diags);
    if (!problem) return;
    layout = layout_from(*problem, &module->layouts().front(), diags);
    cluster = *problem->cluster;
    problem->cluster = &cluster;
    for (const Machine& m : kMachines)
      if (gpu == m.name) machine = &m;
  }

  nlohmann::json seconds(const TimeConstants& changed) {
    if (!problem || !layout) return nullptr;
    constants = changed;
    if (machine != nullptr)
      for (Pool& pool : cluster.pools) {
        const auto set = [&](const char* name, double value) {
          pool.gpu.numbers[name].value =
              Rational::fraction(static_cast<std::int64_t>(value * 1e6), 1'000'000);
        };
        set("gemm_efficiency", constants.*machine->gemm);
        set("fp8_efficiency", constants.*machine->fp8);
      }
    if (clock == nullptr)
      clock = std::make_unique<Clock>(*problem, constants);
    else
      clock->recalibrate();
    return static_cast<double>(clock->step(*layout).nanoseconds) * 1e-9;
  }
};

std::map<std::string, double TimeConstants::*> by_name() {
  std::map<std::string, double TimeConstants::*> out;
#define X(name, value, source) out[#name] = &TimeConstants::name;
  PLIMSOLL_TIME_CONSTANTS(X)
#undef X
  return out;
}

int run(int argc, char** argv) {
  const auto names = by_name();
  if (argc != 2) {
    std::cerr << "usage: plimsoll_time_rows ROWS.json | --constants\n";
    return 1;
  }
  if (std::string(argv[1]) == "--constants") {
    nlohmann::json out;
#define X(name, value, source) out[#name] = {{"value", value}, {"source", source}};
    PLIMSOLL_TIME_CONSTANTS(X)
#undef X
    std::cout << out.dump(1) << '\n';
    return 0;
  }
  std::ifstream in(argv[1]);
  std::vector<std::unique_ptr<Row>> rows;
  for (const auto& row : nlohmann::json::parse(in)) {
    rows.push_back(
        std::make_unique<Row>(row.at("plan").get<std::string>(), row.at("gpu").get<std::string>()));
    if (!rows.back()->layout)
      std::cerr << rows.back()->diags.render(rows.back()->module->sources(), false);
  }
  for (std::string line; std::getline(std::cin, line);) {
    TimeConstants constants;
    std::vector<std::size_t> asked;
    bool some = false;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.front() == '@') {
        some = true;
        std::istringstream list(word.substr(1));
        for (std::string one; std::getline(list, one, ',');) asked.push_back(std::stoul(one));
        continue;
      }
      const auto equals = word.find('=');
      const auto at = names.find(word.substr(0, equals));
      if (at == names.end()) {
        std::cerr << "no constant '" << word << "'\n";
        return 1;
      }
      constants.*at->second = std::stod(word.substr(equals + 1));
    }
    nlohmann::json out = nlohmann::json::array();
    if (!some)
      for (const auto& row : rows) out.push_back(row->seconds(constants));
    for (const std::size_t i : asked) out.push_back(rows.at(i)->seconds(constants));
    std::cout << out.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) { return plimsoll::run(argc, argv); }
