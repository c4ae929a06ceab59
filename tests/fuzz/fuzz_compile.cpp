// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
// Any bytes as a file: everything that `check` does to it. A crash, a sanitizer's report, an
// InternalError or a verdict without its reason is a finding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lang/module.hpp"
#include "tests/fuzz/tells_error.hpp"

using namespace plimsoll;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  CompileOptions options;
  options.load = [](const std::string&, std::string& why) {
    why = "there are no other files here";
    return std::optional<std::string>();
  };
  Diagnostics diags;
  const Module module =
      compile("fuzz.plan", std::string(reinterpret_cast<const char*>(data), size), diags, options);
  const auto lines = module.summary(diags);
  const std::string said = diags.render(module.sources(), false);
  if (diags.has_errors() != tells_error(said)) std::abort();
  return 0;
}
