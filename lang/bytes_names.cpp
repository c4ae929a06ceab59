// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/bytes_names.hpp"

#include <algorithm>
#include <cctype>

#include "lang/inventory.hpp"
#include "lang/module_impl.hpp"

namespace plimsoll {

namespace {

/// Rows that the planner adds by itself (planner/bill_lines.cpp, planner/serve.cpp, lang/lower_*).
constexpr const char* kOwnRows[] = {
    "weights",
    "gradients",
    "master weights",
    "layer input",
    "CUDA context and libraries",
    "values that several layers read",
    "rounding to blocks of 512 B",
    "segments beyond live blocks",
    "a layer's forward",
    "cache of the sequences",
    "rest of the cache's pool",
    "left free by the server's share",
};

/// Values that ops save (lang/ops): a row of one may be asked for by its own name, bytes("logits").
constexpr const char* kSaved[] = {
    "input", "output",  "q",      "k",        "v",          "k_expanded", "v_expanded", "lse",
    "probs", "dropped", "mask",   "stats",    "normalized", "activated",  "logits",     "scores",
    "map",   "indices", "routed", "permuted", "ids",        "targets",    "projected",  "scanned"};

/// Prefixes and suffixes of rows made from others.
constexpr std::string_view kBefore[] = {"experts' ", "adapters' "};
constexpr std::string_view kAfter = " of the tied copy";

class KnownRows {
 public:
  KnownRows(const Module& module, const Job& job) : job_(job) {
    for (std::size_t i = 0; i < kCategoryCount; ++i)
      rows_.emplace_back(name(static_cast<Category>(i)));
    for (const char* row : kOwnRows) rows_.emplace_back(row);
    for (const Behaviour* owner :
         {module.framework(job.framework), module.optimizer(job.optimizer)})
      if (owner != nullptr)
        for (const ast::Entry* entry : owner->entries) add(*entry);
    for (const ast::Entry* entry : module.model_items(job.model)) add(*entry);
    for (const ast::Entry* entry : job.items) add(*entry);
    for (const char* value : kSaved) words_.insert(value);
#define X(kind) words_.insert(#kind);
    PLIMSOLL_OP_KINDS(X)
#undef X
    Diagnostics ignored;  // the job was checked before its conditions
    if (const Program* program = module.program(job.model, ignored)) {
      for (const Weight& weight : program->weights) words_.insert(weight.name);
      for (const Op& op : program->ops) words_.insert(op.name);
    }
    words_.erase("");
  }

  bool contains(std::string_view wanted) const {
    for (const std::string_view before : kBefore)
      if (wanted.starts_with(before)) wanted.remove_prefix(before.size());
    if (wanted.ends_with(kAfter)) wanted.remove_suffix(kAfter.size());
    const auto of_row = [&](const std::string& row) {
      return wanted == row || (wanted.starts_with(row) && wanted.substr(row.size(), 2) == ", ");
    };
    if (std::any_of(rows_.begin(), rows_.end(), of_row) || names_an_op(wanted)) return true;
    return std::any_of(job_.beside.begin(), job_.beside.end(), [&](const Beside& beside) {
      return wanted.starts_with(beside.name + ": ");
    });
  }

  const std::vector<std::string>& rows() const { return rows_; }

 private:
  void add(const ast::Entry& entry) {
    if (entry.kind == ast::EntryKind::item) rows_.push_back(entry.label);
    if (entry.kind == ast::EntryKind::state)
      rows_.push_back(job_.optimizer + " " + entry.name.text);
    if (entry.kind == ast::EntryKind::on)
      for (const ast::Entry& line : entry.body) add(line);
  }

  /// The rows of saved values are made while lowering: "rmsnorm 2 input", "gradient of q output".
  bool names_an_op(std::string_view wanted) const {
    std::string word;
    for (const char c : std::string(wanted) + ' ') {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
        word += c;
        continue;
      }
      if (words_.contains(word)) return true;
      word.clear();
    }
    return false;
  }

  const Job& job_;
  std::vector<std::string> rows_;
  std::set<std::string, std::less<>> words_;
};

void collect_calls(const ast::Expr& e, std::vector<const ast::Expr*>& calls) {
  if (e.kind == ast::ExprKind::call && e.text == "bytes" && e.args.size() == 1 &&
      e.arg(0).kind == ast::ExprKind::string)
    calls.push_back(&e.arg(0));
  for (const ast::Argument& argument : e.args)
    if (argument.value) collect_calls(*argument.value, calls);
}

}  // namespace

bool check_bytes_names(const Module& module, const Job& job, const ast::Expr& e,
                       Diagnostics& diags) {
  std::vector<const ast::Expr*> calls;
  collect_calls(e, calls);
  if (calls.empty()) return true;
  const KnownRows known(module, job);
  bool ok = true;
  for (const ast::Expr* call : calls) {
    if (known.contains(call->text)) continue;
    ok = false;
    const std::string near = did_you_mean(call->text, known.rows());
    diags.error(call->span, fmt::format("no category or item is called \"{}\"", call->text))
        .with_help(near.empty() ? "`plimsoll bill` lists the items of a job, each in its category"
                                : fmt::format("did you mean \"{}\"?", near));
  }
  return ok;
}

}  // namespace plimsoll
