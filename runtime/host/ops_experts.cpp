// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <numeric>

#include "runtime/host/matrix.hpp"
#include "runtime/host/op_family.hpp"

namespace plimsoll::runtime::host {

namespace {

using Counts = std::vector<std::int64_t>;

std::int64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}
Counts times(Counts counts, std::int64_t n) {
  for (std::int64_t& c : counts) c *= n;
  return counts;
}

/// The experts op that \a c is, or ends.
template <class T>
const Op& opening(const OpCall<T>& c) {
  if (c.what().kind == OpKind::experts) return c.what();
  const Program& p = *c.shapes->program;
  return p.ops[p.values[c.what().inputs[0]].experts];
}

/// Token \a index of the rank, counted over all sequences of a step.
template <class T>
std::int64_t global_token(const OpCall<T>& c, const ValueShape& v, std::int64_t index) {
  const std::int64_t sequence = c.first_sequence + index % c.shapes->mbs;
  return sequence * v.tokens + v.positions[static_cast<std::size_t>(index / c.shapes->mbs)];
}

/// Chooses top_k experts a token: those of the highest scores (with DeepSeek's correction, which is
/// for the choice alone), or, so that all experts get the same, by turns.
template <class T>
void choose(const OpCall<T>& c, const T* scores, std::int8_t* map) {
  const Op& op = c.what();
  const std::int64_t tokens = c.in().rows, n = op.count;
  std::fill_n(map, tokens * n, std::int8_t{0});
  Counts order(static_cast<std::size_t>(n));
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (c.facts->balanced) {
      const std::int64_t turn = global_token(c, c.in(), t) * op.top_k;
      for (std::int64_t k = 0; k < op.top_k; ++k) map[t * n + (turn + k) % n] = 1;
      continue;
    }
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const auto rank = [&](std::int64_t e) {
      return scores[t * n + e] + (op.sigmoid && c.w(1) ? c.w(1)[e] : T(0));
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return rank(a) > rank(b); });
    for (std::int64_t k = 0; k < op.top_k; ++k) map[t * n + order[static_cast<std::size_t>(k)]] = 1;
  }
}

/// Who sends which rows to whom, and where they go there.
template <class T>
void plan_routes(const OpCall<T>& c, const std::int8_t* map, std::int64_t tokens, Routing<T>& r) {
  const Op& op = opening(c);
  const RankShapes& s = *c.shapes;
  const std::int64_t n = op.count, local = n / s.ep;
  Counts mine(static_cast<std::size_t>(n));
  r = {};
  r.sent.assign(static_cast<std::size_t>(s.ep), 0);
  for (std::int64_t e = 0; e < n; ++e)
    for (std::int64_t t = 0; t < tokens; ++t)
      if (map[t * n + e]) {
        r.token_of.push_back(t);
        r.expert_of.push_back(e);
        ++mine[static_cast<std::size_t>(e)];
        ++r.sent[static_cast<std::size_t>(e / local)];
      }
  Counts of_ep(static_cast<std::size_t>(n * s.ep)),
      all(of_ep.size() * static_cast<std::size_t>(s.etp));
  c.groups->ep.all_gather(mine.data(), n, of_ep.data());
  c.groups->etp.all_gather(of_ep.data(), n * s.ep, all.data());
  // Rows come by etp rank, then by ep rank, then by expert; they lie by expert.
  const auto count = [&](std::int64_t etp, std::int64_t from, std::int64_t e) {
    return all[static_cast<std::size_t>((etp * s.ep + from) * n + s.rank.ep * local + e)];
  };
  r.received.assign(static_cast<std::size_t>(s.ep), 0);
  r.of_expert.assign(static_cast<std::size_t>(local), 0);
  for (std::int64_t e = 0; e < local; ++e) {
    for (std::int64_t from = 0; from < s.ep; ++from)
      r.received[static_cast<std::size_t>(from)] += count(s.rank.etp, from, e);
    for (std::int64_t i = 0; i < s.etp * s.ep; ++i)
      r.of_expert[static_cast<std::size_t>(e)] += count(i / s.ep, i % s.ep, e);
  }
  Counts next(static_cast<std::size_t>(local));
  std::exclusive_scan(r.of_expert.begin(), r.of_expert.end(), next.begin(), std::int64_t{0});
  for (std::int64_t i = 0; i < s.etp * s.ep; ++i)
    for (std::int64_t e = 0; e < local; ++e)
      for (std::int64_t k = 0; k < count(i / s.ep, i % s.ep, e); ++k)
        r.place_of.push_back(next[static_cast<std::size_t>(e)]++);
  if (s.etp > 1 && r.rows() != s.etp * total(r.received))
    throw InternalError("ranks that share experts' matrices got unlike numbers of rows");
}

/// Rows of \a width elements to the ranks of their experts, in the order of the buffer.
template <class T>
void dispatch(const OpCall<T>& c, const Routing<T>& r, const T* rows, std::int64_t width, T* out) {
  const std::int64_t mine = total(r.received);
  std::vector<T> received(static_cast<std::size_t>(mine * width));
  c.groups->ep.all_to_all(rows, times(r.sent, width), received.data(), times(r.received, width));
  std::vector<T> all(static_cast<std::size_t>(r.rows() * width));
  c.groups->etp.all_gather(received.data(), mine * width, all.data());
  for (std::int64_t i = 0; i < r.rows(); ++i)
    std::copy_n(all.data() + i * width, width,
                out + r.place_of[static_cast<std::size_t>(i)] * width);
}

/// The way back: the sum over the ranks that share an expert's matrices, to where a row came from.
template <class T>
void undo_dispatch(const OpCall<T>& c, const Routing<T>& r, const T* rows, std::int64_t width,
                   T* out) {
  const std::int64_t mine = total(r.received);
  std::vector<T> all(static_cast<std::size_t>(r.rows() * width));
  for (std::int64_t i = 0; i < r.rows(); ++i)
    std::copy_n(rows + r.place_of[static_cast<std::size_t>(i)] * width, width,
                all.data() + i * width);
  std::vector<T> own(static_cast<std::size_t>(mine * width));
  c.groups->etp.reduce_scatter(all.data(), mine * width, own.data());
  c.groups->ep.all_to_all(own.data(), times(r.received, width), out, times(r.sent, width));
}

/// A part of the op where it has memory, or scratch.
template <class T, class U>
U* part_or(const OpCall<T>& c, std::string_view name, std::vector<U>& scratch, std::int64_t count) {
  if (U* at = c.template part<U>(name)) return at;
  scratch.resize(static_cast<std::size_t>(count));
  return scratch.data();
}

/// Each row's score, where it is and at the ranks of the experts.
template <class T>
void send_scores(const OpCall<T>& c, Routing<T>& r, const T* probs, std::int64_t count) {
  std::vector<T> sent;
  for (std::size_t i = 0; i < r.token_of.size(); ++i)
    sent.push_back(probs[r.token_of[i] * count + r.expert_of[i]]);
  r.scores.assign(r.place_of.size(), T(0));
  r.score_gradients.assign(r.place_of.size(), T(0));
  dispatch(c, r, sent.data(), 1, r.scores.data());
}

/// The map, from what is saved of it.
template <class T>
const std::int8_t* saved_map(const OpCall<T>& c, const Op& op, std::int64_t tokens,
                             std::vector<std::int8_t>& scratch) {
  if (const auto* map = c.template part<std::int8_t>("map")) return map;
  const auto* indices = c.template part<std::int64_t>("indices");
  if (!indices) saved_too_little(op);
  scratch.assign(static_cast<std::size_t>(tokens * op.count), 0);
  for (std::int64_t i = 0; i < tokens * op.top_k; ++i)
    scratch[static_cast<std::size_t>(i / op.top_k * op.count + indices[i])] = 1;
  return scratch.data();
}

template <class T>
RouteSaved<T> saved_scores(const OpCall<T>& c, const Op& op) {
  RouteSaved<T> saved;
  saved.scores = c.part("scores");
  saved.logits = c.part("logits");
  saved.probs = c.part("probs");
  if (!saved.scores && !saved.logits && !saved.probs) saved_too_little(op);
  return saved;
}

}  // namespace

template <class T>
void experts_forward_op(OpCall<T>& c) {
  const Op& op = c.what();
  const std::int64_t tokens = c.in().rows, n = op.count, width = c.in().width;
  std::vector<T> scratch[4];
  std::vector<std::int8_t> map_scratch;
  T* logits = part_or(c, "logits", scratch[0], tokens * n);
  T* scores = part_or(c, "scores", scratch[1], tokens * n);
  T* probs = part_or(c, "probs", scratch[2], tokens * n);
  std::int8_t* map = part_or(c, "map", map_scratch, tokens * n);
  // A softmax router's vector is added to its logits, a sigmoid one's only to what it chooses by.
  linear_forward(c.inputs[0], c.w(0), op.sigmoid ? nullptr : c.w(1), logits, tokens, width, n);
  route_scores(op.sigmoid, logits, scores, tokens, n);
  choose(c, scores, map);
  route_probs(op.sigmoid, scores, map, probs, tokens, n);
  if (auto* indices = c.template part<std::int64_t>("indices"))
    for (std::int64_t i = 0; i < tokens * n; ++i)
      if (map[i]) *indices++ = i % n;
  Routing<T>& r = *c.routing;
  plan_routes(c, map, tokens, r);
  if (r.rows() > c.shapes->routed[c.op])
    throw InternalError(fmt::format("{} rows were routed to a rank that has room for {}", r.rows(),
                                    c.shapes->routed[c.op]));
  const auto sent = static_cast<std::int64_t>(r.token_of.size());
  T* rows = part_or(c, "permuted", scratch[3], sent * width);
  for (std::int64_t i = 0; i < sent; ++i)
    std::copy_n(c.inputs[0] + r.token_of[static_cast<std::size_t>(i)] * width, width,
                rows + i * width);
  std::fill_n(c.output, c.shapes->routed[c.op] * width, T(0));
  dispatch(c, r, rows, width, c.output);
  send_scores(c, r, probs, n);
}

template <class T>
void experts_backward_op(OpCall<T>& c) {
  const Op& op = c.what();
  const std::int64_t tokens = c.in().rows, n = op.count, width = c.in().width;
  const Routing<T>& r = *c.routing;
  const auto sent = static_cast<std::int64_t>(r.token_of.size());
  std::vector<T> rows(static_cast<std::size_t>(sent * width)), scores(r.token_of.size());
  undo_dispatch(c, r, c.output_gradient, width, rows.data());
  undo_dispatch(c, r, r.score_gradients.data(), 1, scores.data());
  std::vector<T> dprobs(static_cast<std::size_t>(tokens * n)), dlogits(dprobs.size());
  for (std::size_t i = 0; i < r.token_of.size(); ++i) {
    dprobs[static_cast<std::size_t>(r.token_of[i] * n + r.expert_of[i])] = scores[i];
    if (c.dx())
      add_to(c.dx() + r.token_of[i] * width, rows.data() + static_cast<std::int64_t>(i) * width,
             width);
  }
  std::vector<std::int8_t> scratch;
  const std::int8_t* map = saved_map(c, op, tokens, scratch);
  route_backward(op.sigmoid, saved_scores(c, op), map, dprobs.data(), dlogits.data(), tokens, n);
  if (c.dw(0) && !c.inputs[0]) saved_too_little(op);
  linear_backward(c.inputs[0], c.w(0), dlogits.data(), c.dx(), c.dw(0),
                  op.sigmoid ? nullptr : c.dw(1), tokens, width, n);
}

template <class T>
void combine_forward_op(OpCall<T>& c) {
  const Routing<T>& r = *c.routing;
  const std::int64_t width = c.out().width;
  std::vector<T> rows(r.token_of.size() * static_cast<std::size_t>(width));
  undo_dispatch(c, r, c.inputs[0], width, rows.data());
  std::fill_n(c.output, c.out().count(), T(0));
  for (std::size_t i = 0; i < r.token_of.size(); ++i)
    add_to(c.output + r.token_of[i] * width, rows.data() + static_cast<std::int64_t>(i) * width,
           width);
  if (T* probs = c.part("probs")) std::copy(r.scores.begin(), r.scores.end(), probs);
}

/// The first of an experts op's backward: the routes are had again from what is saved of them,
/// which `own` gives here as those of the experts op.
template <class T>
void combine_backward_op(OpCall<T>& c) {
  const Op& op = opening(c);
  const std::int64_t tokens = c.out().rows, n = op.count, width = c.out().width;
  Routing<T>& r = *c.routing;
  std::vector<std::int8_t> scratch;
  const std::int8_t* map = saved_map(c, op, tokens, scratch);
  const RouteSaved<T> saved = saved_scores(c, op);
  std::vector<T> probs(saved.probs ? saved.probs : nullptr,
                       saved.probs ? saved.probs + tokens * n : nullptr);
  if (!saved.probs) {
    std::vector<T> scores(static_cast<std::size_t>(tokens * n));
    if (saved.scores)
      scores.assign(saved.scores, saved.scores + tokens * n);
    else
      route_scores(op.sigmoid, saved.logits, scores.data(), tokens, n);
    probs.resize(scores.size());
    route_probs(op.sigmoid, scores.data(), map, probs.data(), tokens, n);
  }
  plan_routes(c, map, tokens, r);
  send_scores(c, r, probs.data(), n);
  if (!c.dx()) return;
  std::vector<T> rows(r.token_of.size() * static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < r.token_of.size(); ++i)
    std::copy_n(c.output_gradient + r.token_of[i] * width, width,
                rows.data() + static_cast<std::int64_t>(i) * width);
  std::vector<T> received(r.place_of.size() * static_cast<std::size_t>(width));
  dispatch(c, r, rows.data(), width, received.data());
  add_to(c.dx(), received.data(), static_cast<std::int64_t>(received.size()));
}

PLIMSOLL_INSTANTIATE(experts)
PLIMSOLL_INSTANTIATE(combine)

}  // namespace plimsoll::runtime::host
