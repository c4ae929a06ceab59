// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/source.hpp"

#include <algorithm>

namespace plimsoll {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool starts_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

std::size_t decode_utf8(std::string_view text, std::uint32_t& code_point) {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) {
    code_point = first;
    return 1;
  }
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  code_point = first & (0x7Fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return 0;
    code_point = code_point << 6 | (next & 0x3F);
  }
  const bool overlong = (size == 3 && code_point < 0x800) || (size == 4 && code_point < 0x10000);
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  return overlong || surrogate || code_point > 0x10FFFF ? 0 : size;
}

SourceFile::SourceFile(std::string name, std::string text, bool is_prelude)
    : name_(std::move(name)), text_(std::move(text)), is_prelude_(is_prelude) {
  if (text_.starts_with(kByteOrderMark)) text_.erase(0, kByteOrderMark.size());
  line_starts_.push_back(0);
  for (std::size_t at = text_.find('\n'); at != std::string::npos; at = text_.find('\n', at + 1))
    line_starts_.push_back(static_cast<std::uint32_t>(at + 1));
}

Position SourceFile::position(std::uint32_t offset) const {
  offset = std::min(offset, static_cast<std::uint32_t>(text_.size()));
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  const auto start = text_.begin() + *(after - 1);
  Position result;
  result.line = static_cast<unsigned>(after - line_starts_.begin());
  result.column =
      1 + static_cast<unsigned>(std::count_if(start, text_.begin() + offset, starts_code_point));
  return result;
}

std::string_view SourceFile::line(unsigned number) const {
  if (number == 0 || number > line_starts_.size()) return {};
  const std::size_t begin = line_starts_[number - 1];
  const std::size_t end = number < line_starts_.size() ? line_starts_[number] - 1 : text_.size();
  std::string_view result = text().substr(begin, end - begin);
  if (result.ends_with('\r')) result.remove_suffix(1);
  return result;
}

std::uint32_t Sources::add(std::string name, std::string text, bool is_prelude) {
  files_.push_back(std::make_unique<SourceFile>(std::move(name), std::move(text), is_prelude));
  return count() - 1;
}

std::string_view Sources::text(Span span) const {
  const std::string_view whole = files_[span.file]->text();
  const std::size_t begin = std::min<std::size_t>(span.begin, whole.size());
  return whole.substr(begin, span.end - std::min(span.begin, span.end));
}

std::string Sources::where(Span span) const {
  const SourceFile& file = *files_[span.file];
  const Position position = file.position(span.begin);
  return file.name() + ':' + std::to_string(position.line) + ':' + std::to_string(position.column);
}

}  // namespace plimsoll
