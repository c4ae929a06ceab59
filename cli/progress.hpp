// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace plimsoll::cli {

/// A line on standard error that says how far long work has come: only on a terminal, only once it
/// has taken a second, and gone again when the work ends.
class Progress {
 public:
  explicit Progress(bool on_terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// What is being done, "searching", and what can be done about it, "; Ctrl-C ends it".
  void say(std::string what, std::string note = "") {
    what_ = std::move(what);
    note_ = std::move(note);
  }
  /// Draws the line anew where it is time to. Called often; costs a look at the clock.
  void tick();

 private:
  using Clock = std::chrono::steady_clock;
  bool on_;
  bool drawn_ = false;
  std::string what_ = "working", note_;
  Clock::time_point begun_ = Clock::now(), last_ = begun_;
};

/// The same for work that calls nobody back: a thread draws the line while this lives.
class Watched {
 public:
  Watched(bool on_terminal, std::string what);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  Progress progress_;
  std::mutex lock_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread drawer_;
};

}  // namespace plimsoll::cli
