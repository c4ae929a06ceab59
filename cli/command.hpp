// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lang/rational.hpp"
#include "planner/report_style.hpp"
#include "runtime/verify.hpp"

namespace plimsoll::cli {

/// What the program says to a shell (docs/language.md, "Commands").
enum ExitCode : int {
  kDone = 0,
  kUserError = 1,      ///< a mistake in a file, on the command line or in its surroundings
  kNoLayoutFits = 2,   ///< a valid question whose answer is no
  kInternalError = 3,  ///< our bug
  kDisagreed = 4,      ///< verification saw something else than was predicted
  kInterrupted = 130,  ///< by the user; the best so far was printed and marked so
};

/// The command line of any command, as it was understood. A command reads what concerns it.
struct Options {
  std::string command;
  std::vector<std::string> files;  ///< "-" is standard input; one, but for fmt and diagnose
  std::string job;                 ///< "" where the file's only one is meant
  std::string layout;              ///< "" where none was named
  std::string against;             ///< framework to set beside the job's own
  std::optional<std::int64_t> stage;
  std::optional<std::int64_t> rank;    ///< timeline
  std::optional<std::int64_t> top;     ///< plan: the best and its runners-up; 3 as if unsaid
  std::optional<std::int64_t> budget;  ///< plan: candidates to look at
  std::optional<double> timeout;       ///< plan: seconds by the clock
  std::vector<std::string> on;         ///< plan: other GPUs to set beside the file's
  bool no_proof = false;               ///< plan
  bool pareto = false;                 ///< plan: step time against headroom
  std::optional<Rational> routing;     ///< quantile of routed tokens; else the job's imbalance
  std::string device = "dry";          ///< verify: dry, host, cuda
  runtime::RankChoice ranks;           ///< verify
  std::optional<std::int64_t> steps;   ///< verify on a device that computes; 2 as if unsaid
  std::optional<std::int64_t> limit;   ///< verify: bytes that the device may take
  std::string from, gpu;               ///< import: the kind of file; the GPU
  std::optional<std::int64_t> gpus;    ///< import
  std::vector<std::string> set;        ///< import: FIELD=VALUE
  std::string shell;                   ///< completions
  std::string to;                      ///< export: the tool
  bool json = false;
  std::string html;    ///< plan, bill, timeline: the file to write a page to; "" for none
  bool write = false;  ///< fmt: in place
  bool check = false;  ///< fmt: only say whether it would change

  const std::string& file() const { return files.front(); }
};

/// Where the answer goes, as far as it shapes the answer.
struct Terminal {
  report::Style style;  ///< of standard output
  bool colour_err = false;
  bool progress = false;  ///< standard error is a terminal that can draw a line anew
};

/// What a command has to say. Nothing is printed before it is complete, so an error leaves standard
/// output empty.
struct Outcome {
  int code = kDone;
  std::string out;  ///< for standard output; empty where code is kUserError
  std::string err;  ///< for standard error: diagnostics, warnings
};

/// "plimsoll: MESSAGE" and its help line: a mistake that no place in a file can be shown for.
Outcome user_error(const std::string& message, const std::string& help);

// One file a command.
Outcome check(const Options&, const Terminal&);
Outcome format(const Options&, const Terminal&);
Outcome import(const Options&, const Terminal&);
Outcome bill(const Options&, const Terminal&);
Outcome calibrate(const Options&, const Terminal&);
Outcome plan(const Options&, const Terminal&);
Outcome explain(const Options&, const Terminal&);
Outcome timeline(const Options&, const Terminal&);
Outcome verify(const Options&, const Terminal&);
Outcome language_server(const Options&, const Terminal&);
Outcome doctor(const Options&, const Terminal&);
Outcome completions(const Options&, const Terminal&);
Outcome manual(const Options&, const Terminal&);
Outcome diagnose(const Options&, const Terminal&);
Outcome export_to(const Options&, const Terminal&);

}  // namespace plimsoll::cli
