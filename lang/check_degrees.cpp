// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <set>

#include "lang/check_job.hpp"
#include "lang/grouped.hpp"
#include "lang/layout_values.hpp"

namespace plimsoll {

namespace {

struct Pin {
  std::string name;
  std::int64_t value = 1;
  Span span;
};

class Degrees {
 public:
  Degrees(const Module& module, const Job& job, const Program& program, Diagnostics& diags)
      : module_(module),
        job_(job),
        program_(program),
        diags_(diags),
        cluster_(module.cluster(job.cluster)) {}

  void check() {
    if (cluster_ == nullptr) return;
    if (check_gpus()) check_heads();
    check_experts();
    check_batch();
    check_stages();
  }

 private:
  std::optional<Pin> pin(const std::string& name) const {
    const auto at = job_.layout.find(name);
    if (at == job_.layout.end() || at->second.values.size() != 1) return std::nullopt;
    const std::optional<Rational> value = constant_of(module_.impl(), at->second.values.front());
    if (!value || !value->is_integer()) return std::nullopt;
    const Span span = at->second.values.front().span;
    return Pin{name, value->to_int64(), span ? span : at->second.span};
  }

  /// Is 1 among the values that the job leaves?
  bool may_be_one(const std::string& name) const {
    const auto at = job_.layout.find(name);
    if (at == job_.layout.end()) return true;
    return std::any_of(at->second.values.begin(), at->second.values.end(), [&](const auto& value) {
      return constant_of(module_.impl(), value).value_or(Rational(1)) <= Rational(1);
    });
  }

  /// Every number of GPUs that the cluster may have.
  std::vector<std::int64_t> gpu_counts() const {
    std::vector<std::int64_t> totals{0};
    for (const Pool& pool : cluster_->pools) {
      std::set<std::int64_t> next;
      for (const std::int64_t total : totals)
        for (const std::int64_t nodes : pool.nodes)
          if (next.size() < kMaxTotals) next.insert(total + nodes * pool.gpus_per_node);
      totals.assign(next.begin(), next.end());
    }
    return totals;
  }

  bool check_gpus() {
    const std::vector<std::int64_t> counts = gpu_counts();
    if (counts.empty() || counts.size() >= kMaxTotals) return true;
    std::vector<Pin> pins;
    for (const char* name : {"tp", "pp", "cp", "dp"})
      if (const std::optional<Pin> found = pin(name)) pins.push_back(*found);
    bool ok = true;
    for (const Pin& each : pins)
      ok = divides(each.name, each.value, {each}, counts, Severity::error) && ok;
    if (!ok || pins.size() < 2) return ok;
    std::int64_t product = 1;
    std::string text;
    for (const Pin& each : pins) {
      if (product > kMaxCount / each.value)
        product = kMaxCount;
      else
        product *= each.value;
      text += (text.empty() ? "" : " * ") + each.name;
    }
    // Each is possible by itself: what a plan says of it is that no layout is possible.
    return divides(text, product, pins, counts, Severity::warning);
  }

  bool divides(const std::string& name, std::int64_t degree, const std::vector<Pin>& pins,
               const std::vector<std::int64_t>& counts, Severity severity) {
    if (std::any_of(counts.begin(), counts.end(),
                    [&](std::int64_t count) { return count % degree == 0; }))
      return true;
    const std::int64_t most = counts.back();
    const std::string gpus =
        counts.size() == 1
            ? fmt::format("the {} GPU{} of cluster '{}'", grouped(most), most == 1 ? "" : "s",
                          cluster_->name)
            : fmt::format("any number of GPUs that cluster '{}' may have", cluster_->name);
    const std::string message =
        degree > most ? fmt::format("{} = {} is more than {}", name, grouped(degree), gpus)
                      : fmt::format("{} = {} does not divide {}", name, grouped(degree), gpus);
    Diagnostic& said = severity == Severity::error ? diags_.error(pins.back().span, message)
                                                   : diags_.warning(pins.back().span, message);
    for (const Pin& other : pins)
      if (&other != &pins.back())
        said.label(other.span, fmt::format("{} is given here", other.name));
    said.label(cluster_->span, "declared here")
        .with_help("tp * pp * cp * dp is the number of GPUs");
    return false;
  }

  void check_heads() {
    const std::optional<Pin> tp = pin("tp");
    if (!tp) return;
    for (const Op& op : program_.ops) {
      if (op.kind != OpKind::attention) continue;
      for (const auto& [heads, what] :
           {std::pair(op.heads, "heads"), std::pair(op.kv_heads, "key and value heads")}) {
        // With fewer heads than ranks, each is replicated; the planner judges that.
        if (heads <= tp->value ? tp->value % std::max<std::int64_t>(heads, 1) == 0
                               : heads % tp->value == 0)
          continue;
        diags_
            .error(tp->span, fmt::format("{} {} of model '{}' do not divide over tp = {}", heads,
                                         what, job_.model, tp->value))
            .with_help(fmt::format("choose a tp that divides {}", heads));
        return;
      }
    }
  }

  void check_experts() {
    const bool dense = std::none_of(program_.ops.begin(), program_.ops.end(),
                                    [](const Op& op) { return op.kind == OpKind::experts; });
    for (const char* name : {"ep", "etp"})
      if (dense && !may_be_one(name))
        diags_
            .error(job_.layout.at(name).span,
                   fmt::format("'{}' divides experts, but the model '{}' has no experts", name,
                               job_.model))
            .with_help(fmt::format("remove the line, or write {} = 1", name));
    const std::optional<Pin> ep = pin("ep");
    if (!ep || dense) return;
    for (const Op& op : program_.ops) {
      if (op.kind != OpKind::experts || op.count % ep->value == 0) continue;
      diags_
          .error(ep->span, fmt::format("{} experts of model '{}' do not divide over ep = {}",
                                       op.count, job_.model, ep->value))
          .with_help(fmt::format("choose an ep that divides {}", op.count));
      return;
    }
  }

  void check_batch() {
    if (job_.serve || job_.batch.is_zero() || job_.batch_in_tokens) return;
    const std::int64_t batch = job_.batch.to_int64();
    const std::optional<Pin> mbs = pin("mbs"), dp = pin("dp");
    for (const std::optional<Pin>& each : {mbs, dp}) {
      if (!each || batch % each->value == 0) continue;
      diags_
          .error(each->span, fmt::format("a batch of {} sequences does not divide by {} = {}",
                                         grouped(batch), each->name, each->value))
          .with_help(each->name == "mbs"
                         ? "mbs is the sequences of a micro-batch: choose a divisor of the batch"
                         : "each replica works on batch / dp sequences");
    }
  }

  void check_stages() {
    const auto at = job_.layout.find("stage_layers");
    if (at == job_.layout.end()) return;
    for (const eval::Value& value : at->second.values) {
      const auto* list = value.as<eval::List>();
      if (list == nullptr) continue;
      Rational sum = 0;
      for (const eval::Value& item : list->items)
        sum += constant_of(module_.impl(), item).value_or(Rational(0));
      if (sum == Rational(program_.layer_count)) continue;
      diags_
          .error(value.span ? value.span : at->second.span,
                 fmt::format("'stage_layers' adds up to {} layers, but model '{}' has {}",
                             grouped(sum), job_.model, program_.layer_count))
          .with_help("each layer lies on one stage");
    }
  }

  static constexpr std::size_t kMaxTotals = 4096;
  const Module& module_;
  const Job& job_;
  const Program& program_;
  Diagnostics& diags_;
  const Cluster* cluster_;
};

}  // namespace

void check_degrees(const Module& module, const Job& job, const Program& program,
                   Diagnostics& diags) {
  Degrees(module, job, program, diags).check();
}

}  // namespace plimsoll
