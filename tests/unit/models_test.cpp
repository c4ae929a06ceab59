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

TEST_CASE("architectures beyond decoders", "[models]") {
  const std::string plans = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/data/plans/";
  Models models;
  for (const char* name : {"blocks", "encdec", "hybrid", "v3mtp", "vlm"})
    models.add(std::string(name) + ".plan", test::read_file(plans + name + ".plan"));
  const auto build = [&](const std::string& name) {
    std::optional<Program> program = models.build(name);
    INFO(models.said());
    REQUIRE(program.has_value());
    return std::move(*program);
  };
  // Published totals of the safetensors files, embeddings shared.
  CHECK(to_string(build("t5_small").parameter_count()) == "60506624");
  CHECK(to_string(build("t5_base").parameter_count()) == "222903552");

  // cases/models.csv: 684,531,386,000 published less FP8 scales (41,540,496) and the stored copies
  // of embedding and head (2 * 129,280 * 7,168) is with the MTP module.
  const Program v3 = build("v3_none");
  const Program mtp = build("v3_mtp");
  CHECK(to_string(v3.parameter_count()) == "671026419200");
  CHECK(mtp.parameter_count() ==
        Int128{684'531'386'000} - 41'540'496 - 2 * Int128{129'280} * 7'168);
  CHECK(v3.layer_count == 61);
  CHECK(mtp.layer_count == 62);
  CHECK(v3.class_count == 2);

  // Nemotron-H 8B by its config: 24 Mamba-2 layers, 24 MLPs, 4 attentions.
  const Program hybrid = build("nemotron_h_8b");
  const Int128 mamba = Int128{4096} * (2 * 8192 + 2 * 1024 + 128) + 10240 * 4 + 10240 + 3 * 128 +
                       8192 + Int128{8192} * 4096;
  const Int128 mlp = 2 * Int128{4096} * 21504;
  const Int128 attention = 2 * Int128{4096} * 4096 + 2 * Int128{4096} * 1024;
  CHECK(hybrid.layer_count == 52);
  CHECK(hybrid.class_count == 3);
  CHECK(hybrid.parameter_count() ==
        2 * Int128{131072} * 4096 + 53 * 4096 + 24 * mamba + 24 * mlp + 4 * attention);

  const Program vlm = build("vlm");
  CHECK(vlm.layer_count == 24 + 32);
  CHECK(vlm.class_count == 2);
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
