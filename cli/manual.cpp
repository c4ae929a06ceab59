// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/command_table.hpp"
#include "cli/version.hpp"

namespace plimsoll::cli {

namespace {

/// Text as roff reads it: hyphens as they are typed, no line that begins a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '-')
      out += "\\-";
    else if (c == '\\')
      out += "\\e";
    else
      out += c;
  }
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"…", "..."}})
    for (std::size_t at = out.find(from); at != std::string::npos; at = out.find(from, at))
      out.replace(at, from.size(), to);
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string commands() {
  std::string out;
  for (const CommandRow& command : command_table()) {
    out += fmt::format(".SS \"plimsoll {}{}{}{}\"\n{}.\n", command.name,
                       command.argument.empty() ? "" : " ", command.argument,
                       command.options.empty() ? "" : " [options]", roff(command.description));
    for (const OptionRow& option : command.options)
      out += fmt::format(
          ".TP\n.B {}{}\n{}\n", roff(option.name),
          option.value.empty() ? "" : " \\fI" + roff(option.value) + "\\fR",
          roff(option.description) +
              (option.words.empty() ? "." : fmt::format(" ({}).", fmt::join(option.words, ", "))));
  }
  return out;
}

}  // namespace

std::string manual_page() {
  return fmt::format(R"roff(.\" SPDX-License-Identifier: Apache-2.0
.\" Made by `plimsoll man`; do not edit.
.TH PLIMSOLL 1 "" "plimsoll {}" "User Commands"
.SH NAME
plimsoll \- what a training or serving job puts in each GPU's memory, and which layout fits
.SH SYNOPSIS
.B plimsoll
.I command
.RI [ options ]
.I FILE
.SH DESCRIPTION
From a short
.I .plan
file
.B plimsoll
says, before a job is launched, what fills each GPU's memory at its worst moment, item by item; it finds the fastest
parallel layout that fits, with a proof, or says why none does and what is the least that would have to change; and
it runs the shards' steps to confirm the answer.
.PP
.I FILE
is a .plan file, or \- for standard input. Answers go to standard output, everything else to standard error.
With \-\-json an answer is one object with a "schema" field; bytes in it are integers, times are seconds.
.SH COMMANDS
{}.SH EXIT STATUS
.TP
.B 0
done
.TP
.B 1
a mistake in a file, on the command line or in its surroundings
.TP
.B 2
no layout fits
.TP
.B 3
a bug of plimsoll
.TP
.B 4
verification saw something else than was predicted
.TP
.B 130
interrupted; the best so far was printed and marked so
.SH ENVIRONMENT
.TP
.B NO_COLOR
where it is set and not empty, nothing is coloured; otherwise what goes to a terminal is, unless TERM is empty or dumb
.TP
.BR LC_ALL ", " LC_CTYPE ", " LANG
whether a terminal shows Unicode; pipes and files get UTF\-8
.TP
.B XDG_CACHE_HOME
where the language server puts copies of the prelude for editors to open; ~/.cache unless set
.SH EXAMPLES
.nf
$ cat first.plan
cluster one {{ gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }}
train tune  {{ model = llama3_8b  cluster = one  seq = 8Ki  batch = 64 }}
$ plimsoll plan first.plan
$ plimsoll bill first.plan
$ plimsoll plan first.plan \-\-html answer.html
$ eval "$(plimsoll completions bash)"
.fi
)roff",
                     version_number(), commands());
}

Outcome manual(const Options&, const Terminal&) { return {kDone, manual_page(), ""}; }

}  // namespace plimsoll::cli
