// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lang/ast.hpp"
#include "lang/diagnostics.hpp"
#include "lang/eval.hpp"
#include "lang/program.hpp"
#include "lang/source.hpp"

/// A compiled file: its declarations resolved against the prelude, each checked, templates applied.
namespace plimsoll {

struct Gpu {
  std::string name;
  Span span;
  Int128 memory = 0;                     ///< bytes that the driver reports
  Int128 reserved = 0;                   ///< context and libraries, bytes
  int sm = 0;                            ///< 80, 90, 100; 0 where it is no NVIDIA GPU
  Rational bandwidth;                    ///< HBM, bytes/s
  std::map<std::string, Rational> peak;  ///< "bf16", "fp8", "fp32" … -> dense FLOP/s
  Rational nvlink;                       ///< bytes/s per direction, 0 without
  Rational nic;                          ///< bytes/s a GPU
  Rational price;                        ///< USD/s, 0 where unknown
  std::map<std::string, Quantity>
      numbers;  ///< every numeric field that was given, by name, for conditions and items
};

struct Pool {
  std::string name;                 ///< "" for a cluster of one kind
  Gpu gpu;                          ///< with the cluster's overrides of links and efficiencies
  std::vector<std::int64_t> nodes;  ///< one value, or the choices that `nodes in …` leaves
  std::int64_t gpus_per_node = 0;
};

struct Cluster {
  std::string name;
  Span span;
  std::vector<Pool> pools;                  ///< at least one
  std::int64_t nvlink_domain = 0;           ///< GPUs that NVLink joins
  Int128 host_memory = 0;                   ///< bytes a node; 0: not given
  Rational pcie;                            ///< bytes/s a node; 0: not given
  Int128 occupied = 0;                      ///< bytes of each GPU that others hold
  std::map<std::string, Quantity> numbers;  ///< its own numeric fields that were given

  std::int64_t gpus() const;  ///< with the first (or only) choice of nodes
  bool nodes_are_free() const;
};

struct DType {
  std::string name;
  Rational bits;
};

/// A parameter of a model, framework or optimizer.
struct Param {
  std::string name;
  Span span;
  const ast::Expr* value = nullptr;          ///< its default, after overrides; nullptr: none
  const eval::Enumeration* words = nullptr;  ///< of `param x in {a, b}`; nullptr: no enumeration
};

/// A framework or optimizer after templates. A param's default is evaluated where it is read (it
/// may name what is around an item: `dims`, `role`); a job's Job::switches win over defaults. See
/// BehaviourScope in lang/conditions.hpp.
struct Behaviour {
  std::string name;
  std::string doc;
  Span span;
  bool optimizer = false;
  std::vector<const ast::Entry*> entries;  ///< merged; owned by the files
  std::map<std::string, Param, std::less<>> params;
  std::vector<std::string> recompute_modes;  ///< after none, full
  /// The words of `recompute`: none, full, then its modes: the index is the RecomputeMode.
  const eval::Enumeration* recompute_words = nullptr;

  /// The value of a plain field (`vocab_multiple`, `pointwise`), or nullptr.
  const ast::Expr* field(std::string_view name) const;
};

/// A condition of a job (or of its framework): require, prefer.
struct Condition {
  std::string name;  ///< the label, or the source text
  const ast::Expr* expr = nullptr;
  Span span;
  Rational weight = 5;  ///< prefer: percent of the objective
  bool from_framework = false;
};

/// Values that a job leaves to the planner for one layout variable (or seq, batch, sequences): one
/// where it is pinned. A variable with no Choice is free. A value's Expr may depend on other layout
/// variables (`sp = tp > 1`); words of recompute and schedule are Word.
struct Choice {
  std::vector<eval::Value> values;  ///< numbers, words, lists, booleans
  Span span;
};

struct Objective {
  bool minimize = true;
  const ast::Expr* expr = nullptr;  ///< nullptr: step_time (train) or maximize sequences (serve)
  Span span;
};

struct Adapter {
  std::string kind;  ///< "none", "lora", "qlora"
  std::int64_t rank = 0;
  std::vector<std::string> on;
  std::string base;  ///< dtype of the frozen weights, qlora
};

struct Beside {
  std::string name;
  std::string model;  ///< a further model …
  std::string weights = "bf16";
  std::string job;  ///< … or a job
  Span span;
};

struct Job {
  std::string name;
  Span span;
  bool serve = false;
  std::string model, cluster, framework, optimizer;
  std::string precision = "bf16";  ///< fp32 fp16 bf16 fp8
  std::string attention = "flash";
  std::string loss, grads;        ///< "" where the framework's default holds
  Rational seq, target, context;  ///< tokens a sequence; seq 0 where `seq in …` leaves it open;
                                  ///< target is seq unless given
  Rational batch;                 ///< sequences a step (batch_in_tokens: tokens a step)
  bool batch_in_tokens = false;
  Rational dropout, attention_dropout;
  std::vector<std::string> freeze;
  Adapter adapt;
  Rational imbalance = 1;
  Rational tokens;  ///< of the whole run; 0: not given
  std::vector<Beside> beside;
  std::string weights = "bf16", kv = "bf16";  ///< serve
  std::vector<std::string> weights_on;
  std::int64_t kv_block = 16;
  std::optional<Rational> batch_tokens, utilization;
  std::map<std::string, eval::Value> switches;  ///< framework's and optimizer's params set by the
                                                ///< job, `loss` and `attention` among them
  std::map<std::string, Choice> layout;         ///< pinned or narrowed variables, seq and batch too
  std::vector<Condition> require, prefer;
  Objective objective;
  std::vector<const ast::Entry*> items;  ///< explicit line items of the job
  std::vector<const ast::Entry*> observed;
};

/// Values by variable. Names of the same layout are folded in; an Expr may still depend on
/// variables that the layout does not name.
struct LayoutDecl {
  std::string name;
  Span span;
  std::map<std::string, eval::Value> values;
};

/// One declaration of the user's files, for `check`.
struct Summary {
  std::string kind;  ///< "model"
  std::string name;
  std::string text;  ///< what matters: "80 layers, 70,553,706,496 parameters"
  Span span;
};

/// A whole compilation. Declarations of the user's file and what it uses, with the prelude behind
/// them. Lookups of names that do not exist report nothing; the reference was checked when it was
/// compiled.
class Module {
 public:
  Module();
  ~Module();
  Module(Module&&) noexcept;

  Sources& sources() const;
  ExprPool& pool() const;

  const std::vector<Job>& jobs() const;  ///< of the user's files, in order
  const std::vector<LayoutDecl>& layouts() const;
  const Gpu* gpu(std::string_view name) const;
  const Cluster* cluster(std::string_view name) const;
  const DType* dtype(std::string_view name) const;
  const Behaviour* framework(std::string_view name) const;
  const Behaviour* optimizer(std::string_view name) const;
  /// The model's tensor program, built on first use; nullptr after errors in \a diags.
  const Program* program(std::string_view model, Diagnostics& diags) const;
  /// Line items that a model or its blocks declare.
  std::vector<const ast::Entry*> model_items(std::string_view model) const;
  /// One line a declaration of the user's files, in source order, for `check`.
  std::vector<Summary> summary(Diagnostics&) const;
  std::vector<std::string> names(std::string_view kind) const;  ///< prelude's and user's, sorted

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Reads a file that `use` names, relative to the file that says it; nullopt: it cannot be read,
/// with the reason in \a why.
using Loader = std::function<std::optional<std::string>(const std::string& path, std::string& why)>;

struct CompileOptions {
  Loader load;               ///< default: from disk
  bool check_models = true;  ///< build every model of the user's files, not only those of jobs
};

/// Parses, resolves, type-checks. Always returns a module; it may be used where \a diags has no
/// errors.
Module compile(std::string name, std::string text, Diagnostics& diags, const CompileOptions& = {});

/// The job that a command works on: the one called \a name, or the file's only one where \a name is
/// empty. nullptr after an error (no job, several, no such job).
const Job* find_job(const Module&, std::string_view name, Diagnostics&);
/// Likewise a layout; with an empty name nullptr, without an error, unless there is exactly one.
const LayoutDecl* find_layout(const Module&, std::string_view name, Diagnostics&);
/// Reports the fields that step times need and the job's GPUs do not give (bandwidth, the dense
/// rate of the job's precision). False after errors.
bool check_rates(const Module&, const Job&, Diagnostics&);

}  // namespace plimsoll
