// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/elaborate.hpp"

#include <algorithm>

#include "lang/elaborate_impl.hpp"
#include "lang/grouped.hpp"

namespace plimsoll {

namespace elab {

namespace {

/// A parameter's set where all of its members are words, as an enumeration.
std::optional<eval::Enumeration> words_of(const ast::Entry& parameter) {
  const ast::Expr* set = parameter.value2 != nullptr ? parameter.value2.get() : nullptr;
  if (set == nullptr || set->kind != ast::ExprKind::set || set->args.empty()) return std::nullopt;
  eval::Enumeration of{parameter.name.text, {}};
  for (const ast::Argument& word : set->args) {
    if (word.value->kind != ast::ExprKind::name) return std::nullopt;
    of.words.push_back(word.value->text);
  }
  return of;
}

/// A model's parameters: each is computed when it is first asked for, after the overrides, and sees
/// all the others.
class ParameterScope final : public eval::Scope {
 public:
  ParameterScope(const ModelSource& model, eval::Evaluator& evaluator) : evaluator_(evaluator) {
    slots_.reserve(model.parameters.size());
    for (const ModelSource::Parameter& parameter : model.parameters) {
      slots_.push_back({&parameter, words_of(*parameter.entry), {}, State::unknown});
      by_name_.try_emplace(parameter.entry->name.text, &slots_.back());
    }
  }

  /// Computes every one; false after errors.
  bool compute_all(std::map<std::string, Rational>& numbers) {
    bool good = true;
    for (Slot& slot : slots_) {
      compute(slot);
      good = good && slot.state == State::done;
      const eval::Number* n = slot.value.as<eval::Number>();
      if (n != nullptr && evaluator_.pool().is_constant(n->expr))
        numbers[name(slot)] = evaluator_.pool().value(n->expr);
    }
    return good;
  }

 protected:
  const eval::Value* make(std::string_view wanted) const override {
    const auto at = by_name_.find(wanted);
    if (at == by_name_.end()) return nullptr;
    compute(*at->second);
    return &at->second->value;
  }

  std::vector<std::string> made_names() const override {
    std::vector<std::string> result;
    for (const Slot& slot : slots_) result.push_back(name(slot));
    return result;
  }

 private:
  enum class State : std::uint8_t { unknown, computing, done, failed };
  struct Slot {
    const ModelSource::Parameter* parameter;
    std::optional<eval::Enumeration> words;
    eval::Value value;
    State state;
  };

  static const std::string& name(const Slot& slot) { return slot.parameter->entry->name.text; }

  void compute(Slot& slot) const {
    if (slot.state == State::computing) return cycle(slot);
    if (slot.state != State::unknown) return;
    slot.state = State::computing;
    const ast::Expr* expr = slot.parameter->value;
    path_.push_back(&slot);
    std::optional<eval::Value> value;
    if (expr != nullptr)
      value = evaluator_.eval(*expr, *this, slot.words ? &*slot.words : &eval::any_words());
    path_.pop_back();
    if (slot.state != State::computing) return;  // it was part of a cycle
    const bool good = value && allowed(slot, *value);
    slot.state = good ? State::done : State::failed;
    slot.value = good ? std::move(*value) : eval::Value{eval::Unknown{}, {}};
  }

  bool allowed(const Slot& slot, const eval::Value& value) const {
    const ast::Expr* set = slot.parameter->entry->value2.get();
    if (set == nullptr) return true;
    const Span where = slot.parameter->value->span;
    if (slot.words) {
      const eval::Word* word = value.as<eval::Word>();
      const eval::String* string = value.as<eval::String>();
      const std::string text = word != nullptr ? word->text : string ? string->text : "none";
      const std::vector<std::string>& words = slot.words->words;
      if ((word != nullptr || string != nullptr || value.is_none()) &&
          std::ranges::find(words, text) != words.end())
        return true;
      Diagnostic& d = evaluator_.error(where, fmt::format("'{}' is one of {}; got {}", name(slot),
                                                          fmt::join(words, ", "), value.kind()));
      const std::string meant = word != nullptr ? did_you_mean(text, words) : "";
      d.with_help(meant.empty() ? fmt::format("for example {} = {}", name(slot), words.front())
                                : fmt::format("did you mean '{}'?", meant));
      return false;
    }
    return in_set(slot, value, *set, where);
  }

  bool in_set(const Slot& slot, const eval::Value& value, const ast::Expr& set, Span where) const {
    const std::optional<eval::Value> of = evaluator_.eval(set, *this, &eval::any_words());
    if (!of) return false;
    const std::optional<Expr> in = evaluator_.contains(value, *of, where);
    if (!in) return false;
    if (!evaluator_.pool().value(*in).is_zero()) return true;
    evaluator_.error(where, fmt::format("this value of '{}' is not in its set", name(slot)))
        .label(set.span, "what it may be")
        .with_help("give it a value of the set, or add this one to the set");
    return false;
  }

  void cycle(Slot& slot) const {
    std::string chain;
    const auto begin = std::ranges::find(path_, &slot);
    for (auto at = begin; at != path_.end(); ++at) {
      chain += name(**at) + " -> ";
      (*at)->state = State::failed;
      (*at)->value = {eval::Unknown{}, {}};
    }
    evaluator_
        .error(slot.parameter->value->span,
               fmt::format("the value of '{}' needs itself: {}{}", name(slot), chain, name(slot)))
        .with_help("give one of them a value of its own");
  }

  eval::Evaluator& evaluator_;
  mutable std::vector<Slot> slots_;
  std::unordered_map<std::string_view, Slot*> by_name_;
  mutable std::vector<Slot*> path_;
};

struct Sizes {
  std::size_t ops, values, weights;
};

Sizes sizes_of(const Program& p) { return {p.ops.size(), p.values.size(), p.weights.size()}; }

template <class T>
void make_room(std::vector<T>& list, std::size_t before, std::int64_t turns) {
  const std::size_t made = list.size() - before;
  const std::size_t wanted =
      std::min(list.size() + made * static_cast<std::size_t>(turns), kMaxOps);
  // Repeats within repeats do not move a list at each of their turns.
  if (wanted > list.capacity()) list.reserve(std::max(wanted, 2 * list.capacity()));
}

/// A repeat's turns are alike, mostly: room for \a turns more of what one made.
void make_room(Program& p, const Sizes& before, std::int64_t turns) {
  make_room(p.ops, before.ops, turns);
  make_room(p.values, before.values, turns);
  make_room(p.weights, before.weights, turns);
}

}  // namespace

std::nullopt_t Elaborator::fail(Span where, std::string message, std::string help) {
  if (help.empty()) help = "docs/language.md has a table of what each op and entry takes";
  evaluator_.error(where, std::move(message)).with_help(std::move(help));
  return std::nullopt;
}

std::optional<Program> Elaborator::run() {
  draft_.program.model = model_.name;
  draft_.program.blocks.emplace_back();
  const std::size_t errors_before = diags_.error_count();
  if (const std::vector<std::string> missing = missing_parameters(model_); !missing.empty())
    return fail(model_.span,
                fmt::format("model '{}' is a template: it has no value for {}", model_.name,
                            fmt::join(missing, ", ")),
                fmt::format("model NAME = {} {{ {} = … }}", model_.name, missing.front()));
  ParameterScope parameters(model_, evaluator_);
  if (!parameters.compute_all(draft_.program.params)) return std::nullopt;
  eval::Scope root(&parameters);
  statements(model_.entries, root, root, nullptr);
  if (diags_.error_count() > errors_before || !check_loss(root)) return std::nullopt;
  if (!finish(draft_, pool_, diags_)) return std::nullopt;
  return std::move(draft_.program);
}

bool Elaborator::check_loss(const eval::Scope& root) {
  const eval::Value* loss = root.find("loss");
  if (loss == nullptr) {
    fail(model_.span, fmt::format("model '{}' has no loss", model_.name),
         "end it with loss = cross_entropy(…)");
    return false;
  }
  const eval::Tensor* tensor = loss->as<eval::Tensor>();
  if (tensor != nullptr && tensor->id == eval::kLoss) return true;
  fail(loss->span,
       fmt::format("a model's loss is cross_entropy(…) or a sum of them, got {}", loss->kind()));
  return false;
}

/// Runs entries in order; \a result takes what `return` gives (nullptr in a model: no return).
/// False after an error that makes what follows pointless.
bool Elaborator::statements(const std::vector<const ast::Entry*>& entries, eval::Scope& root,
                            eval::Scope& scope, eval::Value* result) {
  return std::ranges::all_of(
      entries, [&](const ast::Entry* entry) { return statement(*entry, root, scope, result); });
}

bool Elaborator::statement(const ast::Entry& entry, eval::Scope& root, eval::Scope& scope,
                           eval::Value* result) {
  switch (entry.kind) {
    case ast::EntryKind::assign:
      assign(entry, root, scope);
      return true;
    case ast::EntryKind::repeat:
      repeat(entry, root, scope);
      return true;
    case ast::EntryKind::item:
      if (items_ != nullptr && seen_items_.insert(&entry).second) items_->push_back(&entry);
      return true;
    case ast::EntryKind::ret: {
      if (result == nullptr) {
        fail(entry.span, frames_.empty()
                             ? "a model returns nothing: it ends with its loss"
                             : "'return' stands at the end of a block, not in a repeat");
        return true;
      }
      std::optional<eval::Value> value = evaluator_.eval(*entry.value, scope);
      *result = value ? std::move(*value) : eval::Value{eval::Unknown{}, entry.span};
      return true;
    }
    case ast::EntryKind::param:
      if (frames_.empty()) return true;  // a model's parameters are computed already
      fail(entry.span, "a block's parameters stand in its parentheses",
           fmt::format("block NAME(x, {})", entry.name.text));
      return true;
    default:
      fail(entry.span, "a model or block holds assignments, 'repeat', 'return' and items only");
      return true;
  }
}

/// A name that exists outside is changed there, so the next turn sees it; others are of the turn.
void Elaborator::assign(const ast::Entry& entry, eval::Scope& root, eval::Scope& scope) {
  eval::Scope* owner = &scope;
  for (eval::Scope* at = &scope; at != nullptr;) {
    if (at->own(entry.name.text) != nullptr) {
      owner = at;
      break;
    }
    if (at == &root) {
      if (root.find(entry.name.text) != nullptr) owner = &root;  // a model's parameter
      break;
    }
    // Every scope up to the root was made here, as a scope that may be written.
    at = const_cast<eval::Scope*>(at->parent());
  }
  const eval::Value* before = owner->find(entry.name.text);
  std::optional<eval::Value> value = evaluator_.eval(
      *entry.value, scope, before != nullptr ? eval::enumeration_of(*before) : nullptr);
  if (value)
    value->span = entry.value->span;
  else
    value = eval::Value{eval::Unknown{}, entry.value->span};
  owner->set(entry.name.text, std::move(*value));
}

std::optional<std::int64_t> Elaborator::turns(const ast::Entry& entry, const eval::Scope& scope) {
  const std::optional<Rational> n = evaluator_.constant(*entry.value, scope, kCount);
  if (!n) return std::nullopt;
  if (!n->is_integer() || n->sign() < 0)
    return fail(entry.value->span,
                fmt::format("repeat takes a whole number of turns, got {}", grouped(*n)));
  if (Rational(kMaxTurns) < *n)
    return fail(entry.value->span, fmt::format("repeat takes at most {} turns, got {}",
                                               grouped(kMaxTurns), grouped(n->num())));
  return n->to_int64();
}

void Elaborator::repeat(const ast::Entry& entry, eval::Scope& root, eval::Scope& scope) {
  const std::optional<std::int64_t> n = turns(entry, scope);
  const std::size_t errors_before = diags_.error_count();
  for (std::int64_t i = 0; n && i < *n; ++i) {
    if (++turns_ > kMaxTurns) {
      fail(entry.keyword ? entry.keyword : entry.span,
           fmt::format("the repeats of this model take more than {} turns", grouped(kMaxTurns)));
      return;
    }
    const Sizes before = sizes_of(draft_.program);
    const std::size_t layers_before = draft_.layers.size();
    eval::Scope turn(&scope);
    if (!entry.name.text.empty())
      turn.set(entry.name.text, {eval::Number{pool_.constant(i), kCount}, entry.name.span});
    for (const ast::Entry& inner : entry.body) statement(inner, root, turn, nullptr);
    if (diags_.error_count() > errors_before) return;  // other turns would only say it again
    if (experts_ == kNone) close_turn(static_cast<OpId>(before.ops), layers_before);
    if (i == 0) make_room(draft_.program, before, *n - 1);
  }
}

/// A turn without turns inside is a layer. Of another, what stands beside the layers inside joins
/// the layer before it, or the one after where none stands right before.
void Elaborator::close_turn(OpId first, std::size_t layers_before) {
  std::vector<LayerRange>& layers = draft_.layers;
  const auto end = static_cast<OpId>(draft_.program.ops.size());
  if (layers.size() == layers_before) {
    if (end > first) layers.push_back({first, end});
    return;
  }
  if (layers_before > 0 && layers[layers_before - 1].end == first)
    layers[layers_before - 1].end = layers[layers_before].first;
  else
    layers[layers_before].first = first;
  for (std::size_t i = layers_before + 1; i < layers.size(); ++i)
    layers[i - 1].end = layers[i].first;
  layers.back().end = end;
}

}  // namespace elab

std::vector<std::string> missing_parameters(const ModelSource& model) {
  std::vector<std::string> missing;
  for (const ModelSource::Parameter& parameter : model.parameters)
    if (parameter.value == nullptr) missing.push_back(parameter.entry->name.text);
  return missing;
}

std::optional<Program> elaborate(const ModelSource& model, ExprPool& pool, Diagnostics& diags,
                                 std::vector<const ast::Entry*>* items) {
  return elab::Elaborator(model, pool, diags, items).run();
}

bool is_builtin_call(std::string_view name) {
  return eval::is_function(name) || elab::find_op(name) != nullptr;
}

}  // namespace plimsoll
