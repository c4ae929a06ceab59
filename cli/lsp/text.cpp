// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/lsp/text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lang/source.hpp"

namespace plimsoll::cli::lsp {

namespace {

/// Bytes of the character that \a text begins with (1 where it is no UTF-8) and its units.
struct Step {
  std::uint32_t bytes, units;
};
Step step(std::string_view text, Encoding encoding) {
  std::uint32_t code_point = 0;
  const auto bytes =
      static_cast<std::uint32_t>(std::max<std::size_t>(decode_utf8(text, code_point), 1));
  return {bytes, encoding == Encoding::utf8 ? bytes : code_point > 0xFFFF ? 2u : 1u};
}

/// The start of the line after the one that \a at is in; npos where that is the last.
std::size_t next_line(std::string_view text, std::size_t at) {
  at = text.find_first_of("\n\r", at);
  if (at == std::string_view::npos) return at;
  return at + (text.substr(at, 2) == "\r\n" ? 2 : 1);
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::uint32_t offset_of(std::string_view text, Place place, Encoding encoding) {
  std::size_t at = 0;
  for (std::uint32_t line = 0; line < place.line; ++line) {
    at = next_line(text, at);
    if (at == std::string_view::npos) return static_cast<std::uint32_t>(text.size());
  }
  std::uint32_t units = 0;
  while (at < text.size() && text[at] != '\n' && text[at] != '\r' && units < place.character) {
    const Step next = step(text.substr(at), encoding);
    at += next.bytes;
    units += next.units;
  }
  return static_cast<std::uint32_t>(at);
}

Places::Places(std::string_view text, Encoding encoding) : text_(text), encoding_(encoding) {
  for (std::size_t at = 0; at != std::string_view::npos; at = next_line(text, at))
    starts_.push_back(static_cast<std::uint32_t>(at));
}

Place Places::of(std::uint32_t offset) const {
  const std::size_t end = std::min<std::size_t>(offset, text_.size());
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), end);
  Place place;
  place.line = static_cast<std::uint32_t>(after - starts_.begin() - 1);
  for (std::size_t at = starts_[place.line]; at < end;) {
    const Step next = step(text_.substr(at, end - at), encoding_);
    at += next.bytes;
    place.character += next.units;
  }
  return place;
}

std::string path_of(std::string_view uri) {
  constexpr std::string_view kScheme = "file://";
  if (!uri.starts_with(kScheme)) return std::string(uri);
  uri.remove_prefix(kScheme.size());
  if (const std::size_t slash = uri.find('/'); slash != std::string_view::npos)
    uri.remove_prefix(slash);  // of a host's name, which is this one
  std::string path;
  for (std::size_t i = 0; i < uri.size(); ++i) {
    const int high = i + 2 < uri.size() ? hex(uri[i + 1]) : -1;
    const int low = i + 2 < uri.size() ? hex(uri[i + 2]) : -1;
    if (uri[i] == '%' && high >= 0 && low >= 0) {
      path += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      path += uri[i];
    }
  }
  return path;
}

std::string uri_of(std::string_view path) {
  if (path.find("://") != std::string_view::npos || !path.starts_with('/'))
    return std::string(path);
  std::string uri = "file://";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/-._~").find(c) != std::string_view::npos;
    if (plain)
      uri += c;
    else
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri;
}

}  // namespace plimsoll::cli::lsp
