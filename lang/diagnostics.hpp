// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lang/source.hpp"

namespace plimsoll {

enum class Severity { error, warning, note };

/// A secondary place that helps to understand a diagnostic ("first declared here").
struct Label {
  Span span;
  std::string text;
};

/// One message to the user: what is wrong and where, what was expected and found, one line of help.
struct Diagnostic {
  Severity severity = Severity::error;
  Span span;
  std::string message;
  std::vector<Label> labels;
  std::string help;

  Diagnostic& label(Span where, std::string text) {
    labels.push_back({where, std::move(text)});
    return *this;
  }
  Diagnostic& with_help(std::string text) {
    help = std::move(text);
    return *this;
  }
};

/// Collects the diagnostics of a compilation. Mistakes of users are values in here, never
/// exceptions that leave the library. The same message at the same place is kept once.
class Diagnostics {
 public:
  Diagnostic& error(Span where, std::string message) {
    return add(Severity::error, where, std::move(message));
  }
  Diagnostic& warning(Span where, std::string message) {
    return add(Severity::warning, where, std::move(message));
  }
  Diagnostic& note(Span where, std::string message) {
    return add(Severity::note, where, std::move(message));
  }

  bool has_errors() const { return errors_ > 0; }
  std::size_t error_count() const { return errors_; }
  /// In source order: by file in order of loading, then by offset.
  std::vector<const Diagnostic*> sorted() const;
  /// Every diagnostic as text: "file:line:column: error: …", the source line, carets, labels, help.
  /// Past 50 errors the rest is counted only.
  std::string render(const Sources&, bool colour) const;

 private:
  Diagnostic& add(Severity, Span, std::string message);

  std::vector<std::unique_ptr<Diagnostic>> all_;
  std::unordered_set<std::string> seen_;
  std::unique_ptr<Diagnostic> repeated_;
  std::size_t errors_ = 0;
};

/// Our bug, never the user's: exit code 3.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

#define PLIMSOLL_ASSERT(condition)                                                     \
  do {                                                                                 \
    if (!(condition))                                                                  \
      throw ::plimsoll::InternalError(                                                 \
          fmt::format("{}:{}: assertion failed: {}", __FILE__, __LINE__, #condition)); \
  } while (false)

/// The candidate nearest to \a name, or "" if none is near enough to be meant.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace plimsoll
