// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <array>
#include <utility>

#include "lang/assist.hpp"
#include "lang/lexer.hpp"
#include "lang/names.hpp"
#include "lang/program.hpp"

/// What editors show of the language's own words, a line each.
namespace plimsoll::assist {

namespace {

using Row = std::pair<std::string_view, std::string_view>;

// clang-format off
constexpr Row kLayout[] = {
    {"tp", "tensor parallelism: ranks that divide each layer's matrices"},
    {"pp", "pipeline parallelism: stages that divide the layers"},
    {"vpp", "pieces of the model on each stage, for the interleaved schedule"},
    {"cp", "context parallelism: ranks that divide each sequence"},
    {"ep", "expert parallelism: ranks that divide the experts"},
    {"etp", "tensor parallelism inside the experts"},
    {"dp", "data-parallel replicas: GPUs / (tp * pp * cp)"},
    {"zero", "ZeRO stage: 0 nothing is shared, 1 the optimizer's states, 2 the gradients too, 3 the weights too"},
    {"shard", "ranks that share the states under zero; all of dp * cp unless given"},
    {"mbs", "micro-batch: sequences that go through the model at a time"},
    {"sp", "sequence parallelism: what tp does not divide is divided by tokens (true or false)"},
    {"recompute", "what backward computes again: none, full, or a mode of the framework such as selective"},
    {"recompute_layers", "layers of each stage that are recomputed: a list with an entry a stage"},
    {"stage_layers", "layers of each stage: a list with an entry a stage"},
    {"stage_pool", "the cluster's pool that each stage runs on: a list with an entry a stage"},
    {"schedule", "order of micro-batches: 1f1b, interleaved, gpipe, zb_h1, zb_v, dualpipe_v"},
    {"offload", "share of the optimizer states that lies in host memory: 0 to 1"},
};
constexpr Row kDerived[] = {
    {"peak", "bytes on the fullest GPU at its worst moment"},
    {"headroom", "unused share of the GPU's memory: 0 to 1"},
    {"hbm", "bytes of the GPU's memory that the job may take"},
    {"step_time", "seconds of an optimizer step"},
    {"tokens_per_second", "tokens of the whole cluster in a second"},
    {"mfu", "model FLOPs over the GPUs' peak: 0 to 1"},
    {"bubble", "share of the step in which stages wait for each other"},
    {"microbatches", "micro-batches of a replica in a step"},
    {"params", "parameters of the model"},
    {"params_on_gpu", "parameters that the rank holds"},
    {"gpus", "GPUs of the cluster"},
    {"days", "of the whole run; needs the job's tokens"},
    {"cost", "of the whole run in USD; needs tokens and the GPU's price"},
    {"stage", "number of the pipeline stage, from 0"},
    {"first", "is it the first stage?"},
    {"last", "is it the last stage?"},
    {"receiving", "stages that send an activation to this one"},
};
constexpr Row kFields[] = {
    {"model", "the model that the job trains or serves"},
    {"cluster", "the cluster that the job runs on"},
    {"seq", "tokens a sequence"},
    {"batch", "sequences an optimizer step over the whole cluster, or `4Mi tokens`"},
    {"target", "tokens of the second sequence (encoder and decoder); seq unless given"},
    {"optimizer", "adamw unless given"},
    {"framework", "whose rules say what is kept: megatron, torchtitan, deepspeed, huggingface, vllm …"},
    {"precision", "fp32, fp16, bf16 or fp8"},
    {"attention", "flash, cudnn or unfused"},
    {"loss", "how the framework computes the loss, in its words"},
    {"grads", "dtype of the gradients"},
    {"dropout", "a share"},
    {"attention_dropout", "a share"},
    {"freeze", "names of weights or blocks that are not trained"},
    {"adapt", "lora(rank = 16, on = {q, k, v, o}) or qlora(…): the rest is frozen"},
    {"imbalance", "routed tokens of the fullest expert rank over the mean; 1 is balanced"},
    {"tokens", "of the whole run: adds days and USD to what is printed"},
    {"context", "tokens that a served sequence holds at most"},
    {"weights", "dtype of the weights"},
    {"kv", "dtype of the cache"},
    {"weights_on", "roles of the weights that have that dtype; the rest stays bf16"},
    {"kv_block", "tokens a page of the cache"},
    {"batch_tokens", "tokens that a prefill step may hold"},
    {"utilization", "share of the memory that the server may take"},
    {"sequences", "that a server holds at once"},
    {"gpu", "the accelerator"},
    {"nodes", "machines; `nodes in 1..64` leaves the number to the planner"},
    {"gpus_per_node", "GPUs of a machine"},
    {"nvlink_domain", "GPUs that NVLink joins; gpus_per_node unless given"},
    {"host_memory", "bytes of a node's own memory; offload needs it"},
    {"pcie", "bytes a second between a node's memory and its GPUs"},
    {"occupied", "bytes of each GPU that others hold"},
    {"memory", "bytes that the driver reports"},
    {"reserved", "bytes of the context and libraries"},
    {"sm", "compute capability: 80, 90, 100"},
    {"bandwidth", "of the GPU's memory"},
    {"nvlink", "bytes a second to other GPUs of the node, per direction"},
    {"nic", "bytes a second between nodes, of each GPU"},
    {"price", "of a GPU's hour"},
    {"bits", "of an element, its share of the scales included"},
    {"bytes", "what one GPU holds; as bytes(\"…\") in a condition: a category's or item's bytes at the peak"},
    {"category", "weights, gradients, master, moments, activations, kv_cache, buffers, workspace, overhead, fragmentation"},
    {"lifetime", "always, from_first_step, step, microbatch, op, forward, backward, update, or a span of these; start, load, save, evaluate"},
    {"where", "only where this holds"},
    {"elements", "of a state; numel unless given"},
    {"combine", "max shares one buffer instead of adding up"},
    {"early", "1: it also lives through the layer before"},
    {"late", "1: it also lives through the layer after"},
    {"stream", "the allocator's pool"},
    {"source", "where this is known from"},
    {"vocab_multiple", "the vocabulary is padded to a multiple of this"},
    {"reserved_factor", "what the allocator holds over what is allocated"},
    {"margin", "within this share of the memory a layout is on the edge"},
    {"allocated", "a peak that was seen, as the framework's allocator reports it"},
    {"step", "a step's time that was seen"},
};
constexpr Row kCalls[] = {
    {"embedding", "embedding(vocab, width): a row of a table for each token"},
    {"input", "input(tokens, width): a second input"},
    {"merge", "merge(text, image): puts one sequence's values into another's places"},
    {"learned_positions", "learned_positions(x, n): a table of n positions"},
    {"relative_bias", "relative_bias(heads, buckets): a bias of attention by distance"},
    {"rope", "rope(x): rotary positions; last = n turns the last n elements only"},
    {"linear", "linear(x, out, split = column | row | none, units, bias, tied, name)"},
    {"rmsnorm", "rmsnorm(x): groups = heads makes it a norm per head"},
    {"layernorm", "layernorm(x)"},
    {"attention", "attention(q, k, v, heads, kv_heads, causal, window, chunk, softcap, sinks, bias, cache)"},
    {"gelu", "gelu(x); gelu(a) * b is the gated op"},
    {"relu", "relu(x)"},
    {"squared_relu", "squared_relu(x)"},
    {"silu", "silu(x); silu(a) * b is the gated op"},
    {"tanh", "tanh(x)"},
    {"softcap", "softcap(x, c): c * tanh(x / c)"},
    {"concat", "concat(a, b, groups = n)"},
    {"dropout", "dropout(x, p)"},
    {"experts", "experts(x, count, top_k) { t => mlp(t, f) }: routed experts with their router"},
    {"mamba2", "mamba2(x, heads, head_dim, state, groups, conv)"},
    {"cross_entropy", "cross_entropy(logits): the loss"},
    {"width", "width(x): elements a token"},
    {"if", "if(condition, value, otherwise)"},
    {"min", "the least of its arguments"},
    {"max", "the largest of its arguments"},
    {"ceil", "the next whole number upwards"},
    {"floor", "the next whole number downwards"},
    {"round", "the nearest whole number, halves upwards"},
    {"log2", "of a power of two"},
    {"abs", "without its sign"},
    {"mod", "mod(a, b): what is left of a // b"},
    {"sum", "of a list or of its arguments"},
    {"len", "entries of a list"},
};
constexpr Row kKeywords[] = {
    {"param", "declares parameters: param layers, hidden, kv_heads = heads"},
    {"repeat", "repeat n [as i] { … }: one turn of an innermost repeat is one layer"},
    {"return", "the tensor that a block gives"},
    {"item", "a line item of one's own: item \"name\" { bytes = …  category = …  lifetime = … }"},
    {"require", "require [\"name\":] condition: layouts that do not meet it are out"},
    {"prefer", "prefer [\"name\":] condition [weight n]: worth up to n % of the objective"},
    {"minimize", "what the best layout has least of; step_time unless said"},
    {"maximize", "what the best layout has most of"},
    {"use", "use \"other.plan\": brings a file in"},
    {"state", "state NAME : DTYPE: bytes of each weight"},
    {"on", "on OP { save … }: what this stack keeps for backward"},
    {"save", "save VALUE [: DTYPE]: kept from forward to backward"},
    {"fuse", "fuse NAME = {a, b}: stored as one weight where they read one value"},
    {"default", "default VARIABLE = e: of a layout variable that is not given"},
    {"pool", "pool NAME { gpu = …  nodes = …  gpus_per_node = … }: nodes of one kind"},
    {"observed", "observed { layout = …  allocated = …  step = … }: what was seen on one's own machine"},
    {"beside", "beside NAME { model = … } or { job = … }: on the same GPUs"},
    {"weight", "prefer … weight n: worth up to n % of the objective"},
    {"each", "item \"…\" each weight, shape, communicator or layer"},
    {"cluster", "machines, and the GPUs in them"},
    {"dtype", "a storage format: dtype mxfp4 { bits = 4 + 8/32 }"},
    {"block", "block name(x, …) { … return … }: a part of models"},
    {"train", "a training job and what the planner may choose"},
    {"serve", "a serving job"},
    {"layout", "values for some layout variables"},
};
// clang-format on

template <std::size_t N>
std::string_view find(const Row (&rows)[N], std::string_view word) {
  for (const auto& [name, doc] : rows)
    if (name == word) return doc;
  return "";
}

}  // namespace

std::string_view word_doc(std::string_view word) {
  for (const std::string_view doc : {find(kLayout, word), find(kDerived, word), find(kFields, word),
                                     find(kCalls, word), find(kKeywords, word)})
    if (!doc.empty()) return doc;
  return "";
}

Vocabulary vocabulary() {
  Vocabulary all;
  all.keywords = syntax::entry_words();
  for (const char* word : {"as", "and", "or", "not", "in", "if", "use", "weight", "each"})
    if (std::find(all.keywords.begin(), all.keywords.end(), word) == all.keywords.end())
      all.keywords.emplace_back(word);
  all.kinds = syntax::declaration_kinds();
  for (const VariableName& row : layout_variables()) all.variables.emplace_back(row.name);
  for (const VariableName& row : derived_numbers()) all.variables.emplace_back(row.name);
  for (const auto& [name, doc] : kCalls)
    if (name != "if") all.calls.emplace_back(name);
  all.units = unit_names();
  all.constants = {"true", "false", "none"};
  return all;
}

}  // namespace plimsoll::assist
