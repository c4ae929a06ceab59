// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/streams.hpp"

namespace plimsoll::cli {

namespace {

constexpr std::chrono::milliseconds kQuiet{1000}, kBetween{200};
constexpr std::string_view kClear = "\r\x1b[K";

}  // namespace

Progress::Progress(bool on_terminal) : on_(on_terminal) {}

Progress::~Progress() {
  if (drawn_) write_all(STDERR_FILENO, kClear);
}

void Progress::tick() {
  if (!on_) return;
  const auto now = Clock::now();
  if (now - begun_ < kQuiet || now - last_ < kBetween) return;
  last_ = now;
  drawn_ = true;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(last_ - begun_).count();
  write_all(STDERR_FILENO, fmt::format("{}plimsoll: {}, {} s{}", kClear, what_, seconds, note_));
}

Watched::Watched(bool on_terminal, std::string what) : progress_(on_terminal) {
  progress_.say(std::move(what));
  if (!on_terminal) return;
  drawer_ = std::thread([this] {
    std::unique_lock held(lock_);
    while (!changed_.wait_for(held, kBetween, [this] { return done_; })) progress_.tick();
  });
}

Watched::~Watched() {
  {
    const std::lock_guard held(lock_);
    done_ = true;
  }
  changed_.notify_one();
  if (drawer_.joinable()) drawer_.join();
}

}  // namespace plimsoll::cli
