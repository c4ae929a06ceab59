// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <chrono>
#include <string>

namespace plimsoll::cli {

/// A line on standard error that says how far long work has come: only on a terminal, only once it
/// has taken a second, and gone again when the work ends.
class Progress {
 public:
  explicit Progress(bool on_terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// What is being done: "searching".
  void say(std::string what) { what_ = std::move(what); }
  /// Draws the line anew where it is time to. Called often; costs a look at the clock.
  void tick();

 private:
  using Clock = std::chrono::steady_clock;
  bool on_;
  bool drawn_ = false;
  std::string what_ = "working";
  Clock::time_point begun_ = Clock::now(), last_ = begun_;
};

}  // namespace plimsoll::cli
