// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Mamba-2 (Dao and Gu 2024): projected = [z | x | B | C | dt]; x, B and C through a causal
// convolution and SiLU; a state a head, h_t = exp(dt A) h_(t-1) + dt x_t B_t, y_t = h_t C_t + D
// x_t, with dt = softplus(dt + its bias) and A = -exp(stored A); a norm a group of y * silu(z);
// out_proj.

#include <algorithm>
#include <cmath>

#include "runtime/host/matrix.hpp"
#include "runtime/host/op_family.hpp"

namespace plimsoll::runtime::host {

namespace {

enum { kIn, kConv, kConvBias, kDtBias, kA, kD, kNorm, kOut };

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

/// A mixer on this rank: sizes, and what forward makes on the way.
template <class T>
struct Mixer {
  explicit Mixer(const OpCall<T>& c);

  std::int64_t sequences, tokens, rows;  ///< rows = tokens * sequences
  std::int64_t heads, dim, state, groups, conv;
  std::int64_t inner, mixed, projected;  ///< widths
  std::int64_t hidden;
  std::vector<T> projection, convolved, dt, scanned, normalized, stats;

  std::int64_t group_of(std::int64_t head) const { return head / (heads / groups); }
  /// Of row r: x, B and C lie behind z, dt behind them.
  std::int64_t at_mixed(std::int64_t r) const { return r * projected + inner; }
  std::int64_t at_dt(std::int64_t r) const { return r * projected + inner + mixed; }
  std::int64_t at_b(std::int64_t r, std::int64_t head) const {
    return r * mixed + inner + group_of(head) * state;
  }
  std::int64_t at_c(std::int64_t r, std::int64_t head) const {
    return at_b(r, head) + groups * state;
  }

  void convolve(const OpCall<T>& c);
  void scan(const OpCall<T>& c);
  NormShape norm_shape() const {
    NormShape s;
    s.rows = rows * groups;
    s.width = s.whole = inner / groups;
    return s;
  }
  /// y * silu(z), which is normed.
  std::vector<T> gated() const;
};

template <class T>
Mixer<T>::Mixer(const OpCall<T>& c) {
  const Op& op = c.what();
  if (c.shapes->cp > 1) throw InternalError("mamba2 is not computed where cp divides the sequence");
  sequences = c.shapes->mbs;
  tokens = c.in().tokens;
  rows = tokens * sequences;
  dim = op.head_dim;
  state = op.state;
  conv = op.conv;
  heads = c.weight(kA).cols;
  groups = heads / (op.heads / op.groups);
  inner = heads * dim;
  mixed = inner + 2 * groups * state;
  projected = inner + mixed + heads;
  hidden = c.in().width;
}

/// Row r of a sequence comes `sequences` rows after its row before.
template <class T>
void Mixer<T>::convolve(const OpCall<T>& c) {
  convolved.assign(static_cast<std::size_t>(rows * mixed), T(0));
  dt.assign(static_cast<std::size_t>(rows * heads), T(0));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < mixed; ++j) {
      double sum = c.w(kConvBias)[j];
      for (std::int64_t k = 0; k < conv; ++k) {
        const std::int64_t from = r - (conv - 1 - k) * sequences;
        if (from >= 0)
          sum += static_cast<double>(c.w(kConv)[k * mixed + j]) *
                 projection[static_cast<std::size_t>(at_mixed(from) + j)];
      }
      convolved[static_cast<std::size_t>(r * mixed + j)] = static_cast<T>(silu(sum));
    }
    for (std::int64_t h = 0; h < heads; ++h) {
      const double raw = projection[static_cast<std::size_t>(at_dt(r) + h)] + c.w(kDtBias)[h];
      dt[static_cast<std::size_t>(r * heads + h)] = static_cast<T>(std::log1p(std::exp(raw)));
    }
  }
}

template <class T>
void Mixer<T>::scan(const OpCall<T>& c) {
  scanned.assign(static_cast<std::size_t>(rows * inner), T(0));
  std::vector<double> h(static_cast<std::size_t>(state));
  for (std::int64_t b = 0; b < sequences; ++b)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t d = 0; d < dim; ++d) {
        std::fill(h.begin(), h.end(), 0);
        for (std::int64_t r = b; r < rows; r += sequences) {
          const double step = dt[static_cast<std::size_t>(r * heads + head)];
          const double decay = std::exp(-step * std::exp(static_cast<double>(c.w(kA)[head])));
          const double x = convolved[static_cast<std::size_t>(r * mixed + head * dim + d)];
          double y = c.w(kD)[head] * x;
          for (std::int64_t n = 0; n < state; ++n) {
            double& s = h[static_cast<std::size_t>(n)];
            s = decay * s + step * x * convolved[static_cast<std::size_t>(at_b(r, head) + n)];
            y += s * convolved[static_cast<std::size_t>(at_c(r, head) + n)];
          }
          scanned[static_cast<std::size_t>(r * inner + head * dim + d)] = static_cast<T>(y);
        }
      }
}

template <class T>
std::vector<T> Mixer<T>::gated() const {
  std::vector<T> u(scanned.size());
  for (std::int64_t i = 0; i < rows * inner; ++i)
    u[static_cast<std::size_t>(i)] = static_cast<T>(
        scanned[static_cast<std::size_t>(i)] *
        silu(projection[static_cast<std::size_t>(i / inner * projected + i % inner)]));
  return u;
}

/// The norm's scale is one a column; the norm kernel shares one among rows. So it is taken apart.
template <class T>
void scale_columns(const T* w, std::int64_t width, std::vector<T>& x) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= w[static_cast<std::int64_t>(i) % width];
}

template <class T>
void keep(const OpCall<T>& c, std::string_view name, const std::vector<T>& data) {
  if (T* to = c.part(name)) std::copy(data.begin(), data.end(), to);
}

/// Gradients of the scan: to convolved, dt, A and D. The states are had again, step by step.
template <class T>
void scan_backward(const OpCall<T>& c, const Mixer<T>& m, const std::vector<T>& dy,
                   std::vector<double>& dconvolved, std::vector<double>& ddt) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<double> states(at((m.tokens + 1) * m.state)), dh(at(m.state));
  std::vector<double> da(at(m.heads)), dd(at(m.heads));
  for (std::int64_t b = 0; b < m.sequences; ++b)
    for (std::int64_t head = 0; head < m.heads; ++head)
      for (std::int64_t d = 0; d < m.dim; ++d) {
        const double a = -std::exp(static_cast<double>(c.w(kA)[head]));
        for (std::int64_t t = 0; t < m.tokens; ++t) {
          const std::int64_t r = t * m.sequences + b;
          const double step = m.dt[at(r * m.heads + head)];
          const double x = m.convolved[at(r * m.mixed + head * m.dim + d)];
          for (std::int64_t n = 0; n < m.state; ++n)
            states[at((t + 1) * m.state + n)] = std::exp(step * a) * states[at(t * m.state + n)] +
                                                step * x * m.convolved[at(m.at_b(r, head) + n)];
        }
        std::fill(dh.begin(), dh.end(), 0);
        for (std::int64_t t = m.tokens; t-- > 0;) {
          const std::int64_t r = t * m.sequences + b;
          const double step = m.dt[at(r * m.heads + head)], decay = std::exp(step * a);
          const double x = m.convolved[at(r * m.mixed + head * m.dim + d)];
          const double g = dy[at(r * m.inner + head * m.dim + d)];
          double dx = g * c.w(kD)[head], dstep = 0, dlog = 0;
          for (std::int64_t n = 0; n < m.state; ++n) {
            const std::int64_t in = m.at_b(r, head) + n, out = m.at_c(r, head) + n;
            dh[at(n)] += g * m.convolved[at(out)];
            dconvolved[at(out)] += g * states[at((t + 1) * m.state + n)];
            dlog += dh[at(n)] * states[at(t * m.state + n)] * decay;
            dstep += dh[at(n)] * x * m.convolved[at(in)];
            dx += dh[at(n)] * step * m.convolved[at(in)];
            dconvolved[at(in)] += dh[at(n)] * step * x;
            dh[at(n)] *= decay;
          }
          dconvolved[at(r * m.mixed + head * m.dim + d)] += dx;
          ddt[at(r * m.heads + head)] += dstep + dlog * a;
          da[at(head)] += dlog * step * a;
          dd[at(head)] += g * x;
        }
      }
  for (std::int64_t head = 0; head < m.heads; ++head) {
    if (c.dw(kA)) c.dw(kA)[head] += static_cast<T>(da[at(head)]);
    if (c.dw(kD)) c.dw(kD)[head] += static_cast<T>(dd[at(head)]);
  }
}

/// Back through the convolution and softplus, to what in_proj made.
template <class T>
void convolve_backward(const OpCall<T>& c, const Mixer<T>& m, const std::vector<double>& dconvolved,
                       const std::vector<double>& ddt, std::vector<T>& dprojection) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<double> dconv(at(m.conv * m.mixed)), dbias(at(m.mixed)), ddt_bias(at(m.heads));
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t j = 0; j < m.mixed; ++j) {
      double sum = c.w(kConvBias)[j];
      for (std::int64_t k = 0; k < m.conv; ++k) {
        const std::int64_t from = r - (m.conv - 1 - k) * m.sequences;
        if (from >= 0)
          sum += static_cast<double>(c.w(kConv)[k * m.mixed + j]) *
                 m.projection[at(m.at_mixed(from) + j)];
      }
      const double g = dconvolved[at(r * m.mixed + j)] * silu_slope(sum);
      dbias[at(j)] += g;
      for (std::int64_t k = 0; k < m.conv; ++k) {
        const std::int64_t from = r - (m.conv - 1 - k) * m.sequences;
        if (from < 0) continue;
        const auto i = at(m.at_mixed(from) + j);
        dconv[at(k * m.mixed + j)] += g * m.projection[i];
        dprojection[i] += static_cast<T>(g * c.w(kConv)[k * m.mixed + j]);
      }
    }
    for (std::int64_t h = 0; h < m.heads; ++h) {
      const double raw = m.projection[at(m.at_dt(r) + h)] + c.w(kDtBias)[h];
      const double g = ddt[at(r * m.heads + h)] * sigmoid(raw);
      ddt_bias[at(h)] += g;
      dprojection[at(m.at_dt(r) + h)] += static_cast<T>(g);
    }
  }
  const auto add = [&](int weight, const std::vector<double>& sums) {
    T* dw = c.dw(static_cast<std::size_t>(weight));
    for (std::size_t i = 0; dw && i < sums.size(); ++i) dw[i] += static_cast<T>(sums[i]);
  };
  add(kConv, dconv);
  add(kConvBias, dbias);
  add(kDtBias, ddt_bias);
}

/// Back through the gated norm. From normalized (scale included) and stats, or scanned.
template <class T>
std::vector<T> norm_gate_backward(const OpCall<T>& c, Mixer<T>& m, const std::vector<T>& dn,
                                  std::vector<T>& dprojection) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const std::vector<T> u = m.gated();
  std::vector<T> scaled = dn, du(u.size()), unit(u.size());
  norm_forward<T>(m.norm_shape(), u.data(), nullptr, nullptr, unit.data(), nullptr, nullptr);
  for (std::size_t i = 0; c.dw(kNorm) && i < dn.size(); ++i)
    c.dw(kNorm)[static_cast<std::int64_t>(i) % m.inner] += dn[i] * unit[i];
  scale_columns(c.w(kNorm), m.inner, scaled);
  NormSaved<T> saved;
  saved.x = u.data();
  norm_backward<T>(m.norm_shape(), saved, nullptr, nullptr, scaled.data(), du.data(), nullptr,
                   nullptr);
  std::vector<T> dy(u.size());
  for (std::int64_t i = 0; i < m.rows * m.inner; ++i) {
    const auto zi = at(i / m.inner * m.projected + i % m.inner);
    dy[at(i)] = static_cast<T>(du[at(i)] * silu(m.projection[zi]));
    dprojection[zi] += static_cast<T>(du[at(i)] * m.scanned[at(i)] * silu_slope(m.projection[zi]));
  }
  return dy;
}

}  // namespace

template <class T>
void mamba_forward_op(OpCall<T>& c) {
  Mixer<T> m(c);
  const Group& tp = c.groups->tp;
  std::optional<Room<T>> whole, partial;
  const T* x = c.inputs[0];
  if (c.in().sharded) {
    whole.emplace(c, "gathered input", m.rows * m.hidden);
    x = gather_rows(c, c.in(), x, *whole);
    partial.emplace(c, "output before its reduce-scatter", m.rows * m.hidden);
  }
  m.projection.resize(static_cast<std::size_t>(m.rows * m.projected));
  linear_forward<T>(x, c.w(kIn), nullptr, m.projection.data(), m.rows, m.hidden, m.projected);
  m.convolve(c);
  m.scan(c);
  std::vector<T> u = m.gated();
  m.normalized.resize(u.size());
  m.stats.resize(static_cast<std::size_t>(m.rows * m.groups));
  norm_forward<T>(m.norm_shape(), u.data(), nullptr, nullptr, m.normalized.data(), m.stats.data(),
                  nullptr);
  scale_columns(c.w(kNorm), m.inner, m.normalized);
  T* y = partial ? partial->data() : c.output;
  linear_forward<T>(m.normalized.data(), c.w(kOut), nullptr, y, m.rows, m.inner, m.hidden);
  if (partial)
    tp.reduce_scatter(y, c.out().count(), c.output);
  else
    tp.all_reduce(y, c.out().count());
  keep(c, "projected", m.projection);
  keep(c, "convolved", m.convolved);
  keep(c, "dt", m.dt);
  keep(c, "scanned", m.scanned);
  keep(c, "normalized", m.normalized);
  keep(c, "stats", m.stats);
}

template <class T>
void mamba_backward_op(OpCall<T>& c) {
  Mixer<T> m(c);
  const Group& tp = c.groups->tp;
  const auto saved = [&](std::string_view name, std::int64_t count) {
    const T* from = c.part(name);
    return from ? std::vector<T>(from, from + count) : std::vector<T>();
  };
  m.projection = saved("projected", m.rows * m.projected);
  m.convolved = saved("convolved", m.rows * m.mixed);
  m.dt = saved("dt", m.rows * m.heads);
  m.scanned = saved("scanned", m.rows * m.inner);
  m.normalized = saved("normalized", m.rows * m.inner);
  if (m.projection.empty() || !c.inputs[0]) saved_too_little(c.what());
  if (m.convolved.empty() || m.dt.empty()) m.convolve(c);
  if (m.scanned.empty()) m.scan(c);
  if (m.normalized.empty()) {
    const std::vector<T> u = m.gated();
    m.normalized.resize(u.size());
    norm_forward<T>(m.norm_shape(), u.data(), nullptr, nullptr, m.normalized.data(), nullptr,
                    nullptr);
    scale_columns(c.w(kNorm), m.inner, m.normalized);
  }
  std::optional<Room<T>> dy_room, x_room;
  const T *dy = c.output_gradient, *x = c.inputs[0];
  if (c.in().sharded) {
    dy_room.emplace(c, "gathered gradient of the output", m.rows * m.hidden);
    dy = gather_rows(c, c.out(), dy, *dy_room);
    x_room.emplace(c, "gathered input", m.rows * m.hidden);
    x = gather_rows(c, c.in(), x, *x_room);
  }
  std::vector<T> dn(static_cast<std::size_t>(m.rows * m.inner));
  linear_backward<T>(m.normalized.data(), c.w(kOut), dy, dn.data(), c.dw(kOut), nullptr, m.rows,
                     m.inner, m.hidden);
  std::vector<T> dprojection(m.projection.size());
  std::vector<double> dconvolved(m.convolved.size()), ddt(m.dt.size());
  const std::vector<T> dscanned = norm_gate_backward(c, m, dn, dprojection);
  scan_backward(c, m, dscanned, dconvolved, ddt);
  convolve_backward(c, m, dconvolved, ddt, dprojection);
  std::vector<T> dx(static_cast<std::size_t>(m.rows * m.hidden));
  linear_backward<T>(x, c.w(kIn), dprojection.data(), dx.data(), c.dw(kIn), nullptr, m.rows,
                     m.hidden, m.projected);
  if (!c.dx()) return;
  if (c.in().sharded) {
    std::vector<T> part(static_cast<std::size_t>(c.in().count()));
    tp.reduce_scatter(dx.data(), c.in().count(), part.data());
    add_to(c.dx(), part.data(), c.in().count());
  } else {
    tp.all_reduce(dx.data(), c.in().count());
    add_to(c.dx(), dx.data(), c.in().count());
  }
}

PLIMSOLL_INSTANTIATE(mamba)

}  // namespace plimsoll::runtime::host
