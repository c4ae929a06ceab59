// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <map>
#include <set>

#include "lang/assist.hpp"
#include "lang/assist_place.hpp"
#include "lang/behaviour_scope.hpp"
#include "lang/fields.hpp"
#include "lang/inventory.hpp"
#include "lang/lexer.hpp"
#include "lang/names.hpp"

namespace plimsoll::assist {

namespace {

using syntax::Token;
using Tok = syntax::Kind;

/// Lists what fits a place.
class Lister {
 public:
  Lister(const Module& module, const Place& place)
      : module_(module), impl_(module.impl()), place_(place) {}

  std::vector<Completion> list() {
    if (place_.open.empty()) {
      top_level();
      return std::move(all_);
    }
    const Frame& at = place_.open.back();
    body_ = &at;
    for (auto it = place_.open.rbegin(); it != place_.open.rend(); ++it)
      if (it->type == Frame::body) {
        body_ = &*it;
        break;
      }
    if (at.type == Frame::body && !at.due) {
      if (!second_word()) entries();
      if (place_.after_number) units();
    } else {
      values();
    }
    return std::move(all_);
  }

 private:
  void add(std::string label, Candidate kind, std::string detail = "", std::string insert = "") {
    if (label.empty() || !seen_.insert(label).second) return;
    Completion one;
    one.doc = std::string(word_doc(label));
    one.insert = insert.empty() ? label : std::move(insert);
    one.label = std::move(label);
    one.kind = kind;
    one.detail = std::move(detail);
    all_.push_back(std::move(one));
  }
  void add_words(const std::vector<std::string>& words, std::string_view detail = "") {
    for (const std::string& word : words) add(word, Candidate::word, std::string(detail));
  }
  void add_keywords(std::initializer_list<const char*> words) {
    for (const char* word : words) add(word, Candidate::keyword, "", std::string(word) + ' ');
  }
  void add_names(Kind kind) {
    for (const std::string& name : impl_.names(kind, false)) {
      const ast::Declaration* found = impl_.find(kind, name, false);
      const bool own = found != nullptr && !impl_.is_prelude(found->span);
      add(name, Candidate::declaration,
          fmt::format("{}{}", noun(kind), own ? "" : " of the prelude"));
      if (found != nullptr && !found->doc.empty() && !all_.empty()) all_.back().doc = found->doc;
    }
  }
  void add_fields(std::span<const Field> fields, const std::set<std::string>& but) {
    for (const Field& field : fields)
      if (!but.contains(std::string(field.name)))
        add(std::string(field.name), Candidate::field,
            fmt::format("for example {} = {}", field.name, field.example),
            std::string(field.name) + " = ");
  }

  void top_level() {
    if (place_.base_due) {
      if (const auto kind = find_kind(place_.kind)) add_names(*kind);
      return;
    }
    if (!place_.kind.empty() && !place_.named) return;  // a name of the user's own
    for (const std::string& kind : syntax::declaration_kinds())
      add(kind, Candidate::keyword, "", kind + ' ');
    add("use", Candidate::keyword, "", "use \"");
  }

  /// Words after `on`, `each`, `save`, `default`. True where nothing else can stand.
  bool second_word() {
    if (place_.before == "on") {
      for (const std::string& call : vocabulary().calls)
        if (!op_values(call).empty()) add(call, Candidate::function);
      add_words({"layer", "root"});
      return true;
    }
    if (place_.before == "save") {
      for (auto it = place_.open.rbegin(); it != place_.open.rend(); ++it)
        if (it->keyword == "on") save_values();
      return true;
    }
    if (place_.before == "default") {
      for (const VariableName& row : layout_variables())
        add(std::string(row.name), Candidate::variable, "", std::string(row.name) + " = ");
      return true;
    }
    static constexpr std::string_view kNamed[] = {"state", "pool",  "beside",
                                                  "item",  "param", "fuse"};
    return std::find(std::begin(kNamed), std::end(kNamed), place_.before) != std::end(kNamed);
  }

  void save_values() {
    const Frame& outer = place_.open[place_.open.size() - 2];
    for (const std::string& value : op_values(outer.field)) add(value, Candidate::variable);
  }

  void entries() {
    std::set<std::string> given;
    for (const auto& [name, value] : place_.given) given.insert(name);
    const std::string& keyword = body_->keyword;
    if (const auto kind = find_kind(keyword); kind && place_.open.size() == 1)
      return entries_of(*kind, given);
    if (keyword == "observed" || keyword == "beside" || keyword == "pool" || keyword == "item" ||
        keyword == "state") {
      static const std::map<std::string, ast::EntryKind> kKinds = {
          {"observed", ast::EntryKind::observed},
          {"beside", ast::EntryKind::beside},
          {"pool", ast::EntryKind::pool},
          {"item", ast::EntryKind::item},
          {"state", ast::EntryKind::state}};
      add_fields(fields_of(kKinds.at(keyword)), {});
    } else if (keyword == "on") {
      add_keywords({"save", "item"});
      add("where", Candidate::field, "", "where = ");
    } else if (keyword == "recompute") {
      add("drop", Candidate::field, "", "drop = {");
      add("keep", Candidate::field, "", "keep = {");
      add("discard", Candidate::field, "", "discard = {");
      add("offload", Candidate::field, "", "offload = {");
    } else if (keyword == "repeat") {
      add_keywords({"repeat", "item"});
      locals(" = ");
    }
  }

  void entries_of(Kind kind, const std::set<std::string>& given) {
    add_fields(fields_of(kind), given);
    switch (kind) {
      case Kind::train:
      case Kind::serve:
        for (const VariableName& row : layout_variables())
          if (!given.contains(std::string(row.name)))
            add(std::string(row.name), Candidate::variable, "layout variable",
                std::string(row.name) + " = ");
        switches();
        add_keywords({"require", "prefer", "minimize", "maximize", "item", "observed", "beside"});
        break;
      case Kind::layout:
        for (const VariableName& row : layout_variables())
          if (!given.contains(std::string(row.name)))
            add(std::string(row.name), Candidate::variable, "layout variable",
                std::string(row.name) + " = ");
        break;
      case Kind::cluster:
        add_keywords({"pool"});
        break;
      case Kind::framework:
        add_keywords(
            {"param", "state", "on", "item", "fuse", "default", "recompute", "require", "prefer"});
        break;
      case Kind::optimizer:
        add_keywords({"param", "state", "item"});
        break;
      case Kind::model:
        template_parameters();
        if (place_.base.empty()) add_keywords({"param", "repeat", "item"});
        if (place_.base.empty()) add("loss", Candidate::field, "", "loss = ");
        locals(" = ");
        break;
      case Kind::block:
        add_keywords({"return", "repeat", "item"});
        locals(" = ");
        break;
      default:
        break;
    }
  }

  void locals(const std::string& after = "") {
    for (const std::string& name : place_.locals)
      add(name, Candidate::variable, "", after.empty() ? "" : name + after);
  }

  /// Parameters that the templates of a model declare.
  void template_parameters() {
    std::string base = place_.base;
    for (std::size_t depth = 0; !base.empty() && depth < kMaxTemplateDepth; ++depth) {
      const ast::Declaration* found = impl_.find(Kind::model, base, false);
      if (found == nullptr) return;
      for (const ast::Entry& entry : found->entries)
        if (entry.kind == ast::EntryKind::param && !place_.given.contains(entry.name.text))
          add(entry.name.text, Candidate::field, "a parameter of " + found->name.text,
              entry.name.text + " = ");
      base = found->base ? found->base->text : "";
    }
  }

  const Behaviour* behaviour(Kind kind) const {
    const std::string field(word(kind));
    std::string name = place_.kind == "serve" ? "vllm" : "megatron";
    if (kind == Kind::optimizer) name = "adamw";
    if (const auto at = place_.given.find(field); at != place_.given.end()) name = at->second;
    if (kind == Kind::framework && place_.kind == "framework") return nullptr;
    return kind == Kind::framework ? module_.framework(name) : module_.optimizer(name);
  }
  void switches() {
    for (const Kind kind : {Kind::framework, Kind::optimizer})
      if (const Behaviour* of = behaviour(kind))
        for (const auto& [name, param] : of->params)
          if (!place_.given.contains(name))
            add(name, Candidate::field, "a switch of " + of->name, name + " = ");
  }

  void values() {
    const std::string& field = place_.open.back().field;
    const std::string& entry = place_.open.back().entry;
    if (entry.empty() && field_values(field)) return;
    if (place_.kind == "block" || place_.kind == "model") {
      locals();
      for (const std::string& block : impl_.names(Kind::block, false))
        add(block, Candidate::function, "block", block + '(');
      for (const std::string& call : vocabulary().calls)
        add(call, Candidate::function, "", call + '(');
      add_words({"true", "false", "column", "row", "none"});
      if (place_.kind == "model") return;
    }
    if (place_.kind != "block") condition_names();
    if (entry == "state" || entry == "save") add_names(Kind::dtype);
    for (const char* name :
         {"if", "min", "max", "ceil", "floor", "round", "log2", "abs", "mod", "sum", "len"})
      add(name, Candidate::function, "", std::string(name) + '(');
  }

  /// Names and words that a field takes. False where it may be any expression.
  bool field_values(const std::string& name) {
    if (name.empty()) return false;
    const std::string& keyword = body_->keyword;
    std::span<const Field> fields;
    if (const auto kind = find_kind(keyword); kind && place_.open.front().keyword == keyword)
      fields = fields_of(*kind);
    if (keyword == "observed") fields = fields_of(ast::EntryKind::observed);
    if (keyword == "beside") fields = fields_of(ast::EntryKind::beside);
    if (keyword == "pool") fields = fields_of(ast::EntryKind::pool);
    for (const Field& field : fields) {
      if (field.name != name) continue;
      if (field.type == FieldType::reference) return add_names(field.refers_to), true;
      if (!field.words.empty()) return add_words(split(field.words)), true;
    }
    if (words_by_place(name)) return true;
    for (const Kind kind : {Kind::framework, Kind::optimizer})
      if (const Behaviour* of = behaviour(kind))
        if (const auto at = of->params.find(name); at != of->params.end()) {
          if (at->second.words != nullptr)
            add_words(at->second.words->words, "switch of " + of->name);
          else
            add_words({"true", "false"});
          return true;
        }
    return false;
  }

  bool words_by_place(const std::string& name) {
    const bool job = place_.kind == "train" || place_.kind == "serve" || place_.kind == "layout";
    if (job && name == "schedule") {
      for (const std::string_view word : kSchedules) add(std::string(word), Candidate::word);
    } else if (job && name == "recompute") {
      add_words({"none", "full"});
      if (const Behaviour* of = behaviour(Kind::framework)) add_words(of->recompute_modes);
    } else if (job && name == "sp") {
      add_words({"true", "false"});
    } else if (job && name == "attention") {
      add_words({"flash", "cudnn", "unfused"});
    } else if (name == "weights" || name == "kv") {
      add_words(impl_.dtype_words != nullptr ? impl_.dtype_words->words
                                             : std::vector<std::string>{"bf16", "fp8"});
    } else if (name == "adapt") {
      add("none", Candidate::word);
      add("lora", Candidate::function, "", "lora(rank = 16, on = {q, k, v, o})");
      add("qlora", Candidate::function, "", "qlora(rank = 16, on = {q, k, v, o})");
    } else if (name == "category") {
#define X(each) add(#each, Candidate::word);
      PLIMSOLL_CATEGORIES(X)
#undef X
    } else if (name == "lifetime") {
      add_words({"always", "from_first_step", "step", "microbatch", "op", "forward", "backward",
                 "update", "start", "load", "save", "evaluate"});
    } else if (name == "combine") {
      add("max", Candidate::word);
    } else {
      return false;
    }
    return true;
  }

  static std::vector<std::string> split(std::string_view text) {
    std::vector<std::string> words;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      if (end > at) words.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
    return words;
  }

  /// What conditions of jobs and items of frameworks may read.
  void condition_names() {
    for (const auto names : {layout_variables(), derived_numbers()})
      for (const VariableName& row : names) add(std::string(row.name), Candidate::variable);
    locals();
    for (const char* name : {"seq", "batch", "attention", "precision", "gpus_per_node", "nodes"})
      add(name, Candidate::variable);
    if (const auto at = place_.given.find("model"); at != place_.given.end()) {
      std::string model = at->second;
      for (std::size_t depth = 0; !model.empty() && depth < kMaxTemplateDepth; ++depth) {
        const ast::Declaration* found = impl_.find(Kind::model, model, false);
        if (found == nullptr) break;
        for (const ast::Entry& entry : found->entries)
          if (entry.kind == ast::EntryKind::param)
            add(entry.name.text, Candidate::variable, "of model " + at->second);
        model = found->base ? found->base->text : "";
      }
    }
    if (place_.kind == "framework" || place_.kind == "optimizer")
      for (const char* name : {"stage", "first", "last", "receiving", "carried", "numel", "rows",
                               "cols", "dims", "role", "trained"})
        add(name, Candidate::variable);
    if (place_.kind == "train" || place_.kind == "serve")
      add("bytes", Candidate::function, "", "bytes(\"");
  }

  void units() {
    for (const std::string& unit : unit_names()) add(unit, Candidate::unit);
  }

  const Module& module_;
  Module::Impl& impl_;
  const Place& place_;
  const Frame* body_ = nullptr;
  std::vector<Completion> all_;
  std::set<std::string> seen_;
};

}  // namespace

Completions completions_at(const Module& module, std::uint32_t file, std::uint32_t offset) {
  Completions result;
  const std::string_view text = module.sources()[file].text();
  offset = std::min(offset, static_cast<std::uint32_t>(text.size()));
  result.begin = offset;
  while (result.begin > 0 && syntax::is_word_character(text[result.begin - 1])) --result.begin;
  std::vector<ast::Comment> comments;
  Diagnostics ignored;
  const Span whole{file, 0, static_cast<std::uint32_t>(text.size())};
  const std::vector<Token> tokens = syntax::lex(module.sources(), whole, comments, ignored);
  if (in_comment(text, comments, offset)) return result;
  for (const Token& token : tokens)
    if (token.kind == Tok::string && token.begin < offset && offset < token.end) return result;
  const Place place = place_at(text, tokens, offset);
  result.candidates = Lister(module, place).list();
  return result;
}

}  // namespace plimsoll::assist
