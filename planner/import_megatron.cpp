// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/import_megatron.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace plimsoll::imports {
namespace megatron {
namespace {

bool is_whole(const std::string& text) {
  return !text.empty() && text.size() <= 15 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

bool is_share(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

/// "(tt|)*6m": repeated groups and letters written out.
std::string unrolled(std::string text) {
  std::string plain;
  for (const char c : text)
    if (c != ',' && c != ' ' && c != '"' && c != '\'') plain += c;
  for (std::size_t star; (star = plain.find('*')) != std::string::npos;) {
    std::size_t end = star + 1;
    while (end < plain.size() && std::isdigit(static_cast<unsigned char>(plain[end]))) ++end;
    const std::string count = plain.substr(star + 1, end - star - 1);
    if (star == 0 || !is_whole(count) || std::stoll(count) > 4096) return "";
    std::size_t from = star - 1;
    std::string part(1, plain[from]);
    if (plain[from] == ')') {
      from = plain.rfind('(', star);
      if (from == std::string::npos) return "";
      part = plain.substr(from + 1, star - from - 2);
    }
    std::string many;
    for (std::int64_t i = 0; i < std::stoll(count); ++i) many += part;
    plain = plain.substr(0, from) + many + plain.substr(end);
    if (plain.size() > 100'000) return "";
  }
  return plain;
}

/// Layers of each chunk, in the order of the model, of "Et*3|(tt|)*6mL".
std::vector<std::int64_t> layout_table(const std::string& text) {
  const std::string plain = unrolled(text);
  std::vector<std::int64_t> counts;
  if (plain.empty()) return counts;
  counts.push_back(0);
  for (const char c : plain) {
    if (c == '|') counts.push_back(0);
    if (c == 't') ++counts.back();
  }
  return counts;
}

/// The python list of ones and zeros of --moe-layer-freq: sums and products of bracketed lists.
std::vector<bool> layer_pattern(const std::string& text, std::int64_t layers) {
  std::vector<bool> out;
  if (is_whole(text)) {
    const std::int64_t every = std::max<std::int64_t>(std::stoll(text), 1);
    for (std::int64_t i = 0; i < layers; ++i) out.push_back(i % every == 0);
    return out;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '[') continue;
    std::vector<bool> part;
    for (++i; i < text.size() && text[i] != ']'; ++i)
      if (text[i] == '0' || text[i] == '1') part.push_back(text[i] == '1');
    std::size_t end = i + 1;
    while (end < text.size() && (text[end] == '*' || text[end] == ' ')) ++end;
    std::size_t digits = end;
    while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
    const std::string count = text.substr(end, digits - end);
    const std::int64_t times =
        is_whole(count) ? std::min<std::int64_t>(std::stoll(count), 4096) : 1;
    for (std::int64_t k = 0; k < times; ++k) out.insert(out.end(), part.begin(), part.end());
  }
  if (static_cast<std::int64_t>(out.size()) != layers) out.clear();
  return out;
}

/// How many GPUs the launcher's own words start.
std::int64_t launched(Flags& flags) {
  const auto known = [&](std::string_view flag, const char* variable) {
    const std::string text = flags.has(flag) ? flags.word(flag) : flags.environment(variable);
    return is_whole(text) ? std::stoll(text) : 0;
  };
  const std::int64_t nodes = std::max<std::int64_t>(known("nnodes", "NNODES"), 1);
  if (const std::int64_t each = known("nproc-per-node", "GPUS_PER_NODE"); each > 0)
    return each * nodes;
  return known("world-size", "WORLD_SIZE");
}

std::vector<std::int64_t> cut(const Run& run, Flags& flags, Imported& into) {
  const std::int64_t chunks = run.pp * run.vpp;
  std::vector<std::int64_t> out(static_cast<std::size_t>(chunks), 0);
  const auto at = [&](std::int64_t stage, std::int64_t k) -> std::int64_t& {
    return out[static_cast<std::size_t>(stage * run.vpp + k)];
  };
  if (flags.has("pipeline-model-parallel-layout")) {
    const auto counts = layout_table(flags.word("pipeline-model-parallel-layout"));
    for (std::int64_t i = 0; i < std::min<std::int64_t>(chunks, std::ssize(counts)); ++i)
      at(i % run.pp, i / run.pp) = counts[static_cast<std::size_t>(i)];
    return out;
  }
  const bool embedding = flags.has("account-for-embedding-in-pipeline-split");
  const bool loss = flags.has("account-for-loss-in-pipeline-split");
  const std::int64_t slots = run.layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
  const std::int64_t first = flags.number("decoder-first-pipeline-num-layers", 0);
  const std::int64_t last = flags.number("decoder-last-pipeline-num-layers", 0);
  const std::int64_t between = run.pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  for (std::int64_t r = 0; r < run.pp; ++r)
    for (std::int64_t k = 0; k < run.vpp; ++k) {
      std::int64_t n = slots / chunks;
      if (first > 0 || last > 0)
        n = (r == 0 && first > 0           ? first
             : r == run.pp - 1 && last > 0 ? last
             : between > 0                 ? (run.layers - first - last) / between
                                           : 0) /
            run.vpp;
      if (embedding && r == 0 && k == 0) --n;
      if (loss && r == run.pp - 1 && k == run.vpp - 1) --n;
      at(r, k) = n;
    }
  std::int64_t sum = 0;
  for (const std::int64_t n : out) sum += n;
  if (sum != run.layers)
    into.mistakes.push_back({fmt::format("{} layers do not divide over {} stages of {} chunks",
                                         run.layers, run.pp, run.vpp),
                             "change --num-layers or --pipeline-model-parallel-size, or give "
                             "--pipeline-model-parallel-layout"});
  return out;
}

void read_degrees(Run& run, Flags& flags, Imported& into) {
  run.tp = flags.number("tensor-model-parallel-size", 1);
  run.pp = flags.number("pipeline-model-parallel-size", 1);
  run.cp = flags.number("context-parallel-size", 1);
  run.ep = flags.number("expert-model-parallel-size", 1);
  run.etp = flags.number("expert-tensor-parallel-size", run.tp);
  if (run.experts == 0) run.ep = run.etp = 1;
  if (run.pp == 1) return;
  if (flags.has("pipeline-model-parallel-layout")) {
    const auto parts = std::ssize(layout_table(flags.word("pipeline-model-parallel-layout")));
    if (parts == 0 || parts % run.pp != 0)
      into.mistakes.push_back({fmt::format("the table of --pipeline-model-parallel-layout does not "
                                           "cut the model in chunks of {} stages",
                                           run.pp),
                               "it has one part between bars for each chunk of each stage"});
    run.vpp = std::max<std::int64_t>(parts / run.pp, 1);
  } else if (flags.has("num-virtual-stages-per-pipeline-rank")) {
    run.vpp = flags.number("num-virtual-stages-per-pipeline-rank", 1);
  } else if (flags.has("num-layers-per-virtual-pipeline-stage")) {
    const std::int64_t each = flags.number("num-layers-per-virtual-pipeline-stage", 1);
    run.vpp = std::max<std::int64_t>(run.layers / run.pp / std::max<std::int64_t>(each, 1), 1);
  }
}

void read_gpus(Run& run, const Request& request, Flags& flags) {
  run.gpu = gpu_name(request.gpu);
  if (run.gpu.empty()) {
    run.gpu = "h100_sxm";
    run.assumed.push_back("the GPU is not told (--gpu): H100 SXM");
  }
  const std::int64_t smallest = run.tp * run.pp * run.cp;
  run.gpus = request.gpus.value_or(launched(flags));
  if (run.gpus == 0) {
    run.gpus = std::max(smallest, run.pp * run.ep * run.etp);
    run.assumed.push_back(
        "the number of GPUs is not told (--gpus): the fewest that the degrees allow");
  }
  run.dp = std::max<std::int64_t>(run.gpus / smallest, 1);
  run.batch = flags.number("global-batch-size", run.mbs * run.dp);
  // A batch of fewer micro-batches than replicas can only have been run on fewer GPUs.
  if (run.mbs > 0 && run.batch / run.mbs < run.dp) {
    run.dp = std::max<std::int64_t>(run.batch / run.mbs, 1);
    run.assumed.push_back(fmt::format("{} GPUs instead of {}: the batch has no more micro-batches",
                                      run.dp * smallest, run.gpus));
    run.gpus = run.dp * smallest;
  }
}

}  // namespace

Flags::Flags(const Launch& launch, Imported& into) : environment_(launch.environment), into_(into) {
  for (const Flag& flag : launch.flags) values_[flag.name] = flag.value;
}
bool Flags::has(std::string_view name) const { return values_.find(name) != values_.end(); }
std::string Flags::word(std::string_view name, std::string otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? otherwise : found->second;
}
std::int64_t Flags::number(std::string_view name, std::int64_t otherwise) {
  if (!has(name)) return otherwise;
  const std::string text = word(name);
  if (is_whole(text)) return std::stoll(text);
  into_.mistakes.push_back(
      {text.find('$') != std::string::npos
           ? fmt::format("nothing sets {}, the value of --{}", text, name)
           : fmt::format("--{} expects a whole number, found '{}'", name, text),
       text.find('$') != std::string::npos ? "put the number in its place"
                                           : "correct it, or leave the flag out"});
  return otherwise;
}
std::int64_t Flags::required(std::string_view name) {
  if (!has(name))
    into_.mistakes.push_back(
        {fmt::format("there is no --{}", name), "Megatron-LM has no default for it: add it"});
  return number(name, 1);
}
std::string Flags::share(std::string_view name, std::string otherwise) {
  if (!has(name)) return otherwise;
  const std::string text = word(name);
  if (is_share(text)) return text;
  into_.mistakes.push_back({fmt::format("--{} expects a share such as 0.1, found '{}'", name, text),
                            "correct it, or leave the flag out"});
  return otherwise;
}
std::vector<std::string> Flags::list(std::string_view name) const {
  std::vector<std::string> out(1);
  for (const char c : word(name)) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-')
      out.back() += c;
    else if (!out.back().empty())
      out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  return out;
}
std::string Flags::environment(const std::string& name) const {
  const auto found = environment_.find(name);
  return found == environment_.end() ? "" : found->second;
}

bool filled_up(const Run& run) {
  const auto vpp = static_cast<std::size_t>(run.vpp);
  for (std::size_t i = 0; i < run.chunks.size(); ++i)
    if (run.chunks[i] == 0 || run.chunks[i] != run.chunks[i / vpp * vpp]) return true;
  return false;
}

Run read_run(const Request& request, const Launch&, Flags& flags, Imported& into) {
  Run run;
  run.layers = flags.required("num-layers");
  run.hidden = flags.required("hidden-size");
  run.heads = flags.required("num-attention-heads");
  run.seq = flags.required("seq-length");
  run.mbs = flags.required("micro-batch-size");
  run.experts = flags.number("num-experts", 0);
  run.bias = !flags.has("disable-bias-linear");
  run.gated = flags.has("swiglu");
  run.mla = flags.has("multi-latent-attention");
  read_degrees(run, flags, into);
  for (const std::int64_t n : {run.layers, run.hidden, run.heads, run.seq, run.mbs, run.tp, run.pp,
                               run.cp, run.ep, run.etp, run.vpp})
    if (n <= 0) {
      if (into.mistakes.empty())
        into.mistakes.push_back({"a size or a degree is 0", "give it a whole number above 0"});
      return run;
    }
  if (run.experts > 0) {
    run.routed = layer_pattern(flags.word("moe-layer-freq", "1"), run.layers);
    if (run.routed.empty())
      into.mistakes.push_back(
          {fmt::format("--moe-layer-freq '{}' does not say which of {} layers have experts",
                       flags.word("moe-layer-freq"), run.layers),
           "it takes a number, or a list such as ([0]*3+[1]*29)"});
  }
  read_gpus(run, request, flags);
  run.chunks = cut(run, flags, into);
  if (flags.has("fine-grained-activation-offloading"))
    run.assumed.push_back(
        "a layer's offloaded modules go when it has run and come back at once; Megatron-LM leaves "
        "those of the last layer, and tensors under a million elements");
  if (flags.has("delay-wgrad-compute"))
    run.assumed.push_back("weight gradients are computed at once, without --delay-wgrad-compute");
  return run;
}

}  // namespace megatron

bool looks_like_megatron(const std::string& text) {
  const Launch launch = read_launch(text);
  return std::any_of(launch.flags.begin(), launch.flags.end(), [](const Flag& flag) {
    return flag.name == "num-layers" || flag.name == "tensor-model-parallel-size" ||
           flag.name == "micro-batch-size";
  });
}

Imported read_megatron(const Request& request) {
  Imported result;
  const Launch launch = read_launch(request.text);
  for (const Flag& flag : launch.flags) {
    const auto effect = megatron::effect(flag.name);
    if (!effect) {
      const std::string near = megatron::near_flag(flag.name);
      result.notes.push_back(
          near.empty() ? fmt::format("--{} is not known and was left out", flag.name)
                       : fmt::format("--{} is not known and was left out (did you mean --{}?)",
                                     flag.name, near));
    } else if (*effect == megatron::Effect::unmodelled) {
      result.mistakes.push_back(
          {fmt::format("--{} changes memory in a way that no bill knows yet", flag.name),
           "leave it out to see the bill without it"});
    }
  }
  megatron::Flags flags(launch, result);
  megatron::Run run = megatron::read_run(request, launch, flags, result);
  if (!result.mistakes.empty()) return result;
  const std::string model = megatron::model_text(run, flags, result);
  const std::string job = megatron::job_text(run, request, flags, result);
  std::string cluster = cluster_text(run.gpu, run.gpus, result);
  if (flags.has("optimizer-cpu-offload") || flags.has("fine-grained-activation-offloading"))
    cluster = with_host(std::move(cluster), run.assumed);
  std::string head = "# From Megatron-LM's launch flags (plimsoll import).\n";
  for (const std::string& line : run.assumed) head += "# Assumed: " + line + ".\n";
  result.plan = head + cluster + model + job;
  return result;
}

}  // namespace plimsoll::imports
