// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/check_behaviour_body.hpp"
#include "lang/grouped.hpp"
#include "lang/inventory.hpp"
#include "lang/layout_values.hpp"
#include "lang/names.hpp"

/// framework and optimizer declarations: their bodies are checked as far as that is possible
/// without a job, with every number that a job would give left open.
namespace plimsoll {

namespace {

using ast::EntryKind;

constexpr Field kFrameworkFields[] = {
    {"vocab_multiple", FieldType::integer, "128 * tp"},
    {"pointwise", FieldType::other, "fused", kCount, Range::positive, false, false,
     "fused separate"},
    {"context", FieldType::other, "false"},
    {"derive", FieldType::other, "false"},
    {"allocator", FieldType::other, "false"},
    {"reserved_factor", FieldType::quantity, "1.04"},
    {"replay", FieldType::other, "true"},
    {"margin", FieldType::share, "3%"},
    {"utilization", FieldType::share, "90%"},
    {"batch_tokens", FieldType::tokens, "8Ki"},
};
constexpr Field kStateFields[] = {
    {"where", FieldType::other, "trained"},
    {"elements", FieldType::other, "rows"},
    {"lifetime", FieldType::other, "step"},
    {"stream", FieldType::other, "reduce"},
    {"source", FieldType::other, "\"where this is known from\""},
};
constexpr Field kItemFields[] = {
    {"bytes", FieldType::other, "2 B * numel", kBytes, Range::positive, true},
    {"category", FieldType::other, "buffers"},
    {"lifetime", FieldType::other, "always"},
    {"where", FieldType::other, "zero == 3"},
    {"combine", FieldType::other, "max"},
    {"early", FieldType::other, "1"},
    {"late", FieldType::other, "1"},
    {"stream", FieldType::other, "gather"},
    {"replaces", FieldType::other, "\"gathered input\""},
    {"source", FieldType::other, "\"where this is known from\""},
};

/// No allocator reserves more than this times what is asked of it.
constexpr std::int64_t kMaxReservedFactor = 100;

constexpr std::string_view kEach[] = {"weight", "shape", "communicator", "layer"};

std::vector<std::string> op_words() {
  std::vector<std::string> words = {"layer", "root"};
#define X(name) words.emplace_back(#name);
  PLIMSOLL_OP_KINDS(X)
#undef X
  std::sort(words.begin(), words.end());
  return words;
}

class BehaviourReader {
 public:
  BehaviourReader(Module::Impl& module, Kind kind, const Merged& merged, Diagnostics& diags)
      : module_(module), kind_(kind), merged_(merged), diags_(diags) {}

  std::unique_ptr<Behaviour> read() {
    const ast::Declaration& declaration = *merged_.declaration;
    behaviour_->name = declaration.name.text;
    behaviour_->doc = declaration.doc;
    behaviour_->span = declaration.name.span;
    behaviour_->optimizer = kind_ == Kind::optimizer;
    read_params();
    read_modes();
    read_entries();
    // The prelude's own are right: its test compiles them as a user's. No job needs to wait for it.
    if (!module_.is_prelude(declaration.name.span)) check_all();
    return std::move(behaviour_);
  }

 private:
  void read_entries() {
    for (const ast::Entry* entry : merged_.entries) {
      const bool overrides_param =
          is_field(*entry) && behaviour_->params.contains(entry->name.text);
      if (!overrides_param && entry->kind != EntryKind::param) behaviour_->entries.push_back(entry);
    }
  }

  void check_all() {
    const ast::Name& name = merged_.declaration->name;
    std::vector<std::string> params;
    for (const auto& [param, value] : behaviour_->params) params.push_back(param);
    if (kind_ == Kind::framework)
      check_body(module_, "framework", name, merged_.entries,
                 {EntryKind::assign, EntryKind::param, EntryKind::fuse, EntryKind::default_,
                  EntryKind::require, EntryKind::prefer, EntryKind::state, EntryKind::on,
                  EntryKind::item, EntryKind::recompute},
                 kFrameworkFields, params, diags_);
    else
      check_body(module_, "optimizer", name, merged_.entries,
                 {EntryKind::assign, EntryKind::param, EntryKind::state, EntryKind::item,
                  EntryKind::require, EntryKind::prefer},
                 {}, params, diags_);
    check_params();
    check_fuses(behaviour_->entries, diags_);
    check_default_circles(*behaviour_, diags_);
    for (const ast::Entry* entry : behaviour_->entries) check(*entry);
  }

  void read_params() {
    for (const ast::Entry* entry : merged_.entries) {
      if (entry->kind != EntryKind::param) continue;
      Param param;
      param.name = entry->name.text;
      param.span = entry->name.span;
      param.value = entry->value.get();
      if (entry->value2) param.words = words_of(*entry);
      behaviour_->params[param.name] = param;
    }
    for (const ast::Entry* entry : merged_.entries) {
      if (entry->kind != EntryKind::assign) continue;
      const auto param = behaviour_->params.find(entry->name.text);
      if (param != behaviour_->params.end()) param->second.value = entry->value.get();
    }
  }

  /// The words of `param x in {a, b}`, or nullptr where they are no words.
  const eval::Enumeration* words_of(const ast::Entry& entry) {
    std::vector<std::string> words;
    const ast::Expr& set = *entry.value2;
    bool ok = set.kind == ast::ExprKind::set && !set.args.empty();
    for (const ast::Argument& member : set.args) {
      ok = ok && member.value->kind == ast::ExprKind::name;
      if (ok) words.push_back(member.value->text);
    }
    if (ok) return module_.enumeration(entry.name.text, std::move(words));
    diags_
        .error(set.span, fmt::format("expected a set of words for parameter '{}'", entry.name.text))
        .with_help(fmt::format("for example param {} in {{fast, small}} = fast", entry.name.text));
    return nullptr;
  }

  void read_modes() {
    std::vector<std::string> words = {"none", "full"};
    for (const ast::Entry* entry : merged_.entries) {
      if (entry->kind != EntryKind::recompute) continue;
      if (entry->name.text == "none" || entry->name.text == "full") {
        diags_
            .error(entry->name.span,
                   fmt::format("'{}' is a mode of recompute already", entry->name.text))
            .with_help("give the mode another name");
        continue;
      }
      words.push_back(entry->name.text);
      behaviour_->recompute_modes.push_back(entry->name.text);
    }
    behaviour_->recompute_words = module_.enumeration("recompute", std::move(words));
  }

  /// A default may name what is around an item, so it is evaluated where a weight is in sight.
  void check_params() {
    const OpenScope place(module_, *behaviour_, Site::weight);
    eval::Evaluator evaluator(module_.pool, diags_);
    const BehaviourScope scope(*behaviour_, nullptr, place, evaluator);
    for (const auto& [name, param] : behaviour_->params) {
      if (param.value == nullptr) {
        diags_.error(param.span, fmt::format("parameter '{}' has no default", name))
            .with_help(fmt::format("give it one: param {} = …", name));
        continue;
      }
      scope.find(name);
    }
  }

  void check(const ast::Entry& entry) {
    switch (entry.kind) {
      case EntryKind::assign:
        return check_field(entry);
      case EntryKind::state:
        return check_state(entry);
      case EntryKind::item:
        return check_item(entry, entry.words.empty() ? Site::stage : site_of_each(entry), "");
      case EntryKind::on:
        return check_on(entry);
      case EntryKind::default_:
        return check_default(entry);
      case EntryKind::fuse:
        return check_names(*entry.value, entry.name.text);
      case EntryKind::recompute:
        return check_recompute(entry);
      case EntryKind::require:
      case EntryKind::prefer: {
        const OpenScope place(module_, *behaviour_, Site::condition);
        if (entry.value) BodyChecker(module_, *behaviour_, place, diags_).condition(*entry.value);
        return;
      }
      default:
        return;
    }
  }

  void check_field(const ast::Entry& entry) {
    const OpenScope place(module_, *behaviour_, Site::stage);
    BodyChecker body(module_, *behaviour_, place, diags_);
    eval::Evaluator evaluator(module_.pool, diags_);
    const BehaviourScope scope(*behaviour_, nullptr, place, evaluator);
    const std::string& name = entry.name.text;
    if (name == "context" || name == "derive" || name == "allocator" || name == "replay") {
      body.condition(*entry.value);
      return;
    }
    if (name == "pointwise") {
      evaluator.eval(*entry.value, scope, module_.enumeration("pointwise", {"fused", "separate"}));
      return;
    }
    for (const Field& field : kFrameworkFields) {
      if (field.name != name || field.type == FieldType::other) continue;
      if (name == "utilization" || name == "batch_tokens")
        FieldReader(module_, "framework", place, diags_).number(field, *entry.value);
      else
        body.number(field, *entry.value);
    }
    if (name == "reserved_factor") check_reserved_factor(*entry.value, scope);
  }

  /// What the allocator reserves holds what it has allocated.
  void check_reserved_factor(const ast::Expr& e, const eval::Scope& scope) {
    Diagnostics said_already;
    eval::Evaluator evaluator(module_.pool, said_already);
    const std::optional<Expr> factor = evaluator.count(e, scope);
    if (!factor || !module_.pool.is_constant(*factor)) return;
    const Rational& value = module_.pool.value(*factor);
    if (value.sign() <= 0 || (value >= Rational(1) && value <= Rational(kMaxReservedFactor)))
      return;
    diags_
        .error(e.span, fmt::format("'reserved_factor' must be from 1 to {}, got {}",
                                   kMaxReservedFactor, grouped(value)))
        .with_help("it is reserved over allocated memory: reserved_factor = 1.04");
  }

  void check_state(const ast::Entry& entry) {
    const std::vector<const ast::Entry*> lines = lines_of(entry, diags_);
    check_body(module_, "state", label_of(entry), lines, {EntryKind::assign}, kStateFields, {},
               diags_);
    const OpenScope place(module_, *behaviour_, Site::weight);
    BodyChecker body(module_, *behaviour_, place, diags_);
    if (entry.value) body.dtype(*entry.value);
    body.lines(lines);
    const ast::Expr* where = line_of(lines, "where");
    if (kind_ == Kind::framework && entry.name.text == "weight" && where != nullptr)
      check_some_weight(*where, place);
  }

  /// A model without weights is no model.
  void check_some_weight(const ast::Expr& where, const eval::Scope& place) {
    Diagnostics said_already;
    eval::Evaluator evaluator(module_.pool, said_already);
    const BehaviourScope scope(*behaviour_, nullptr, place, evaluator);
    const std::optional<Expr> holds = evaluator.condition(where, scope);
    if (!holds || !module_.pool.is_constant(*holds) || !module_.pool.value(*holds).is_zero())
      return;
    diags_.error(where.span, "'where' is false for every weight: no GPU would hold the model")
        .with_help("remove the condition, or name weights: where = role == expert");
  }

  Site site_of_each(const ast::Entry& entry) {
    const ast::Name& each = entry.words.back();
    if (each.text == "weight" || each.text == "shape") return Site::weight;
    if (each.text == "communicator") return Site::communicator;
    if (each.text == "layer") return Site::layer;
    diags_.error(each.span, fmt::format("expected what each item is for, got '{}'", each.text))
        .with_help(suggest(each.text, {std::begin(kEach), std::end(kEach)}, "items can be each"));
    return Site::anywhere;
  }

  void check_item(const ast::Entry& entry, Site place, std::string_view op) {
    const std::vector<const ast::Entry*> lines = lines_of(entry, diags_);
    check_body(module_, "item", label_of(entry), lines, {EntryKind::assign}, kItemFields, {},
               diags_);
    const OpenScope scope(module_, *behaviour_, place, op);
    BodyChecker(module_, *behaviour_, scope, diags_).lines(lines);
  }

  void check_on(const ast::Entry& entry) {
    static const std::vector<std::string> kOps = op_words();
    for (const ast::Name& word : entry.words)
      if (std::find(kOps.begin(), kOps.end(), word.text) == kOps.end())
        diags_.error(word.span, fmt::format("unknown op '{}'", word.text))
            .with_help(suggest(word.text, kOps, "ops"));
    const bool on_weights = std::any_of(entry.words.begin(), entry.words.end(), [](const auto& w) {
      return w.text == "layer" || w.text == "root";
    });
    const Site place = on_weights ? Site::layer : Site::op;
    const std::string op = entry.words.size() == 1 ? entry.words[0].text : "";
    const OpenScope scope(module_, *behaviour_, place, op);
    BodyChecker body(module_, *behaviour_, scope, diags_);
    lines_of(entry, diags_);
    for (const ast::Entry& line : entry.body) {
      switch (line.kind) {
        case EntryKind::assign:
          if (line.name.text == "where")
            body.condition(*line.value);
          else
            diags_.error(line.name.span, fmt::format("unknown field '{}' of 'on'", line.name.text))
                .with_help("'on' takes where = …, 'save' and 'item'");
          break;
        case EntryKind::save:
          check_save(line, entry, on_weights);
          if (line.value) body.dtype(*line.value);
          break;
        case EntryKind::item:
          check_item(line, place, op);
          break;
        default:
          diags_
              .error(line.keyword ? line.keyword : line.span,
                     fmt::format("{} cannot stand in 'on'", keyword(line.kind)))
              .with_help("'on' takes where = …, 'save' and 'item'");
      }
    }
  }

  void check_save(const ast::Entry& save, const ast::Entry& on, bool on_weights) {
    if (on_weights) {
      diags_.error(save.name.span, "layers have no values to save, ops have")
          .with_help("write it in the 'on' of the op that makes the value");
      return;
    }
    for (const ast::Name& op : on.words) {
      const std::vector<std::string>& values = op_values(op.text);
      if (values.empty() || std::find(values.begin(), values.end(), save.name.text) != values.end())
        continue;
      diags_
          .error(save.name.span,
                 fmt::format("{} has no value '{}' to save", op.text, save.name.text))
          .with_help(suggest(save.name.text, values, fmt::format("values of {}", op.text)));
    }
  }

  void check_default(const ast::Entry& entry) {
    const VariableName* row = find_name(layout_variables(), entry.name.text);
    if (row == nullptr) {
      std::vector<std::string> names;
      for (const VariableName& variable : layout_variables()) names.emplace_back(variable.name);
      diags_.error(entry.name.span, fmt::format("unknown layout variable '{}'", entry.name.text))
          .with_help(suggest(entry.name.text, names, "layout variables"));
      return;
    }
    const OpenScope place(module_, *behaviour_, Site::condition);
    BodyChecker body(module_, *behaviour_, place, diags_);
    if (row->type == NameType::boolean) {
      body.condition(*entry.value);
      return;
    }
    if (row->type == NameType::number) {
      if (const std::optional<Expr> found = body.count(*entry.value))
        check_layout_value(module_, *row, {eval::Number{*found, kCount}, entry.value->span},
                           entry.value->span, diags_);
      return;
    }
    eval::Evaluator evaluator(module_.pool, diags_);
    const BehaviourScope scope(*behaviour_, nullptr, place, evaluator);
    const eval::Enumeration* words =
        row->type == NameType::recompute ? behaviour_->recompute_words
        : row->type == NameType::schedule
            ? module_.enumeration("schedule", {kSchedules.begin(), kSchedules.end()})
            : nullptr;
    const std::optional<eval::Value> value = evaluator.eval(*entry.value, scope, words);
    if (value && value->as<eval::Unknown>() == nullptr)
      check_layout_value(module_, *row, *value, entry.value->span, diags_);
  }

  /// A set of names, whatever they mean in a model.
  void check_names(const ast::Expr& e, std::string_view field) {
    const eval::Scope empty;
    const std::string example = "{q, k, v}";
    const Field row{field, FieldType::other, example};
    FieldReader(module_, "framework", empty, diags_).name_set(row, e);
  }

  void check_recompute(const ast::Entry& entry) {
    bool said = false;
    const ast::Entry* keeps = nullptr;
    const ast::Entry* discards = nullptr;
    for (const ast::Entry& line : entry.body) {
      if (line.kind == EntryKind::assign &&
          (line.name.text == "keep" || line.name.text == "drop" || line.name.text == "discard" ||
           line.name.text == "offload")) {
        if (line.name.text == "keep") keeps = &line;
        if (line.name.text == "discard") discards = &line;
        check_names(*line.value, line.name.text);
        check_recompute_words(module_, *line.value, diags_);
        said = true;
        continue;
      }
      diags_
          .error(line.name.span ? line.name.span : line.span,
                 fmt::format("unknown entry '{}' of a recompute mode", line.name.text))
          .with_help("say what is kept, keep = {q, k}, or what is dropped, drop = {attention}");
    }
    if (keeps != nullptr && discards != nullptr)
      diags_
          .error(discards->name.span, "'discard' stands beside 'drop' or alone, not beside 'keep'")
          .label(keeps->name.span, "what is not kept here is made again anyway")
          .with_help("leave 'discard' out, or say what is dropped: drop = {attention}");
    if (!said)
      diags_
          .error(entry.name.span,
                 fmt::format("recompute '{}' says neither what it keeps nor what it drops",
                             entry.name.text))
          .with_help("add keep = {q, k}, or drop = {attention}");
  }

  Module::Impl& module_;
  Kind kind_;
  const Merged& merged_;
  Diagnostics& diags_;
  std::unique_ptr<Behaviour> behaviour_ = std::make_unique<Behaviour>();
};

}  // namespace

const ast::Expr* Behaviour::field(std::string_view wanted) const {
  for (const ast::Entry* entry : entries)
    if (entry->kind == EntryKind::assign && entry->name.text == wanted) return entry->value.get();
  return nullptr;
}

void check_items(Module::Impl& module, const std::vector<const ast::Entry*>& items,
                 const eval::Scope& place, Diagnostics& diags) {
  static const Behaviour kNobody;
  for (const ast::Entry* item : items) {
    const std::vector<const ast::Entry*> lines = lines_of(*item, diags);
    check_body(module, "item", label_of(*item), lines, {EntryKind::assign}, kItemFields, {}, diags);
    BodyChecker(module, kNobody, place, diags).lines(lines);
  }
}

const Behaviour* resolve_behaviour(Module::Impl& module, Kind kind,
                                   const ast::Declaration& declaration, Diagnostics& diags) {
  const auto [at, added] = module.behaviours.try_emplace(&declaration);
  if (!added) return at->second.get();
  const std::size_t before = diags.error_count();
  const Merged* merged = merge(module, kind, declaration, diags);
  if (merged == nullptr) return nullptr;
  std::unique_ptr<Behaviour> made = BehaviourReader(module, kind, *merged, diags).read();
  if (diags.error_count() == before) module.behaviours[&declaration] = std::move(made);
  return module.behaviours[&declaration].get();
}

std::span<const Field> behaviour_fields() { return kFrameworkFields; }
std::span<const Field> behaviour_entry_fields(ast::EntryKind kind) {
  if (kind == ast::EntryKind::state) return kStateFields;
  if (kind == ast::EntryKind::item) return kItemFields;
  return {};
}

}  // namespace plimsoll
