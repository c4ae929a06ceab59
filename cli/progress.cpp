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
  write_all(STDERR_FILENO, fmt::format("{}plimsoll: {}, {} s; Ctrl-C ends it with the best so far",
                                       kClear, what_, seconds));
}

}  // namespace plimsoll::cli
