// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lang/module.hpp"

/// What the files of the compilation share (load, resolve, check_*): private to lang/.
namespace plimsoll {

enum class Kind : std::uint8_t {
  gpu,
  cluster,
  dtype,
  optimizer,
  framework,
  block,
  model,
  train,
  serve,
  layout,
};
inline constexpr std::size_t kKindCount = 10;
/// The keyword: "gpu".
std::string_view word(Kind);
/// As a sentence names one: "gpu", "train job".
std::string_view noun(Kind);
std::optional<Kind> find_kind(std::string_view word);

/// How deep files may bring in others.
inline constexpr std::size_t kMaxUseDepth = 32;
/// How long a chain of templates may be.
inline constexpr std::size_t kMaxTemplateDepth = 64;

using DeclarationTable = std::map<std::string, const ast::Declaration*, std::less<>>;
using Declarations = std::array<DeclarationTable, kKindCount>;

/// The prelude. A declaration is parsed when it is first asked for, once a process. Every
/// compilation adds the same files first, so that their spans hold in each.
class Prelude {
 public:
  /// Throws InternalError where it is not written as find_declarations() reads it.
  Prelude();
  /// nullptr: there is none of that name. Throws InternalError where it has errors.
  const ast::Declaration* find(Kind, std::string_view name) const;
  const DeclarationTable& all(Kind) const;
  std::vector<std::string> names(Kind) const;
  const Sources& sources() const { return sources_; }

 private:
  using Places = std::map<std::string, Span, std::less<>>;
  void find_declarations(std::uint32_t file);
  const ast::Declaration& parsed(Kind, const std::string& name, Span place) const;

  Sources sources_;
  std::array<Places, kKindCount> places_;
  mutable std::mutex mutex_;  ///< of what follows
  mutable Declarations parsed_;
  mutable std::deque<ast::File> files_;
};
const Prelude& prelude();

/// A declaration with its templates applied.
struct Merged {
  const ast::Declaration* declaration = nullptr;
  /// The templates it is made from, the first one last; itself is not among them.
  std::vector<const ast::Declaration*> bases;
  /// What is left after overrides, in the order of the templates. Owned by the files.
  std::vector<const ast::Entry*> entries;

  /// The assignment or narrowing of \a field, or nullptr.
  const ast::Entry* field(std::string_view name) const;
};

struct ModelTables;

struct Module::Impl {
  Impl();
  ~Impl();

  mutable Sources sources;
  mutable ExprPool pool;
  std::vector<std::unique_ptr<ast::File>> files;  ///< the user's, in order of loading
  Declarations user;
  std::vector<std::pair<Kind, const ast::Declaration*>> order;  ///< the user's, in source order

  std::map<const ast::Declaration*, Merged> merged;
  /// nullptr: has errors, which were reported.
  std::map<const ast::Declaration*, std::unique_ptr<Gpu>> gpus;
  std::map<const ast::Declaration*, std::unique_ptr<Cluster>> clusters;
  std::map<const ast::Declaration*, std::unique_ptr<DType>> dtypes;
  std::map<const ast::Declaration*, std::unique_ptr<Behaviour>> behaviours;
  std::map<const ast::Declaration*, std::unique_ptr<Program>> programs;
  std::map<std::string, DType, std::less<>> builtin_dtypes;
  bool incomplete = false;  ///< declarations are missing: no name is called unknown
  std::unique_ptr<ModelTables> models;
  std::set<const ast::Declaration*> broken;  ///< syntax errors in them: nothing more is said
  std::vector<Job> jobs;
  std::vector<LayoutDecl> layouts;
  std::vector<std::unique_ptr<eval::Enumeration>> enumerations;
  std::map<std::string, const eval::Enumeration*, std::less<>> enumeration_by_words;
  const eval::Enumeration* dtype_words = nullptr;
  const eval::Enumeration* layout_modes = nullptr;      ///< recompute words of layouts, made once
  std::set<std::string, std::less<>> model_parameters;  ///< of all models, made when asked for
  /// What every OpenScope sees, by its behaviour's recompute words (nullptr: the built-in ones).
  std::map<const eval::Enumeration*, std::unique_ptr<const eval::Scope>> open_scopes;

  bool is_prelude(Span span) const { return sources[span.file].is_prelude(); }
  /// The declaration that \a name means to a file of the prelude or of the user; nullptr: none.
  const ast::Declaration* find(Kind, std::string_view name, bool from_prelude) const;
  std::vector<std::string> names(Kind, bool from_prelude) const;
  /// An enumeration with a stable address.
  const eval::Enumeration* enumeration(std::string name, std::vector<std::string> words);
};

/// Parses the user's file and what it uses, fills the tables: duplicates, shadowing, unknown kinds.
void load_files(Module::Impl&, std::string name, std::string text, const Loader&, Diagnostics&);

/// The declaration with its templates applied, made once; nullptr after errors (unknown base, base
/// of another kind, a cycle), which are reported once.
const Merged* merge(Module::Impl&, Kind, const ast::Declaration&, Diagnostics&);

/// Reports that nothing of \a kind is called \a name, with the nearest name or a list of them.
void unknown_name(Module::Impl&, Kind, std::string_view name, Span, Diagnostics&);
/// "did you mean 'x'?", or "known …: a, b, c" where nothing is near.
std::string suggest(std::string_view name, const std::vector<std::string>& candidates,
                    std::string_view what);

/// Each made once; nullptr after errors in the declaration, which are reported once.
const Gpu* resolve_gpu(Module::Impl&, const ast::Declaration&, Diagnostics&);
const Cluster* resolve_cluster(Module::Impl&, const ast::Declaration&, Diagnostics&);
const DType* resolve_dtype(Module::Impl&, const ast::Declaration&, Diagnostics&);
const Behaviour* resolve_behaviour(Module::Impl&, Kind, const ast::Declaration&, Diagnostics&);

/// What `check` says of one declaration; "" after errors.
std::string summary_of(const Module&, Kind, const ast::Declaration&, Diagnostics&);

/// Passes on what was said, with a help line for each error. One inside the prelude that the user's
/// text led to is placed there instead, with the prelude's place as a label.
void hand_over(const Module::Impl&, const Diagnostics& from, Diagnostics& to);

/// Jobs and layouts of the user's files, appended to the module; false after errors.
bool check_job(const Module&, Kind, const ast::Declaration&, Diagnostics&);
bool check_layout(const Module&, const ast::Declaration&, Diagnostics&);

}  // namespace plimsoll
