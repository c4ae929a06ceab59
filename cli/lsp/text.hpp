// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Places and names of files as the Language Server Protocol writes them.
namespace plimsoll::cli::lsp {

/// A place: the line from 0, and units of the agreed encoding from the line's start.
struct Place {
  std::uint32_t line = 0;
  std::uint32_t character = 0;
};

/// Counts characters in UTF-16 code units, the protocol's own, or in bytes.
enum class Encoding : std::uint8_t { utf16, utf8 };

/// The byte that a place means; past the end of its line, that end; past the text, the text's.
std::uint32_t offset_of(std::string_view text, Place, Encoding);

/// The places of a text's bytes. A line ends with "\n", "\r\n" or "\r", as the protocol has it.
class Places {
 public:
  Places(std::string_view text, Encoding encoding);
  Place of(std::uint32_t offset) const;

 private:
  std::string_view text_;
  Encoding encoding_;
  std::vector<std::uint32_t> starts_;  ///< of each line
};

/// "file:///home/a%20b.plan" -> "/home/a b.plan"; what is no file's stays as it is.
std::string path_of(std::string_view uri);
std::string uri_of(std::string_view path);

}  // namespace plimsoll::cli::lsp
