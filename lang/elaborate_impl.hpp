// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lang/elaborate.hpp"
#include "lang/eval.hpp"

/// Private to elaborate*.cpp and program_*.cpp: the program while it is being built.
namespace plimsoll::elab {

/// A linear or embedding whose weight is another's: resolved when all weights are known.
struct PendingTie {
  WeightId weight;
  std::string name;  ///< "": the model's only embedding
  Span span;
};

/// The ops of one layer, [first, end).
struct LayerRange {
  OpId first, end;
};

/// A program as it grows, with what finish() needs to close it.
struct Draft {
  Program program;
  std::vector<PendingTie> ties;
  std::vector<LayerRange> layers;
};

/// Shares tied weights, gives heads their role, drops what is never used (with a warning),
/// recognises glu, cuts segments and classifies layers. Linear in the ops. False after errors.
bool finish(Draft&, const ExprPool&, Diagnostics&);

/// finish()'s last part: segments with their inputs and what they carry, and layer classes.
/// False where more values cross more layers than a program may hold.
bool cut_segments(Draft&);
void classify_layers(Program&);

/// What an argument of an op has to be.
enum class ArgKind : std::uint8_t {
  tensor,
  tensors,  ///< a list
  size,     ///< a whole number above 0
  option,   ///< a size, or none or 0: nothing
  number,   ///< any number above 0, or none
  share,    ///< 0 <= p < 1
  flag,
  word,  ///< of an enumeration
  name,  ///< a bare name or a string, never a variable
  tie,   ///< true, false, or a name
  bias,  ///< none, 0, alibi, or a tensor
};

struct ArgSpec {
  std::string_view name;
  ArgKind kind;
  bool required = false;
  const eval::Enumeration* words = nullptr;
};

/// An argument after evaluation; which member counts follows from its kind.
struct Arg {
  bool given = false;
  bool flag = false;
  ValueId tensor = kNone;
  std::int64_t size = 0;
  Rational number;
  std::string_view text;
  Span span;
};

inline constexpr std::size_t kMaxArgs = 14;

class Elaborator;
struct OpSpec;

/// The arguments of one call of an op, in the order of its spec.
struct Args {
  const ast::Expr& call;
  const eval::Scope& scope;
  std::array<Arg, kMaxArgs> at{};
  std::vector<ValueId> tensors;  ///< of the one list
  const Arg& operator[](std::size_t i) const { return at[i]; }
};

using Handler = std::optional<eval::Value> (Elaborator::*)(const OpSpec&, const Args&);

struct OpSpec {
  std::string_view name;
  OpKind kind;
  std::vector<ArgSpec> args;
  Handler make;
  bool body = false;       ///< takes { t => … }
  bool in_experts = true;  ///< may stand in the body of experts
};

const OpSpec* find_op(std::string_view name);
std::vector<std::string> op_names();

/// Where a block was called; the model itself has no frame.
struct Frame {
  const BlockSource* block;
  Span call;
  std::uint32_t path;  ///< index in Program::blocks
};

class Elaborator final : public eval::Calls {
 public:
  Elaborator(const ModelSource& model, ExprPool& pool, Diagnostics& diags,
             std::vector<const ast::Entry*>* items)
      : model_(model), pool_(pool), diags_(diags), evaluator_(pool, diags, this), items_(items) {}

  std::optional<Program> run();

  bool knows(std::string_view name) const override;
  std::vector<std::string> names() const override;
  std::optional<eval::Value> call(const ast::Expr& call, const eval::Scope& scope) override;
  std::optional<eval::Value> combine(const ast::Expr& node, ast::Op op, const eval::Value& left,
                                     const eval::Value& right) override;
  void explain(Diagnostic&) const override;

  // Ops, elaborate_ops.cpp and elaborate_attention.cpp: each checks its operands and emits itself.
  using Result = std::optional<eval::Value>;
  Result width(const OpSpec&, const Args&);
  Result embedding(const OpSpec&, const Args&);
  Result input(const OpSpec&, const Args&);
  Result merge(const OpSpec&, const Args&);
  Result learned_positions(const OpSpec&, const Args&);
  Result relative_bias(const OpSpec&, const Args&);
  Result rope(const OpSpec&, const Args&);
  Result linear(const OpSpec&, const Args&);
  Result norm(const OpSpec&, const Args&);
  Result pointwise(const OpSpec&, const Args&);
  Result softcap(const OpSpec&, const Args&);
  Result dropout(const OpSpec&, const Args&);
  Result concat(const OpSpec&, const Args&);
  Result attention(const OpSpec&, const Args&);
  Result experts(const OpSpec&, const Args&);
  Result mamba2(const OpSpec&, const Args&);
  Result cross_entropy(const OpSpec&, const Args&);

 private:
  struct BlockInfo {
    std::vector<const eval::Enumeration*> hints;  ///< any_words() for parameters that may be words
    std::vector<std::string_view> names;
  };

  // elaborate.cpp
  bool statements(const std::vector<const ast::Entry*>&, eval::Scope& root, eval::Scope& scope,
                  eval::Value* result);
  bool statement(const ast::Entry&, eval::Scope& root, eval::Scope& scope, eval::Value* result);
  void assign(const ast::Entry&, eval::Scope& root, eval::Scope& scope);
  void repeat(const ast::Entry&, eval::Scope& root, eval::Scope& scope);
  std::optional<std::int64_t> turns(const ast::Entry&, const eval::Scope& scope);
  void close_turn(OpId first, std::size_t layers_before);
  bool check_loss(const eval::Scope&);

  // elaborate_blocks.cpp
  std::optional<eval::Value> call_block(const BlockSource&, const ast::Expr& call,
                                        const eval::Scope& scope);
  bool bind_arguments(const BlockSource&, const ast::Expr& call, const eval::Scope& scope,
                      eval::Scope& local);
  std::optional<std::size_t> parameter_index(const BlockSource&, const ast::Expr& call,
                                             std::size_t argument);
  bool may_call(const BlockSource&, const ast::Expr& call);
  const BlockInfo& info(const BlockSource&);
  std::uint32_t path_of(const BlockSource&);
  const BlockTable* blocks() const;

  // elaborate_args.cpp
  std::optional<eval::Value> call_op(const OpSpec&, const ast::Expr& call,
                                     const eval::Scope& scope);
  bool bind(const OpSpec&, Args&);
  bool bind(const OpSpec&, const ArgSpec&, const ast::Expr& value, Args&, Arg& to);
  bool bind_tensor(const ArgSpec&, const eval::Value&, Span where, ValueId& to);
  bool bind_number(const OpSpec&, const ArgSpec&, const eval::Value&, Span where, Arg& to);

  // What ops are made of.
  std::nullopt_t fail(Span where, std::string message, std::string help = {});
  const Value& value(ValueId id) const { return draft_.program.values[id]; }
  std::optional<WeightId> weight(Weight);
  Op op(const OpSpec&, const Args&) const;
  Op op(OpKind, Span) const;
  std::optional<eval::Value> emit(Op, Value output);
  Value like(const Value&) const;
  bool check_whole(ValueId, const ast::Expr& call, std::string_view what);
  bool check_alike(ValueId a, ValueId b, const ast::Expr& node, std::string_view verb);
  bool split_in_heads(ValueId, std::int64_t heads, const ast::Expr& call, std::string_view what);
  bool check_heads(const Args&, std::int64_t heads, std::int64_t kv_heads);
  bool check_divides(std::int64_t n, std::int64_t parts, Span where, std::string_view n_is,
                     std::string_view parts_are);
  void tie(WeightId, const Arg&);

  const ModelSource& model_;
  ExprPool& pool_;
  Diagnostics& diags_;
  eval::Evaluator evaluator_;
  std::vector<const ast::Entry*>* items_;
  std::unordered_set<const ast::Entry*> seen_items_;
  Draft draft_;
  std::vector<Frame> frames_;
  std::unordered_map<const BlockSource*, BlockInfo> infos_;
  std::unordered_map<std::string, std::uint32_t> paths_;
  OpId experts_ = kNone;  ///< the experts op whose body is being built
  std::size_t turns_ = 0;
  std::size_t calls_ = 0;
};

}  // namespace plimsoll::elab
