// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "tests/unit/models.hpp"

#include <ctime>
#include <sstream>

#include "tests/catch.hpp"

using namespace plimsoll;
using test::Models;

namespace {

std::string prelude_name_and_params(const std::string& row, std::string& params) {
  std::istringstream fields(row);  // name, prelude's name, params, source; only the last is quoted
  std::string field;
  std::string name;
  std::getline(fields, field, ',');
  std::getline(fields, name, ',');
  std::getline(fields, params, ',');
  return name;
}

}  // namespace

TEST_CASE("every published model of the prelude has its exact parameter count", "[models]") {
  Models models;
  models.add_prelude();
  std::istringstream rows(
      test::read_file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/data/models.csv"));
  std::string row;
  std::getline(rows, row);
  std::size_t count = 0;
  while (std::getline(rows, row)) {
    std::string params;
    const std::string name = prelude_name_and_params(row, params);
    INFO(row);
    const std::optional<Program> program = models.build(name);
    INFO(models.said());
    REQUIRE(program.has_value());
    CHECK(to_string(program->parameter_count()) == params);
    ++count;
  }
  CHECK(count == 82);
  CHECK(models.said() == "");
}

TEST_CASE("how long a large model takes to elaborate (printed, not judged)", "[models]") {
  Models models;
  models.add_prelude();
  const ModelSource source = models.source("llama_3_1_405b");
  constexpr int kTimes = 20;
  std::size_t ops = 0;
  const std::clock_t start = std::clock();
  for (int i = 0; i < kTimes; ++i)
    ops = elaborate(source, models.pool, models.diagnostics)->ops.size();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  CHECK(ops > 1000);
  WARN("llama_3_1_405b: " << ops << " ops in " << 1e3 * seconds / kTimes << " ms of CPU");
}
