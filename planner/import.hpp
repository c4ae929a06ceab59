// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// From what people already launch their runs with to a .plan file.
///
/// One reader a kind of file, each in its own import_NAME.cpp and a row of kReaders (import.cpp). A
/// reader turns text into the text of a .plan file, in no particular form: import_plan() prints it
/// canonically and has the compiler look at it.
namespace plimsoll::imports {

/// What is to be imported, and facts that such files do not hold.
struct Request {
  std::string name;  ///< of the file, "-" for standard input
  std::string text;
  std::string gpu;                   ///< --gpu, a name of the prelude or close to one; "" unsaid
  std::optional<std::int64_t> gpus;  ///< --gpus
  std::vector<std::pair<std::string, std::string>> set;  ///< --set FIELD=VALUE: fields of the job
  /// Name and text of further files that were given: the model of a DeepSpeed JSON.
  std::vector<std::pair<std::string, std::string>> others;
};

/// What a reader could not take, and what to do about it.
struct Mistake {
  std::string what;
  std::string help;
};

struct Imported {
  std::string plan;                ///< "" after mistakes
  std::vector<std::string> notes;  ///< for standard error: what was not understood and left out
  std::vector<Mistake> mistakes;   ///< the user's: nothing was imported
};

/// A kind of file that can be read.
struct Reader {
  std::string_view kind;                        ///< after --from
  std::string_view what;                        ///< "launch flags of Megatron-LM", for help
  bool (*recognises)(const std::string& text);  ///< may claim a text where --from is silent
  Imported (*read)(const Request&);
};

const std::vector<Reader>& readers();

/// Reads the text as \a kind ("": whichever reader recognises it).
Imported import_plan(const std::string& kind, const Request&);

// --- for readers

/// The prelude's name of a GPU as people write it: "H100", "A100-80GB", "gb200"; "" if unknown.
std::string gpu_name(const std::string& words);

/// "cluster c { … }" of so many GPUs: nodes of eight (of four for Grace Blackwell). Adds a mistake
/// where the GPUs do not fill nodes.
std::string cluster_text(const std::string& gpu, std::int64_t gpus, Imported& into);
/// That cluster with the host memory and PCIe that offloading needs and no launch tells; what is
/// assumed is added.
std::string with_host(std::string cluster, std::vector<std::string>& assumed);

/// The job's fields that --set gives: "name = value" each, a string in quotes where the field takes
/// one (versions).
std::string set_text(const Request&);

// One reader a kind.
Imported read_megatron(const Request&);
bool looks_like_megatron(const std::string& text);
Imported read_huggingface(const Request&);
bool looks_like_huggingface(const std::string& text);
Imported read_torchtitan(const Request&);
bool looks_like_torchtitan(const std::string& text);
Imported read_deepspeed(const Request&);
bool looks_like_deepspeed(const std::string& text);

}  // namespace plimsoll::imports
