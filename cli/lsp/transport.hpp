// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Messages of the Language Server Protocol over two file descriptors: headers, an empty line, so
/// many bytes of JSON.
namespace plimsoll::cli::lsp {

class Transport {
 public:
  Transport(int in, int out) : in_(in), out_(out) {}

  /// The next message's body; nullopt at the end of the input. What is no header is skipped: after
  /// a malformed message the next well-formed one is read.
  std::optional<std::string> read();
  /// Has a byte of a further message arrived?
  bool pending();
  void write(std::string_view body);

 private:
  bool fill();

  int in_, out_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace plimsoll::cli::lsp
