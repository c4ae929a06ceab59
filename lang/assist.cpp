// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/assist.hpp"

#include <algorithm>
#include <filesystem>

#include "lang/fields.hpp"
#include "lang/names.hpp"
#include "lang/print.hpp"

namespace plimsoll::assist {

namespace {

/// A cursor stands before a character: at the end of a word it is still on it.
bool touches(Span span, std::uint32_t offset) {
  return span && span.begin <= offset && offset <= span.end;
}

}  // namespace

bool in_comment(std::string_view text, const std::vector<ast::Comment>& comments,
                std::uint32_t offset) {
  for (const ast::Comment& comment : comments)
    if (comment.span.begin < offset &&
        text.substr(comment.span.begin, offset - comment.span.begin).find('\n') == text.npos)
      return true;
  return false;
}

namespace {

bool is_tensor_program(Kind kind) { return kind == Kind::block || kind == Kind::model; }

/// Looks for what stands at one place of one file.
class Finder {
 public:
  Finder(const Module& module, const ast::File& file, std::uint32_t offset)
      : module_(module), impl_(module.impl()), file_(file), offset_(offset) {}

  std::optional<Symbol> find() {
    if (in_comment(impl_.sources[file_.file].text(), file_.comments, offset_)) return std::nullopt;
    for (const ast::Use& use : file_.uses)
      if (touches(use.span, offset_)) return of_use(use);
    // Two declarations may touch; the cursor is on the later one's kind then.
    for (auto it = file_.declarations.rbegin(); it != file_.declarations.rend(); ++it)
      if (touches(it->span, offset_))
        if (auto found = in_declaration(*it)) return found;
    return std::nullopt;
  }

 private:
  std::optional<Symbol> of_use(const ast::Use& use) const {
    Symbol symbol;
    symbol.span = use.span;
    symbol.title = fmt::format("use \"{}\"", use.path);
    const std::filesystem::path given(use.path);
    const std::string name =
        (given.is_absolute()
             ? given
             : std::filesystem::path(impl_.sources[file_.file].name()).parent_path() / given)
            .lexically_normal()
            .generic_string();
    for (const auto& file : impl_.files)
      if (impl_.sources[file->file].name() == name) symbol.defined_at = {file->file, 0, 1};
    return symbol;
  }

  std::optional<Symbol> in_declaration(const ast::Declaration& declaration) {
    declaration_ = &declaration;
    if (touches(declaration.kind.span, offset_)) return of_word(declaration.kind);
    const std::optional<Kind> kind = find_kind(declaration.kind.text);
    if (!kind) return std::nullopt;
    kind_ = *kind;
    if (touches(declaration.name.span, offset_))
      return of_declaration(kind_, declaration, declaration.name.span);
    if (declaration.base && touches(declaration.base->span, offset_)) {
      const ast::Declaration* base = find(kind_, declaration.base->text);
      if (base == &declaration) base = impl_.find(kind_, declaration.base->text, true);
      if (base != nullptr) return of_declaration(kind_, *base, declaration.base->span);
      return std::nullopt;
    }
    for (const ast::Parameter& parameter : declaration.parameters) {
      if (touches(parameter.name.span, offset_)) return of_parameter(parameter);
      if (auto found = in_expression(parameter.default_value.get(), nullptr)) return found;
    }
    return in_entries(declaration.entries, nullptr);
  }

  std::optional<Symbol> in_entries(const std::vector<ast::Entry>& entries,
                                   const ast::Entry* parent) {
    for (const ast::Entry& entry : entries)
      if (touches(entry.span, offset_))
        if (auto found = in_entry(entry, parent)) return found;
    return std::nullopt;
  }

  std::optional<Symbol> in_entry(const ast::Entry& entry, const ast::Entry* parent) {
    const bool is_item = entry.kind == ast::EntryKind::item || entry.kind == ast::EntryKind::state;
    if (touches(entry.keyword, offset_)) {
      if (is_item) return of_item(entry);
      return of_word({std::string(impl_.sources.text(entry.keyword)), entry.keyword});
    }
    if (touches(entry.label_span, offset_))
      return is_item ? of_item(entry) : std::optional<Symbol>();
    if (touches(entry.name.span, offset_))
      return is_item ? of_item(entry) : of_entry_name(entry, parent);
    for (const ast::Name& word : entry.words)
      if (touches(word.span, offset_)) return of_word(word);
    parent_ = parent;
    for (const ast::Expr* value : {entry.value.get(), entry.value2.get()})
      if (auto found = in_expression(value, &entry)) return found;
    return in_entries(entry.body, &entry);
  }

  std::optional<Symbol> of_entry_name(const ast::Entry& entry, const ast::Entry* parent) {
    if (is_field(entry) && is_tensor_program(kind_) && parent == nullptr && declaration_->base) {
      if (const ast::Entry* param = template_param(*declaration_, entry.name.text))
        return of_param(*param, entry.name.span);
    }
    if (entry.kind == ast::EntryKind::param) return of_param(entry, entry.name.span);
    if (is_tensor_program(kind_) && parent == nullptr && is_field(entry))
      return of_local(entry, entry.name.span);
    if (!is_field(entry)) {
      Symbol symbol = plain(entry.name.span);
      symbol.title = fmt::format("{} {}", impl_.sources.text(entry.keyword), entry.name.text);
      symbol.doc = word_doc(impl_.sources.text(entry.keyword));
      symbol.defined_at = entry.name.span;
      return symbol;
    }
    Symbol symbol = of_word(entry.name).value_or(plain(entry.name.span));
    if (find_name(layout_variables(), entry.name.text) == nullptr)
      symbol.title =
          fmt::format("{}: a field of {}", entry.name.text,
                      parent != nullptr ? std::string(impl_.sources.text(parent->keyword))
                                        : with_article(noun(kind_)));
    symbol.defined_at = entry.name.span;
    return symbol;
  }

  std::optional<Symbol> in_expression(const ast::Expr* e, const ast::Entry* entry) {
    if (e == nullptr || !touches(e->span, offset_)) return std::nullopt;
    if (e->kind == ast::ExprKind::name) return of_name(*e, entry);
    if (e->kind == ast::ExprKind::call && touches(e->op_span, offset_)) return of_call(*e);
    for (const ast::Argument& argument : e->args) {
      if (touches(argument.name.span, offset_) && e->kind == ast::ExprKind::call) {
        const ast::Declaration* block = find(Kind::block, e->text);
        if (block == nullptr) return of_word(argument.name);
        for (const ast::Parameter& parameter : block->parameters)
          if (parameter.name.text == argument.name.text) {
            Symbol symbol = of_parameter(parameter);
            symbol.span = argument.name.span;
            return symbol;
          }
      }
      if (auto found = in_expression(argument.value.get(), entry)) return found;
    }
    if (e->closure) {
      closures_.push_back(&e->closure->parameter);
      if (auto found = in_expression(e->closure->body.get(), entry)) return found;
      closures_.pop_back();
    }
    return std::nullopt;
  }

  std::optional<Symbol> of_call(const ast::Expr& e) {
    if (const ast::Declaration* block = find(Kind::block, e.text))
      return of_declaration(Kind::block, *block, e.op_span);
    return of_word({e.text, e.op_span});
  }

  std::optional<Symbol> of_name(const ast::Expr& e, const ast::Entry* entry) {
    const ast::Name name{e.text, e.span};
    if (entry != nullptr && entry->value.get() == &e && is_field(*entry))
      if (const ast::Declaration* meant = referred(*entry, e.text))
        return of_declaration(*find_kind(meant->kind.text), *meant, e.span);
    if (auto local = of_local_name(name)) return local;
    if (is_tensor_program(kind_)) return of_word(name);
    if (auto symbol = of_outer_name(name)) return symbol;
    if (auto word = of_word(name)) return word;
    for (const Kind kind : {Kind::dtype, Kind::gpu, Kind::cluster, Kind::model, Kind::framework,
                            Kind::optimizer, Kind::layout, Kind::train, Kind::serve})
      if (const ast::Declaration* found = find(kind, e.text))
        return of_declaration(kind, *found, e.span);
    return std::nullopt;
  }

  /// The declaration that a field's value names.
  const ast::Declaration* referred(const ast::Entry& entry, const std::string& name) const {
    const auto fields = parent_ != nullptr ? fields_of(parent_->kind) : fields_of(kind_);
    for (const Field& field : fields)
      if (field.name == entry.name.text && field.type == FieldType::reference)
        return find(field.refers_to, name);
    return nullptr;
  }

  /// A parameter, an assigned name, a turn's number, a closure's parameter.
  std::optional<Symbol> of_local_name(const ast::Name& name) {
    for (auto it = closures_.rbegin(); it != closures_.rend(); ++it)
      if ((*it)->text == name.text) {
        Symbol symbol = plain(name.span);
        symbol.title = fmt::format("{}: what goes into the expert", name.text);
        symbol.defined_at = (*it)->span;
        return symbol;
      }
    if (is_tensor_program(kind_)) {
      const ast::Entry* last = nullptr;
      find_assignment(declaration_->entries, name.text, last);
      if (last != nullptr) return of_local(*last, name.span);
    }
    for (const ast::Parameter& parameter : declaration_->parameters)
      if (parameter.name.text == name.text) {
        Symbol symbol = of_parameter(parameter);
        symbol.span = name.span;
        return symbol;
      }
    if (const ast::Entry* param = param_of(*declaration_, name.text))
      return of_param(*param, name.span);
    return std::nullopt;
  }

  /// The last assignment before the cursor; else the first one.
  void find_assignment(const std::vector<ast::Entry>& entries, std::string_view name,
                       const ast::Entry*& last) const {
    for (const ast::Entry& entry : entries) {
      const bool gives =
          (entry.kind == ast::EntryKind::assign || entry.kind == ast::EntryKind::repeat) &&
          entry.name.text == name;
      if (gives && (last == nullptr || entry.span.end < offset_ ||
                    (entry.kind == ast::EntryKind::repeat && entry.span.begin < offset_)))
        last = &entry;
      find_assignment(entry.body, name, last);
    }
  }

  /// What a condition, a layout or a framework sees beyond its own body.
  std::optional<Symbol> of_outer_name(const ast::Name& name) {
    const ast::Entry* given = nullptr;
    if (kind_ == Kind::train || kind_ == Kind::serve)
      given = field_of(kind_, *declaration_, name.text);
    const bool variable = find_name(layout_variables(), name.text) != nullptr ||
                          find_name(derived_numbers(), name.text) != nullptr ||
                          find_name(stage_numbers(), name.text) != nullptr;
    if (variable || given != nullptr) {
      Symbol symbol = of_word(name).value_or(plain(name.span));
      if (given != nullptr) {
        symbol.defined_at = given->name.span;
        symbol.text = std::string(impl_.sources.text(given->span));
      }
      return symbol;
    }
    for (const auto& [field, kind] : {std::pair("model", Kind::model),
                                      {"framework", Kind::framework},
                                      {"optimizer", Kind::optimizer}}) {
      const ast::Declaration* named = named_by(*declaration_, field, kind);
      if (named == nullptr) continue;
      if (const ast::Entry* param = param_of(*named, name.text)) {
        Symbol symbol = of_param(*param, name.span);
        symbol.title =
            fmt::format("{}: a parameter of {} {}", name.text, noun(kind), named->name.text);
        return symbol;
      }
    }
    const ast::Declaration* cluster = named_by(*declaration_, "cluster", Kind::cluster);
    const ast::Declaration* gpu =
        cluster != nullptr ? named_by(*cluster, "gpu", Kind::gpu) : nullptr;
    for (const auto& [kind, owner] : {std::pair(Kind::cluster, cluster), {Kind::gpu, gpu}}) {
      const ast::Entry* entry = owner != nullptr ? field_of(kind, *owner, name.text) : nullptr;
      if (entry == nullptr) continue;
      Symbol symbol = of_word(name).value_or(plain(name.span));
      symbol.title = fmt::format("{}: a field of {} {}", name.text, noun(kind), owner->name.text);
      symbol.text = std::string(impl_.sources.text(entry->span));
      symbol.defined_at = entry->name.span;
      return symbol;
    }
    return std::nullopt;
  }

  const ast::Declaration* find(Kind kind, std::string_view name) const {
    return impl_.find(kind, name, impl_.is_prelude(declaration_->span));
  }
  /// The entries of a declaration with its templates'; its own where those are wrong.
  const ast::Entry* field_of(Kind kind, const ast::Declaration& of, std::string_view name) const {
    Diagnostics ignored;
    if (const Merged* merged = merge(impl_, kind, of, ignored)) return merged->field(name);
    for (const ast::Entry& entry : of.entries)
      if (is_field(entry) && entry.name.text == name) return &entry;
    return nullptr;
  }
  const ast::Declaration* named_by(const ast::Declaration& of, std::string_view field,
                                   Kind kind) const {
    const std::optional<Kind> own = find_kind(of.kind.text);
    const ast::Entry* entry = own ? field_of(*own, of, field) : nullptr;
    if (entry == nullptr || !entry->value || entry->value->kind != ast::ExprKind::name)
      return nullptr;
    return find(kind, entry->value->text);
  }
  const ast::Entry* template_param(const ast::Declaration& of, std::string_view name) const {
    const ast::Declaration* at = &of;
    for (std::size_t depth = 0; at != nullptr && at->base && depth < kMaxTemplateDepth; ++depth) {
      at = find(kind_of(*at), at->base->text);
      if (at == nullptr) return nullptr;
      if (const ast::Entry* param = own_param(*at, name)) return param;
    }
    return nullptr;
  }
  const ast::Entry* param_of(const ast::Declaration& of, std::string_view name) const {
    if (const ast::Entry* param = own_param(of, name)) return param;
    return template_param(of, name);
  }
  static const ast::Entry* own_param(const ast::Declaration& of, std::string_view name) {
    for (const ast::Entry& entry : of.entries)
      if (entry.kind == ast::EntryKind::param && entry.name.text == name) return &entry;
    return nullptr;
  }
  static Kind kind_of(const ast::Declaration& of) {
    return find_kind(of.kind.text).value_or(Kind::model);
  }

  static Symbol plain(Span span) {
    Symbol symbol;
    symbol.span = span;
    return symbol;
  }

  static std::optional<Symbol> of_word(const ast::Name& name) {
    const std::string_view doc = word_doc(name.text);
    if (doc.empty()) return std::nullopt;
    Symbol symbol = plain(name.span);
    symbol.title = name.text;
    symbol.doc = doc;
    return symbol;
  }

  Symbol of_declaration(Kind kind, const ast::Declaration& declaration, Span at) const {
    Symbol symbol = plain(at);
    symbol.kind = word(kind);
    symbol.name = declaration.name.text;
    symbol.title = fmt::format("{} {}", word(kind), declaration.name.text);
    if (declaration.base) symbol.title += " = " + declaration.base->text;
    symbol.doc = declaration.doc;
    Diagnostics ignored;
    if (!impl_.broken.contains(&declaration))
      symbol.text = summary_of(module_, kind, declaration, ignored);
    symbol.defined_at = declaration.name.span;
    return symbol;
  }

  static Symbol of_parameter(const ast::Parameter& parameter) {
    Symbol symbol = plain(parameter.name.span);
    symbol.title = parameter.name.text + ": a parameter";
    if (parameter.default_value)
      symbol.text = fmt::format("{} unless given", print(*parameter.default_value));
    symbol.defined_at = parameter.name.span;
    return symbol;
  }

  static Symbol of_param(const ast::Entry& entry, Span at) {
    Symbol symbol = plain(at);
    symbol.title = "param " + entry.name.text;
    if (entry.value2) symbol.title += " in " + print(*entry.value2);
    symbol.text =
        entry.value ? fmt::format("{} unless given", print(*entry.value)) : "must be given";
    symbol.defined_at = entry.name.span;
    return symbol;
  }

  Symbol of_local(const ast::Entry& entry, Span at) const {
    Symbol symbol = plain(at);
    symbol.title = entry.kind == ast::EntryKind::repeat
                       ? entry.name.text + ": the number of the turn, from 0"
                       : std::string(impl_.sources.text(entry.span));
    symbol.defined_at = entry.name.span;
    return symbol;
  }

  Symbol of_item(const ast::Entry& entry) const {
    Symbol symbol = plain(entry.kind == ast::EntryKind::state ? entry.name.span : entry.label_span);
    symbol.title = entry.kind == ast::EntryKind::state ? "state " + entry.name.text
                                                       : fmt::format("item \"{}\"", entry.label);
    for (const ast::Entry& line : entry.body)
      if (line.name.text == "bytes" && line.value) symbol.text = "bytes = " + print(*line.value);
    if (entry.kind == ast::EntryKind::state && entry.value)
      symbol.text = print(*entry.value) + " an element of each weight";
    symbol.defined_at = symbol.span;
    symbol.item = entry.span;
    return symbol;
  }

  const Module& module_;
  Module::Impl& impl_;
  const ast::File& file_;
  std::uint32_t offset_;
  const ast::Declaration* declaration_ = nullptr;
  Kind kind_ = Kind::gpu;
  const ast::Entry* parent_ = nullptr;
  std::vector<const ast::Name*> closures_;
};

const ast::File* file_of(const Module& module, std::uint32_t number) {
  for (const auto& file : module.impl().files)
    if (file->file == number) return file.get();
  return nullptr;
}

}  // namespace

std::optional<Symbol> symbol_at(const Module& module, std::uint32_t file, std::uint32_t offset) {
  const ast::File* parsed = file_of(module, file);
  return parsed != nullptr ? Finder(module, *parsed, offset).find() : std::nullopt;
}

std::vector<Outline> outline(const Module& module, std::uint32_t file) {
  std::vector<Outline> all;
  if (const ast::File* parsed = file_of(module, file))
    for (const ast::Declaration& one : parsed->declarations)
      if (!one.name.text.empty())
        all.push_back({one.kind.text, one.name.text, one.base ? "= " + one.base->text : "",
                       one.span, one.name.span});
  return all;
}

}  // namespace plimsoll::assist
