// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lang/ast.hpp"
#include "lang/module.hpp"
#include "planner/layout.hpp"

/// Changes of the file that a job stands in, as text, so that anyone can run what was tried.
namespace plimsoll {

/// A changed file, compiled, with the job of the same name. Stays where it is: the problem points
/// into the module.
struct Variant {
  std::string text;
  Module module;
  std::optional<Problem> problem;

  explicit Variant(Module compiled) : module(std::move(compiled)) {}
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;
};

class Edits {
 public:
  /// \a options: how the changed file finds what it uses.
  explicit Edits(const Problem&, const CompileOptions& options = {});

  /// False where the job is not in a file that can be changed.
  bool usable() const { return usable_; }

  /// Where a field of the job stands in the file, and where a declaration does.
  std::optional<Span> job_field_span(std::string_view field) const;
  std::optional<Span> declaration_span(std::string_view kind, std::string_view name) const;

  // The file's whole text with one change made; nullopt where it cannot be made.
  std::optional<std::string> job_field(std::string_view field, std::string_view value) const;
  std::optional<std::string> without_job_field(std::string_view field) const;
  /// Of a cluster of one kind. Where it stands in another file, the job gets a cluster of its own
  /// that copies it.
  std::optional<std::string> cluster_field(std::string_view field, std::string_view value) const;
  /// A requirement of the job's own body taken out.
  std::optional<std::string> without_requirement(const Condition&) const;

  /// nullptr after errors in \a diags.
  std::unique_ptr<Variant> compiled(const std::string& text, Diagnostics& diags) const;

 private:
  const Problem& problem_;
  CompileOptions options_;
  const Sources& sources_;
  std::uint32_t number_;  ///< the file
  std::string kind_;      ///< "train", "serve"
  ast::File file_;
  bool usable_ = false;
};

/// The text of a file with one field of one declaration set (`kind name { field = value }`), added
/// to its body where it is not there. nullopt where the declaration is not in the file.
std::optional<std::string> with_field(const Sources&, const ast::File&, std::string_view kind,
                                      std::string_view name, std::string_view field,
                                      std::string_view value);
/// Likewise with the field taken out; nullopt where it is not there.
std::optional<std::string> without_entry(const Sources&, const ast::File&, std::string_view kind,
                                         std::string_view name, std::string_view field);

}  // namespace plimsoll
