// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <numeric>

#include "runtime/cuda/op_call.hpp"

namespace plimsoll::runtime::cuda {

namespace {

using List = std::vector<std::int32_t>;

std::int64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}
Counts times(Counts counts, std::int64_t n) {
  for (std::int64_t& c : counts) c *= n;
  return counts;
}

/// The experts op that \a c is, or ends.
OpId opening(const OpCall& c) {
  if (c.what().kind == OpKind::experts) return c.op;
  return c.program().values[c.what().inputs[0]].experts;
}

Room upload(OpCall& c, const List& list) {
  Room room(c.scratch, static_cast<std::int64_t>(list.size()) * 4);
  if (!list.empty())
    c.machine.upload(room.at(), list.data(), static_cast<std::int64_t>(list.size()) * 4);
  return room;
}

/// A rank's tokens and what follows from their numbers: by turns, token t of a step goes to the
/// top_k experts from t * top_k on. Every rank can say which experts another's tokens go to, so
/// that nothing is asked for.
struct Tokens {
  Tokens(const OpCall& c, const ValueShape& v, std::int64_t first)
      : first_sequence(first), sequences(c.shapes().mbs), whole(v.tokens) {}
  std::int64_t turn(std::int64_t position, std::int64_t b, const Op& op) const {
    return ((first_sequence + b) * whole + position) * op.top_k % op.count;
  }
  std::int64_t first_sequence, sequences, whole;
};

/// Rows by expert that the tokens at \a positions send.
Counts count_rows(const Tokens& t, const std::vector<std::int64_t>& positions, const Op& op) {
  Counts rows(static_cast<std::size_t>(op.count));
  for (const std::int64_t p : positions)
    for (std::int64_t b = 0; b < t.sequences; ++b)
      for (std::int64_t k = 0; k < op.top_k; ++k)
        ++rows[static_cast<std::size_t>((t.turn(p, b, op) + k) % op.count)];
  return rows;
}

/// Positions and first sequence of another rank of the stage: those of this rank, but for where its
/// place in dp, cp and (under sp) tp is another.
Counts rows_of_rank(const OpCall& c, const ValueShape& v, std::int64_t rank, const Op& op) {
  const Layout& l = c.world.layout;
  const RankPlace mine = c.world.plan.place, place = place_of(l, rank);
  const std::int64_t first = c.first_sequence + (place.dp - mine.dp) * l.microbatches * l.mbs;
  std::vector<std::int64_t> positions = host::context_positions(v.tokens, l.cp, place.cp);
  if (v.sharded) {
    const auto part = static_cast<std::int64_t>(positions.size()) / l.tp;
    positions = {positions.begin() + place.tp * part, positions.begin() + (place.tp + 1) * part};
  }
  return count_rows(Tokens(c, v, first), positions, op);
}

void plan_routes(OpCall& c, const ValueShape& v) {
  Routes& r = *c.routes;
  const OpId experts = opening(c);
  const Op& op = c.program().ops[experts];
  const RankShapes& s = c.shapes();
  const Layout& l = c.world.layout;
  const std::int64_t n = op.count, local = n / s.ep, tokens = v.rows;
  const Tokens mine(c, v, c.first_sequence);
  r = Routes();
  r.sent.assign(static_cast<std::size_t>(s.ep), 0);
  // Rows sent lie by expert, then by token.
  List token_of, number_of, sent_of(static_cast<std::size_t>(tokens * op.top_k));
  std::vector<List> by_expert(static_cast<std::size_t>(n));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t first =
        mine.turn(v.positions[static_cast<std::size_t>(t / s.mbs)], t % s.mbs, op);
    for (std::int64_t k = 0; k < op.top_k; ++k)
      by_expert[static_cast<std::size_t>((first + k) % n)].push_back(static_cast<std::int32_t>(t));
  }
  std::vector<std::int64_t> filled(static_cast<std::size_t>(tokens));
  for (std::int64_t e = 0; e < n; ++e)
    for (const std::int32_t t : by_expert[static_cast<std::size_t>(e)]) {
      auto& k = filled[static_cast<std::size_t>(t)];
      sent_of[static_cast<std::size_t>(t * op.top_k + k++)] =
          static_cast<std::int32_t>(token_of.size());
      token_of.push_back(t);
      number_of.push_back(static_cast<std::int32_t>(t * n + e));
      ++r.sent[static_cast<std::size_t>(e / local)];
    }
  // Rows come by etp rank, then by ep rank, then by expert; they lie by expert.
  const std::vector<std::int64_t> ep_ranks = group(l, RankGroup::ep, c.world.plan.place.rank);
  std::vector<Counts> from;  // by etp * ep
  for (std::int64_t i = 0; i < s.etp * s.ep; ++i) {
    const std::int64_t rank =
        ep_ranks[static_cast<std::size_t>(i % s.ep)] + (i / s.ep - s.rank.etp);
    from.push_back(rows_of_rank(c, v, rank, op));
  }
  const auto count = [&](std::int64_t i, std::int64_t e) {
    return from[static_cast<std::size_t>(i)][static_cast<std::size_t>(s.rank.ep * local + e)];
  };
  r.received.assign(static_cast<std::size_t>(s.ep), 0);
  r.of_expert.assign(static_cast<std::size_t>(local), 0);
  for (std::int64_t e = 0; e < local; ++e) {
    for (std::int64_t p = 0; p < s.ep; ++p)
      r.received[static_cast<std::size_t>(p)] += count(s.rank.etp * s.ep + p, e);
    for (std::int64_t i = 0; i < s.etp * s.ep; ++i)
      r.of_expert[static_cast<std::size_t>(e)] += count(i, e);
  }
  Counts next(static_cast<std::size_t>(local));
  std::exclusive_scan(r.of_expert.begin(), r.of_expert.end(), next.begin(), std::int64_t{0});
  List place_of_row;
  for (std::int64_t i = 0; i < s.etp * s.ep; ++i)
    for (std::int64_t e = 0; e < local; ++e)
      for (std::int64_t k = 0; k < count(i, e); ++k)
        place_of_row.push_back(static_cast<std::int32_t>(next[static_cast<std::size_t>(e)]++));
  List source_of(place_of_row.size());
  for (std::size_t i = 0; i < place_of_row.size(); ++i)
    source_of[static_cast<std::size_t>(place_of_row[i])] = static_cast<std::int32_t>(i);
  r.rows_sent = static_cast<std::int64_t>(token_of.size());
  r.rows = static_cast<std::int64_t>(place_of_row.size());
  if (s.etp > 1 && r.rows != s.etp * total(r.received))
    throw InternalError("ranks that share experts' matrices get unlike numbers of rows");
  if (r.rows > s.routed[experts])
    throw InternalError(fmt::format("{} rows are routed to a rank that has room for {}", r.rows,
                                    s.routed[experts]));
  r.token_of = upload(c, token_of);
  r.sent_of = upload(c, sent_of);
  r.number_of = upload(c, number_of);
  r.place_of = upload(c, place_of_row);
  r.source_of = upload(c, source_of);
  r.scores = Room(c.scratch, r.rows * 4);
  r.score_gradients = Room(c.scratch, r.rows * 4);
}

/// Rows of \a width elements to the ranks of their experts, in the order of the buffer.
void dispatch(OpCall& c, Array rows, std::int64_t width, Array out) {
  const Routes& r = *c.routes;
  const std::int64_t mine = total(r.received);
  const Buffer received(c, mine * width, rows.number), all(c, r.rows * width, rows.number);
  c.circle(Bond::ep).all_to_all(rows, times(r.sent, width), received, times(r.received, width));
  c.circle(Bond::etp).all_gather(received, mine * width, all);
  c.machine.launch(TakeRows{all, out, r.source_of.as<std::int32_t>(), r.rows, width});
}

/// The way back: the sum over the ranks that share an expert's matrices, to where a row came from.
void undo_dispatch(OpCall& c, Array rows, std::int64_t width, Array out) {
  const Routes& r = *c.routes;
  const std::int64_t mine = total(r.received);
  const Buffer all(c, r.rows * width, rows.number), own(c, mine * width, rows.number);
  c.machine.launch(TakeRows{rows, all, r.place_of.as<std::int32_t>(), r.rows, width});
  c.circle(Bond::etp).reduce_scatter(all, mine * width, own);
  c.circle(Bond::ep).all_to_all(own, times(r.received, width), out, times(r.sent, width));
}

Route router(OpCall& c, const ValueShape& v) {
  const Op& op = c.program().ops[opening(c)];
  Route k;
  k.tokens = v.rows;
  k.experts = op.count;
  k.top_k = op.top_k;
  k.sigmoid_scores = op.sigmoid;
  k.first_sequence = c.first_sequence;
  k.sequences = c.shapes().mbs;
  k.whole_tokens = v.tokens;
  k.positions = runs_of(v.positions);
  return k;
}

/// Each row's score, at the ranks of the experts.
void send_scores(OpCall& c, Array probs) {
  Routes& r = *c.routes;
  const Buffer sent(c, r.rows_sent, Number::fp32);
  c.machine.launch(TakeNumbers{probs, sent, r.number_of.as<std::int32_t>(), r.rows_sent});
  dispatch(c, sent, 1, {r.scores.at(), Number::fp32});
}

/// A part of the op where it has memory, or scratch.
Array part_or(OpCall& c, std::string_view part, std::optional<Buffer>& room, std::int64_t count,
              Number number) {
  if (const Array at = c.part(part)) return at;
  room.emplace(c, count, number);
  return *room;
}

/// The weights of a backward, from what is saved of them.
Array saved_probs(OpCall& c, const ValueShape& v, std::optional<Buffer>& room) {
  if (const Array probs = c.part("probs")) return probs;
  Route k = router(c, v);
  k.logits = c.part("logits");
  const Array scores = c.part("scores");
  if (!k.logits && !scores) saved_too_little(c);
  std::optional<Buffer> logits;
  if (!k.logits) {
    // Logits that make these scores: their logarithms, or of sigmoids their log-odds.
    logits.emplace(c, v.rows * k.experts, Number::fp32);
    c.machine.launch(ScoreLogits{scores, *logits, v.rows * k.experts, k.sigmoid_scores});
    k.logits = *logits;
  }
  room.emplace(c, v.rows * k.experts, Number::fp32);
  k.probs = *room;
  c.machine.launch(k);
  return *room;
}

}  // namespace

void experts_forward(OpCall& c) {
  const ValueShape& v = c.in();
  const std::int64_t n = c.what().count, width = v.width;
  std::optional<Buffer> logits, probs, rows;
  Route k = router(c, v);
  k.logits = part_or(c, "logits", logits, v.rows * n, Number::fp32);
  k.probs = part_or(c, "probs", probs, v.rows * n, Number::fp32);
  k.scores = c.part("scores");
  k.map = c.part_as<std::int8_t>("map");
  k.indices = c.part_as<std::int64_t>("indices");
  Product p;
  p.a = c.inputs[0];
  p.b = c.w(0);
  p.c = k.logits;
  p.m = v.rows;
  p.n = n;
  p.k = width;
  multiply(c, p);
  // A softmax router's vector is added to its logits, a sigmoid one's only to what it chooses by.
  if (!c.what().sigmoid && c.w(1)) c.machine.launch(AddBias{c.w(1), k.logits, v.rows, n});
  c.machine.launch(k);
  plan_routes(c, v);
  const Routes& r = *c.routes;
  const Array sent = part_or(c, "permuted", rows, r.rows_sent * width, c.inputs[0].number);
  c.machine.launch(TakeRows{c.inputs[0], sent, r.token_of.as<std::int32_t>(), r.rows_sent, width});
  dispatch(c, sent, width, c.output);
  const std::int64_t left = c.shapes().routed[c.op] - r.rows;
  if (left > 0)
    c.machine.clear(c.output.from(r.rows * width).at, left * width * bytes_of(c.output.number));
  send_scores(c, k.probs);
}

void experts_backward(OpCall& c) {
  const ValueShape& v = c.in();
  const Op& op = c.what();
  const std::int64_t n = op.count, width = v.width;
  const Routes& r = *c.routes;
  const Target dx = c.dx(0);
  {
    const Buffer rows(c, r.rows_sent * width, c.output_gradient.number);
    undo_dispatch(c, c.output_gradient, width, rows);
    if (dx)
      c.machine.launch(
          SumRows{rows, dx.to, r.sent_of.as<std::int32_t>(), v.rows, op.top_k, width, dx.add});
  }
  const Buffer scores(c, r.rows_sent, Number::fp32);
  undo_dispatch(c, {r.score_gradients.at(), Number::fp32}, 1, scores);
  const Buffer dprobs(c, v.rows * n, Number::fp32), dlogits(c, v.rows * n, Number::fp32);
  c.machine.clear(dprobs.array().at, v.rows * n * 4);
  c.machine.launch(PutNumbers{scores, dprobs, r.number_of.as<std::int32_t>(), r.rows_sent});
  std::optional<Buffer> room;
  RouteBackward k;
  k.route = router(c, v);
  k.route.probs = saved_probs(c, v, room);
  k.dprobs = dprobs;
  k.dlogits = dlogits;
  c.machine.launch(k);
  Product p;
  if (dx) {
    p.a = dlogits;
    p.b = c.w(0);
    p.c = dx.to;
    p.m = v.rows;
    p.n = width;
    p.k = n;
    p.b_turned = true;
    p.add = true;
    multiply(c, p);
  }
  if (const Array dw = c.dw(0)) {
    if (!c.inputs[0]) saved_too_little(c);
    p = {};
    p.a = c.inputs[0];
    p.b = dlogits;
    p.c = dw;
    p.m = width;
    p.n = n;
    p.k = v.rows;
    p.a_turned = true;
    p.add = true;
    multiply(c, p);
  }
  if (!op.sigmoid && c.dw(1)) c.machine.launch(ColumnSums{dlogits, c.dw(1), v.rows, n});
}

void combine_forward(OpCall& c) {
  const Routes& r = *c.routes;
  const std::int64_t width = c.out().width, top_k = c.program().ops[opening(c)].top_k;
  const Buffer rows(c, r.rows_sent * width, c.inputs[0].number);
  undo_dispatch(c, c.inputs[0], width, rows);
  c.machine.launch(
      SumRows{rows, c.output, r.sent_of.as<std::int32_t>(), c.out().rows, top_k, width, false});
  if (const Array probs = c.part("probs"))
    c.machine.launch(Scale{{r.scores.at(), Number::fp32}, probs, r.rows, 1, false});
}

/// The first of an experts op's backward: the routes are had again from the tokens' numbers, the
/// weights from what is saved of them, which `part` gives here as those of the experts op.
void combine_backward(OpCall& c) {
  const ValueShape& v = c.out();
  const std::int64_t width = v.width;
  std::optional<Buffer> room;
  const Array probs = saved_probs(c, v, room);
  plan_routes(c, v);
  const Routes& r = *c.routes;
  send_scores(c, probs);
  const Target dx = c.dx(0);
  if (!dx) return;
  const Buffer rows(c, r.rows_sent * width, c.output_gradient.number);
  c.machine.launch(
      TakeRows{c.output_gradient, rows, r.token_of.as<std::int32_t>(), r.rows_sent, width});
  std::optional<Buffer> received;
  Array to = dx.to;
  if (dx.add) to = received.emplace(c, r.rows * width, dx.to.number);
  dispatch(c, rows, width, to);
  if (dx.add) put(c, to, dx, r.rows * width);
  const std::int64_t left = c.in().rows - r.rows;
  if (left > 0 && !dx.add)
    c.machine.clear(dx.to.from(r.rows * width).at, left * width * bytes_of(dx.to.number));
}

}  // namespace plimsoll::runtime::cuda
