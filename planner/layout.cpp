// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/layout.hpp"

#include <algorithm>
#include <numeric>

#include "planner/stages.hpp"

namespace plimsoll {

std::string_view name(Schedule s) {
  static constexpr std::string_view kNames[] = {"1f1b",  "interleaved", "gpipe",
                                                "zb_h1", "zb_v",        "dualpipe_v"};
  return kNames[static_cast<std::size_t>(s)];
}

std::vector<std::int64_t> default_stage_layers(std::int64_t layers, std::int64_t pp) {
  std::vector<std::int64_t> stages(static_cast<std::size_t>(pp), layers / pp);
  std::int64_t longer = layers % pp;
  if (longer == 0) return stages;
  for (std::int64_t& s : stages) ++s;
  // The shorter ones from the ends inwards; the last first, since it also holds head and loss.
  std::int64_t front = 0, back = pp - 1;
  for (std::int64_t shorter = pp - longer; shorter > 0; --shorter) {
    const bool at_back = (pp - longer - shorter) % 2 == 0;
    --stages[static_cast<std::size_t>(at_back ? back-- : front++)];
  }
  return stages;
}

namespace {

std::int64_t cluster_gpus(const Cluster& cluster, std::int64_t nodes) {
  if (cluster.pools.size() == 1 && nodes > 0) return nodes * cluster.pools.front().gpus_per_node;
  return cluster.gpus();
}

bool divides(std::int64_t a, std::int64_t b) { return a > 0 && b % a == 0; }

std::string why_degrees(const Problem& p, const Layout& l) {
  const std::int64_t gpus = cluster_gpus(*p.cluster, l.nodes);
  const std::int64_t model = l.tp * l.pp * l.cp;
  if (!divides(model, gpus) || l.dp != gpus / model)
    return fmt::format("tp * pp * cp = {} * {} * {} = {} does not divide {} GPUs", l.tp, l.pp, l.cp,
                       model, gpus);
  if (!divides(l.shard, l.dp * l.cp))
    return fmt::format("shard = {} does not divide dp * cp = {}", l.shard, l.dp * l.cp);
  if (!divides(l.ep * l.etp, l.tp * l.cp * l.dp))
    return fmt::format("ep * etp = {} does not divide tp * cp * dp = {}", l.ep * l.etp,
                       l.tp * l.cp * l.dp);
  const std::int64_t expert_dp = l.tp * l.cp * l.dp / (l.ep * l.etp);
  if (!divides(l.dp * l.cp / l.shard, expert_dp))
    return fmt::format(
        "{} replicas of the shard group do not divide the experts' data parallelism of {}",
        l.dp * l.cp / l.shard, expert_dp);
  if (l.pp > p.program->layer_count)
    return fmt::format("pp = {} is more than {} layers", l.pp, p.program->layer_count);
  if (l.sp && l.tp == 1) return "sp needs tp > 1";
  return "";
}

std::string why_batch(const Problem& p, const Layout& l) {
  if (!p.job->serve && !divides(l.mbs * l.dp, l.batch))
    return fmt::format("mbs * dp = {} * {} does not divide the batch of {} sequences", l.mbs, l.dp,
                       l.batch);
  const std::int64_t parts = l.cp > 1 ? 2 * l.cp : 1;
  if (!divides(parts, l.seq))
    return fmt::format("a sequence of {} tokens does not divide into 2 * cp = {} parts", l.seq,
                       parts);
  if (l.sp && !divides(l.tp, l.seq / l.cp))
    return fmt::format("{} tokens a rank do not divide over tp = {} for sequence parallelism",
                       l.seq / l.cp, l.tp);
  return "";
}

std::string why_schedule(const Problem& p, const Layout& l) {
  const bool folds = folded(l.schedule);
  if (folds && l.vpp != 2)
    return fmt::format("schedule = {} runs two chunks a stage: it needs vpp = 2, not {}",
                       name(l.schedule), l.vpp);
  if (l.schedule == Schedule::dualpipe_v && l.microbatches < 2 * l.pp)
    return fmt::format("{} micro-batches are fewer than 2 * pp = {}, which dualpipe_v needs",
                       l.microbatches, 2 * l.pp);
  if (l.vpp > 1 && l.schedule != Schedule::interleaved && !folds)
    return fmt::format("vpp = {} needs schedule = interleaved", l.vpp);
  if (l.vpp == 1 && l.schedule == Schedule::interleaved)
    return "schedule = interleaved needs vpp > 1";
  if (l.vpp > 1 && l.pp == 1) return "vpp > 1 needs pp > 1";
  if (l.vpp > 1 && !folds && l.microbatches % l.pp != 0)
    return fmt::format("{} micro-batches do not divide over pp = {}, which interleaving needs",
                       l.microbatches, l.pp);
  if (p.program->layer_count % l.vpp != 0)
    return fmt::format("{} layers do not divide over vpp = {}", p.program->layer_count, l.vpp);
  if (p.program->layer_count / l.vpp < l.pp)
    return fmt::format("{} layers cannot be cut in {} chunks of each of {} stages",
                       p.program->layer_count, l.vpp, l.pp);
  return "";
}

std::string why_lists(const Problem& p, const Layout& l) {
  if (static_cast<std::int64_t>(l.stage_layers.size()) != l.pp)
    return fmt::format("stage_layers has {} entries for pp = {}", l.stage_layers.size(), l.pp);
  const std::int64_t sum =
      std::accumulate(l.stage_layers.begin(), l.stage_layers.end(), std::int64_t{0});
  if (sum != p.program->layer_count)
    return fmt::format("stage_layers add up to {}, the model has {} layers", sum,
                       p.program->layer_count);
  for (std::int64_t n : l.stage_layers) {
    if (n < l.vpp)
      return fmt::format("a stage of {} layers cannot be cut in vpp = {} chunks", n, l.vpp);
    if (l.vpp > 1 && n % l.vpp != 0)
      return fmt::format("{} layers of a stage do not divide over vpp = {}", n, l.vpp);
  }
  if (!l.recompute_layers.empty() && l.recompute_layers.size() != l.stage_layers.size())
    return fmt::format("recompute_layers has {} entries for pp = {}", l.recompute_layers.size(),
                       l.pp);
  for (std::size_t i = 0; i < l.recompute_layers.size(); ++i)
    if (l.recompute_layers[i] < 0 || l.recompute_layers[i] > l.stage_layers[i])
      return fmt::format("recompute_layers[{}] = {} of a stage of {} layers", i,
                         l.recompute_layers[i], l.stage_layers[i]);
  if (!l.stage_pool.empty() && l.stage_pool.size() != l.stage_layers.size())
    return fmt::format("stage_pool has {} entries for pp = {}", l.stage_pool.size(), l.pp);
  return why_pools(p, l);
}

std::int64_t degree(const Layout& l, Var by) {
  switch (by) {
    case Var::tp:
      return l.tp;
    case Var::etp:
      return l.etp;
    case Var::ep:
      return l.ep;
    default:
      return 1;
  }
}

}  // namespace

std::string why_impossible_outside(const Problem& p, const Layout& l) {
  for (const Divisible& d : p.divisible) {
    const std::int64_t by = degree(l, d.by);
    if (d.number % by == 0 || (d.may_replicate && by % d.number == 0)) continue;
    return fmt::format("{} {} do not divide over {} = {}", d.number, d.what, name(d.by), by);
  }
  if (std::string why = why_degrees(p, l); !why.empty()) return why;
  if (std::string why = why_batch(p, l); !why.empty()) return why;
  return why_schedule(p, l);
}

std::string why_pools(const Problem& p, const Layout& l) {
  const std::int64_t each = l.tp * l.cp * l.dp;
  for (std::uint32_t i = 0; i < p.cluster->pools.size() && !l.stage_pool.empty(); ++i) {
    const Pool& pool = p.cluster->pools[i];
    const std::int64_t has = pool.nodes.front() * pool.gpus_per_node;
    const auto stages = std::count(l.stage_pool.begin(), l.stage_pool.end(), i);
    if (stages * each > has)
      return fmt::format("{} stages of {} GPUs each are more than the {} GPUs of pool '{}'", stages,
                         each, has, pool.name);
  }
  return "";
}

std::string why_impossible(const Problem& p, const Layout& l) {
  if (std::string why = why_impossible_outside(p, l); !why.empty()) return why;
  return why_lists(p, l);
}

void resolve(const Problem& p, Layout& l) {
  if (l.nodes == 0) l.nodes = p.cluster->pools.front().nodes.front();
  const std::int64_t gpus = cluster_gpus(*p.cluster, l.nodes);
  l.dp = std::max<std::int64_t>(1, gpus / std::max<std::int64_t>(1, l.tp * l.pp * l.cp));
  if (l.seq == 0) l.seq = (p.job->serve ? p.job->context : p.job->seq).floor().to_int64();
  if (l.batch == 0 && !p.job->batch.is_zero()) {
    l.batch = p.job->batch.to_int64();
    if (p.job->batch_in_tokens && l.seq > 0) l.batch /= l.seq;
  }
  l.microbatches = std::max<std::int64_t>(1, l.batch / std::max<std::int64_t>(1, l.mbs * l.dp));
  if (l.shard == 0) l.shard = l.dp * l.cp;
  if (l.vpp > 1 && l.schedule == Schedule::one_f_one_b) l.schedule = Schedule::interleaved;
  // More stages than layers cannot be, and a list of a billion stages need not be made to say so.
  if (l.stage_layers.empty() && l.pp <= p.program->layer_count)
    l.stage_layers = default_stage_layers(p.program->layer_count, l.pp);
  if (l.recompute == 1 && l.recompute_layers.empty()) l.recompute_layers = l.stage_layers;
}

Env environment(const Problem& p, const Layout& l, std::int64_t stage) {
  Env env;
  const std::pair<Var, std::int64_t> values[] = {
      {Var::tp, l.tp},
      {Var::pp, l.pp},
      {Var::vpp, l.vpp},
      {Var::cp, l.cp},
      {Var::ep, l.ep},
      {Var::etp, l.etp},
      {Var::dp, l.dp},
      {Var::zero, l.zero},
      {Var::shard, std::max<std::int64_t>(1, l.shard)},
      {Var::mbs, l.mbs},
      {Var::sp, l.sp && l.tp > 1},
      {Var::recompute, l.recompute},
      {Var::schedule, static_cast<std::int64_t>(l.schedule)},
      {Var::seq, l.seq},
      {Var::batch, l.batch},
      {Var::microbatches, l.microbatches},
      {Var::nodes, l.nodes},
      {Var::gpus, l.tp * l.pp * l.cp * l.dp},
      {Var::gpus_per_node, p.cluster->pools.front().gpus_per_node},
      {Var::stage, stage},
      {Var::first, stage == 0},
      {Var::last, stage == l.pp - 1},
      {Var::receiving, l.pp == 1    ? 0
                       : stage == 0 ? l.vpp - 1
                       // The fold: what the first chunk makes, the second reads on the same stage.
                       : folded(l.schedule) && stage == l.pp - 1 ? l.vpp - 1
                                                                 : l.vpp},
      {Var::sequences, l.sequences}};
  for (const auto& [v, value] : values) env[v] = value;
  env[Var::target] = p.job->target.is_zero() ? Rational(l.seq) : p.job->target;
  env[Var::offload] = l.offload;
  const std::int64_t expert_dp = std::max<std::int64_t>(1, l.tp * l.cp * l.dp / (l.ep * l.etp));
  const std::int64_t replicas =
      std::max<std::int64_t>(1, l.dp * l.cp / std::max<std::int64_t>(1, l.shard));
  env[Var::expert_dp] = expert_dp;
  env[Var::expert_shard] = std::max<std::int64_t>(1, expert_dp / replicas);
  env[Var::hbm] = Rational::integer(p.cluster->pools.front().gpu.memory - p.cluster->occupied);
  if (stage < static_cast<std::int64_t>(l.stage_layers.size()))
    env[Var::layers_on_stage] = l.stage_layers[static_cast<std::size_t>(stage)];
  env[Var::in_flight] = std::min(l.microbatches, l.pp - stage);
  return env;
}

namespace {

/// "[9, 10×5, 11]": equal neighbours are counted.
std::string list_in_short(const std::vector<std::int64_t>& list) {
  constexpr std::size_t kLong = 4;
  std::vector<std::string> words;
  for (std::size_t i = 0, end = 0; i < list.size(); i = end) {
    while (end < list.size() && list[end] == list[i]) ++end;
    if (end - i >= kLong)
      words.push_back(fmt::format("{}×{}", list[i], end - i));
    else
      words.insert(words.end(), end - i, std::to_string(list[i]));
  }
  return fmt::format("[{}]", fmt::join(words, ", "));
}

}  // namespace

std::string describe(const Problem& p, const Layout& l) {
  std::vector<std::string> words;
  const auto degree_word = [&](const char* what, std::int64_t value, std::int64_t usual) {
    if (value != usual) words.push_back(fmt::format("{} {}", what, value));
  };
  degree_word("tp", l.tp, 1);
  if (l.sp) words.push_back("sp");
  degree_word("pp", l.pp, 1);
  degree_word("vpp", l.vpp, 1);
  degree_word("cp", l.cp, 1);
  degree_word("ep", l.ep, 1);
  degree_word("etp", l.etp, 1);
  words.push_back(fmt::format("dp {}", l.dp));
  if (l.zero > 0) words.push_back(fmt::format("zero {}", l.zero));
  if (l.zero > 0) degree_word("shard", l.shard, l.dp * l.cp);
  if (!p.job->serve) words.push_back(fmt::format("mbs {}", l.mbs));
  if (l.recompute > 0) {
    std::string text = "recompute " + p.inventory.recompute_modes.at(l.recompute);
    if (l.recompute == 1 && l.recompute_layers != l.stage_layers)
      text += " " + list_in_short(l.recompute_layers);
    words.push_back(text);
  }
  if (l.schedule != Schedule::one_f_one_b && l.schedule != Schedule::interleaved)
    words.push_back(std::string(name(l.schedule)));
  if (l.stage_layers != default_stage_layers(p.program->layer_count, l.pp))
    words.push_back("stages " + list_in_short(l.stage_layers));
  if (!l.offload.is_zero()) words.push_back(fmt::format("offload {}", l.offload.str()));
  return fmt::format("{}", fmt::join(words, " · "));
}

}  // namespace plimsoll
