// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/layout.hpp"
#include "planner/peak.hpp"
#include "planner/switches.hpp"

/// From a job at a layout to what another tool is launched with.
///
/// One writer a tool, each in its own export_NAME.cpp and a row of writers() (export.cpp). A writer
/// says everything of the job and layout that its tool can say. What it cannot is never left out
/// silently: it is a mistake where the run would be another one, a warning where it is not (or
/// where the tool's nearest is exported, which the warning then prices).
namespace plimsoll::exports {

/// What a tool cannot express, and what to do about it.
struct Mistake {
  std::string what;
  std::string help;
};

struct Exported {
  std::string text;  ///< "" after mistakes
  std::vector<std::string> warnings;
  std::vector<Mistake> mistakes;
};

/// What is exported. A writer may change `layout` to what its tool can run, before it is billed.
struct Subject {
  const Problem& problem;
  Layout layout;
  std::vector<std::string> model_notes;  ///< comments for the model's part
};

struct Writer {
  std::string_view tool;        ///< after --to
  std::string_view what;        ///< "launch script of Megatron-LM"
  bool serves = false;          ///< serve jobs, else train jobs
  std::string_view frameworks;  ///< of the prelude that bill it: "megatron"
  /// Checks the job and brings the layout to what the tool can run.
  void (*settle)(Subject&, Exported&);
  /// The text; \a head: lines about the bill, without comment marks.
  std::string (*write)(const Subject&, const std::vector<std::string>& head, Exported&);
};

const std::vector<Writer>& writers();
/// nullptr where there is none of that name.
const Writer* find_writer(std::string_view tool);

Exported export_layout(const Writer&, const Problem&, const Layout&);

// --- for writers

/// Each line behind "# ".
std::string as_comment(const std::vector<std::string>& lines);

/// Warns that the tool runs another layout than asked for, and what that costs.
void warn_changed(const Subject&, const Layout& asked, const std::string& why, Exported&);

/// Reports what of a train job no writer of a stack can say: adapters, frozen parts, further
/// models, explicit items.
/// \a known: switches of frameworks that the writer puts into words.
void check_common(const Subject&, std::string_view tool, std::string_view known, Exported&);
/// Warns of each switch that the job sets and the writer has no words for.
void check_switches(const Subject&, std::string_view tool, std::string_view known, Exported&);

/// Layers of a chunk, without those that hold nothing; its first ones are recomputed.
struct ChunkLayers {
  std::int64_t count = 0, recomputed = 0;
};
/// Of each chunk of each stage: [stage][chunk].
std::vector<std::vector<ChunkLayers>> chunk_layers(const Problem&, const Layout&);

// One writer a tool.
void settle_megatron(Subject&, Exported&);
std::string write_megatron(const Subject&, const std::vector<std::string>&, Exported&);
std::string write_nemo(const Subject&, const std::vector<std::string>&, Exported&);
void settle_torchtitan(Subject&, Exported&);
std::string write_torchtitan(const Subject&, const std::vector<std::string>&, Exported&);
void settle_deepspeed(Subject&, Exported&);
std::string write_deepspeed(const Subject&, const std::vector<std::string>&, Exported&);
void settle_accelerate(Subject&, Exported&);
std::string write_accelerate(const Subject&, const std::vector<std::string>&, Exported&);
void settle_server(Subject&, Exported&);
std::string write_vllm(const Subject&, const std::vector<std::string>&, Exported&);
std::string write_sglang(const Subject&, const std::vector<std::string>&, Exported&);

}  // namespace plimsoll::exports
