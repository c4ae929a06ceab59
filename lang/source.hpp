// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// A half-open range of bytes in one source file. An empty span at {0, 0, 0} means "nowhere".
struct Span {
  std::uint32_t file = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  friend bool operator==(const Span&, const Span&) = default;
  explicit operator bool() const { return end > begin; }
  /// From the start of this span to the end of \a last (same file).
  Span to(Span last) const { return {file, begin, last.end}; }
};

/// The length of the well-formed UTF-8 sequence that \a text begins with, and its code point; 0
/// where there is none (cut off, overlong, a surrogate, past U+10FFFF).
std::size_t decode_utf8(std::string_view text, std::uint32_t& code_point);

/// Line and column as people count them: from 1, columns in UTF-8 code points.
struct Position {
  unsigned line = 1;
  unsigned column = 1;
};

/// One text with a name, as it was read. A byte-order mark is kept out of the text.
class SourceFile {
 public:
  SourceFile(std::string name, std::string text, bool is_prelude);

  const std::string& name() const { return name_; }
  std::string_view text() const { return text_; }
  bool is_prelude() const { return is_prelude_; }
  Position position(std::uint32_t offset) const;
  /// The text of a line (counted from 1) without its line end.
  std::string_view line(unsigned number) const;

 private:
  std::string name_;
  std::string text_;
  bool is_prelude_;
  std::vector<std::uint32_t> line_starts_;
};

/// All files of one compilation. A file's number is the `file` of its spans; addresses are stable.
class Sources {
 public:
  std::uint32_t add(std::string name, std::string text, bool is_prelude = false);
  const SourceFile& operator[](std::uint32_t file) const { return *files_[file]; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(files_.size()); }
  std::string_view text(Span) const;
  /// "file:line:column" of a span's start.
  std::string where(Span) const;

 private:
  std::vector<std::unique_ptr<SourceFile>> files_;
};

}  // namespace plimsoll
