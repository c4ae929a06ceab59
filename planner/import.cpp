// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "lang/diagnostics.hpp"
#include "lang/module.hpp"
#include "lang/parse.hpp"
#include "lang/print.hpp"

namespace plimsoll::imports {
namespace {

// A further kind is a row here and a file of its own.
const std::vector<Reader> kReaders = {
    {"deepspeed", "a JSON of DeepSpeed, with the model's config.json", looks_like_deepspeed,
     read_deepspeed},
    {"huggingface", "a config.json of Hugging Face", looks_like_huggingface, read_huggingface},
    {"torchtitan", "a TOML of torchtitan", looks_like_torchtitan, read_torchtitan},
    {"megatron", "launch flags of Megatron-LM: a script, an argument list or key: value lines",
     looks_like_megatron, read_megatron},
};

std::string kinds() {
  std::string all;
  for (const Reader& reader : kReaders) {
    if (!all.empty()) all += ", ";
    all += reader.kind;
  }
  return all;
}

const Reader* find_reader(const std::string& kind, const std::string& text, Imported& result) {
  for (const Reader& reader : kReaders)
    if (kind.empty() ? reader.recognises(text) : reader.kind == kind) return &reader;
  if (kind.empty()) {
    result.mistakes.push_back(
        {"what kind of file this is cannot be told", fmt::format("say it: --from {}", kinds())});
    return nullptr;
  }
  std::vector<std::string> known;
  for (const Reader& reader : kReaders) known.emplace_back(reader.kind);
  const std::string near = did_you_mean(kind, known);
  result.mistakes.push_back({fmt::format("'{}' cannot be imported from", kind),
                             near.empty() ? fmt::format("the kinds are {}", kinds())
                                          : fmt::format("did you mean '{}'?", near)});
  return nullptr;
}

/// The text in canonical form, after a look at what it says: degrees that do not divide, fields
/// that do not exist.
void finish(Imported& result) {
  Sources sources;
  Diagnostics syntax;
  const ast::File file = parse(sources, sources.add("imported.plan", result.plan), syntax);
  if (syntax.has_errors()) {
    result.mistakes.push_back({"these values make no .plan file:\n" + syntax.render(sources, false),
                               "look at the value that it names"});
    result.plan.clear();
    return;
  }
  result.plan = print(file, sources);
  Diagnostics diags;
  const Module module = compile("imported.plan", result.plan, diags);
  if (!diags.has_errors()) return;
  result.mistakes.push_back(
      {"these values cannot be a job:\n" + diags.render(module.sources(), false),
       "the lines above are of the file that would have been printed"});
  result.plan.clear();
}

std::string squeezed(const std::string& words) {
  std::string out;
  for (const char c : words)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

const std::vector<Reader>& readers() { return kReaders; }

Imported import_plan(const std::string& kind, const Request& request) {
  Imported result;
  const Reader* reader = find_reader(kind, request.text, result);
  if (reader == nullptr) return result;
  if (!request.gpu.empty() && gpu_name(request.gpu).empty()) {
    result.mistakes.push_back({fmt::format("unknown GPU '{}' after --gpu", request.gpu),
                               "give one of the prelude's, such as h100_sxm, a100_80gb, b200"});
    return result;
  }
  result = reader->read(request);
  if (!result.mistakes.empty()) {
    result.plan.clear();
    return result;
  }
  finish(result);
  return result;
}

std::string gpu_name(const std::string& words) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 22> kNames = {{
      {"gb300", "gb300"},
      {"gb200", "gb200"},
      {"gh200", "gh200"},
      {"b300", "b300"},
      {"b200", "b200"},
      {"h200", "h200"},
      {"h100pcie", "h100_pcie"},
      {"h100nvl", "h100_nvl"},
      {"h100", "h100_sxm"},
      {"h800", "h100_sxm"},
      {"h20", "h20"},
      {"a100pcie80", "a100_pcie_80gb"},
      {"a10080", "a100_80gb"},
      {"a100sxm80", "a100_80gb"},
      {"a10040", "a100_40gb"},
      {"a100", "a100_80gb"},
      {"a800", "a100_80gb"},
      {"mi300", "mi300x"},
      {"mi325", "mi325x"},
      {"mi355", "mi355x"},
      {"l40s", "l40s"},
      {"rtx6000", "rtx6000_ada"},
  }};
  const std::string wanted = squeezed(words);
  for (const auto& [part, name] : kNames)
    if (wanted.find(part) != std::string::npos) return std::string(name);
  for (const std::string_view card : {"4090", "5090"})
    if (wanted.find(card) != std::string::npos) return "rtx" + std::string(card);
  return "";
}

std::string cluster_text(const std::string& gpu, std::int64_t gpus, Imported& into) {
  const std::int64_t per_node = gpu.starts_with("gb") ? 4 : 8;
  const std::int64_t here = std::min(gpus, per_node);
  if (here <= 0 || gpus % here != 0) {
    into.mistakes.push_back(
        {fmt::format("{} GPUs do not fill nodes of {}", gpus, per_node), "give --gpus a multiple"});
    return "";
  }
  return fmt::format("cluster c {{ gpu = {}  nodes = {}  gpus_per_node = {} }}\n", gpu, gpus / here,
                     here);
}

std::string with_host(std::string cluster, std::vector<std::string>& assumed) {
  assumed.push_back(
      "offloading needs the host's memory and PCIe, which are not told: those of a DGX H100, 2 TiB "
      "and 8 x 64 GB/s a node");
  const std::size_t end = cluster.rfind('}');
  if (end != std::string::npos) cluster.insert(end, "host_memory = 2 TiB  pcie = 512 GB/s ");
  return cluster;
}

std::string set_text(const Request& request) {
  std::string text;
  for (const auto& [field, value] : request.set) {
    const bool quoted = field.ends_with("version") && !value.starts_with('"');
    text += quoted ? fmt::format("{} = \"{}\"\n", field, value)
                   : fmt::format("{} = {}\n", field, value);
  }
  return text;
}

}  // namespace plimsoll::imports
