// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/module.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "lang/fields.hpp"
#include "lang/load.hpp"
#include "lang/models.hpp"
#include "lang/parse.hpp"
#include "lang/prelude.hpp"

namespace plimsoll {

namespace {

struct BuiltinDType {
  std::string_view name;
  int bits;
};
constexpr BuiltinDType kDTypes[] = {
    {"fp64", 64},  {"fp32", 32},  {"fp16", 16}, {"bf16", 16}, {"fp8", 8},  {"int64", 64},
    {"int32", 32}, {"int16", 16}, {"int8", 8},  {"int4", 4},  {"bool", 8},
};

}  // namespace

/// A named pipe may never have a writer and a device may never end: only regular files are opened,
/// and of these no more is read than one byte past the limit (a file may grow, or lie of its size).
std::optional<std::string> read_from_disk(const std::string& path, std::string& why) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    why = error && error != std::errc::no_such_file_or_directory ? error.message()
                                                                 : "there is no such file";
    return std::nullopt;
  }
  if (std::filesystem::is_directory(status)) {
    why = "it is a directory";
    return std::nullopt;
  }
  if (!std::filesystem::is_regular_file(status)) {
    why = "it is not a regular file";
    return std::nullopt;
  }
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> block{};
  while (file && text.size() <= kMaxFileBytes) {
    file.read(block.data(), block.size());
    text.append(block.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (text.size() > kMaxFileBytes) {
    why = fmt::format("it is larger than {}", human_bytes(kMaxFileBytes));
    return std::nullopt;
  }
  if (!file.eof()) {
    why = "it cannot be read";
    return std::nullopt;
  }
  return text;
}

namespace {

/// Declarations with a syntax error in them are not checked further. False where an error lies
/// outside all declarations: names may be missing then, so that none can be called unknown.
bool set_broken_aside(Module::Impl& module, const Diagnostics& diags) {
  bool all_placed = true;
  for (const Diagnostic* diagnostic : diags.sorted()) {
    if (diagnostic->severity != Severity::error) continue;
    const Span at = diagnostic->span;
    bool placed = false;
    for (const auto& file : module.files) {
      if (file->file != at.file) continue;
      // They stand in source order: those that begin at or before the error, the nearest first.
      const auto& all = file->declarations;
      auto next = std::upper_bound(all.begin(), all.end(), at.begin,
                                   [](std::uint32_t offset, const ast::Declaration& one) {
                                     return offset < one.span.begin;
                                   });
      while (next != all.begin() && at.begin <= (--next)->span.end) {
        module.broken.insert(&*next);
        placed = true;
      }
    }
    all_placed = all_placed && placed;
  }
  return all_placed;
}

void check_shape(Kind kind, const ast::Declaration& declaration, Diagnostics& diags) {
  if (kind != Kind::block && !declaration.parameters.empty())
    diags
        .error(declaration.parameters.front().name.span,
               fmt::format("only a block has parameters in parentheses, got {}",
                           with_article(noun(kind))))
        .with_help(kind == Kind::model ? "a model declares them in its body: param layers, hidden"
                                       : "remove the parentheses");
  if (!declaration.base && !declaration.has_body)
    diags
        .error(declaration.name.span, fmt::format("{} '{}' has neither a body nor a template",
                                                  noun(kind), declaration.name.text))
        .with_help(fmt::format("give it one: {} {} {{ … }}", word(kind), declaration.name.text));
}

class Compilation {
 public:
  Compilation(const Module& module, const CompileOptions& options, Diagnostics& diags)
      : module_(module), impl_(module.impl()), options_(options), diags_(diags) {}

  /// \a complete: every declaration of the files is known.
  void check(bool complete) {
    impl_.incomplete = !complete;
    name_dtypes();
    for (const auto& [kind, declaration] : impl_.order)
      if (!impl_.broken.contains(declaration)) check_shape(kind, *declaration, diags_);
    each(Kind::dtype, [&](const auto& d) { resolve_dtype(impl_, d, diags_); });
    each(Kind::gpu, [&](const auto& d) { resolve_gpu(impl_, d, diags_); });
    each(Kind::cluster, [&](const auto& d) { resolve_cluster(impl_, d, diags_); });
    for (const Kind kind : {Kind::optimizer, Kind::framework})
      each(kind, [&](const auto& d) { resolve_behaviour(impl_, kind, d, diags_); });
    each(Kind::layout, [&](const auto& d) { merge(impl_, Kind::layout, d, diags_); });
    if (!complete) return;
    check_blocks(impl_, diags_);
    each(Kind::model, [&](const auto& d) { check_model(d); });
    // Jobs name each other (beside) and layouts; both are looked up by name.
    for (const auto& [kind, declaration] : impl_.order)
      if ((kind == Kind::train || kind == Kind::serve) && !impl_.broken.contains(declaration))
        check_job(module_, kind, *declaration, diags_);
    each(Kind::layout, [&](const auto& d) { check_layout(module_, d, diags_); });
  }

 private:
  template <class Action>
  void each(Kind kind, const Action& action) {
    for (const auto& [of, declaration] : impl_.order)
      if (of == kind && !impl_.broken.contains(declaration)) action(*declaration);
  }

  void name_dtypes() {
    std::set<std::string> words;
    for (const BuiltinDType& dtype : kDTypes) words.emplace(dtype.name);
    for (std::string& name : impl_.names(Kind::dtype, false)) words.insert(std::move(name));
    impl_.dtype_words = impl_.enumeration("dtype", {words.begin(), words.end()});
  }

  void check_model(const ast::Declaration& declaration) {
    const ModelSource* source = model_source(impl_, declaration, diags_);
    if (source == nullptr || !options_.check_models || !missing_parameters(*source).empty()) return;
    resolve_program(impl_, declaration, diags_);
  }

  const Module& module_;
  Module::Impl& impl_;
  const CompileOptions& options_;
  Diagnostics& diags_;
};

}  // namespace

Module::Impl::Impl() : models(std::make_unique<ModelTables>()) {
  for (unsigned i = 0; i < lang::kPreludeFileCount; ++i)
    sources.add(lang::kPreludeFiles[i].name, lang::kPreludeFiles[i].text, true);
  for (const BuiltinDType& dtype : kDTypes)
    builtin_dtypes[std::string(dtype.name)] = {std::string(dtype.name), Rational(dtype.bits)};
}
Module::Impl::~Impl() = default;

Module::Module() : impl_(std::make_unique<Impl>()) {}
Module::~Module() = default;
Module::Module(Module&&) noexcept = default;

Sources& Module::sources() const { return impl_->sources; }
ExprPool& Module::pool() const { return impl_->pool; }
const std::vector<Job>& Module::jobs() const { return impl_->jobs; }
const std::vector<LayoutDecl>& Module::layouts() const { return impl_->layouts; }

// What was named in the file was reported when it was compiled; the rest is the prelude's, and is
// right.
const Gpu* Module::gpu(std::string_view name) const {
  Diagnostics ignored;
  const ast::Declaration* found = impl_->find(Kind::gpu, name, false);
  return found != nullptr ? resolve_gpu(*impl_, *found, ignored) : nullptr;
}

const Cluster* Module::cluster(std::string_view name) const {
  Diagnostics ignored;
  const ast::Declaration* found = impl_->find(Kind::cluster, name, false);
  return found != nullptr ? resolve_cluster(*impl_, *found, ignored) : nullptr;
}

const DType* Module::dtype(std::string_view name) const {
  Diagnostics ignored;
  if (const ast::Declaration* found = impl_->find(Kind::dtype, name, false))
    return resolve_dtype(*impl_, *found, ignored);
  const auto at = impl_->builtin_dtypes.find(name);
  return at != impl_->builtin_dtypes.end() ? &at->second : nullptr;
}

const Behaviour* Module::framework(std::string_view name) const {
  Diagnostics ignored;
  const ast::Declaration* found = impl_->find(Kind::framework, name, false);
  return found != nullptr ? resolve_behaviour(*impl_, Kind::framework, *found, ignored) : nullptr;
}

const Behaviour* Module::optimizer(std::string_view name) const {
  Diagnostics ignored;
  const ast::Declaration* found = impl_->find(Kind::optimizer, name, false);
  return found != nullptr ? resolve_behaviour(*impl_, Kind::optimizer, *found, ignored) : nullptr;
}

const Program* Module::program(std::string_view model, Diagnostics& diags) const {
  const ast::Declaration* found = impl_->find(Kind::model, model, false);
  return found != nullptr ? resolve_program(*impl_, *found, diags) : nullptr;
}

std::vector<const ast::Entry*> Module::model_items(std::string_view model) const {
  const ast::Declaration* found = impl_->find(Kind::model, model, false);
  if (found == nullptr) return {};
  Diagnostics ignored;
  resolve_program(*impl_, *found, ignored);
  const auto at = impl_->models->items.find(found);
  return at != impl_->models->items.end() ? at->second : std::vector<const ast::Entry*>{};
}

std::vector<std::string> Module::names(std::string_view kind) const {
  const std::optional<Kind> found = find_kind(kind);
  return found ? impl_->names(*found, false) : std::vector<std::string>{};
}

Module compile(std::string name, std::string text, Diagnostics& diags,
               const CompileOptions& options) {
  Module module;
  const Loader load = options.load ? options.load : Loader(read_from_disk);
  Diagnostics said;
  load_files(module.impl(), std::move(name), std::move(text), load, said);
  const bool complete = set_broken_aside(module.impl(), said);
  Compilation(module, options, said).check(complete);
  hand_over(module.impl(), said, diags);
  return module;
}

}  // namespace plimsoll
