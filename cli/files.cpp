// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cli/streams.hpp"
#include "lang/parse.hpp"

namespace plimsoll::cli {
namespace {

thread_local const std::string_view* given_input = nullptr;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ > STDERR_FILENO) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

Outcome cannot_read(const std::string& path, int error) {
  const auto message = [&](const char* why) {
    return fmt::format("cannot read '{}': {}", path, why);
  };
  switch (error) {
    case ENOENT:
      return user_error(message("there is no such file"),
                        "check the path; it is taken from the folder you are in");
    case EISDIR:
      return user_error(message("it is a directory"),
                        fmt::format("name a .plan file in it, such as '{}{}example.plan'", path,
                                    path.ends_with('/') ? "" : "/"));
    case EACCES:
      return user_error(message("permission denied"),
                        fmt::format("make it readable, for example with 'chmod u+r {}'", path));
    default:
      return user_error(message(std::strerror(error)), "check the path and the disk it is on");
  }
}

constexpr std::size_t kMaxLogBytes = std::size_t{64} << 20;

/// Reads \a fd until \a text has more than \a most bytes; returns 0 or errno.
int read_all(int fd, std::string& text, std::size_t most) {
  char block[1 << 16];
  while (text.size() <= most) {
    const ssize_t got = ::read(fd, block, sizeof block);
    if (got == 0) return 0;
    if (got > 0) text.append(block, static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) return errno;
  }
  return 0;
}

/// Writes beside \a target and moves it there, so that no reader sees a part. "" or why it failed.
std::string put_in_place(const std::string& target, const std::string& text, mode_t mode) {
  std::string temporary = target + ".XXXXXX";
  const Descriptor file(::mkstemp(temporary.data()));
  if (!file) return std::strerror(errno);
  int error = write_all(file.get(), text);
  if (error == 0 && ::fchmod(file.get(), mode) != 0) error = errno;
  if (error == 0 && ::fsync(file.get()) != 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return "";
  ::unlink(temporary.c_str());
  return std::strerror(error);
}

std::variant<Input, Outcome> read_up_to(const std::string& path, std::size_t most) {
  const bool standard = path == "-";
  Input input{standard ? "<stdin>" : path, ""};
  if (standard && given_input != nullptr) {
    input.text = given_input->substr(0, most + 1);
    return input;
  }
  const Descriptor file(standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return cannot_read(path, errno);
  if (const int error = read_all(file.get(), input.text, most)) {
    if (!standard) return cannot_read(path, error);
    return user_error(fmt::format("cannot read standard input: {}", std::strerror(error)),
                      "give a file's name, or send its text with '<'");
  }
  return input;
}

}  // namespace

std::variant<Input, Outcome> read_log(const std::string& path) {
  return read_up_to(path, kMaxLogBytes);
}

GivenInput::GivenInput(std::string_view text) : text_(text), before_(given_input) {
  given_input = &text_;
}
GivenInput::~GivenInput() { given_input = before_; }

std::variant<Input, Outcome> read_input(const std::string& path) {
  auto read = read_up_to(path, kMaxFileBytes);
  if (std::holds_alternative<Outcome>(read)) return read;
  const Input& input = std::get<Input>(read);
  if (input.text.size() > kMaxFileBytes)
    return user_error(fmt::format("'{}' is larger than {} MiB, the most that a .plan file may have",
                                  input.name, kMaxFileBytes >> 20),
                      "split it in files that 'use' brings together");
  return read;
}

std::string write_file(const std::string& path, const std::string& text) {
  struct stat before {};
  if (::stat(path.c_str(), &before) == 0) {
    if (S_ISDIR(before.st_mode)) return std::strerror(EISDIR);
    if (S_ISREG(before.st_mode)) return replace_file(path, text);
    // A pipe or a device takes what it is given; nothing can stand in its place.
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file) return std::strerror(errno);
    const int error = write_all(file.get(), text);
    return error == 0 ? "" : std::strerror(error);
  }
  if (errno != ENOENT) return std::strerror(errno);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return put_in_place(path, text, 0666 & ~mask);
}

std::string replace_file(const std::string& path, const std::string& text) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr),
                                                             &std::free);
  if (!resolved) return std::strerror(errno);
  const std::string target = resolved.get();
  struct stat before {};
  if (::stat(target.c_str(), &before) != 0) return std::strerror(errno);
  if (::access(target.c_str(), W_OK) != 0) return std::strerror(errno);
  return put_in_place(target, text, before.st_mode & 07777);
}

}  // namespace plimsoll::cli
