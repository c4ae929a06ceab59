// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/import_megatron.hpp"

namespace plimsoll::imports::megatron {
namespace {

/// Fields of a body, "name = value" each; what is the default of the template stays out.
struct Fields {
  std::string text;
  void add(std::string_view name, std::int64_t value) {
    text += fmt::format("{} = {}\n", name, value);
  }
  void add(std::string_view name, std::string_view value) {
    text += fmt::format("{} = {}\n", name, value);
  }
};

std::int64_t feed_forward(const Run& run, Flags& flags) {
  // Megatron-LM's own default: gated ones keep the parameters of 4 h, in multiples of 64.
  const std::int64_t otherwise = run.gated ? run.hidden * 8 / 3 / 64 * 64 : 4 * run.hidden;
  return flags.number("ffn-hidden-size", otherwise);
}

std::int64_t vocabulary(Run& run, Flags& flags) {
  if (flags.has("vocab-size")) return flags.number("vocab-size", 50257);
  if (flags.has("padded-vocab-size")) return flags.number("padded-vocab-size", 50257);
  run.assumed.push_back("the vocabulary is not told (--vocab-size): GPT-2's 50,257 tokens");
  return 50257;
}

void attention_fields(Fields& out, const Run& run, Flags& flags) {
  const std::int64_t width = flags.number("kv-channels", run.hidden / run.heads);
  if (!run.mla) {
    if (flags.has("group-query-attention"))
      out.add("kv_heads", flags.number("num-query-groups", run.heads));
    if (width * run.heads != run.hidden) out.add("head_dim", width);
    if (run.bias || flags.has("add-qkv-bias")) out.add("bias_qkv", "true");
    if (flags.has("qk-layernorm")) out.add("qk_norm", "head");
    return;
  }
  out.add("q_lora", flags.number("q-lora-rank", 0));
  out.add("kv_lora", flags.number("kv-lora-rank", 512));
  out.add("nope", flags.number("qk-head-dim", 128));
  out.add("rope_dim", flags.number("qk-pos-emb-head-dim", 64));
  out.add("v_dim", flags.number("v-head-dim", 128));
  if (!flags.has("qk-layernorm")) out.add("latent_norm", "false");
}

/// Without padding a capacity of 1 or more holds every row of balanced routers, and no row beside.
void capacity_field(Fields& out, Run& run, Flags& flags) {
  if (!flags.has("moe-expert-capacity-factor")) return;
  const std::string factor = flags.share("moe-expert-capacity-factor", "1");
  if (flags.has("moe-pad-expert-input-to-capacity") || std::stod(factor) < 1)
    out.add("capacity", factor);
  else
    run.assumed.push_back("no token is dropped: experts' capacity is not padded");
}

void expert_fields(Fields& out, Run& run, std::int64_t ffn, Flags& flags) {
  if (run.experts == 0) return;
  out.add("experts", run.experts);
  out.add("top_k", flags.number("moe-router-topk", 2));
  out.add("expert_ffn", flags.number("moe-ffn-hidden-size", ffn));
  if (const auto shared = flags.number("moe-shared-expert-intermediate-size", 0); shared > 0)
    out.add("shared", shared);
  capacity_field(out, run, flags);
  if (flags.word("moe-router-score-function") == "sigmoid") out.add("score", "sigmoid");
  if (flags.has("moe-router-enable-expert-bias")) out.add("router_bias", "true");
  if (run.bias && !flags.has("moe-grouped-gemm")) out.add("expert_bias", "true");
}

/// first_dense where dense layers come first and only there; a pattern of all layers otherwise, or
/// where chunks of unlike lengths are filled up with layers that hold nothing.
void layer_fields(Fields& out, const Run& run) {
  const auto vpp = static_cast<std::size_t>(run.vpp);
  const auto pp = static_cast<std::size_t>(run.pp);
  const std::int64_t longest = *std::max_element(run.chunks.begin(), run.chunks.end());
  const bool fill = filled_up(run);
  std::vector<bool> routed = run.routed;
  if (routed.empty()) routed.assign(static_cast<std::size_t>(run.layers), false);
  const auto dense = std::find(routed.begin(), routed.end(), true) - routed.begin();
  const bool dense_first = std::find(routed.begin() + dense, routed.end(), false) == routed.end();
  if (!fill && (run.experts == 0 || dense_first)) {
    out.add("layers", run.layers);
    if (run.experts > 0 && dense > 0) out.add("first_dense", static_cast<std::int64_t>(dense));
    return;
  }
  std::vector<std::string_view> words;
  std::size_t next = 0;
  const auto real = [&](std::int64_t n) {
    for (std::int64_t i = 0; i < n && next < routed.size(); ++i)
      words.push_back(routed[next++] ? "routed" : "dense");
  };
  if (!fill) {
    real(run.layers);
  } else {
    for (std::size_t k = 0; k < vpp; ++k)
      for (std::size_t r = 0; r < pp; ++r) {
        const std::int64_t n = run.chunks[r * vpp + k];
        real(n);  // in front: the first layers of a chunk are what is recomputed
        words.insert(words.end(), static_cast<std::size_t>(longest - n), "empty");
      }
  }
  out.add("layers", static_cast<std::int64_t>(words.size()));
  std::string list;
  for (const std::string_view word : words) list += (list.empty() ? "" : ", ") + std::string(word);
  out.add("pattern", "[" + list + "]");
}

}  // namespace

std::string model_text(Run& run, Flags& flags, Imported&) {
  Fields out;
  const std::int64_t ffn = feed_forward(run, flags);
  layer_fields(out, run);
  out.add("hidden", run.hidden);
  out.add("heads", run.heads);
  out.add("ffn", ffn);
  out.add("vocab", vocabulary(run, flags));
  attention_fields(out, run, flags);
  expert_fields(out, run, ffn, flags);
  if (flags.word("normalization") != "RMSNorm") out.add("norm", "layernorm");
  const std::string position = flags.word("position-embedding-type", "learned_absolute");
  if (position == "learned_absolute" && !flags.has("no-position-embedding")) {
    out.add("position", "learned");
    out.add("positions", flags.number("max-position-embeddings", run.seq));
  } else if (position != "rope" && position != "yarn" && position != "mrope") {
    out.add("position", "learned");  // none: no table, nothing turned
  }
  if (flags.has("squared-relu")) {
    out.add("kind", "squared_relu");
  } else if (!run.gated) {
    out.add("kind", "gelu");
  }
  if (!run.gated) out.add("gated", "false");
  if (!flags.has("untie-embeddings-and-output-weights")) out.add("tied", "true");
  if (run.bias) {
    out.add("bias_o", "true");
    out.add("bias_mlp", "true");
  }
  if (const auto depth = flags.number("mtp-num-layers", 0); depth > 0) {
    out.add("mtp", 1);
    if (depth > 1)
      run.assumed.push_back("one further token is predicted, not " + std::to_string(depth));
  }
  return "model m = decoder {\n" + out.text + "}\n";
}

}  // namespace plimsoll::imports::megatron
