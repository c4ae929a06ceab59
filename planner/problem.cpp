// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <algorithm>
#include <set>
#include <tuple>

#include "lang/lower.hpp"
#include "planner/layout.hpp"

namespace plimsoll {

namespace {

/// Every number of the program that tp, ep or etp must divide, each once.
std::vector<Divisible> divisible_numbers(const Program& program, Expr vocab_multiple,
                                         const ExprPool& pool) {
  std::vector<Divisible> list;
  std::set<std::tuple<std::int64_t, Var, bool>> seen;
  const auto add = [&](std::int64_t number, Var by, bool may_replicate, std::string what) {
    if (number > 0 && seen.insert({number, by, may_replicate}).second)
      list.push_back({number, by, may_replicate, std::move(what)});
  };
  // A vocabulary padded to a multiple of tp divides by itself.
  const bool padded = pool.depends_on(vocab_multiple) >> static_cast<int>(Var::tp) & 1;
  for (const Weight& w : program.weights) {
    const Var by = w.experts == kNone ? Var::tp : Var::etp;
    if (w.experts != kNone) add(w.copies, Var::ep, false, "experts");
    if (w.split == Split::none || (w.vocabulary && padded)) continue;
    const std::int64_t side = w.split == Split::row ? w.rows : w.cols;
    const std::string label = w.name.empty() ? std::string(name(w.role)) : "'" + w.name + "'";
    if (w.units > 0)
      add(w.units, by, true, fmt::format("heads of {}", label));
    else
      add(side, by, false,
          fmt::format("{} of {}", w.split == Split::row ? "rows" : "columns", label));
  }
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::attention && program.values[op.inputs[0]].split != Split::none)
      add(op.heads, Var::tp, false, "attention heads");
  }
  return list;
}

}  // namespace

std::optional<Problem> make_problem(const Module& module, const Job& job, Diagnostics& diags) {
  Problem p;
  p.module = &module;
  p.job = &job;
  p.cluster = module.cluster(job.cluster);
  p.framework = module.framework(job.framework);
  p.program = module.program(job.model, diags);
  if (!p.cluster || !p.framework || !p.program) {
    if (!diags.has_errors())
      diags.error(job.span, fmt::format("job '{}' names what is not declared", job.name));
    return std::nullopt;
  }
  LowerInput in;
  in.module = &module;
  in.job = &job;
  in.cluster = p.cluster;
  in.program = p.program;
  in.framework = p.framework;
  in.optimizer = job.serve ? nullptr : module.optimizer(job.optimizer);
  auto inventory = lower(in, diags);
  if (!inventory) return std::nullopt;
  p.inventory = std::move(*inventory);
  p.divisible = divisible_numbers(*p.program, p.inventory.facts.vocab_multiple, module.pool());
  return p;
}

namespace {

/// Reads the values of a layout declaration and the pins of a job into a Layout.
class LayoutReader {
 public:
  LayoutReader(const Problem& p, const LayoutDecl* decl, Diagnostics& diags)
      : p_(p), decl_(decl), diags_(diags), pool_(p.module->pool()) {}

  std::optional<Layout> read() {
    check_sizes();
    if (failed_) return std::nullopt;
    read_numbers();
    read_words();
    apply_defaults();
    read_lists();
    if (failed_) return std::nullopt;
    resolve(p_, layout_);
    check_dp();
    if (failed_) return std::nullopt;
    if (const std::string why = why_impossible(p_, layout_); !why.empty()) {
      diags_
          .error(decl_ ? decl_->span : p_.job->span,
                 fmt::format("{}layout cannot be: {}", decl_ ? "this " : "the job's ", why))
          .with_help("change the degree it names, or the model or cluster that it must divide");
      return std::nullopt;
    }
    return layout_;
  }

 private:
  /// A layout names no sequence length and no batch: where the job leaves one open, nothing says
  /// how many tokens there are to be priced.
  void check_sizes() {
    for (const char* size : {"seq", "batch"}) {
      const auto choice = p_.job->layout.find(size);
      if (choice == p_.job->layout.end() || choice->second.values.size() < 2) continue;
      diags_
          .error(choice->second.span,
                 fmt::format("job '{}' leaves {} open, and a layout is priced at one", p_.job->name,
                             size))
          .with_help(fmt::format("pin it, as in {} = {}; 'plimsoll plan' is what chooses one", size,
                                 pool_.value(expr_of(choice->second.values.front())).str()));
      failed_ = true;
    }
  }

  /// dp follows from the GPUs and the other degrees; a number that says otherwise is a mistake.
  void check_dp() {
    const eval::Value* value = given("dp");
    if (!value) return;
    const Rational said = pool_.eval(expr_of(*value), environment(p_, layout_, 0));
    if (said == Rational(layout_.dp)) return;
    const std::int64_t model = layout_.tp * layout_.pp * layout_.cp;
    diags_
        .error(value->span,
               fmt::format("dp = {}, but this layout leaves dp = {}", said.str(), layout_.dp))
        .with_help(fmt::format(
            "dp is gpus / (tp * pp * cp), here {} / {}; leave dp out or change another degree",
            layout_.dp * model, model));
    failed_ = true;
  }

  const eval::Value* given(std::string_view name) const {
    if (decl_)
      if (const auto at = decl_->values.find(std::string(name)); at != decl_->values.end())
        return &at->second;
    const auto choice = p_.job->layout.find(std::string(name));
    if (choice != p_.job->layout.end() && choice->second.values.size() == 1)
      return &choice->second.values.front();
    return nullptr;
  }

  Expr expr_of(const eval::Value& v) const {
    if (const auto* n = v.as<eval::Number>()) return n->expr;
    if (const auto* b = v.as<eval::Boolean>()) return b->expr;
    return pool_.constant(0);
  }

  void set(Var v, const Rational& value) {
    const auto number = [&] { return value.to_int64(); };
    switch (v) {
      case Var::tp:
        layout_.tp = number();
        break;
      case Var::pp:
        layout_.pp = number();
        break;
      case Var::vpp:
        layout_.vpp = number();
        break;
      case Var::cp:
        layout_.cp = number();
        break;
      case Var::ep:
        layout_.ep = number();
        break;
      case Var::etp:
        layout_.etp = number();
        break;
      case Var::zero:
        layout_.zero = static_cast<int>(number());
        break;
      case Var::shard:
        layout_.shard = number();
        break;
      case Var::mbs:
        layout_.mbs = number();
        break;
      case Var::sp:
        layout_.sp = !value.is_zero();
        break;
      case Var::offload:
        layout_.offload = value;
        break;
      case Var::seq:
        layout_.seq = number();
        break;
      case Var::batch:
        layout_.batch = number();
        break;
      case Var::nodes:
        layout_.nodes = number();
        break;
      case Var::sequences:
        layout_.sequences = number();
        break;
      default:
        break;
    }
  }

  /// Numbers first; those that name other layout variables (`sp = tp > 1`) when the rest is known.
  void read_numbers() {
    static constexpr Var kVars[] = {Var::tp,    Var::pp,    Var::vpp,      Var::cp,
                                    Var::ep,    Var::etp,   Var::zero,     Var::shard,
                                    Var::mbs,   Var::sp,    Var::offload,  Var::seq,
                                    Var::batch, Var::nodes, Var::sequences};
    std::vector<std::pair<Var, Expr>> later;
    for (Var v : kVars) {
      const eval::Value* value = given(name(v));
      if (!value) continue;
      named_.insert(v);
      const Expr e = expr_of(*value);
      if (pool_.is_constant(e))
        set(v, pool_.value(e));
      else
        later.push_back({v, e});
    }
    for (const auto& [v, e] : later) set_from(v, e);
  }

  void set_from(Var v, Expr e) {
    Layout probe = layout_;
    resolve(p_, probe);
    set(v, pool_.eval(e, environment(p_, probe, 0)));
  }

  void read_words() {
    if (const eval::Value* v = given("recompute"))
      if (const auto* w = v->as<eval::Word>()) {
        const auto& modes = p_.inventory.recompute_modes;
        const auto at = std::find(modes.begin(), modes.end(), w->text);
        if (at == modes.end()) {
          diags_
              .error(v->span, fmt::format("framework '{}' has no recompute mode '{}'",
                                          p_.framework->name, w->text))
              .with_help(fmt::format("one of {}", fmt::join(modes, ", ")));
          failed_ = true;
        } else {
          layout_.recompute = static_cast<RecomputeMode>(at - modes.begin());
        }
      }
    if (const eval::Value* v = given("schedule"))
      if (const auto* w = v->as<eval::Word>())
        for (int s = 0; s < 5; ++s)
          if (name(static_cast<Schedule>(s)) == w->text)
            layout_.schedule = static_cast<Schedule>(s);
  }

  void apply_defaults() {
    for (const auto& [v, e] : p_.inventory.defaults)
      if (!named_.count(v)) set_from(v, e);
  }

  void read_lists() {
    read_list("stage_layers", layout_.stage_layers);
    read_list("recompute_layers", layout_.recompute_layers);
    if (const eval::Value* v = given("stage_pool"))
      if (const auto* list = v->as<eval::List>())
        for (const eval::Value& item : list->items)
          if (const auto* w = item.as<eval::Word>())
            for (std::uint32_t i = 0; i < p_.cluster->pools.size(); ++i)
              if (p_.cluster->pools[i].name == w->text) layout_.stage_pool.push_back(i);
    if (!layout_.recompute_layers.empty() && layout_.recompute == 0) layout_.recompute = 1;
  }

  void read_list(const char* name, std::vector<std::int64_t>& to) {
    const eval::Value* v = given(name);
    const auto* list = v ? v->as<eval::List>() : nullptr;
    if (!list) return;
    for (const eval::Value& item : list->items)
      if (const auto* n = item.as<eval::Number>(); n && pool_.is_constant(n->expr))
        to.push_back(pool_.value(n->expr).to_int64());
  }

  const Problem& p_;
  const LayoutDecl* decl_;
  Diagnostics& diags_;
  ExprPool& pool_;
  Layout layout_;
  std::set<Var> named_;
  bool failed_ = false;
};

}  // namespace

void check_offload(const Problem& p, const LayoutDecl* layout, Diagnostics& diags) {
  const ExprPool& pool = p.module->pool();
  const auto offloads = [&](const eval::Value& v) {
    const auto* n = v.as<eval::Number>();
    return n != nullptr && pool.is_constant(n->expr) && pool.value(n->expr).sign() > 0;
  };
  std::optional<Span> where;
  if (layout != nullptr)
    if (const auto at = layout->values.find("offload");
        at != layout->values.end() && offloads(at->second))
      where = at->second.span;
  if (const auto at = p.job->layout.find("offload"); !where && at != p.job->layout.end())
    if (std::any_of(at->second.values.begin(), at->second.values.end(), offloads))
      where = at->second.span;
  if (!where && p.inventory.offloads_activations) where = p.job->span;
  if (!where) return;
  std::string missing;
  if (p.cluster->host_memory <= 0) missing = "'host_memory'";
  if (p.cluster->pcie.sign() <= 0) missing += missing.empty() ? "'pcie'" : " and 'pcie'";
  if (missing.empty()) return;
  diags
      .error(*where, fmt::format("offload needs the host's memory and the way to it, and cluster "
                                 "'{}' has no {}",
                                 p.cluster->name, missing))
      .with_help("add to the cluster lines such as host_memory = 1 TiB  pcie = 400 GB/s");
}

std::optional<Layout> layout_from(const Problem& p, const LayoutDecl* decl, Diagnostics& diags) {
  try {
    const std::size_t errors = diags.error_count();
    check_offload(p, decl, diags);
    if (diags.error_count() > errors) return std::nullopt;
    return LayoutReader(p, decl, diags).read();
  } catch (const ArithmeticError& e) {
    diags.error(decl ? decl->span : p.job->span,
                fmt::format("a value of this layout cannot be computed: {}", e.what()));
    return std::nullopt;
  }
}

}  // namespace plimsoll
