// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/source.hpp"

#include "tests/catch.hpp"

using plimsoll::decode_utf8;
using plimsoll::Position;
using plimsoll::SourceFile;
using plimsoll::Sources;
using plimsoll::Span;

TEST_CASE("lines and columns count from 1, columns in code points", "[source]") {
  const SourceFile file("a.plan", "ab\r\n\u00E9\u4E2Dx\n", false);
  const auto at = [&](unsigned offset) {
    const Position p = file.position(offset);
    return std::pair(p.line, p.column);
  };
  CHECK(at(0) == std::pair(1u, 1u));
  CHECK(at(2) == std::pair(1u, 3u));
  CHECK(at(4) == std::pair(2u, 1u));
  CHECK(at(6) == std::pair(2u, 2u));
  CHECK(at(9) == std::pair(2u, 3u));
  CHECK(at(11) == std::pair(3u, 1u));
  CHECK(at(999) == std::pair(3u, 1u));
  CHECK(file.line(1) == "ab");
  CHECK(file.line(2) == "\u00E9\u4E2Dx");
  CHECK(file.line(3).empty());
  CHECK(file.line(4).empty());
}

TEST_CASE("a byte-order mark is no part of the text", "[source]") {
  CHECK(SourceFile("a", "\xEF\xBB\xBFx", false).text() == "x");
}

TEST_CASE("an empty file has one empty line", "[source]") {
  const SourceFile file("a", "", false);
  CHECK(file.position(0).line == 1);
  CHECK(file.line(1).empty());
}

TEST_CASE("sources give text and place of a span", "[source]") {
  Sources sources;
  sources.add("a.plan", "x = 1\n");
  const auto second = sources.add("b.plan", "model m\n", true);
  CHECK(sources.text({second, 6, 7}) == "m");
  CHECK(sources.where({second, 6, 7}) == "b.plan:1:7");
  CHECK(sources[second].is_prelude());
  CHECK(sources.text({0, 4, 500}) == "1\n");
  CHECK(sources.text({0, 500, 600}).empty());
}

TEST_CASE("UTF-8 is decoded strictly", "[source]") {
  std::uint32_t code = 0;
  CHECK(decode_utf8("a", code) == 1);
  CHECK(decode_utf8("\u00E9", code) == 2);
  CHECK(code == 0xE9);
  CHECK(decode_utf8("\U0001F600", code) == 4);
  CHECK(code == 0x1F600);
  for (const char* broken : {"\x80", "\xC3", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80",
                             "\xF5\x80\x80\x80", "\xF4\x90\x80\x80", "\xE2\x82"})
    CHECK(decode_utf8(broken, code) == 0);
  CHECK(decode_utf8("", code) == 0);
}
