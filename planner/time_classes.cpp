// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/time_classes.hpp"

#include <map>
#include <utility>

#include "planner/links.hpp"
#include "planner/stages.hpp"
#include "planner/time_ops.hpp"
#include "planner/time_path.hpp"
#include "planner/time_update.hpp"

namespace plimsoll {

namespace {

double as_double(std::int64_t v) { return static_cast<double>(v); }

/// As in time.cpp: 0 where nothing is, all where the mode is the framework's.
std::int64_t recomputed_layers(const Layout& l, std::size_t stage) {
  if (l.recompute == 0) return 0;
  return l.recompute_layers.empty() || l.recompute != kFullRecompute ? l.stage_layers[stage]
                                                                     : l.recompute_layers[stage];
}

class Classes {
 public:
  void add(const std::string& name, bool backward, double seconds, double sent) {
    ClassTime& t = all_[{name, backward}];
    t.name = name;
    t.backward = backward;
    t.seconds += seconds;
    t.sent += sent;
  }
  /// \a times segments like this one, \a recomputed of them once more.
  void add(const std::vector<OpSeconds>& segment, RecomputeMode mode, double times,
           double recomputed) {
    for (const OpSeconds& op : segment) {
      const bool twice = mode < op.again.size() && op.again[mode];
      const double forwards = times + (twice ? recomputed : 0);
      const std::string kind(name(op.kind));
      add(kind, false, forwards * (op.forward - op.forward_sent), forwards * op.forward_sent);
      add(kind, true, times * (op.backward - op.backward_sent), times * op.backward_sent);
    }
  }
  std::vector<ClassTime> list() const {
    std::vector<ClassTime> out;
    for (const auto& [key, t] : all_)
      if (t.seconds > 0 || t.sent > 0) out.push_back(t);
    return out;
  }

 private:
  std::map<std::pair<std::string, bool>, ClassTime> all_;
};

}  // namespace

std::vector<ClassTime> time_by_class(const Problem& p, const Layout& l, std::int64_t stage) {
  const auto index = static_cast<std::size_t>(stage);
  const Gpu& gpu = p.cluster->pools.at(l.stage_pool.empty() ? 0 : l.stage_pool[index]).gpu;
  const TimePath path = time_path(p);
  const Rates rates = Rates::of(gpu, path);
  const Links links(*p.cluster, gpu, kTimeConstants);
  const StageWork work = LayerIndex(*p.program, p.inventory)
                             .work(pieces(*p.program, l)[index], recomputed_layers(l, index));
  const TimeKey key{l.tp, l.cp, l.ep, l.etp, l.mbs, l.seq, l.sp};
  SegmentTimer timer(p);
  const auto ops = timer.op_times(key, rates, links);
  const auto times = timer.times(key, rates, links);
  const std::size_t classes_of_layers = work.layers.size();

  const double m = as_double(l.microbatches);
  Classes classes;
  Parameters parameters;
  double forward = 0, backward = 0, total = 0;
  const auto run = [&](std::size_t segment, double count, double recomputed) {
    classes.add(ops[segment], l.recompute, m * count, m * recomputed);
    parameters.add(times[segment].parameters, count);
    forward += count * times[segment].forward;
    backward += count * (times[segment].total(0) - times[segment].forward);
    total += recomputed * times[segment].total(l.recompute) +
             (count - recomputed) * times[segment].total(0);
  };
  for (std::size_t k = 0; k < classes_of_layers; ++k)
    run(k, as_double(work.layers[k]), as_double(work.recomputed[k]));
  for (const std::uint32_t r : work.roots) run(classes_of_layers + r, 1, 0);

  const UpdateTimer update(p, path, kTimeConstants);
  classes.add("optimizer", true, update.optimizer(l, rates, parameters), 0);
  classes.add("reduce gradients", true, 0,
              update.exchange(l, links, parameters, forward, backward, false));
  classes.add("gather weights", true, 0, m * update.gathered(l, links, parameters, total, false));
  return classes.list();
}

}  // namespace plimsoll
