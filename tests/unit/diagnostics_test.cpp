// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/diagnostics.hpp"

#include "tests/catch.hpp"

using plimsoll::Diagnostics;
using plimsoll::did_you_mean;
using plimsoll::Sources;
using plimsoll::Span;

namespace {

std::string render_one(std::string text, unsigned begin, unsigned end) {
  Sources sources;
  sources.add("t.plan", std::move(text));
  Diagnostics diagnostics;
  diagnostics.error({0, begin, end}, "wrong");
  return diagnostics.render(sources, false);
}

}  // namespace

TEST_CASE("an error shows its place, its line, carets and help", "[diagnostics]") {
  Sources sources;
  sources.add("t/job.plan", "train t {\n  framework = megatorn\n}\n");
  Diagnostics diagnostics;
  diagnostics.error({0, 24, 32}, "no framework is called 'megatorn'")
      .with_help("did you mean 'megatron'?");
  CHECK(diagnostics.render(sources, false) ==
        "t/job.plan:2:15: error: no framework is called 'megatorn'\n"
        " 2 |   framework = megatorn\n"
        "   |               ^~~~~~~~\n"
        "   = help: did you mean 'megatron'?\n");
}

TEST_CASE("labels stand below their lines, other files are named", "[diagnostics]") {
  Sources sources;
  sources.add("a.plan", "\n\n\n\n\n\n\n\n\ntp = 8 tp = 4\n");
  sources.add("b.plan", "layout hand { }\n");
  Diagnostics diagnostics;
  diagnostics.error({0, 16, 18}, "'tp' is given twice")
      .label({0, 9, 11}, "first here")
      .label({1, 7, 11}, "in this");
  CHECK(diagnostics.render(sources, false) ==
        "a.plan:10:8: error: 'tp' is given twice\n"
        " 10 | tp = 8 tp = 4\n"
        "    |        ^~\n"
        "    | -- first here\n"
        "   --> b.plan:1:8\n"
        "  1 | layout hand { }\n"
        "    |        ---- in this\n");
}

TEST_CASE("an empty span marks one column, also past the end of a line", "[diagnostics]") {
  CHECK(render_one("x = \ny\n", 3, 3) ==
        "t.plan:1:4: error: wrong\n"
        " 1 | x =\n"
        "   |    ^\n");
  CHECK(render_one("", 0, 0) == "plimsoll: error: wrong\n");
  CHECK(render_one("a\n", 2, 2) ==
        "t.plan:2:1: error: wrong\n"
        " 2 |\n"
        "   | ^\n");
}

TEST_CASE("a span over several lines is marked to the end of its first", "[diagnostics]") {
  CHECK(render_one("ab {\n  c\n}\n", 3, 10) ==
        "t.plan:1:4: error: wrong\n"
        " 1 | ab {\n"
        "   |    ^\n");
  CHECK(render_one("ab { c\n}\n", 3, 8) ==
        "t.plan:1:4: error: wrong\n"
        " 1 | ab { c\n"
        "   |    ^~~\n");
}

TEST_CASE("tabs, wide characters and bytes that are no text keep the carets in place",
          "[diagnostics]") {
  CHECK(render_one("\tx\ty", 3, 4) ==
        "t.plan:1:4: error: wrong\n"
        " 1 |     x   y\n"
        "   |         ^\n");
  CHECK(render_one("\u4E2D\u00E9z", 5, 6) ==
        "t.plan:1:3: error: wrong\n"
        " 1 | \u4E2D\u00E9z\n"
        "   |    ^\n");
  CHECK(render_one(std::string("a\x01\xFFz\0b", 6), 3, 4) ==
        "t.plan:1:4: error: wrong\n"
        " 1 | a\uFFFD\uFFFDz\uFFFDb\n"
        "   |    ^\n");
}

TEST_CASE("a long line is cut around the span", "[diagnostics]") {
  const std::string text = std::string(500, 'a') + "XYZ" + std::string(500, 'b');
  CHECK(render_one(text, 500, 503) ==
        "t.plan:1:501: error: wrong\n"
        " 1 | \u2026" +
            std::string(50, 'a') + "XYZ" + std::string(47, 'b') + "\u2026\n" + "   | " +
            std::string(51, ' ') + "^~~\n");
  CHECK(render_one(text, 0, 2) ==
        "t.plan:1:1: error: wrong\n"
        " 1 | " +
            std::string(100, 'a') + "\u2026\n" + "   | ^~\n");
  CHECK(render_one(text, 1003, 1003) ==
        "t.plan:1:1004: error: wrong\n"
        " 1 | \u2026" +
            std::string(100, 'b') + "\n" + "   | " + std::string(101, ' ') + "^\n");
}

TEST_CASE("diagnostics come in source order, the same one once", "[diagnostics]") {
  Sources sources;
  sources.add("t.plan", "abc");
  Diagnostics diagnostics;
  diagnostics.error({0, 2, 3}, "late");
  diagnostics.warning({0, 1, 2}, "early");
  diagnostics.error({0, 2, 3}, "late").with_help("not kept");
  CHECK(diagnostics.error_count() == 1);
  const auto sorted = diagnostics.sorted();
  REQUIRE(sorted.size() == 2);
  CHECK(sorted[0]->message == "early");
  CHECK(sorted[1]->help.empty());
}

TEST_CASE("past 50 errors the rest is counted", "[diagnostics]") {
  Sources sources;
  sources.add("t.plan", std::string(100, 'x'));
  Diagnostics diagnostics;
  for (unsigned i = 0; i < 53; ++i) diagnostics.error({0, i, i + 1}, "wrong");
  const std::string text = diagnostics.render(sources, false);
  CHECK(text.ends_with("plimsoll: 3 more errors\n"));
  CHECK(text.find("t.plan:1:50:") != std::string::npos);
  CHECK(text.find("t.plan:1:51:") == std::string::npos);
}

TEST_CASE("colour is only added, never text", "[diagnostics]") {
  Sources sources;
  sources.add("t.plan", "abc\n");
  Diagnostics diagnostics;
  diagnostics.error({0, 1, 2}, "wrong").label({0, 0, 1}, "here").with_help("do this");
  std::string coloured = diagnostics.render(sources, true);
  REQUIRE(coloured.find("\033[1;31m") != std::string::npos);
  for (std::size_t at = coloured.find('\033'); at != std::string::npos; at = coloured.find('\033'))
    coloured.erase(at, coloured.find('m', at) + 1 - at);
  CHECK(coloured == diagnostics.render(sources, false));
}

TEST_CASE("what a message quotes cannot disturb a terminal", "[diagnostics]") {
  Sources sources;
  sources.add("t.plan", "abc\n");
  Diagnostics diagnostics;
  diagnostics.error({0, 0, 1}, "got '\x1B[2J\xFF'").label({0, 1, 2}, "\x07").with_help("\u00E9\n");
  CHECK(diagnostics.render(sources, false) ==
        "t.plan:1:1: error: got '\uFFFD[2J\uFFFD'\n"
        " 1 | abc\n"
        "   | ^\n"
        "   |  - \uFFFD\n"
        "   = help: \u00E9\uFFFD\n");
}

TEST_CASE("did you mean", "[diagnostics]") {
  const std::vector<std::string> names = {"h100_sxm", "h100_pcie", "a100_80gb",
                                          "tp",       "pp",        "step_time"};
  CHECK(did_you_mean("h10O_sxm", names) == "h100_sxm");
  CHECK(did_you_mean("H100_SXM", names) == "h100_sxm");
  CHECK(did_you_mean("h100", names) == "h100_sxm");
  CHECK(did_you_mean("steptime", names) == "step_time");
  CHECK(did_you_mean("setp_time", names) == "step_time");
  CHECK(did_you_mean("xx", names).empty());
  CHECK(did_you_mean("", names).empty());
  CHECK(did_you_mean(std::string(100'000, 'h'), names).empty());
}
