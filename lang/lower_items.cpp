// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <algorithm>

#include "lang/lowering.hpp"

namespace plimsoll {

std::optional<Expr> Lowering::item_bytes(const ast::Entry& e, const eval::Scope& scope) {
  const ast::Expr* bytes = field(e.body, "bytes");
  if (!bytes) {
    diags_.error(e.span, fmt::format("item \"{}\" has no bytes", e.label))
        .with_help("say what one GPU holds: bytes = 4 B * params_on_gpu");
    return std::nullopt;
  }
  return eval_.quantity(*bytes, scope, kBytes);
}

/// What an item's body says of itself; bytes and place are the caller's.
std::optional<Item> Lowering::item_row(const ast::Entry& e, Category fallback, Lifetime lifetime) {
  Item item;
  item.name = e.label;
  item.category = fallback;
  if (const ast::Expr* category = field(e.body, "category")) {
    const auto found = category_named(category->text);
    if (!found) {
      std::vector<std::string> known;
      for (std::size_t i = 0; i < kCategoryCount; ++i)
        known.emplace_back(name(static_cast<Category>(i)));
      const std::string meant = did_you_mean(category->text, known);
      diags_.error(category->span, fmt::format("'{}' is not a category", category->text))
          .with_help(
              meant.empty()
                  ? "one of weights, gradients, master, moments, activations, kv_cache, buffers, "
                    "workspace, overhead, fragmentation"
                  : fmt::format("did you mean '{}'?", meant));
      return std::nullopt;
    }
    item.category = *found;
  }
  item.shard = constant(1);
  item.lifetime = lifetime_of(e.body, lifetime, diags_);
  if (text_field(e.body, "combine") == "max") item.combine = Combine::max;
  item.stream = text_field(e.body, "stream");
  item.source = text_field(e.body, "source");
  if (item.source.empty()) item.source = in_.module->sources().where(e.span);
  item.origin = e.span;
  item.outside = item.category == Category::overhead;
  return item;
}

void Lowering::lower_items() {
  for (const auto& [e, owner] : items_) lower_item(*e, *owner);
  for (const ast::Entry* e : in_.module->model_items(program_.model))
    lower_item(*e, *in_.framework);
  for (const ast::Entry* e : in_.job->items) lower_item(*e, *in_.framework);
  for (const ast::Entry* on : ons_) {
    if (speaks_of(*on, "layer")) lower_layer_items(*on, false);
    if (speaks_of(*on, "root")) lower_layer_items(*on, true);
  }
  add_beside();
  if (context_) add_context();
}

void Lowering::lower_item(const ast::Entry& e, const Behaviour& owner) {
  auto row = item_row(e, Category::buffers, {LifetimeKind::always, {}, {}, false, false});
  if (!row) return;
  const std::string each = e.words.empty() ? "" : e.words.front().text;
  if (each == "communicator") return lower_communicators(e, owner, *row);
  if (each == "weight" || each == "shape" || each == "layer")
    return lower_each(e, owner, each, *row);
  PlaceScope place(scope_, owner, *in_.job, eval_);
  const auto condition = where(e.body, eval_, place.all);
  const auto bytes = item_bytes(e, place.all);
  if (!condition || !bytes || is_zero(*condition)) return;
  row->bytes = gated(*condition, *bytes);
  inventory_.items.push_back(std::move(*row));
}

/// The weights of a segment's linears and vectors, those that the framework fuses as one where they
/// read one value.
std::vector<Lowering::Matrix> Lowering::matrices(std::uint32_t segment) {
  std::vector<Matrix> list;
  std::map<std::pair<int, ValueId>, std::size_t> fused;
  const Segment& s = program_.segments[segment];
  for (OpId o = s.first_op; o < s.first_op + s.op_count; ++o) {
    const Op& op = program_.ops[o];
    for (std::size_t i = 0; i < op.weights.size(); ++i) {
      const WeightId id = op.weights[i];
      const Weight& w = program_.weights[id];
      if (w.tied_to != kNone && w.role != Role::head) continue;
      Matrix m{w.name,
               w.role,
               w.dims,
               shapes_->weight_rows(id),
               shapes_->weight_cols(id),
               {},
               shapes_->weight_copies(id),
               inventory_.facts.trained[id],
               segment_of_owner(id, segment)};
      if (i == 0 && fuse_group_[o] >= 0) {
        const auto [at, is_new] =
            fused.try_emplace({fuse_group_[o], storage_[op.inputs[0]]}, list.size());
        if (!is_new) {
          list[at->second].cols = pool_.add(list[at->second].cols, m.cols);
          continue;
        }
      }
      list.push_back(std::move(m));
    }
  }
  for (Matrix& m : list) m.numel = pool_.mul(m.rows, m.cols);
  return list;
}

void Lowering::set_matrix(PlaceScope& scope, const Matrix& m) {
  scope.set("numel", number(m.numel));
  scope.set("rows", number(m.rows));
  scope.set("cols", number(m.cols));
  scope.set("dims", number(constant(m.dims)));
  scope.set("role", scope_.word("role", std::string(name(m.role))));
  scope.set("name", scope_.word("name", m.name));
  scope.set("trained", boolean(constant(m.trained ? 1 : 0)));
}

void Lowering::lower_each(const ast::Entry& e, const Behaviour& owner, const std::string& each,
                          const Item& base) {
  for (std::uint32_t s : representatives()) {
    std::vector<Matrix> list = matrices(s);
    if (each == "layer") {
      if (!program_.segments[s].is_layer) continue;
      Matrix whole{"", Role::other, 2, constant(1), constant(1), constant(0), constant(1), true};
      for (const Matrix& m : list)
        whole.numel = pool_.add(whole.numel, pool_.mul(m.numel, m.copies));
      list = {whole};
    }
    for (const Matrix& m : list) {
      PlaceScope place(scope_, owner, *in_.job, eval_);
      set_matrix(place, m);
      const auto condition = where(e.body, eval_, place.all);
      const auto bytes = item_bytes(e, place.all);
      if (!condition || !bytes) return;
      if (is_zero(*condition)) continue;
      Item item = base;
      item.bytes = gated(*condition, *bytes);
      // Of the rank's experts each is a weight; one shape, and the largest, is that of one of them.
      if (each == "weight" && base.combine == Combine::add)
        item.bytes = pool_.mul(item.bytes, m.copies);
      // On its owner's stage a tied weight is the owner's.
      if (each == "weight") item.absent_with = m.owner;
      item.place = place_of(s);
      item.shape = {m.rows, m.cols};
      if (each == "shape") {
        item.combine = Combine::once;
        item.key = fmt::format("{}x{}", m.rows.id, m.cols.id);
      }
      inventory_.items.push_back(std::move(item));
    }
  }
}

/// `on layer`, `on root`: numel is the parameters of the layer, or of the root weights beside it.
void Lowering::lower_layer_items(const ast::Entry& on, bool root) {
  for (std::uint32_t s : representatives()) {
    if (program_.segments[s].is_layer == root) continue;
    Expr numel = constant(0);
    for (const Matrix& m : matrices(s)) numel = pool_.add(numel, pool_.mul(m.numel, m.copies));
    PlaceScope place(scope_, *in_.framework, *in_.job, eval_);
    const eval::Scope& scope = place.all;
    place.set("numel", number(numel));
    const auto outer = where(on.body, eval_, scope);
    if (!outer || is_zero(*outer)) continue;
    for (const ast::Entry& e : on.body) {
      if (e.kind != ast::EntryKind::item) continue;
      auto row = item_row(e, Category::buffers, {LifetimeKind::op, {}, {}, false, false});
      const auto own = where(e.body, eval_, scope);
      const auto bytes = item_bytes(e, scope);
      if (!row || !own || !bytes) return;
      const Expr condition = pool_.logical_and(*outer, *own);
      if (is_zero(condition)) continue;
      row->bytes = gated(condition, *bytes);
      row->place = place_of(s);
      const Lifetime life = row->lifetime;
      const auto phase = [&](Phase p) {
        return life.kind == LifetimeKind::span && life.from == p && life.to == p;
      };
      OpItem item;
      item.item = static_cast<std::uint32_t>(inventory_.items.size());
      item.bytes = pool_.ceil(row->bytes);
      item.kept = life.kind == LifetimeKind::microbatch;
      item.forward = life.kind == LifetimeKind::op || phase(Phase::forward);
      item.backward = life.kind == LifetimeKind::op || phase(Phase::backward);
      row->traced = item.kept || item.forward || item.backward;
      if (row->traced) segment_items_[s].push_back(item);
      for (const bool backward : {false, true}) {
        if (!(backward ? item.backward : item.forward)) continue;
        if (life.late)
          inventory_.spills.push_back({row->place, backward, true, item.item, item.bytes});
        if (life.early)
          inventory_.spills.push_back({row->place, backward, false, item.item, item.bytes});
      }
      inventory_.items.push_back(std::move(*row));
    }
  }
}

/// The communicators that carry traffic in a step. `peers` are those that a rank keeps connections
/// to (ring: two; all-to-all: all; pipeline: two), `channels` NCCL's defaults (ACCOUNTING.md C.3).
void Lowering::lower_communicators(const ast::Entry& e, const Behaviour& owner, const Item& base) {
  const auto v = [&](Var x) { return pool_.variable(x); };
  const Expr one = constant(1), two = constant(2);
  const auto ring = [&](Expr ranks) { return pool_.min(two, pool_.sub(ranks, one)); };
  struct Communicator {
    const char* name;
    Expr ranks, peers;
    int channels;
  };
  const Expr data = pool_.mul(v(Var::dp), v(Var::cp));
  const Communicator all[] = {
      {"tp", v(Var::tp), ring(v(Var::tp)), 16},
      {"cp", v(Var::cp), ring(v(Var::cp)), 16},
      {"dp", data, ring(data), 16},
      {"pp", v(Var::pp), ring(v(Var::pp)), 32},
      {"ep", v(Var::ep), pool_.sub(v(Var::ep), one), 32},
      {"expert dp", v(Var::expert_dp), ring(v(Var::expert_dp)), 16},
  };
  for (const Communicator& c : all) {
    if (std::string_view(c.name).starts_with("e") &&
        std::none_of(program_.ops.begin(), program_.ops.end(),
                     [](const Op& op) { return op.kind == OpKind::experts; }))
      continue;
    PlaceScope place(scope_, owner, *in_.job, eval_);
    const eval::Scope& scope = place.all;
    place.set("ranks", number(c.ranks));
    place.set("peers", number(c.peers));
    place.set("channels", number(constant(c.channels)));
    place.set("name", scope_.word("name", c.name));
    const auto condition = where(e.body, eval_, scope);
    const auto bytes = item_bytes(e, scope);
    if (!condition || !bytes) return;
    Item item = base;
    item.name = fmt::format("{}, {}", base.name, c.name);
    item.bytes = gated(*condition, *bytes);
    if (!is_zero(item.bytes)) inventory_.items.push_back(std::move(item));
  }
}

void Lowering::add_context() {
  const Gpu& gpu = in_.cluster->pools.front().gpu;
  if (gpu.reserved == 0) return;
  Item item;
  item.name = "CUDA context and libraries";
  item.category = Category::overhead;
  item.bytes = constant(Rational::integer(gpu.reserved));
  item.shard = constant(1);
  item.source = fmt::format("gpu {}, reserved", gpu.name);
  item.origin = gpu.span;
  item.outside = true;
  inventory_.items.push_back(std::move(item));
}

/// Another model's weights on the same GPUs (divided like this job's: tp, pp), or the share of
/// memory that a serving job takes for itself.
void Lowering::add_beside() {
  for (const Beside& beside : in_.job->beside) {
    Item item;
    item.shard = constant(1);
    item.origin = beside.span;
    if (!beside.model.empty()) {
      const Program* other = in_.module->program(beside.model, diags_);
      const auto bits = dtype_bits(*in_.module, beside.weights);
      if (!other || !bits) continue;
      item.name = fmt::format("{}: weights of {}", beside.name, beside.model);
      item.category = Category::weights;
      item.dtype = beside.weights;
      const Rational bytes = Rational::integer(other->parameter_count()) * *bits / Rational(8);
      item.bytes =
          pool_.div(constant(bytes), pool_.mul(pool_.variable(Var::tp), pool_.variable(Var::pp)));
      item.source = "beside: divided over tp and pp";
    } else {
      const auto& jobs = in_.module->jobs();
      const auto job = std::find_if(jobs.begin(), jobs.end(),
                                    [&](const Job& j) { return j.name == beside.job; });
      if (job == jobs.end()) continue;
      const Gpu& gpu = in_.cluster->pools.front().gpu;
      const Rational share = job->utilization.value_or(Rational::fraction(9, 10));
      item.name = fmt::format("{}: server of {}", beside.name, beside.job);
      item.category = Category::buffers;
      item.bytes = constant((Rational::integer(gpu.memory) * share).floor());
      item.source = "beside: the share of memory that the server takes (utilization)";
      item.outside = true;
    }
    inventory_.items.push_back(std::move(item));
  }
}

namespace {

/// Does forward leave something for backward, on the GPU or in host memory?
bool keeps_something(const SegmentTrace& t) {
  std::int64_t live = 0;
  for (const TraceEvent& e : t.forward)
    live += e.kind == TraceEvent::alloc ? 1 : e.kind == TraceEvent::free && !e.host ? -1 : 0;
  return live > 0;
}

}  // namespace

void Lowering::build_traces() {
  TraceInput in;
  in.program = &program_;
  in.shapes = &*shapes_;
  in.activation_bytes = inventory_.facts.activation_bytes;
  in.lowered = &lowered_;
  in.needs_gradient = &needs_gradient_;
  in.is_shared = &is_shared_;
  in.storage = &storage_;
  in.fuse_group = &fuse_group_;
  in.derive = derive_;
  in.items = &table_;
  for (std::size_t mode = 0; mode < modes_.size(); ++mode) {
    std::vector<SegmentTrace> traces;
    for (std::uint32_t s : representatives()) {
      in.place = place_of(s);
      in.segment_items = segment_items_[s];
      // What stands beside the layers is never recomputed, nor a layer that holds nothing.
      const bool layer = program_.segments[s].is_layer;
      const bool again = layer && mode > 0 && keeps_something(inventory_.traces[0][traces.size()]);
      in.offload = layer && offloads_layers_;
      traces.push_back(build_trace(in, s, policies_[again ? mode : 0]));
    }
    inventory_.traces.push_back(std::move(traces));
  }
}

}  // namespace plimsoll
