// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/seed.hpp"

/// Random small plans with a job and a layout, for properties that must hold of every one.
namespace plimsoll::test {

class RandomJobs {
 public:
  explicit RandomJobs(unsigned seed) : random_(seed) {}

  /// A plan text with a cluster, a model, a job and a layout; some layouts are impossible.
  std::string next() {
    experts_ = decoder_ = false;
    layers_ = 2 + number(6);
    const std::string model = pick_model();
    const std::string framework = word({"megatron", "megatron", "plain", "plain", "torchtitan",
                                        "deepspeed", "huggingface", "textbook"});
    std::string text = model;
    text += job(framework);  // one after the other: the layout follows the job's degrees
    return text += layout(framework);
  }

 private:
  unsigned number(unsigned below) { return static_cast<unsigned>(random_() % below); }
  bool chance(unsigned one_in) { return number(one_in) == 0; }
  unsigned one(std::initializer_list<unsigned> from) {
    return *(from.begin() + number(static_cast<unsigned>(from.size())));
  }
  std::string word(std::initializer_list<const char*> from) {
    return *(from.begin() + number(static_cast<unsigned>(from.size())));
  }
  std::string perhaps(const char* text, unsigned one_in = 2) {
    return chance(one_in) ? std::string(" ") + text : "";
  }

  std::string pick_model() {
    switch (number(8)) {
      case 0:
        return fmt::format(
            "model m = gpt {{ layers = {} hidden = {} heads = 8 vocab = 1000{}{} }}\n", layers_,
            one({64, 72}), perhaps("positions = 512"), perhaps("activation = relu"));
      case 1: {
        layers_ *= 2;
        return fmt::format(
            "model m = t5 {{ layers = {} hidden = 64 heads = 8 ffn = 96 vocab = 500 head_dim = 8 "
            "}}\n",
            layers_ / 2);
      }
      case 2:
        return hybrid();
      case 3:
        return vision();
      case 4:
        return predicting_ahead();
      default:
        return decoder();
    }
  }

  std::string decoder() {
    const bool latent = chance(4);
    decoder_ = true;
    experts_ = chance(3);
    std::string text = fmt::format(
        "model m = decoder {{ layers = {} hidden = {} heads = 8 kv_heads = {} ffn = {} vocab = "
        "{}\n  "
        "norm = {} norms = {}",
        layers_, one({64, 72}), one({1, 2, 4, 8}), one({96, 128, 200}), one({1000, 1024, 777}),
        word({"rmsnorm", "layernorm"}),
        word({"pre", "pre", "parallel", "parallel2", "post", "sandwich"}));
    text += " kind = " + word({"silu", "gelu", "relu", "squared_relu"});
    if (chance(3)) text += " gated = false";
    if (latent)
      text += fmt::format(" kv_lora = 16 q_lora = {} nope = 8 rope_dim = 8 v_dim = 8 head_dim = 1",
                          one({0, 32}));
    else
      text += fmt::format(" head_dim = {}{}", one({8, 9, 16}),
                          chance(3) ? " qk_norm = " + word({"head", "full"}) : "");
    if (chance(3)) text += " window = 32 period = " + word({"0", "2", "3"});
    if (chance(6)) text += " chunk = 32";
    text += perhaps("tied = true") + perhaps("bias_qkv = true") + perhaps("bias_o = true") +
            perhaps("bias_mlp = true") + perhaps("positions = 512", 5) +
            perhaps("position = alibi", 6) + perhaps("softcap = 30", 5) +
            perhaps("final_softcap = 30", 5) + perhaps("embed_norm = true", 5) +
            perhaps("sinks = true", 6) + perhaps("head_bias = true", 6);
    if (experts_)
      text += fmt::format(
          " experts = 8 top_k = {} expert_ffn = {} first_dense = {}{}{}{}{}", one({1, 2, 3}),
          one({48, 64}), number(3), perhaps("shared = 64"), perhaps("capacity = 1.25", 3),
          perhaps("score = sigmoid router_bias = true", 3), perhaps("moe_every = 2", 4));
    return text + " }\n";
  }

  std::string hybrid() {
    std::string pattern;
    for (unsigned i = 0; i < layers_; ++i)
      pattern += (i ? ", " : "") + word({"mamba", "mlp", "attention"});
    return fmt::format(
        "model m = hybrid {{ hidden = 64 vocab = 1000 heads = 8 kv_heads = 4 head_dim = 8 ffn = "
        "96\n"
        "  mamba_heads = 8 mamba_dim = 16 state = 16 groups = {} conv = 4 pattern = [{}] }}\n",
        one({4, 8}), pattern);
  }

  /// A tower beside a decoder, written out: the prelude's has a fixed size.
  std::string vision() {
    const unsigned tower = 1 + number(3);
    const std::string text = fmt::format(
        "model m {{\n  param hidden = 64, heads = 8\n  p = linear(input(48, 27), 32, name = "
        "patches)\n  repeat {} {{ p = vit(p, 8, "
        "64) "
        "}}\n  p = linear(gelu(p), 64, bias = true, name = projector)\n  x = merge(embedding(1000, "
        "64), p)\n  repeat {} {{ x = lm(x, 8, 4, 96) }}\n  loss = cross_entropy(linear(rmsnorm(x), "
        "1000, split = column, name = head))\n}}\n",
        tower, layers_);
    layers_ += tower;
    return text;
  }

  std::string predicting_ahead() {
    const unsigned depth = 1 + number(2);
    const std::string text = fmt::format(
        "model m {{\n  param hidden = 64, heads = 8\n  x = embedding(1000, 64, name = embed)\n  "
        "repeat {} {{ x = lm(x, 8, 4, 96) "
        "}}\n"
        "  loss = cross_entropy(linear(rmsnorm(x), 1000, split = column, name = head))\n"
        "  repeat {} {{\n    e = embedding(1000, 64, tied = embed)\n    x = "
        "lm(linear(concat(rmsnorm(e), "
        "rmsnorm(x)), 64, name = eh_proj), 8, 4, 96)\n    loss = loss + "
        "cross_entropy(linear(rmsnorm(x), 1000, split = column, tied = head))\n  }}\n}}\n",
        layers_, depth);
    layers_ += depth;
    return text;
  }

  std::string job(const std::string& framework) {
    tp_ = one({1, 1, 2, 4});
    pp_ = one({1, 1, 2, 3, 4});
    if (pp_ > layers_) pp_ = layers_;
    cp_ = one({1, 1, 1, 2});
    dp_ = one({1, 2, 3, 4});
    mbs_ = one({1, 1, 2, 3});
    micro_batches_ = one({1, 2, 3, 5, 8});
    vpp_ = 1;
    if (pp_ > 1 && chance(2)) {
      const unsigned chunks = 2 + number(2);
      if (layers_ % (pp_ * chunks) == 0) {
        vpp_ = chunks;
        micro_batches_ = pp_ * (1 + number(3));
      }
    }
    const std::string loss = framework == "megatron"     ? word({"unfused", "native", "te"})
                             : framework == "torchtitan" ? word({"eager", "compiled"})
                                                         : "";
    std::string text = fmt::format(
        "cluster c {{ gpu = h100_sxm nodes = 1 gpus_per_node = {} nvlink_domain = {} host_memory = "
        "1 "
        "TiB pcie = 50 GB/s }}\n"
        "train j {{ model = m cluster = c seq = {} batch = {} framework = {} attention = {} "
        "precision = {} optimizer = {}{}{}{}{} }}\n",
        tp_ * pp_ * cp_ * dp_, tp_ * pp_ * cp_ * dp_, one({128, 240, 256}),
        mbs_ * dp_ * micro_batches_, framework, word({"flash", "unfused"}),
        word({"bf16", "bf16", "bf16", "fp32", "fp16"}),
        word({"adamw", "adamw", "adamw", "sgd", "adamw8bit", "lion", "adafactor", "muon"}),
        loss.empty() ? "" : " loss = " + loss,
        chance(3) ? " dropout = 10% attention_dropout = 10%" : "",
        decoder_ && chance(10) ? " adapt = lora(rank = 4, on = {o})" : "",
        decoder_ && chance(8) ? " freeze = {o, down}" : "");
    return text;
  }

  std::string layout(const std::string& framework) {
    const std::string zero = framework == "torchtitan" ? "3"
                             : framework == "megatron" ? word({"0", "1", "1", "3"})
                                                       : word({"0", "1", "2", "3"});
    const std::string recompute = framework == "huggingface" || framework == "deepspeed"
                                      ? word({"none", "full"})
                                      : word({"none", "none", "full", "selective"});
    std::string text =
        fmt::format("layout l {{ tp = {} pp = {} cp = {} zero = {} mbs = {} recompute = {}", tp_,
                    pp_, cp_, zero, mbs_, recompute);
    if (experts_) {
      const unsigned ep = one({1, 2, 4, 8});
      if (tp_ * cp_ * dp_ % ep == 0) text += fmt::format(" ep = {}", ep);
      if (chance(3) && tp_ * cp_ * dp_ % (ep * tp_) == 0) text += fmt::format(" etp = {}", tp_);
    }
    if (tp_ > 1 && chance(2)) text += " sp = " + word({"true", "false"});
    if (vpp_ > 1)
      text += fmt::format(" schedule = {} vpp = {}", vpp_ > 2 ? "interleaved" : folded_schedule(),
                          vpp_);
    else if (chance(4))
      text += " schedule = " + word({"gpipe", "zb_h1"});
    if (vpp_ == 1 && pp_ > 1 && chance(2)) text += " stage_layers = " + uneven();
    if (recompute == "full" && vpp_ == 1 && stage_layers_.size() == pp_ && chance(2)) {
      text += " recompute_layers = [";
      for (std::size_t i = 0; i < pp_; ++i)
        text += fmt::format("{}{}", i ? ", " : "", number(stage_layers_[i] + 1));
      text += "]";
    }
    if (zero != "0" && dp_ * cp_ % 2 == 0 && chance(4)) text += " shard = 2";
    if (chance(10)) text += " offload = " + word({"0.5", "1"});
    stage_layers_.clear();
    return text + " }\n";
  }

  /// Of two chunks a stage; what folds the model lets any number of micro-batches through.
  std::string folded_schedule() {
    return micro_batches_ >= 2 * pp_ ? word({"interleaved", "zb_v", "dualpipe_v", "dualpipe_v"})
                                     : word({"interleaved", "zb_v"});
  }

  std::string uneven() {
    stage_layers_.assign(pp_, 1);
    for (unsigned rest = layers_ - pp_; rest > 0; --rest) ++stage_layers_[number(pp_)];
    std::string text = "[";
    for (std::size_t i = 0; i < pp_; ++i)
      text += fmt::format("{}{}", i ? ", " : "", stage_layers_[i]);
    return text + "]";
  }

  std::mt19937 random_;
  unsigned layers_ = 0, tp_ = 1, pp_ = 1, cp_ = 1, dp_ = 1, mbs_ = 1, vpp_ = 1, micro_batches_ = 1;
  bool experts_ = false, decoder_ = false;
  std::vector<unsigned> stage_layers_;
};

}  // namespace plimsoll::test
