// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "planner/import.hpp"
#include "planner/import_words.hpp"

/// Megatron-LM's arguments (megatron/training/arguments.py of 2026, and their defaults), read for
/// what they do to memory. Private to import_megatron*.cpp.
namespace plimsoll::imports::megatron {

/// What a flag is to a bill.
enum class Effect : std::uint8_t {
  none,       ///< of time, data, logging: left out silently
  modelled,   ///< read here
  unmodelled  ///< changes memory in a way that no bill knows: an error
};

/// nullopt for a flag that no list has.
std::optional<Effect> effect(std::string_view flag);
/// The known flag that a word is closest to, or "".
std::string near_flag(std::string_view flag);

/// The flags of one launch by name, the last of each; numbers are checked as they are read.
class Flags {
 public:
  Flags(const Launch&, Imported& into);
  bool has(std::string_view name) const;
  std::string word(std::string_view name, std::string otherwise = "") const;
  std::int64_t number(std::string_view name, std::int64_t otherwise);
  /// The number of a flag that Megatron-LM has no default for: a mistake where it is not there.
  std::int64_t required(std::string_view name);
  /// A share such as 0.1, as written; \a otherwise where it is not there.
  std::string share(std::string_view name, std::string otherwise);
  /// Whole words of a list: "[a b]", "a b", "a,b".
  std::vector<std::string> list(std::string_view name) const;
  std::string environment(const std::string& name) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
  const std::map<std::string, std::string>& environment_;
  Imported& into_;
};

/// The numbers that several parts of the text need.
struct Run {
  std::int64_t layers = 0, hidden = 0, heads = 0, seq = 0, mbs = 0, batch = 0;
  std::int64_t tp = 1, pp = 1, cp = 1, ep = 1, etp = 1, vpp = 1, dp = 1, gpus = 0;
  std::int64_t experts = 0;
  std::vector<bool> routed;  ///< by layer
  /// Layers of each chunk, stage by stage: chunk k of stage r is [r * vpp + k].
  std::vector<std::int64_t> chunks;
  std::string gpu;
  bool bias = false, gated = false, mla = false;
  std::vector<std::string> assumed;  ///< comments
};

/// Are chunks filled up with layers that hold nothing? Where one has none of the model's layers, or
/// those of a stage are of unlike lengths, which stage_layers cannot say.
bool filled_up(const Run&);

/// Sizes, degrees, GPUs and the cut of the layers. Mistakes go to \a into.
Run read_run(const Request&, const Launch&, Flags&, Imported& into);

/// "model m = decoder { … }".
std::string model_text(Run&, Flags&, Imported& into);
/// Framework (where recomputed modules need one of their own), optimizer, job and layout.
std::string job_text(Run&, const Request&, Flags&, Imported& into);

}  // namespace plimsoll::imports::megatron
