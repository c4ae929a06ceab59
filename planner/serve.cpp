// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/serve.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "lang/units.hpp"
#include "planner/range.hpp"
#include "planner/serve_cost.hpp"

namespace plimsoll {

namespace {

constexpr const char* kRestOfPool = "rest of the cache's pool";

Int128 whole(const Rational& bytes) { return bytes.ceil().num(); }

/// One stage's parts, before the cache is dealt out.
struct Stage {
  std::vector<BillLine> lines;  ///< weights, framework's items, activations
  Int128 inside = 0;            ///< of those, what counts against the server's share
  Int128 beside = 0;
  StageCache cache;
  Int128 page = 0, sequence = 0;
  Int128 share = 0, room = 0;
  Int128 memory = 0;  ///< the GPU's, less what others occupy
};

class Server {
 public:
  Server(const Problem& p, const Layout& l)
      : p_(p),
        l_(l),
        inventory_(p.inventory),
        serving_(p.inventory.serving),
        pool_(p.module->pool()),
        shapes_(*p.program, pool_, inventory_.facts.imbalance, inventory_.facts.vocab_multiple) {
    for (std::int64_t s = 0; s < l.pp; ++s) stages_.push_back(price(s));
    deal();
  }

  std::int64_t sequences() const { return most_ * l_.dp; }
  Bill bill() const;

 private:
  Stage price(std::int64_t stage) const;
  void add_weights(Stage&, const std::vector<std::uint32_t>& segments, const Env&) const;
  void add_items(Stage&, const std::vector<std::uint32_t>& segments, const Env&) const;
  void add(Stage&, BillLine, bool counts) const;
  std::int64_t instances(const Item&, const std::vector<std::uint32_t>& segments) const;
  Env environment_of(std::int64_t stage) const;
  void deal();
  StageBill bill_of(std::int64_t stage, std::int64_t sequences) const;
  std::string divided_by(Expr) const;
  Expr for_reading(Expr, const Env&) const;

  const Problem& p_;
  const Layout& l_;
  const Inventory& inventory_;
  const Serving& serving_;
  ExprPool& pool_;
  ops::Shapes shapes_;
  std::vector<Stage> stages_;
  std::int64_t blocks_ = 0;  ///< of a replica
  std::int64_t most_ = 0;    ///< sequences of a replica
};

/// A step of batch_tokens tokens; no sequence parallelism, as engines run by default.
Env Server::environment_of(std::int64_t stage) const {
  Env env = environment(p_, l_, stage);
  env[Var::seq] = serving_.batch_tokens;
  if (p_.job->target.is_zero()) env[Var::target] = serving_.batch_tokens;
  for (const Var v : {Var::mbs, Var::batch, Var::microbatches}) env[v] = 1;
  env[Var::sp] = 0;
  if (l_.ep * l_.etp < l_.tp && l_.tp % l_.ep == 0) env[Var::etp] = l_.tp / l_.ep;
  return env;
}

std::string Server::divided_by(Expr e) const {
  std::string text;
  for (const Var v : {Var::tp, Var::ep, Var::etp})
    if (pool_.depends_on(e) >> static_cast<unsigned>(v) & 1)
      text += (text.empty() ? "" : ", ") + std::string(name(v));
  return text;
}

/// What a server does not choose (the tokens of a step, no sequence parallelism) folded in.
Expr Server::for_reading(Expr e, const Env& env) const {
  std::uint64_t mask = 0;
  for (const Var v : {Var::sp, Var::mbs, Var::seq, Var::target, Var::cp, Var::first, Var::last})
    mask |= std::uint64_t{1} << static_cast<unsigned>(v);
  return pool_.substitute(e, env, mask);
}

void Server::add(Stage& s, BillLine line, bool counts) const {
  if (line.bytes == 0) return;
  (counts ? s.inside : s.beside) += line.bytes;
  s.lines.push_back(std::move(line));
}

void Server::add_weights(Stage& s, const std::vector<std::uint32_t>& segments,
                         const Env& env) const {
  const ServedWeights w = served_weights(shapes_, serving_, segments);
  const auto line = [&](const std::string& dtype, Expr bytes) {
    BillLine l;
    l.name = fmt::format("weights, {}", dtype);
    l.category = Category::weights;
    l.bytes = whole(pool_.eval(bytes, env));
    l.formula = pool_.str(bytes);
    l.lifetime = "always";
    l.divided_by = divided_by(bytes);
    l.source = "the model's parameters in the job's dtype";
    add(s, std::move(l), true);
  };
  line(p_.job->weights, w.quantized);
  line("bf16", w.plain);
}

std::int64_t Server::instances(const Item& item, const std::vector<std::uint32_t>& segments) const {
  if (item.place.kind == Place::stage) return 1;
  const Program& program = *p_.program;
  std::int64_t count = 0;
  for (const std::uint32_t s : segments) {
    const bool here = program.segments[s].is_layer
                          ? item.place.kind == Place::layer_class &&
                                program.segments[s].layer_class == item.place.index
                          : item.place.kind == Place::root_segment && s == item.place.index;
    count += here ? 1 : 0;
  }
  return item.combine == Combine::add ? count : std::min<std::int64_t>(count, 1);
}

/// The framework's and the job's items. Activations that live for one op (the sampler) and the
/// layers' forward come one after the other: the larger counts.
void Server::add_items(Stage& s, const std::vector<std::uint32_t>& segments, const Env& env) const {
  std::map<std::string, std::size_t> shared;  // combine = max, each shape: one buffer
  std::vector<BillLine> lines, passing;
  Int128 passing_bytes = 0;
  for (std::uint32_t i = 0; i < inventory_.items.size(); ++i) {
    const Item& item = inventory_.items[i];
    const Lifetime& life = item.lifetime;
    if (item.traced || item.bytes == Expr{}) continue;
    if (life.kind == LifetimeKind::span && life.from != Phase::forward) continue;
    BillLine line;
    line.item = i;
    line.name = item.name;
    line.category = item.category;
    line.bytes = whole(pool_.eval(item.bytes, env)) * instances(item, segments);
    const Expr bytes = for_reading(item.bytes, env);
    line.formula = pool_.str(bytes);
    line.lifetime = life.str();
    line.divided_by = divided_by(bytes);
    line.source = item.source;
    if (item.combine != Combine::add) {
      const auto [at, fresh] = shared.try_emplace(item.name + item.key, lines.size());
      if (!fresh) {
        if (line.bytes > lines[at->second].bytes) lines[at->second] = std::move(line);
        continue;
      }
    }
    if (life.kind == LifetimeKind::op && item.category == Category::activations) {
      passing_bytes += line.bytes;
      passing.push_back(std::move(line));
    } else {
      lines.push_back(std::move(line));
    }
  }

  Env alone = env;  // rows of experts are counted undivided
  alone[Var::ep] = alone[Var::etp] = 1;
  BillLine forward;
  forward.name = "a layer's forward";
  forward.category = Category::activations;
  forward.bytes = forward_peak(inventory_, pool_, segments, alone);
  forward.lifetime = "op";
  forward.divided_by = "tp";
  forward.source = fmt::format("derived from the program's ops for {} tokens, as engines profile",
                               serving_.batch_tokens);
  if (forward.bytes >= passing_bytes) passing = {forward};
  lines.insert(lines.end(), passing.begin(), passing.end());
  for (BillLine& line : lines) {
    const bool context = line.item != kNone &&
                         inventory_.items[line.item].origin == p_.cluster->pools.front().gpu.span;
    const bool counts =
        !context && (serving_.activations_inside || line.category != Category::activations);
    add(s, std::move(line), counts);
  }
}

Stage Server::price(std::int64_t stage) const {
  Stage s;
  const auto segments = stage_segments(*p_.program, l_.stage_layers, stage);
  const Env env = environment_of(stage);
  add_weights(s, segments, env);
  add_items(s, segments, env);
  s.cache = stage_cache(shapes_, serving_, p_.job->kv_block, l_.seq, segments);
  s.page = whole(pool_.eval(s.cache.page, env));
  s.sequence = whole(pool_.eval(s.cache.sequence, env));
  const std::size_t pool =
      l_.stage_pool.empty() ? 0 : l_.stage_pool[static_cast<std::size_t>(stage)];
  const Int128 memory = p_.cluster->pools[pool].gpu.memory;
  s.memory = memory - p_.cluster->occupied;
  s.share = (Rational::integer(memory) * serving_.utilization).floor().num();
  s.room = std::max<Int128>(0, s.share - s.inside);
  return s;
}

/// A replica has the blocks of its tightest stage. Where layers keep unlike numbers of tokens, a
/// block is a page in each of them, and sequences are what the pool's bytes hold.
void Server::deal() {
  constexpr Int128 kMany = std::numeric_limits<std::int32_t>::max();
  Int128 blocks = -1, most = kMany;
  bool uniform = true;
  for (const Stage& s : stages_) {
    uniform = uniform && s.cache.uniform;
    if (s.page > 0) blocks = blocks < 0 ? s.room / s.page : std::min(blocks, s.room / s.page);
    if (s.sequence > 0) most = std::min(most, s.room / s.sequence);
    if (s.inside > s.share) most = 0;
  }
  blocks = std::max<Int128>(blocks, 0);
  if (uniform && blocks >= 0 && most != kMany) {
    const std::int64_t each = (l_.seq + p_.job->kv_block - 1) / p_.job->kv_block;
    most = std::min(most, blocks / each);
  }
  if (serving_.max_sequences > 0) most = std::min<Int128>(most, serving_.max_sequences);
  blocks_ = static_cast<std::int64_t>(blocks);
  most_ = static_cast<std::int64_t>(most);
}

StageBill Server::bill_of(std::int64_t stage, std::int64_t sequences) const {
  const Stage& s = stages_[static_cast<std::size_t>(stage)];
  StageBill b;
  b.stage = stage;
  b.layers = l_.stage_layers[static_cast<std::size_t>(stage)];
  b.lines = s.lines;
  const auto add_line = [&](std::string name, Category category, Int128 bytes, std::string formula,
                            std::string source) {
    if (bytes <= 0) return;
    BillLine line;
    line.name = std::move(name);
    line.category = category;
    line.bytes = bytes;
    line.formula = std::move(formula);
    line.lifetime = "always";
    line.source = std::move(source);
    b.lines.push_back(std::move(line));
  };
  const Int128 needed = s.sequence * sequences;
  const Expr replica = pool_.ceil_div(pool_.variable(Var::sequences), pool_.variable(Var::dp));
  add_line("cache of the sequences", Category::kv_cache, needed,
           pool_.str(pool_.mul(replica, s.cache.sequence)),
           fmt::format("pages of {} tokens in every layer, {} tokens a sequence", p_.job->kv_block,
                       l_.seq));
  if (!b.lines.empty() && needed > 0) b.lines.back().divided_by = divided_by(s.cache.sequence);
  const Int128 pool = s.page > 0 ? s.page * blocks_ : needed;
  add_line(kRestOfPool, Category::buffers, pool - needed, "",
           "the server takes its whole share when it starts");
  const Int128 inside = s.inside + std::max(pool, needed);
  Int128 beside = s.beside;
  if (inside > s.share) {
    const Int128 kept = s.memory - s.share - s.beside;
    add_line("left free by the server's share", Category::overhead, kept, "",
             fmt::format("utilization = {}%", (serving_.utilization * 100).str()));
    beside += std::max<Int128>(kept, 0);
  }
  for (const BillLine& line : b.lines)
    b.categories[static_cast<std::size_t>(line.category)] += line.bytes;
  std::stable_sort(b.lines.begin(), b.lines.end(), [](const BillLine& x, const BillLine& y) {
    return x.category != y.category ? x.category < y.category : x.bytes > y.bytes;
  });
  b.peak_bytes = inside + beside;
  b.live_bytes = b.allocated_bytes = b.reserved_bytes =
      b.peak_bytes - b.categories[static_cast<std::size_t>(Category::overhead)];
  b.first_step_bytes = b.steady_bytes = b.update_bytes = b.peak_bytes;
  b.peak_moment = fmt::format("a step of {} tokens", grouped(serving_.batch_tokens));
  b.moments = {{b.peak_moment, b.peak_bytes}};
  return b;
}

Bill Server::bill() const {
  Bill result;
  result.layout = l_;
  result.params = p_.program->parameter_count();
  // Where not one fits, the bill shows what one would need.
  result.sequences = l_.sequences > 0 ? l_.sequences : std::max<std::int64_t>(sequences(), 1);
  const std::int64_t each = (result.sequences + l_.dp - 1) / l_.dp;
  result.layout.sequences = result.sequences;
  result.kv_blocks = blocks_;
  const bool uniform =
      std::all_of(stages_.begin(), stages_.end(), [](const Stage& s) { return s.cache.uniform; });
  if (uniform) result.kv_tokens = blocks_ * p_.job->kv_block;
  Int128 least = 0;
  for (std::int64_t stage = 0; stage < l_.pp; ++stage) {
    result.stages.push_back(bill_of(stage, each));
    StageBill& made = result.stages.back();
    made.hbm_bytes = stages_[static_cast<std::size_t>(stage)].memory;
    const Int128 left = made.hbm_bytes - made.peak_bytes;
    if (stage == 0 || left < least) {
      least = left;
      result.peak_stage = stage;
    }
  }
  result.peak_bytes = result.stages[static_cast<std::size_t>(result.peak_stage)].peak_bytes;
  result.hbm_bytes = stages_[static_cast<std::size_t>(result.peak_stage)].memory;
  result.fits = result.peak_bytes <= result.hbm_bytes;
  result.verdict = result.fits ? "fits" : "does not fit";
  Int128 pool = 0;
  for (const BillLine& line : result.stages[static_cast<std::size_t>(result.peak_stage)].lines)
    if (line.category == Category::kv_cache || line.name == kRestOfPool) pool += line.bytes;
  result.range = measured_room(p_, pool);
  return result;
}

}  // namespace

Bill serve_bill(const Problem& p, const Layout& l) { return Server(p, l).bill(); }

std::int64_t max_sequences(const Problem& p, Layout l) {
  l.sequences = 0;
  return Server(p, l).sequences();
}

}  // namespace plimsoll
