// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "lang/diagnostics.hpp"

namespace plimsoll::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool wants_colour(int fd) {
  return ::isatty(fd) == 1 && variable("NO_COLOR").empty() && !variable("TERM").empty() &&
         variable("TERM") != "dumb";
}

/// Whether the locale that the environment names is UTF-8: the first of these that is set decides.
bool is_utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = variable(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos;
  }
  return false;
}

}  // namespace

void prepare_streams() {
  // A reader that has gone, and a file past the shell's limit, are errors of a write.
  for (const int one : {SIGPIPE, SIGXFSZ}) std::signal(one, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) != -1) continue;
    // Opened the wrong way round, so that using the closed stream still fails as it should.
    const int opened = ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != fd) ::close(opened);
  }
}

Terminal look_at_terminal() {
  Terminal terminal;
  terminal.style.colour = wants_colour(STDOUT_FILENO);
  terminal.colour_err = wants_colour(STDERR_FILENO);
  terminal.progress =
      ::isatty(STDERR_FILENO) == 1 && !variable("TERM").empty() && variable("TERM") != "dumb";
  if (::isatty(STDOUT_FILENO) != 1) return terminal;
  terminal.style.unicode = is_utf8_locale();
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
    terminal.style.width = std::clamp<std::size_t>(size.ws_col, 80, 120);
  return terminal;
}

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote >= 0) text.remove_prefix(static_cast<std::size_t>(wrote));
    if (wrote < 0 && errno != EINTR) return errno;
  }
  return 0;
}

int say(const Outcome& outcome) {
  PLIMSOLL_ASSERT(outcome.code != kUserError || outcome.out.empty());
  write_all(STDERR_FILENO, outcome.err);  // a failure here has nowhere to be told
  const int error = write_all(STDOUT_FILENO, outcome.out);
  if (error == 0 || error == EPIPE) return outcome.code;
  write_all(STDERR_FILENO, fmt::format("plimsoll: cannot write to standard output: {}\n"
                                       "help: make room, or send the output elsewhere\n",
                                       std::strerror(error)));
  return kUserError;
}

}  // namespace plimsoll::cli
