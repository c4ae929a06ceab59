// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/lsp/transport.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>

#include "cli/streams.hpp"

namespace plimsoll::cli::lsp {

namespace {

/// The largest body that is read: a file of the language's largest size, escaped. More is skipped.
constexpr std::uint64_t kMaxBody = 128u << 20;
/// A header line longer than this is no header.
constexpr std::size_t kMaxHeaderLine = 4096;

/// The number of "Content-Length: N" in whatever case; nullopt: another header.
std::optional<std::uint64_t> content_length(std::string_view line) {
  constexpr std::string_view kName = "content-length:";
  if (line.size() < kName.size()) return std::nullopt;
  for (std::size_t i = 0; i < kName.size(); ++i) {
    const char c = line[i] >= 'A' && line[i] <= 'Z' ? static_cast<char>(line[i] + 32) : line[i];
    if (c != kName[i]) return std::nullopt;
  }
  line.remove_prefix(kName.size());
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
    line.remove_suffix(1);
  std::uint64_t length = 0;
  const auto [at, error] = std::from_chars(line.data(), line.data() + line.size(), length);
  if (error != std::errc() || at != line.data() + line.size()) return std::nullopt;
  return length;
}

}  // namespace

bool Transport::fill() {
  char block[1 << 16];
  for (;;) {
    const ssize_t got = ::read(in_, block, sizeof block);
    if (got > 0) {
      buffer_.append(block, static_cast<std::size_t>(got));
      return true;
    }
    if (got < 0 && errno == EINTR) continue;
    ended_ = true;
    return false;
  }
}

bool Transport::pending() {
  if (!buffer_.empty() || ended_) return true;
  pollfd one{in_, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

std::optional<std::string> Transport::read() {
  std::optional<std::uint64_t> length;
  for (;;) {
    const std::size_t end = buffer_.find('\n');
    if (end == std::string::npos) {
      if (buffer_.size() > kMaxHeaderLine) buffer_.clear();
      if (!fill()) return std::nullopt;
      continue;
    }
    const std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    if (const auto found = content_length(line)) length = found;
    const bool empty = line.empty() || line == "\r";
    if (!empty || !length) continue;
    if (*length > kMaxBody) {  // what cannot be held is read and dropped
      std::uint64_t left = *length;
      while (left > 0) {
        if (buffer_.empty() && !fill()) return std::nullopt;
        const std::uint64_t part = left < buffer_.size() ? left : buffer_.size();
        buffer_.erase(0, part);
        left -= part;
      }
      return "";
    }
    while (buffer_.size() < *length)
      if (!fill()) return std::nullopt;
    std::string body = buffer_.substr(0, *length);
    buffer_.erase(0, *length);
    return body;
  }
}

void Transport::write(std::string_view body) {
  // A client that has gone is noticed at the end of the input.
  write_all(out_, fmt::format("Content-Length: {}\r\n\r\n{}", body.size(), body));
}

}  // namespace plimsoll::cli::lsp
