// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/inner.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "lang/diagnostics.hpp"

namespace plimsoll {

namespace {

/// What stages can hold, alike ones once. Made once for each number of chunks and way of folding.
struct Contents {
  struct Content {
    StageRuns runs;  ///< nothing recomputed
    std::vector<Piece> pieces;
    std::int64_t layers = 0;
  };
  std::int64_t round = 0;
  std::vector<std::int32_t> ids;  ///< [offset * (round + 1) + count]; -1: not asked for yet
  std::vector<Content> list;
  std::map<std::vector<std::uint32_t>, std::int32_t> index;
};

}  // namespace

struct Inner::Impl {
  static constexpr std::int64_t kNoLimit = Inner::kNoLimit;
  /// Sums kept from one outer layout to the next; some 20 MB.
  static constexpr std::size_t kMostStood = std::size_t{1} << 16;

  /// What is known of a content on the outer layout at hand.
  struct Timed {
    std::uint32_t stamp = 0;
    StageTime time;  ///< nothing recomputed, or all layers in the framework's mode
  };
  struct Sums {
    std::uint32_t stamp = 0, whole_stamp = 0;
    const StaticSums* standing = nullptr;  ///< what no micro-batch changes
    StaticSums whole;
  };
  struct Chosen {
    std::uint32_t stamp = 0;
    StageChoice choice;
  };
  /// What is kept from one outer layout to the next, for one standing_id() of the cost model and
  /// the cap last asked for: the most layers with which what stands fits a stage, and whether that
  /// of the whole model fits all stages together.
  struct Standing {
    std::int64_t cap = -1;
    std::array<std::int64_t, 3> most = {-1, -1, -1};  ///< first, between, last
    std::optional<bool> too_much;

    void set_cap(std::int64_t asked) {
      if (cap == asked) return;
      cap = asked;
      most.fill(-1);
      too_much.reset();
    }
  };

  const Problem& problem;
  Clock& clock;
  CostModel model;
  LayerIndex index;
  std::map<std::pair<std::int64_t, bool>, Contents> tables;
  Contents* contents = nullptr;
  Layout outer;
  std::vector<std::int64_t> pinned_layers, pinned_recompute;  ///< by stage; empty: free
  Composition composed;
  std::vector<std::int64_t> caps;       ///< by stage
  std::vector<std::int64_t> host_caps;  ///< likewise, of host memory
  bool host_limit = true;
  std::vector<std::int64_t> roles;  ///< by stage, counted from 0
  std::int64_t role_count = 1;
  std::uint32_t stamp = 0;
  std::vector<Timed> timed;           ///< [content * pools + pool]
  std::vector<Sums> sums;             ///< [content * roles + role]
  std::vector<Chosen> chosen;         ///< [content * stages + stage]
  std::vector<Standing> standing;     ///< by id
  std::uint64_t standing_number = 0;  ///< its id
  /// What stands, by standing_number and, in the lower half, content * roles + role: of many outer
  /// layouts, which differ in micro-batches, schedule and recomputation alone.
  std::unordered_map<std::uint64_t, StaticSums> stood;
  Standing* stands = nullptr;          ///< of the layout at hand
  std::vector<ChunkCost> chunk_costs;  ///< scratch
  /// Contents, stages and recomputed layers that were refused.
  std::set<std::tuple<std::int32_t, std::int64_t, std::int64_t>> refused;

  Impl(const Problem& p, Clock& c, CategoryMask counted)
      : problem(p), clock(c), model(p, counted), index(*p.program, p.inventory) {}

  std::size_t pool_of(std::int64_t stage) const {
    return outer.stage_pool.empty() ? 0 : outer.stage_pool[static_cast<std::size_t>(stage)];
  }
  std::size_t pools() const { return problem.cluster->pools.size(); }

  void set(const Layout& layout, std::int64_t cap, bool beyond_memory) {
    outer = layout;
    pinned_layers = std::move(outer.stage_layers);
    pinned_recompute = std::move(outer.recompute_layers);
    outer.stage_layers.clear();
    outer.recompute_layers.clear();
    model.set_outer(outer);
    composed = clock.composition(outer);
    Contents& table = tables[{outer.vpp, folded(outer.schedule)}];
    if (table.ids.empty()) {
      table.round = index.layers() % outer.vpp == 0 ? index.layers() / outer.vpp : 0;
      const auto side = static_cast<std::size_t>(table.round + 1);
      table.ids.assign(side * side, -1);
    }
    contents = &table;
    ++stamp;
    if (stood.size() > kMostStood) stood.clear();
    const std::uint32_t id = model.standing_id();
    standing_number = id;
    if (id >= standing.size()) standing.resize(2 * std::size_t{id} + 1);
    stands = &standing[id];
    refused.clear();
    caps.clear();
    host_caps.clear();
    roles.clear();
    role_count = 1;
    for (std::int64_t i = 0; i < outer.pp; ++i) {
      const Int128 memory = usable_memory(problem, outer, i);
      caps.push_back(beyond_memory ? cap
                                   : static_cast<std::int64_t>(std::min<Int128>(memory, cap)));
      host_caps.push_back(
          host_limit && outer.offload.sign() != 0
              ? static_cast<std::int64_t>(std::min<Int128>(host_share(problem, outer, i), kNoLimit))
              : kNoLimit);
      const std::int64_t role = model.role(i);
      roles.push_back(role < 0 ? i : role);
      role_count = std::max(role_count, roles.back() + 1);
    }
  }

  std::int32_t content(std::int64_t offset, std::int64_t count) {
    std::int32_t& id =
        contents->ids[static_cast<std::size_t>(offset * (contents->round + 1) + count)];
    if (id < 0) id = make_content(offset, count);
    return id;
  }

  std::int32_t make_content(std::int64_t offset, std::int64_t count) {
    Contents::Content c;
    c.pieces = pieces(outer.schedule, outer.vpp, contents->round, offset, count);
    c.runs = model.runs(c.pieces);
    c.layers = count * outer.vpp;
    std::vector<std::uint32_t> key;
    for (const std::vector<Run>& chunk : c.runs) {
      for (const Run& r : chunk) {
        key.push_back(r.trace);
        key.push_back(static_cast<std::uint32_t>(r.count));
        // Values that many segments read lie on the stages between: where a run begins matters.
        if (!problem.inventory.shared.empty()) key.push_back(r.first_segment);
      }
      key.push_back(kNone);
    }
    const auto [at, fresh] = contents->index.try_emplace(
        std::move(key), static_cast<std::int32_t>(contents->list.size()));
    if (fresh) contents->list.push_back(std::move(c));
    return at->second;
  }

  template <class T>
  T& slot(std::vector<T>& of, std::int64_t content, std::int64_t width, std::int64_t at) {
    const auto i = static_cast<std::size_t>(content * width + at);
    if (i >= of.size())
      of.resize(std::max(i + 1, contents->list.size() * static_cast<std::size_t>(width)));
    return of[i];
  }

  StageTime time(const Contents::Content& c, std::int64_t recomputed, std::size_t pool) {
    StageWork work = index.work(c.pieces, recomputed);
    work.pool = static_cast<std::int64_t>(pool);
    return clock.stage(outer, work);
  }

  bool recomputes() const { return outer.recompute == kFullRecompute; }
  /// Layers that are recomputed where that is not free.
  std::int64_t fixed_recomputed(const Contents::Content& c) const {
    return outer.recompute == 0 || recomputes() ? 0 : c.layers;
  }

  const StageTime& base_time(std::int32_t id, std::size_t pool) {
    Timed& t = slot(timed, id, static_cast<std::int64_t>(pools()), static_cast<std::int64_t>(pool));
    if (t.stamp != stamp) {
      const Contents::Content& c = contents->list[static_cast<std::size_t>(id)];
      t.time = time(c, fixed_recomputed(c), pool);
      t.stamp = stamp;
    }
    return t.time;
  }

  Sums& sums_of(std::int32_t id, std::int64_t stage) {
    const std::int64_t role = roles[static_cast<std::size_t>(stage)];
    Sums& s = slot(sums, id, role_count, role);
    if (s.stamp == stamp) return s;
    const std::uint64_t key =
        standing_number << 32 | static_cast<std::uint64_t>(id * role_count + role);
    auto at = stood.find(key);
    if (at == stood.end())
      at = stood
               .emplace(key,
                        model.standing(stage, contents->list[static_cast<std::size_t>(id)].runs))
               .first;
    s.standing = &at->second;
    s.stamp = stamp;
    return s;
  }

  const StaticSums& statics(std::int32_t id, std::int64_t stage) {
    Sums& s = sums_of(id, stage);
    if (s.whole_stamp != stamp) {
      s.whole = *s.standing;
      model.add_passing(s.whole, stage, contents->list[static_cast<std::size_t>(id)].runs);
      s.whole_stamp = stamp;
    }
    return s.whole;
  }

  /// Can no stage that holds these layers and more fit, whatever is recomputed?
  bool hopeless(std::int64_t stage, std::int64_t offset, std::int64_t count) {
    const std::int32_t id = content(offset, count);
    const StaticSums& held =
        model.passing_stays() ? statics(id, stage) : *sums_of(id, stage).standing;
    if (held.host > host_caps[static_cast<std::size_t>(stage)]) return true;
    const Bytes least = held.between.live > held.update.live ? held.between : held.update;
    return footprint_of(held, {least.live, least.live}) > caps[static_cast<std::size_t>(stage)];
  }

  /// Does what stands of the whole model exceed the memories of all stages together? A part of it
  /// takes no less than its share, since bytes are rounded up.
  bool too_much() {
    if (model.standing_by_stage() || contents->round == 0) return false;
    stands->set_cap(caps.front());
    const bool alike = outer.stage_pool.empty();
    if (alike && stands->too_much) return *stands->too_much;
    Int128 room = 0;
    for (const std::int64_t cap : caps) room += cap;
    const StaticSums& held = *sums_of(content(0, contents->round), 0).standing;
    const Bytes least = held.between.live > held.update.live ? held.between : held.update;
    const bool exceeds = footprint_of(held, {least.live, least.live}) > room;
    if (alike) stands->too_much = exceeds;
    return exceeds;
  }

  /// Of equal layers, the most with which the stage is not hopeless.
  std::int64_t most_standing(std::int64_t stage) {
    const std::int64_t round = contents->round, last = outer.pp - 1;
    const bool known_here =
        !model.numbered_stages() && !model.passing_stays() && outer.stage_pool.empty();
    std::int64_t& known = stands->most[stage == 0 ? 0 : stage == last ? 2 : 1];
    stands->set_cap(caps[static_cast<std::size_t>(stage)]);
    if (known_here && known >= 0) return known;
    const std::int64_t least = most_with(round - last, [&](std::int64_t count) {
      const std::int64_t offset = stage == 0 ? 0 : stage == last ? round - count : 1;
      return !hopeless(stage, offset, count);
    });
    return known_here ? known = least : least;
  }

  std::int64_t footprint_of(const StaticSums& held, const Bytes& bytes) const {
    return footprint(problem.inventory, bytes, held.outside).peak;
  }

  /// The chunks of a content of which \a recomputed layers are. Good until the next call.
  const std::vector<ChunkCost>& chunks(std::int32_t id, std::int64_t stage,
                                       std::int64_t recomputed) {
    model.price_chunks(stage, statics(id, stage), contents->list[static_cast<std::size_t>(id)].runs,
                       recomputed == 0 ? 0 : outer.recompute, recomputed, chunk_costs);
    return chunk_costs;
  }

  Bytes most(std::int32_t id, std::int64_t stage, std::int64_t recomputed) {
    return model.most(stage, statics(id, stage), chunks(id, stage, recomputed));
  }

  /// Does the job leave that many layers, and \a recomputed of them, to the stage?
  bool admits(std::int64_t stage, std::int64_t layers, std::int64_t recomputed) const {
    const auto i = static_cast<std::size_t>(stage);
    return (pinned_layers.empty() || pinned_layers[i] == layers) &&
           (pinned_recompute.empty() || !recomputes() || pinned_recompute[i] == recomputed);
  }

  bool fits_host(std::int32_t id, std::int64_t stage) {
    const std::int64_t cap = host_caps[static_cast<std::size_t>(stage)];
    return cap == kNoLimit || statics(id, stage).host <= cap;
  }

  bool is_refused(std::int32_t id, std::int64_t stage, std::int64_t recomputed) const {
    return !refused.empty() && refused.contains({id, stage, recomputed});
  }

  /// The least recomputation with which it fits, or -1.
  std::int64_t least_recomputed(std::int32_t id, std::int64_t stage) {
    const std::int64_t cap = caps[static_cast<std::size_t>(stage)];
    const Contents::Content& c = contents->list[static_cast<std::size_t>(id)];
    if (!fits_host(id, stage)) return -1;
    if (!pinned_recompute.empty() && recomputes()) {
      const std::int64_t r = pinned_recompute[static_cast<std::size_t>(stage)];
      if (r > c.layers || !admits(stage, c.layers, r)) return -1;
      return footprint_of(statics(id, stage), most(id, stage, r)) <= cap &&
                     !is_refused(id, stage, r)
                 ? r
                 : -1;
    }
    if (!admits(stage, c.layers, 0)) return -1;
    const StaticSums& held = statics(id, stage);
    if (!recomputes()) {
      const std::int64_t r = fixed_recomputed(c);
      return footprint_of(held, most(id, stage, r)) <= cap && !is_refused(id, stage, r) ? r : -1;
    }
    std::optional<CostModel::Dropped> dropped;
    for (std::int64_t r = 0; r <= c.layers;) {
      const Bytes bytes = most(id, stage, r);
      if (footprint_of(held, bytes) <= cap) {
        if (!is_refused(id, stage, r)) return r;
        ++r;
        continue;
      }
      // Blocks are no smaller than what is live.
      if (!dropped) dropped = model.most_dropped(stage, c.runs);
      r += passed_over(*dropped, footprint_of(held, {bytes.live, bytes.live}) - cap);
    }
    return -1;
  }

  /// How many more layers must be recomputed at least to take off \a excess bytes. Of k layers that
  /// are spread over the chunks a chunk holds ceil(k / chunks) at most.
  std::int64_t passed_over(const CostModel::Dropped& d, std::int64_t excess) const {
    const Rational factor = std::max(problem.inventory.reserved_factor, Rational(1));
    const auto with_segments = [&](std::int64_t bytes) {
      return std::max<std::int64_t>((Rational(bytes) * factor).ceil().to_int64(), 1);
    };
    // Segments are rounded up to a byte.
    const std::int64_t needed = excess - with_segments(d.once) - 1;
    if (needed <= 0) return 1;
    if (d.saved <= 0) return index.layers() + 1;
    const std::int64_t by_chunk = with_segments(d.saved * d.held);
    const std::int64_t by_all = with_segments(d.saved * d.held_by_all);
    return std::max((needed + by_chunk - 1) / by_chunk,
                    ((needed + by_all - 1) / by_all - 1) * outer.vpp + 1);
  }

  const StageChoice& least(std::int64_t stage, std::int64_t offset, std::int64_t count) {
    const std::int32_t id = content(offset, count);
    Chosen& out = slot(chosen, id, outer.pp, stage);
    if (out.stamp == stamp) return out.choice;
    out.stamp = stamp;
    StageChoice choice;
    const std::int64_t r = least_recomputed(id, stage);
    if (r < 0) return out.choice = choice;
    const std::size_t pool = pool_of(stage);
    const StageTime t = recomputes() && r > 0
                            ? time(contents->list[static_cast<std::size_t>(id)], r, pool)
                            : base_time(id, pool);
    choice.fits = true;
    choice.recomputed = recomputes() ? r : 0;
    choice.pace = t.pace;
    choice.tail = t.tail;
    return out.choice = choice;
  }
};

Inner::Inner(const Problem& problem, Clock& clock, CategoryMask counted)
    : impl_(std::make_unique<Impl>(problem, clock, counted)) {}
Inner::~Inner() = default;

void Inner::set(const Layout& outer, std::int64_t cap) { impl_->set(outer, cap, false); }
void Inner::set_beyond_memory(const Layout& outer, std::int64_t cap) {
  impl_->set(outer, cap, true);
}
std::int64_t Inner::stages() const { return impl_->outer.pp; }
std::int64_t Inner::chunks() const { return impl_->outer.vpp; }
std::int64_t Inner::round_layers() const { return impl_->contents->round; }
const Composition& Inner::composition() const { return impl_->composed; }
bool Inner::uniform() const {
  return impl_->index.uniform() && impl_->problem.inventory.shared.empty();
}
bool Inner::recomputes() const { return impl_->recomputes(); }

const StageChoice& Inner::least(std::int64_t stage, std::int64_t offset, std::int64_t count) {
  return impl_->least(stage, offset, count);
}

StageChoice Inner::with(std::int64_t stage, std::int64_t offset, std::int64_t count,
                        std::int64_t recomputed) {
  const std::int32_t id = impl_->content(offset, count);
  const Contents::Content& c = impl_->contents->list[static_cast<std::size_t>(id)];
  const std::int64_t r = recomputes() ? recomputed : impl_->fixed_recomputed(c);
  const StageTime t = impl_->time(c, r, impl_->pool_of(stage));
  StageChoice out;
  out.fits =
      impl_->admits(stage, c.layers, r) && r <= c.layers && impl_->fits_host(id, stage) &&
      !impl_->is_refused(id, stage, r) &&
      bytes(stage, offset, count, recomputed) <= impl_->caps[static_cast<std::size_t>(stage)];
  out.recomputed = recomputes() ? recomputed : 0;
  out.pace = t.pace;
  out.tail = t.tail;
  return out;
}

bool Inner::hopeless(std::int64_t stage, std::int64_t offset, std::int64_t count) {
  return impl_->hopeless(stage, offset, count);
}

std::int64_t Inner::most_standing(std::int64_t stage) { return impl_->most_standing(stage); }
void Inner::limit_host(bool limit) {
  if (impl_->host_limit != limit) impl_->standing.clear();
  impl_->host_limit = limit;
}
bool Inner::too_much() { return impl_->too_much(); }
bool Inner::unlike_memories() const { return !impl_->outer.stage_pool.empty(); }
bool Inner::numbered_stages() const { return impl_->model.numbered_stages(); }

std::int64_t Inner::least_pace(std::int64_t stage, std::int64_t offset, std::int64_t count) {
  return impl_->base_time(impl_->content(offset, count), impl_->pool_of(stage)).pace;
}

void Inner::refuse(std::int64_t stage, std::int64_t offset, std::int64_t count,
                   std::int64_t recomputed) {
  const std::int32_t id = impl_->content(offset, count);
  const Contents::Content& c = impl_->contents->list[static_cast<std::size_t>(id)];
  impl_->refused.insert({id, stage, recomputes() ? recomputed : impl_->fixed_recomputed(c)});
  impl_->slot(impl_->chosen, id, impl_->outer.pp, stage).stamp = 0;
}

std::int64_t Inner::bytes(std::int64_t stage, std::int64_t offset, std::int64_t count,
                          std::int64_t recomputed) {
  const std::int32_t id = impl_->content(offset, count);
  const Contents::Content& c = impl_->contents->list[static_cast<std::size_t>(id)];
  const std::int64_t r = recomputes() ? recomputed : impl_->fixed_recomputed(c);
  return impl_->footprint_of(impl_->statics(id, stage), impl_->most(id, stage, r));
}

}  // namespace plimsoll
