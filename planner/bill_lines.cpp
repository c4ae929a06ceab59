// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/bill_lines.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "planner/formula.hpp"
#include "planner/segments.hpp"

namespace plimsoll {

namespace {

/// Where in a chunk a moment is: which segment, and which event of its trace.
struct Spot {
  const ChunkCost* chunk = nullptr;
  const ChunkPeak* peak = nullptr;
  std::uint32_t event = 0;
  std::uint32_t segment = 0;
};

Spot spot_of(const CostModel* model, const StageCost& s, const Moment& m) {
  const Holding& h = s.holdings[m.holding];
  Spot spot;
  spot.chunk = &s.chunks[static_cast<std::size_t>(h.chunk)];
  spot.peak = !h.backward        ? &spot.chunk->forward
              : h.gradients == 1 ? &spot.chunk->first_backward
                                 : &spot.chunk->backward;
  const Run& run = spot.chunk->runs[spot.peak->run];
  spot.segment = run.first_segment + static_cast<std::uint32_t>(spot.peak->index);
  if (model) {
    const SegmentCost& c = model->cost(run);
    spot.event = h.backward ? c.backward_at : c.forward_at;
  }
  return spot;
}

std::string op_name(const Op& op) {
  if (op.kind == OpKind::add) return "addition";
  if (op.kind == OpKind::mul) return "product";
  return op.name.empty() ? std::string(name(op.kind))
                         : fmt::format("{} {}", name(op.kind), op.name);
}

/// Collects bytes by item row, then merges rows of one name.
class Lines {
 public:
  Lines(const Problem& p, const CostModel& model, const StageCost& s, const Moment& m,
        bool formulas)
      : p_(p),
        model_(model),
        s_(s),
        m_(m),
        explain_(formulas),
        formulas_(p.module->pool(), model.env()) {}

  void collect() {
    add_statics();
    if (m_.kind == Moment::forward || m_.kind == Moment::backward) {
      add_traces();
      add_shared();
    }
  }

  void write(StageBill& b) {
    std::map<std::pair<std::string, Category>, std::size_t> index;
    std::vector<std::vector<std::uint32_t>> rows;  // of each line
    for (const auto& [row, amount] : amounts_) {
      if (amount.bytes == 0) continue;
      const Item& item = p_.inventory.items[row];
      const auto [at, is_new] = index.try_emplace({item.name, item.category}, b.lines.size());
      if (is_new) {
        BillLine line;
        line.item = row;
        line.name = item.name;
        line.category = item.category;
        line.lifetime = item.lifetime.str();
        line.source = item.source;
        b.lines.push_back(std::move(line));
        rows.emplace_back();
      }
      b.lines[at->second].bytes += amount.bytes;
      rows[at->second].push_back(row);
    }
    for (std::size_t i = 0; explain_ && i < rows.size(); ++i) {
      b.lines[i].formula = formula(rows[i], b.layers);
      b.lines[i].divided_by = divided_by(rows[i]);
    }
    std::stable_sort(b.lines.begin(), b.lines.end(), [](const BillLine& x, const BillLine& y) {
      return x.category != y.category ? x.category < y.category : x.bytes > y.bytes;
    });
  }

  Int128 total(bool outside) const {
    Int128 sum = 0;
    for (const auto& [row, amount] : amounts_)
      if (p_.inventory.items[row].outside == outside) sum += amount.bytes;
    return sum;
  }

 private:
  /// Mode and number of a trace, and the tensor in it.
  using TensorKey = std::tuple<RecomputeMode, std::uint32_t, std::uint32_t>;
  struct Amount {
    Int128 bytes = 0;
    std::map<TensorKey, std::pair<Expr, Int128>> tensors;  ///< bytes of one, and how many
    std::string formula;  ///< of rows that are no tensors of a trace
  };

  /// What divides the rows of a line, at this layout.
  std::string divided_by(const std::vector<std::uint32_t>& rows) {
    std::uint64_t mask = 0;
    for (const std::uint32_t row : rows) {
      const Item& item = p_.inventory.items[row];
      mask |= formulas_.dividing(item.bytes) | formulas_.variables(item.shard);
    }
    std::string text;
    for (Var v : {Var::tp, Var::cp, Var::ep, Var::etp, Var::shard, Var::expert_shard})
      if (mask >> static_cast<unsigned>(v) & 1)
        text += (text.empty() ? "" : ", ") + std::string(name(v));
    return text;
  }

  std::int64_t in_flight() const {
    if (m_.kind != Moment::forward && m_.kind != Moment::backward) return 0;
    std::int64_t sum = 0;
    for (const std::int32_t alive : s_.holdings[m_.holding].alive) sum += alive;
    return sum;
  }

  /// "4 in flight * 20 layers * …", "79 layers in flight * …" where the layer at work holds less.
  std::string times(Expr bytes, Int128 count, std::int64_t layers) {
    std::string text = formulas_.str(bytes);
    if (count == 1) return text;
    if (text.find(" + ") != std::string::npos || text.front() == '-') text = "(" + text + ")";
    const std::int64_t flying = in_flight();
    if (flying <= 1) return fmt::format("{} layers * {}", to_string(count), text);
    if (count == flying) return fmt::format("{} in flight * {}", flying, text);
    if (count == Int128{flying} * layers)
      return fmt::format("{} in flight * {} layers * {}", flying, layers, text);
    return fmt::format("{} layers in flight * {}", to_string(count), text);
  }

  /// The sum of a line's rows. Tensors of one kind of layer that are there equally often are added
  /// (gate and up); equal sums of unlike layers are counted together.
  std::string formula(const std::vector<std::uint32_t>& rows, std::int64_t layers) {
    std::map<std::tuple<RecomputeMode, std::uint32_t, Int128>, Expr> sums;
    std::string text;
    const auto append = [&](const std::string& term) {
      if (!term.empty()) text += (text.empty() ? "" : " + ") + term;
    };
    for (const std::uint32_t row : rows) {
      const Amount& amount = amounts_[row];
      if (amount.tensors.empty()) {
        append(amount.formula.empty() ? formulas_.str(p_.inventory.items[row].bytes)
                                      : amount.formula);
      }
      for (const auto& [key, tensor] : amount.tensors) {
        const auto& [bytes, count] = tensor;
        if (count == 0) continue;
        const auto& [mode, trace, index] = key;
        Expr& sum = sums.try_emplace({mode, trace, count}, Expr{}).first->second;
        sum = p_.module->pool().add(sum, bytes);
      }
    }
    std::vector<std::pair<Expr, Int128>> counted;
    for (const auto& entry : sums) {
      const Expr expr = entry.second;
      const Int128 count = std::get<2>(entry.first);
      const auto same = std::find_if(counted.begin(), counted.end(),
                                     [&](const auto& pair) { return pair.first == expr; });
      if (same == counted.end())
        counted.emplace_back(expr, count);
      else
        same->second += count;
    }
    for (const auto& [expr, count] : counted) append(times(expr, count, layers));
    return text;
  }

  void add(std::uint32_t row, Int128 bytes, std::string formula) {
    Amount& a = amounts_[row];
    a.bytes += bytes;
    if (a.formula.empty()) a.formula = std::move(formula);
  }

  /// \a count (below 0: freed) of a trace's tensor.
  void add_tensor(const Run& run, std::uint32_t tensor, Int128 count) {
    Amount& a = amounts_[p_.inventory.traces[run.mode][run.trace].tensors[tensor].item];
    a.bytes += count * model_.tensors(run.mode, run.trace)[tensor];
    auto& [bytes, so_far] = a.tensors[{run.mode, run.trace, tensor}];
    bytes = model_.tensor_bytes(run.mode, run.trace, tensor);
    so_far += count;
  }

  bool is_live(const Item& item) const {
    const Lifetime& life = item.lifetime;
    if (item.outside || life.kind == LifetimeKind::always) return true;
    if (life.kind == LifetimeKind::from_first_step) return true;
    if (life.kind == LifetimeKind::step) return m_.kind != Moment::between;
    if (life.kind == LifetimeKind::op)
      return m_.kind == Moment::forward || m_.kind == Moment::backward;
    if (life.kind == LifetimeKind::microbatch) return false;  // counted a micro-batch, below
    if (is_beside_steps(life.from)) return false;
    const int from = static_cast<int>(life.from), to = static_cast<int>(life.to);
    if (m_.kind == Moment::between) return from > to;
    const int phase = m_.kind == Moment::forward ? 0 : m_.kind == Moment::backward ? 1 : 2;
    const bool accumulates = life.from == Phase::backward && life.to == Phase::update;
    if (accumulates && phase < 2) {
      const int gradients = s_.holdings[m_.holding].gradients;
      return gradients == 2 || (phase == 1 && item.place.kind == Place::stage);
    }
    return from <= to ? from <= phase && phase <= to : phase >= from;
  }

  /// "20 * (…) / shard" of a line that is made of several rows.
  std::string static_formula(std::uint32_t row, const std::vector<std::int64_t>& count) {
    if (!explain_) return "";
    const Item& head = p_.inventory.items[row];
    if (head.combine != Combine::add) return formulas_.str(head.bytes);
    std::vector<std::pair<std::string, std::int64_t>> terms;
    for (const Item& item : p_.inventory.items) {
      if (item.traced || item.name != head.name || item.category != head.category) continue;
      const bool layers = item.place.kind == Place::layer_class;
      std::int64_t n = 1;
      if (layers) n = count[item.place.index];
      if (item.place.kind == Place::root_segment)
        n = count[p_.inventory.trace_of(item.place.index)];
      const std::string text = formulas_.str(item.bytes);
      if (n == 0 || text == "0") continue;
      const auto same = std::find_if(terms.begin(), terms.end(), [&](const auto& term) {
        return layers && term.first == text;
      });
      if (same == terms.end())
        terms.emplace_back(text, n);
      else
        same->second += n;
    }
    std::string sum;
    for (const auto& [text, n] : terms)
      sum += (sum.empty() ? "" : " + ") + (n > 1 ? fmt::format("{} layers * ({})", n, text) : text);
    if (formulas_.is_one(head.shard)) return sum;
    const std::string shard = formulas_.str(head.shard);
    return terms.size() > 1 || sum.find(" + ") != std::string::npos
               ? fmt::format("({}) / {}", sum, shard)
               : fmt::format("{} / {}", sum, shard);
  }

  void add_statics() {
    std::vector<std::int64_t> count(p_.inventory.traces.front().size(), 0);
    for (const ChunkCost& c : s_.chunks)
      for (const Run& r : c.runs) count[r.trace] += r.count;
    for (const StaticBytes& st : s_.statics) {
      const Item& item = p_.inventory.items[st.item];
      if (is_live(item)) add(st.item, st.bytes.live, static_formula(st.item, count));
      if (item.lifetime.kind == LifetimeKind::microbatch && m_.kind != Moment::update &&
          m_.kind != Moment::between)
        add(st.item, micro_batches() * st.bytes.live, "");
    }
  }

  std::int64_t micro_batches() const {
    std::int64_t n = 0;
    for (std::int32_t a : s_.holdings[m_.holding].alive) n = std::max<std::int64_t>(n, a);
    return n;
  }

  /// What \a count segments of a run hold of one micro-batch each, saved and waiting.
  void add_saved(const Run& run, std::int64_t count, std::int64_t micro) {
    if (count * micro == 0) return;
    const SegmentTrace& trace = p_.inventory.traces[run.mode][run.trace];
    std::vector<std::int64_t> live(trace.tensors.size(), 0);
    for (const TraceEvent& e : trace.forward)
      if (e.kind != TraceEvent::run) live[e.index] += e.kind == TraceEvent::alloc ? 1 : -1;
    for (std::uint32_t t = 0; t < live.size(); ++t)
      if (live[t] != 0) add_tensor(run, t, Int128{count * micro} * live[t]);
  }

  void add_traces() {
    const Holding& h = s_.holdings[m_.holding];
    for (std::size_t k = 0; k < s_.chunks.size(); ++k) {
      const bool working = static_cast<std::int32_t>(k) == h.chunk;
      for (const Run& run : s_.chunks[k].runs)
        add_saved(run, run.count, h.alive[k] - (working ? 1 : 0));
    }
    const Spot spot = spot_of(&model_, s_, m_);
    for (std::size_t i = 0; i < spot.chunk->runs.size(); ++i) {
      const Run& run = spot.chunk->runs[i];
      if (i < spot.peak->run) add_saved(run, run.count, 1);
      if (i == spot.peak->run) add_saved(run, spot.peak->index, 1);
    }
    add_working(spot, h.backward);
    if (h.backward && h.gradients == 1) add_growing(spot);
    add_spills(spot, h.backward);
  }

  /// The segment at work, up to the event of its peak.
  void add_working(const Spot& spot, bool backward) {
    const Run& run = spot.chunk->runs[spot.peak->run];
    const SegmentTrace& trace = p_.inventory.traces[run.mode][run.trace];
    const auto apply = [&](const TraceEvent& e) {
      if (e.kind != TraceEvent::run) add_tensor(run, e.index, e.kind == TraceEvent::alloc ? 1 : -1);
    };
    if (backward)
      for (const TraceEvent& e : trace.forward) apply(e);
    const std::vector<TraceEvent>& events = backward ? trace.backward : trace.forward;
    for (std::uint32_t i = 0; i <= spot.event && i < events.size(); ++i) apply(events[i]);
  }

  void add_growing(const Spot& spot) {
    for (std::size_t i = spot.peak->run; i < spot.chunk->runs.size(); ++i) {
      const Run& run = spot.chunk->runs[i];
      const std::int64_t segments = run.count - (i == spot.peak->run ? spot.peak->index : 0);
      for (const auto& [row, bytes] : s_.growing[run.trace]) add(row, Int128{segments} * bytes, "");
    }
  }

  void add_spills(const Spot& spot, bool backward) {
    if (p_.inventory.spills.empty()) return;
    const auto neighbour = [&](bool earlier, bool late) {
      const std::vector<Run>& runs = spot.chunk->runs;
      const std::size_t i = spot.peak->run;
      const bool same = earlier ? spot.peak->index > 0 : spot.peak->index + 1 < runs[i].count;
      if (!same && (earlier ? i == 0 : i + 1 == runs.size())) return;
      const Run& run = same ? runs[i] : runs[earlier ? i - 1 : i + 1];
      for (const auto& [row, bytes] : model_.spilled(run.trace, backward, late))
        add(row, bytes, "");
    };
    neighbour(!backward, true);
    neighbour(backward, false);
  }

  void add_shared() {
    shared_ = micro_batches() * s_.shared.live;
    if (m_.kind == Moment::backward) shared_ += s_.shared_gradients.live;
    for (const StaticBytes& st : s_.statics)
      if (p_.inventory.items[st.item].lifetime.kind == LifetimeKind::microbatch)
        shared_ -= micro_batches() * st.bytes.live;
  }

 public:
  Int128 shared_ = 0;  ///< values that several segments read, and their gradients

 private:
  const Problem& p_;
  const CostModel& model_;
  const StageCost& s_;
  const Moment& m_;
  bool explain_;
  Formulas formulas_;
  std::map<std::uint32_t, Amount> amounts_;
};

void add_line(StageBill& b, std::string line_name, Category category, Int128 bytes,
              std::string source) {
  if (bytes == 0) return;
  BillLine line;
  line.name = std::move(line_name);
  line.category = category;
  line.bytes = bytes;
  line.lifetime = "always";
  line.source = std::move(source);
  b.lines.push_back(std::move(line));
}

}  // namespace

std::string moment_name(const Problem& p, const StageCost& s, const Moment& m) {
  if (m.kind == Moment::update) return "optimizer step";
  if (m.kind == Moment::between) return "between steps";
  const Spot spot = spot_of(nullptr, s, m);
  const Segment& segment = p.program->segments[spot.segment];
  const char* pass = m.kind == Moment::backward ? "backward" : "forward";
  return segment.is_layer
             ? fmt::format("{} of layer {}", pass, segment.layer)
             : fmt::format("{} of {}", pass,
                           op_name(p.program->ops[segment.first_op + segment.op_count - 1]));
}

std::string moment_name(const Problem& p, std::uint32_t segment, OpId op, bool backward,
                        bool recomputing) {
  const char* pass = backward ? "backward" : "forward";
  const std::string what = op_name(p.program->ops[op]);
  const Segment& s = p.program->segments[segment];
  if (!s.is_layer) return fmt::format("{} of {}", pass, what);
  return fmt::format("{} of layer {}, {}{}", pass, s.layer, recomputing ? "recomputing " : "",
                     what);
}

void itemise(const Problem& p, const CostModel& model, const StageCost& s, const Moment& m,
             const Footprint& f, StageBill& b, bool formulas) {
  Lines lines(p, model, s, m, formulas);
  lines.collect();
  lines.write(b);
  add_line(b, "values that several layers read", Category::activations, lines.shared_,
           "derived from the program's ops");
  const Int128 live = lines.total(false) + lines.shared_;
  if (live != m.bytes.live)
    throw InternalError(fmt::format("the lines of stage {} add up to {} bytes, its peak is {}",
                                    b.stage, to_string(live), m.bytes.live));
  add_line(b, "rounding to blocks of 512 B", Category::fragmentation, f.allocated - m.bytes.live,
           "ACCOUNTING.md D: the caching allocator's round_size");
  add_line(b, "segments beyond live blocks", Category::fragmentation, f.reserved - f.allocated,
           replays(p) ? kReplaySource : p.inventory.reserved_source);
  b.peak_moment = moment_name(p, s, m);
  b.in_flight = 0;
  if (m.kind == Moment::forward || m.kind == Moment::backward) {
    const Spot spot = spot_of(&model, s, m);
    const Run& run = spot.chunk->runs[spot.peak->run];
    const SegmentTrace& trace = p.inventory.traces[run.mode][run.trace];
    const std::vector<TraceEvent>& events =
        m.kind == Moment::backward ? trace.backward : trace.forward;
    if (spot.event < events.size() && events[spot.event].kind == TraceEvent::run)
      b.peak_moment = moment_name(p, spot.segment, events[spot.event].index,
                                  m.kind == Moment::backward, events[spot.event].recomputing);
    for (std::int32_t a : s.holdings[m.holding].alive) b.in_flight += a;
  }
}

}  // namespace plimsoll
