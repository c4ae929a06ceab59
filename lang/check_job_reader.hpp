// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lang/behaviour_scope.hpp"
#include "lang/check_job.hpp"
#include "lang/check_job_fields.hpp"

namespace plimsoll {

/// One train or serve declaration, read into a Job; every mistake that is found is told.
class JobReader {
 public:
  JobReader(const Module& module, Kind kind, const Merged& merged, Diagnostics& diags)
      : module_(module),
        impl_(module.impl()),
        merged_(merged),
        diags_(diags),
        reader_(impl_, std::string(noun(kind)), empty_, diags),
        kind_(kind) {}

  /// Adds the job to the module; false where something was wrong.
  bool read();

 private:
  const ast::Expr* value(std::string_view field) const {
    const ast::Entry* entry = merged_.field(field);
    return entry != nullptr && entry->kind == ast::EntryKind::assign ? entry->value.get() : nullptr;
  }
  const Field& field(std::string_view name) const {
    return job_.serve ? row(kServeFields, name) : row(kTrainFields, name);
  }
  /// The named declaration, or the default of that name, which only the prelude can lack.
  const ast::Declaration* find(std::string_view name, std::string_view default_name);
  void read_references();
  /// The model's program; a template is an error where the job names it.
  bool has_model();
  void check_fields();
  Rational number(std::string_view name, Rational otherwise = 0);
  /// A field that may be narrowed: its one value, or 0 and the choices in Job::layout.
  Rational number_or_choice(std::string_view name);
  void read_train();
  void read_imbalance();
  /// `512`, `512 sequences` or `4Mi tokens`.
  void read_batch();
  /// `freeze` and the adapter name weights, or blocks, of the model.
  void check_names_of_model();

  // check_job_serve.cpp
  std::string dtype(std::string_view name);
  std::string dtype_of(std::string_view name, const ast::Expr& e);
  void read_serve();
  /// Layout variables that only a training step has.
  void check_no_training();
  void read_weights_on(const ast::Expr& e);

  // check_job_adapter.cpp
  /// `lora(rank = 16, on = {q, k, v, o})`, `qlora(…, base = nf4)`.
  void read_adapter(const ast::Expr& e);
  void read_adapter_argument(const std::string& kind, const ast::Argument& argument);

  // check_job_switches.cpp
  /// Params of the framework and the optimizer that the job sets; `attention`, `loss` and `grads`.
  void read_switches();
  /// The word of a field that a framework may declare as a param of its own.
  std::string word_or(std::string_view name, std::vector<std::string> words, std::string otherwise,
                      std::string_view what);
  void read_switch(const Behaviour& behaviour, const Param& param, const ast::Entry& entry);
  /// Where the default is a version, so is what replaces it: "2.11".
  bool check_version(const Param& param, const eval::Value& like, const eval::Value& value,
                     Span span);
  void read_word_switch(const Param& param, const ast::Entry& entry);

  // check_job_bodies.cpp
  void read_bodies();
  void read_beside(const ast::Entry& entry);
  void read_observed(const ast::Entry& entry);

  // check_job_conditions.cpp
  void read_pins();
  void check_pools(const std::map<std::string, eval::Value>& pinned);
  void read_conditions();
  void read_condition(const ast::Entry& entry, bool from_framework);
  void read_weight(const ast::Expr& e, Condition& condition);

  const Module& module_;
  Module::Impl& impl_;
  const Merged& merged_;
  Diagnostics& diags_;
  eval::Scope empty_;
  FieldReader reader_;
  Kind kind_;
  Job job_;
  const Cluster* cluster_ = nullptr;
  const Behaviour* framework_ = nullptr;
  const Behaviour* optimizer_ = nullptr;
  const Program* program_ = nullptr;
  std::vector<Span> freeze_spans_, adapt_spans_;
  std::map<std::string, Span> given_;  ///< arguments of the adapter
};

}  // namespace plimsoll
