// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
// Any bytes as a file: the parser alone, and `fmt` on what it accepts, which must be accepted again
// and stay.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lang/parse.hpp"
#include "lang/print.hpp"
#include "tests/fuzz/tells_error.hpp"

using namespace plimsoll;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Sources sources;
  Diagnostics diags;
  std::uint32_t file =
      sources.add("fuzz.plan", std::string(reinterpret_cast<const char*>(data), size));
  const ast::File parsed = parse(sources, file, diags);
  const std::string said = diags.render(sources, false);
  if (diags.has_errors() != tells_error(said)) std::abort();
  if (diags.has_errors()) return 0;
  const std::string text = print(parsed, sources);
  file = sources.add("formatted.plan", text);
  const ast::File again = parse(sources, file, diags);
  if (diags.has_errors() || print(again, sources) != text) std::abort();
  return 0;
}
