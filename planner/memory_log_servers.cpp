// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What vLLM (v1/worker/gpu_worker.py, gpu_model_runner.py, core/kv_cache_utils.py; worker/worker.py
// before V1) and SGLang (srt/model_executor/model_runner.py, mem_cache/memory_pool.py) say while
// they start.

#include <string>

#include "planner/memory_log.hpp"

namespace plimsoll::logs {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

bool has(std::string_view line, std::string_view phrase) { return line.find(phrase) != kNone; }

/// Takes a size where the line has one; the first of a worker counts, the others repeat it.
bool take(std::optional<Seen>& into, const std::optional<Seen>& seen) {
  if (seen && !into) into = seen;
  return seen.has_value();
}

/// "Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory
/// utilization (0.9, 19.84 GiB)".
bool read_busy(std::string_view line, Server& s) {
  const std::size_t device = line.find("Free memory on device");
  const std::size_t open = line.find('(', device == kNone ? line.size() : device);
  if (open == kNone) return false;
  const std::size_t slash = line.find('/', open);
  if (slash == kNone) return false;
  s.total = size_at(line.substr(slash + 1));
  s.free_at_start = size_at(line.substr(open + 1, slash - open - 1), "GiB");
  constexpr std::string_view kShare = "GPU memory utilization (";
  if (const std::size_t at = line.find(kShare, slash); at != kNone) {
    const std::string_view rest = line.substr(at + kShare.size());
    s.utilization = std::strtod(std::string(rest.substr(0, 12)).c_str(), nullptr);
    s.share = size_after(rest, ",");
  }
  return s.no_room = s.total && s.free_at_start;
}

bool read_vllm(std::string_view line, Server& s) {
  bool any = read_busy(line, s);
  if (has(line, "Model loading took ") || has(line, "model weights took "))
    any |= take(s.weights, size_after(line, " took "));
  if (has(line, "oading model weights took "))
    any |= take(s.weights, size_after(line, "weights took "));
  any |= take(s.weights, size_after(line, "model weights take "));
  any |= take(s.outside, size_after(line, "non_torch_memory takes "));
  any |= take(s.activations, size_after(line, "activation peak memory takes "));
  any |= take(s.cache, size_after(line, "reserved for KV Cache is "));
  any |= take(s.cache, size_after(line, "vailable KV cache memory: "));
  any |= take(s.total, size_after(line, "total_gpu_memory ("));
  if (has(line, "gpu_memory_utilization (") && has(line, " = "))
    any |= take(s.share, size_after(line, " = "));
  if (const std::size_t at = line.find("gpu_memory_utilization ("); at != kNone) {
    s.utilization = std::strtod(std::string(line.substr(at + 24, 12)).c_str(), nullptr);
    any = true;
  }
  if (const auto n = count_after(line, "GPU KV cache size: ")) s.cache_tokens = n, any = true;
  for (const std::string_view phrase : {"# GPU blocks: ", "# cuda blocks: ", "# CUDA blocks: "})
    if (const auto n = count_after(line, phrase)) s.blocks = n, any = true;
  if (const auto n = count_after(line, "Maximum concurrency for ")) s.context = n, any = true;
  if (has(line, "raph capturing finished")) any |= take(s.graphs, size_after(line, "took "));
  if (has(line, "No available memory for the cache blocks")) s.no_room = any = true;
  if (has(line, "model's max seq len (") || has(line, "models's max seq len ("))
    if (const auto n = count_after(line, "max seq len (")) s.context = n, any = true;
  constexpr std::string_view kStored = "number of tokens that can be stored in KV cache (";
  if (const auto n = count_after(line, kStored)) s.cache_tokens = n, s.no_room = any = true;
  if (has(line, "KV cache is needed")) {
    any |= take(s.cache_needed, size_before(line, " KV cache is needed"));
    any |= take(s.cache, size_after(line, "available KV cache memory ("));
    s.no_room = true;
  }
  return any;
}

bool read_sglang(std::string_view line, Server& s) {
  bool any = false;
  if (has(line, "Load weight end.")) any |= take(s.weights, size_after(line, "mem usage="));
  if (has(line, "Load weight begin.")) any |= take(s.total, size_after(line, "avail mem="));
  if (has(line, "KV Cache is allocated.")) {
    if (const auto n = count_after(line, "#tokens: ")) s.cache_tokens = n, any = true;
    auto k = size_after(line, "K size: ");
    if (const auto v = size_after(line, "V size: "); k && v)
      k = Seen{k->bytes + v->bytes, k->slack + v->slack};
    if (!k) k = size_after(line, "KV size: ");
    any |= take(s.cache, k);
  }
  if (has(line, "Memory pool end.")) any |= take(s.left, size_after(line, "avail mem="));
  if (has(line, "apture cuda graph end.") || has(line, "CUDA graph end."))
    any |= take(s.graphs, size_after(line, "mem usage="));
  if (has(line, "max_total_num_tokens=")) {
    if (const auto n = count_after(line, "max_total_num_tokens=")) s.cache_tokens = n, any = true;
    if (const auto n = count_after(line, "context_len=")) s.context = n;
  }
  if (has(line, "Not enough memory. Please try to increase --mem-fraction-static") ||
      has(line, "leave no GPU memory for the KV cache"))
    s.no_room = any = true;
  constexpr std::string_view kFraction = "--mem-fraction-static=";
  if (const std::size_t at = line.find(kFraction); at != kNone && s.no_room)
    s.utilization =
        std::strtod(std::string(line.substr(at + kFraction.size(), 6)).c_str(), nullptr);
  return any;
}

}  // namespace

bool read_server_line(std::string_view line, std::int64_t number, std::optional<Server>& server) {
  Server read = server.value_or(Server{});
  const bool vllm = read_vllm(line, read);
  const bool sglang = !vllm && read_sglang(line, read);
  if (!vllm && !sglang) return false;
  if (read.tool.empty()) {
    read.tool = vllm ? "vLLM" : "SGLang";
    read.line = number;
  }
  server = std::move(read);
  return true;
}

}  // namespace plimsoll::logs
