// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/export_shape.hpp"

#include <algorithm>

namespace plimsoll::exports {
namespace {

bool is_norm(OpKind k) { return k == OpKind::rmsnorm || k == OpKind::layernorm; }

/// The prelude's `empty` layers turn their input, which no weight reads, and that is all.
bool holds_nothing(const Program& p, const Segment& segment) {
  const auto begin = p.ops.begin() + segment.first_op;
  return std::all_of(begin, begin + segment.op_count,
                     [](const Op& op) { return op.kind == OpKind::rope; });
}

class Reader {
 public:
  explicit Reader(const Program& p) : p_(p) {}

  Shape read() {
    for (const Segment& segment : p_.segments) {
      if (!segment.is_layer)
        read_root(segment);
      else
        read_layer(segment);
    }
    for (const Segment& segment : p_.segments)
      if (segment.is_layer && !s_.empty[segment.layer]) check_norms(segment);
    if (losses_ > 1) s_.mtp = losses_ - 1;
    if (s_.layers == 0) beyond("layers without attention");
    return std::move(s_);
  }

 private:
  void beyond(const std::string& what) {
    if (std::find(s_.beyond.begin(), s_.beyond.end(), what) == s_.beyond.end())
      s_.beyond.push_back(what);
  }
  bool has_bias(const Op& op) const { return op.weights.size() > 1; }
  std::int64_t columns(const Op& op) const {
    return op.weights.empty() ? 0 : p_.weights[op.weights[0]].cols;
  }
  const Op* producer(ValueId v) const {
    const OpId id = p_.values[v].producer;
    return id == kNone ? nullptr : &p_.ops[id];
  }
  void set(std::int64_t& into, std::int64_t value, const char* what) {
    if (into != 0 && value != 0 && into != value)
      beyond(std::string(what) + " that differ by layer");
    if (value != 0) into = value;
  }

  /// What stands beside the layers: a head that predicts a further token is one of them once more.
  void read_root(const Segment& segment) {
    for (OpId id = segment.first_op; id < segment.first_op + segment.op_count; ++id) {
      const Op& op = p_.ops[id];
      const bool of_layers = op.kind == OpKind::linear
                                 ? op.name != "head"
                                 : op.kind == OpKind::attention || op.kind == OpKind::experts ||
                                       op.kind == OpKind::concat;
      if (of_layers && losses_ == 0) beyond("layers that stand beside the repeated ones");
      if (!of_layers) read_op(op, segment);
    }
  }

  void read_layer(const Segment& segment) {
    s_.empty.push_back(holds_nothing(p_, segment));
    if (s_.empty.back()) return;
    ++s_.layers;
    s_.routed.push_back(false);
    s_.windowed.push_back(false);
    attends_ = false;
    for (OpId id = segment.first_op; id < segment.first_op + segment.op_count; ++id)
      read_op(p_.ops[id], segment);
    if (!attends_) beyond("layers without attention");
  }

  void read_op(const Op& op, const Segment& segment) {
    switch (op.kind) {
      case OpKind::embedding:
        if (!op.weights.empty() && s_.hidden == 0) {
          s_.hidden = p_.values[op.output].width;
          s_.vocab = op.vocab;
        }
        break;
      case OpKind::learned_positions:
        s_.positions = p_.weights[op.weights[0]].rows;
        break;
      case OpKind::linear:
        read_linear(op, segment);
        break;
      case OpKind::attention:
        read_attention(op, segment);
        break;
      case OpKind::experts:
        read_experts(op, segment);
        break;
      case OpKind::rope:
        s_.rope = true;
        break;
      case OpKind::glu:
        s_.activation = op.activation;
        break;
      case OpKind::gelu:
      case OpKind::relu:
      case OpKind::squared_relu:
      case OpKind::silu:
        s_.activation = op.kind;
        s_.gated = false;
        break;
      case OpKind::rmsnorm:
        s_.rmsnorm = true;
        break;
      case OpKind::layernorm:
        s_.rmsnorm = false;
        break;
      case OpKind::cross_entropy:
        ++losses_;
        break;
      case OpKind::dropout:
        s_.dropout = op.p;
        break;
      case OpKind::softcap:
        beyond("a soft cap of the logits");
        break;
      case OpKind::mamba2:
        beyond("Mamba layers");
        break;
      case OpKind::merge:
      case OpKind::input:
        beyond("an input that is no text");
        break;
      case OpKind::relative_bias:
        beyond("relative biases of the attention");
        break;
      default:
        break;
    }
  }

  void read_linear(const Op& op, const Segment& segment) {
    const std::int64_t cols = columns(op);
    if (op.name == "head") {
      const Weight& w = p_.weights[op.weights[0]];
      s_.tied = w.tied_to != kNone;
      if (has_bias(op)) beyond("a bias of the output layer");
    } else if (op.name == "q" || op.name == "k" || op.name == "v") {
      s_.bias_qkv |= has_bias(op);
    } else if (op.name == "o") {
      s_.bias_o |= has_bias(op);
    } else if (op.name == "gate" || op.name == "down") {
      (op.experts != kNone ? s_.expert_bias : s_.bias_mlp) |= has_bias(op);
      if (op.name == "down") return;
      if (op.experts != kNone)
        set(s_.expert_ffn, cols, "widths of experts");
      else if (routes(segment))
        set(s_.shared_ffn, cols, "widths of shared experts");
      else
        set(s_.ffn, cols, "feed-forward widths");
    } else if (op.name == "q_down") {
      s_.q_lora = cols;
    } else if (op.name == "kv_down") {
      s_.kv_lora = cols;
    } else if (op.name == "k_rope") {
      s_.rope_dim = cols;
    }
  }

  bool routes(const Segment& segment) const {
    for (OpId id = segment.first_op; id < segment.first_op + segment.op_count; ++id)
      if (p_.ops[id].kind == OpKind::experts) return true;
    return false;
  }

  void read_attention(const Op& op, const Segment& segment) {
    attends_ = true;
    set(s_.heads, op.heads, "heads");
    set(s_.kv_heads, op.kv_heads, "key and value heads");
    s_.causal &= op.causal;
    s_.alibi |= op.alibi;
    s_.sinks |= op.sinks;
    if (!op.causal) beyond("attention that is not causal");
    if (op.softcap) beyond("a soft cap of the attention");
    if (op.chunk > 0) beyond("chunked attention");
    if (op.window > 0) {
      set(s_.window, op.window, "windows");
      if (segment.is_layer) s_.windowed.back() = true;
    }
    if (!op.cache.empty()) {
      s_.v_dim = op.v_width;
      s_.nope = op.k_width - s_.rope_dim;
    } else {
      set(s_.head_dim, op.q_width, "head widths");
    }
    const Op* q = producer(op.inputs[0]);
    if (q != nullptr && q->kind == OpKind::rope) q = producer(q->inputs[0]);
    if (q != nullptr && is_norm(q->kind) && op.cache.empty()) {
      if (q->groups > 1)
        s_.qk_norm = true;
      else
        beyond("a norm over all heads of q and k");
    }
  }

  void read_experts(const Op& op, const Segment& segment) {
    set(s_.experts, op.count, "numbers of experts");
    set(s_.top_k, op.top_k, "experts a token");
    s_.sigmoid |= op.sigmoid;
    s_.router_bias |= op.router_bias;
    s_.capacity = op.capacity;
    if (segment.is_layer) s_.routed.back() = true;
  }

  /// Norms of the residual stream: two, in front of attention and feed-forward.
  void check_norms(const Segment& segment) {
    int norms = 0;
    bool in_front = true, side_by_side = false;
    std::vector<ValueId> normed;
    for (OpId id = segment.first_op; id < segment.first_op + segment.op_count; ++id) {
      const Op& op = p_.ops[id];
      if (is_norm(op.kind)) {
        const Op* from = producer(op.inputs[0]);
        const bool inner = from != nullptr && from->kind == OpKind::linear &&
                           (from->name == "q" || from->name == "k" || from->name == "q_down" ||
                            from->name == "kv_down");
        norms += inner ? 0 : 1;
        side_by_side |= std::find(normed.begin(), normed.end(), op.inputs[0]) != normed.end();
        if (!inner) normed.push_back(op.inputs[0]);
        s_.latent_norm |= inner && from->name == "kv_down";
        if (op.plus_one) beyond("norms whose weights are added to 1");
      }
      if (op.kind == OpKind::linear && (op.name == "q" || op.name == "q_down")) {
        const Op* from = producer(op.inputs[0]);
        in_front &= from != nullptr && is_norm(from->kind);
      }
    }
    if (!in_front)
      beyond("norms behind attention and feed-forward");
    else if (norms > 2)
      beyond("norms before and behind attention and feed-forward");
    else if (norms == 1 || side_by_side)
      beyond("attention and feed-forward side by side");
  }

  const Program& p_;
  Shape s_;
  int losses_ = 0;
  bool attends_ = false;  ///< the layer that is read
};

}  // namespace

Shape shape_of(const Program& program) { return Reader(program).read(); }

}  // namespace plimsoll::exports
