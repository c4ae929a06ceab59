// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/elaborate_impl.hpp"

/// What can only be said once the whole model is known: shared weights, the head, what is never
/// used, gated ops.
namespace plimsoll::elab {

namespace {

/// The weights that a tie may mean: those with a storage of their own, by name, and all embeddings.
class Candidates {
 public:
  explicit Candidates(const Draft& draft) {
    const std::vector<Weight>& weights = draft.program.weights;
    std::vector<bool> tied(weights.size());
    for (const PendingTie& tie : draft.ties) tied[tie.weight] = true;
    for (WeightId id = 0; id < weights.size(); ++id) {
      const Weight& w = weights[id];
      if (tied[id] || w.dims != 2) continue;
      if (w.role == Role::embedding && w.vocabulary) embeddings_.push_back(id);
      if (!w.name.empty()) named_[w.name].push_back(id);
    }
  }

  const std::vector<WeightId>& of(const PendingTie& tie) const {
    static const std::vector<WeightId> kNothing;
    if (tie.name.empty()) return embeddings_;
    const auto at = named_.find(tie.name);
    return at == named_.end() ? kNothing : at->second;
  }

 private:
  std::vector<WeightId> embeddings_;
  std::unordered_map<std::string_view, std::vector<WeightId>> named_;
};

void report_tie(const Draft& draft, const PendingTie& tie, std::size_t found, Diagnostics& diags) {
  if (tie.name.empty()) {
    diags
        .error(tie.span, found == 0 ? "there is no embedding to share"
                                    : fmt::format("the model has {} embeddings to share", found))
        .with_help(found == 0 ? "add x = embedding(vocab, hidden)"
                              : "say which: tied = NAME, with embedding(…, name = NAME)");
    return;
  }
  if (found > 0) {
    diags.error(tie.span, fmt::format("{} weights are named '{}'", found, tie.name))
        .with_help("a weight that is shared has a name of its own");
    return;
  }
  std::vector<std::string> names;
  for (const Weight& w : draft.program.weights)
    if (!w.name.empty() && w.dims == 2) names.push_back(w.name);
  Diagnostic& d = diags.error(tie.span, fmt::format("no weight is named '{}'", tie.name));
  const std::string meant = did_you_mean(tie.name, names);
  d.with_help(meant.empty() ? fmt::format("give the weight to share name = {}", tie.name)
                            : fmt::format("did you mean '{}'?", meant));
}

std::string shape(const Weight& w) {
  return fmt::format("{} x {}", grouped(w.rows), grouped(w.cols));
}

/// An embedding is vocabulary by width, a head that shares it width by vocabulary.
bool same_storage(const Weight& a, const Weight& b) {
  const bool turned = (a.role == Role::embedding) != (b.role == Role::embedding);
  return turned ? a.rows == b.cols && a.cols == b.rows : a.rows == b.rows && a.cols == b.cols;
}

bool resolve_ties(Draft& draft, Diagnostics& diags) {
  std::vector<Weight>& weights = draft.program.weights;
  const Candidates candidates(draft);
  bool good = true;
  for (const PendingTie& tie : draft.ties) {
    const std::vector<WeightId>& found = candidates.of(tie);
    if (found.size() != 1) {
      report_tie(draft, tie, found.size(), diags);
      return false;
    }
    Weight& w = weights[tie.weight];
    const Weight& other = weights[found.front()];
    if (w.experts != kNone || other.experts != kNone) {
      diags.error(tie.span, "weights of experts are not shared")
          .with_help("leave 'tied' out here, or share a weight outside the experts");
      good = false;
    } else if (!same_storage(w, other)) {
      diags
          .error(tie.span, fmt::format("weights of unlike shape cannot be shared: {} and {}",
                                       shape(w), shape(other)))
          .label(other.span, "the other weight")
          .with_help("give both the same sizes, or leave 'tied' out");
      good = false;
    }
    w.tied_to = found.front();
    if (other.role == Role::embedding && w.role == Role::linear) w.role = Role::head;
  }
  return good;
}

/// The linear that makes the logits is the head, whatever stands between it and the loss.
void find_heads(Program& program) {
  for (const Op& loss : program.ops) {
    if (loss.kind != OpKind::cross_entropy) continue;
    OpId at = program.values[loss.inputs.front()].producer;
    while (program.ops[at].kind == OpKind::softcap || program.ops[at].kind == OpKind::tanh)
      at = program.values[program.ops[at].inputs.front()].producer;
    const Op& op = program.ops[at];
    if (op.kind == OpKind::linear && op.split != Split::row)
      program.weights[op.weights.front()].role = Role::head;
  }
  for (Weight& w : program.weights) w.vocabulary = w.vocabulary || w.role == Role::head;
}

/// Which ops lead to the loss. The others are left out, and the ends of them are warned of.
std::vector<bool> find_live(const Program& program, Diagnostics& diags) {
  std::vector<bool> used(program.values.size());
  std::vector<bool> needed(program.values.size());
  std::vector<bool> live(program.ops.size());
  for (OpId i = static_cast<OpId>(program.ops.size()); i-- > 0;) {
    const Op& op = program.ops[i];
    live[i] = op.output == kNone || needed[op.output];
    if (!live[i] && !used[op.output] && op.kind != OpKind::experts)
      diags.warning(op.span, "this tensor is never used; the model is built without it")
          .with_help("use its result, or remove it");
    for (const std::vector<ValueId>* read : {&op.inputs, &op.cache})
      for (const ValueId id : *read) {
        used[id] = true;
        if (live[i]) needed[id] = true;
      }
  }
  return live;
}

/// silu(a) * b and gelu(a) * b where nothing else reads the activation: one gated op, of which the
/// activation's own value is no part.
void fuse_glu(Program& program, std::vector<bool>& live) {
  std::vector<std::uint32_t> uses(program.values.size());
  for (OpId i = 0; i < program.ops.size(); ++i) {
    if (!live[i]) continue;
    for (const ValueId id : program.ops[i].inputs) ++uses[id];
    for (const ValueId id : program.ops[i].cache) ++uses[id];
  }
  for (OpId i = 0; i < program.ops.size(); ++i) {
    Op& mul = program.ops[i];
    if (!live[i] || mul.kind != OpKind::mul) continue;
    for (std::size_t side = 0; side < 2; ++side) {
      const ValueId gate = mul.inputs[side];
      const OpId act = program.values[gate].producer;
      const Op& made_by = program.ops[act];
      if ((made_by.kind != OpKind::silu && made_by.kind != OpKind::gelu) || uses[gate] != 1)
        continue;
      mul.kind = OpKind::glu;
      mul.activation = made_by.kind;
      mul.inputs = {made_by.inputs.front(), mul.inputs[1 - side]};
      live[act] = false;
      break;
    }
  }
}

/// Moves what is kept to the front of \a items; returns where each went (kNone: nowhere).
template <class T, class Keep>
std::vector<std::uint32_t> compact(std::vector<T>& items, Keep keep) {
  std::vector<std::uint32_t> to(items.size(), kNone);
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    if (!keep(i)) continue;
    if (next != i) items[next] = std::move(items[i]);
    to[i] = next++;
  }
  items.resize(next);
  return to;
}

void renumber(Draft& draft, const std::vector<bool>& live) {
  Program& program = draft.program;
  if (std::ranges::find(live, false) == live.end()) return;
  std::vector<bool> has_weight(program.weights.size());
  for (OpId i = 0; i < program.ops.size(); ++i)
    if (live[i])
      for (const WeightId w : program.ops[i].weights) {
        has_weight[w] = true;
        if (program.weights[w].tied_to != kNone) has_weight[program.weights[w].tied_to] = true;
      }
  const auto end = static_cast<OpId>(program.ops.size());
  const auto ops = compact(program.ops, [&](OpId i) { return live[i]; });
  const auto values =
      compact(program.values, [&](ValueId i) { return live[program.values[i].producer]; });
  const auto weights = compact(program.weights, [&](WeightId i) { return has_weight[i]; });
  const auto move = [](std::uint32_t& id, const std::vector<std::uint32_t>& to) {
    if (id != kNone) id = to[id];
  };
  for (Op& op : program.ops) {
    for (ValueId& id : op.inputs) move(id, values);
    for (ValueId& id : op.cache) move(id, values);
    for (WeightId& id : op.weights) move(id, weights);
    move(op.output, values);
    move(op.experts, ops);
  }
  for (Value& value : program.values) {
    move(value.producer, ops);
    move(value.experts, ops);
  }
  for (Weight& weight : program.weights) {
    move(weight.tied_to, weights);
    move(weight.experts, ops);
  }
  // A layer begins at its first op that is left.
  std::vector<OpId> at(std::size_t{end} + 1);
  at[end] = static_cast<OpId>(program.ops.size());
  for (OpId i = end; i-- > 0;) at[i] = ops[i] != kNone ? ops[i] : at[i + 1];
  for (LayerRange& layer : draft.layers) layer = {at[layer.first], at[layer.end]};
  std::erase_if(draft.layers, [](const LayerRange& layer) { return layer.first == layer.end; });
}

}  // namespace

bool finish(Draft& draft, const ExprPool&, Diagnostics& diags) {
  if (!resolve_ties(draft, diags)) return false;
  find_heads(draft.program);
  std::vector<bool> live = find_live(draft.program, diags);
  fuse_glu(draft.program, live);
  renumber(draft, live);
  if (!cut_segments(draft)) {
    diags.error(draft.program.ops.back().span, "too many tensors are kept across too many layers")
        .with_help("let each layer read the one before it, not all of them");
    return false;
  }
  classify_layers(draft.program);
  return true;
}

}  // namespace plimsoll::elab
