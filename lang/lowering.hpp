// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lang/lower.hpp"
#include "lang/lower_scope.hpp"
#include "lang/trace.hpp"

/// The steps of lower(), private to lang/lower*.cpp.
namespace plimsoll {

/// A trainable matrix that is in no program: the two factors of a LoRA adapter.
struct AdapterWeight {
  Expr elements;
  std::uint32_t segment;
};

class Lowering {
 public:
  Lowering(const LowerInput&, Diagnostics&);

  void read_framework();  ///< params, switches, fuse, recompute modes, defaults
  void read_serving();    ///< of a serve job: the server's share, its steps, dtypes
  void find_flow();       ///< storages, gradients that flow, values that several segments read
  void lower_ops();       ///< what each op saves and needs
  void lower_states();    ///< weights, gradients, masters, moments
  void lower_items();     ///< explicit line items
  void build_traces();
  Inventory take() { return std::move(inventory_); }

 private:
  // lower_framework.cpp
  void read_entry(const ast::Entry&);
  void read_recompute(const ast::Entry&);
  bool switch_is(std::string_view name, std::string_view word, bool fallback);
  void find_trained();
  bool is_frozen(const Weight&) const;

  // lower_serve.cpp
  std::optional<Rational> framework_number(std::string_view field, const eval::Scope&);

  // lower_flow.cpp
  void find_storages();
  void find_gradients();
  void flow_gradients();
  void find_shared();
  void find_boundaries();
  bool stands_for_class(std::uint32_t segment) const;
  Place place_of(std::uint32_t segment) const;
  const std::vector<std::uint32_t>& representatives() const { return representatives_; }

  // lower_ops.cpp
  struct Saves {
    Expr condition;
    std::vector<const ast::Entry*> entries;
  };
  void lower_op(OpId);
  Expr stored_weight(OpId);
  OpId first_of(OpId, int group) const;
  void save_values(LoweredOp&, const ops::Rule&, const std::vector<Saves>&, const eval::Scope&);
  bool save_declared(LoweredOp&, const ops::Rule&, const ast::Entry&, const eval::Scope&,
                     Expr condition);
  static const ops::NamedValue* value_named(const ops::Rule&, std::string_view word);
  bool speaks_of(const ast::Entry& on, std::string_view op) const;
  void save_value(LoweredOp&, const ops::NamedValue&, const std::string& dtype, Expr condition,
                  Span);
  void check_sufficient(const Op&, const ops::Rule&, const std::vector<std::string>& names, Span);
  void add_op_item(LoweredOp&, const ast::Entry&, const Op&, const eval::Scope&, Expr condition);
  std::string activation_dtype() const;

  // lower_states.cpp
  struct StateRow {
    const ast::Entry* entry;
    Category category;
    bool trained_only;
    int shard_from;  ///< the zero stage from which it is divided
    bool of_framework;
  };
  void lower_state(const StateRow&);
  StateRow state_row(const ast::Entry&, bool of_framework) const;
  void add_state(const StateRow&, std::uint32_t segment, bool expert, Expr bytes,
                 const std::string& dtype);
  void add_tied_state(const StateRow&, std::uint32_t segment, WeightId, Expr bytes,
                      const std::string& dtype);
  std::string state_name(const StateRow&, bool expert) const;
  std::optional<Expr> state_bytes(const StateRow&, WeightId, std::string& dtype);
  Expr shard(int from, bool expert);
  void add_adapters();

  // lower_items.cpp
  void lower_item(const ast::Entry&, const Behaviour& owner);
  void lower_each(const ast::Entry&, const Behaviour& owner, const std::string& each,
                  const Item& base);
  void lower_layer_items(const ast::Entry& on, bool root);
  void lower_communicators(const ast::Entry&, const Behaviour& owner, const Item& base);
  void add_context();
  void add_beside();
  std::optional<Item> item_row(const ast::Entry&, Category, Lifetime);
  std::optional<Expr> item_bytes(const ast::Entry&, const eval::Scope&);
  struct Matrix {  ///< a weight, or several that the framework stores as one
    std::string name;
    Role role;
    int dims;
    Expr rows, cols, numel, copies;
    bool trained;
    std::uint32_t owner = kNone;  ///< of a tied one: the segment whose weight it is
  };
  std::vector<Matrix> matrices(std::uint32_t segment);
  std::uint32_t segment_of_owner(WeightId, std::uint32_t segment) const;
  void set_matrix(PlaceScope&, const Matrix&);

  const Behaviour& owner_of_state(const StateRow& row) const;
  Expr constant(const Rational& r) { return pool_.constant(r); }
  bool is_zero(Expr e) const { return pool_.is_constant(e) && pool_.value(e).is_zero(); }
  Expr gated(Expr condition, Expr bytes) { return pool_.mul(condition, bytes); }

  const LowerInput in_;
  const Program& program_;
  ExprPool& pool_;
  Diagnostics& diags_;
  eval::Evaluator eval_;
  std::vector<std::string> modes_;
  JobScope scope_;
  Inventory inventory_;
  std::optional<ops::Shapes> shapes_;
  ItemTable table_;

  std::vector<const ast::Entry*> ons_;
  std::vector<std::pair<const ast::Entry*, bool>> states_;  ///< and whether the framework's
  std::vector<std::pair<const ast::Entry*, const Behaviour*>>
      items_;  ///< outside `on`, with their owner
  std::vector<std::vector<std::string>> fuse_;
  std::vector<RecomputePolicy> policies_;
  bool derive_ = true;
  bool offloads_layers_ = false;  ///< `offload_activations`: all that layers keep
  bool context_ = true;
  bool fused_pointwise_ = true;

  std::vector<ValueId>& storage_ = inventory_.flow.storage;
  std::vector<bool>& needs_gradient_ = inventory_.flow.needs_gradient;
  std::vector<bool>& is_shared_ = inventory_.flow.is_shared;
  std::vector<int>& fuse_group_ = inventory_.flow.fuse_group;
  std::vector<ValueId> handed_gradient_;        ///< have a gradient in other layers of their class
  std::vector<std::uint32_t> representatives_;  ///< a segment a layer class, and every root segment
  std::vector<LoweredOp> lowered_;
  std::map<std::uint32_t, std::vector<OpItem>> segment_items_;
};

}  // namespace plimsoll
