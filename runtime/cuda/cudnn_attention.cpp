// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/library_attention.hpp"

#ifndef PLIMSOLL_CUDNN

namespace plimsoll::runtime::cuda {

std::unique_ptr<LibraryAttention> cudnn_attention(void*) {
  throw GpuError(
      "PLIMSOLL_ATTENTION=cudnn, but this build has none: cudnn_frontend.h was not found when it "
      "was configured");
}

}  // namespace plimsoll::runtime::cuda

#else

#include <dlfcn.h>

#include <map>
#include <tuple>
#include <unordered_map>

// Its headers alone; the library is loaded when it is asked for.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace plimsoll::runtime::cuda {

namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kSums, kDO, kDQ, kDK, kDV };

/// What a graph depends on.
using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, bool>;
Shape shape_of(const Attention& a) {
  return {a.sequences, a.queries, a.keys, a.heads, a.kv_heads, a.q_width, a.v_width, a.causal};
}

class Cudnn final : public LibraryAttention {
 public:
  explicit Cudnn(void* stream) {
    for (const char* name : {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"})
      if (!fe::cudnn_dlhandle) fe::cudnn_dlhandle = ::dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!fe::cudnn_dlhandle)
      throw GpuError("PLIMSOLL_ATTENTION=cudnn, but libcudnn.so.9 is not on this machine");
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS)
      throw GpuError("cuDNN does not start on this GPU");
    if (fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream)) != CUDNN_STATUS_SUCCESS)
      throw GpuError("cuDNN does not take the stream");
  }
  ~Cudnn() override { fe::detail::destroy_handle(handle_); }

  bool forward(const Attention& a, Array output, float* sums, const Space& space) override {
    Pack pack = inputs(a);
    pack[kO] = output.at;
    pack[kSums] = sums;
    return run(forward_, a, &Cudnn::build_forward, pack, space);
  }
  bool backward(const Attention& a, Array output, Array doutput, const float* sums, Array dq,
                Array dk, Array dv, const Space& space) override {
    Pack pack = inputs(a);
    pack[kO] = output.at;
    pack[kSums] = const_cast<float*>(sums);  // NOLINT: it is read
    pack[kDO] = doutput.at;
    pack[kDQ] = dq.at;
    pack[kDK] = dk.at;
    pack[kDV] = dv.at;
    return run(backward_, a, &Cudnn::build_backward, pack, space);
  }

 private:
  using Pack = std::unordered_map<std::int64_t, void*>;
  /// nullptr: cuDNN has no engine for it.
  using Graphs = std::map<Shape, std::unique_ptr<fe::graph::Graph> >;

  static Pack inputs(const Attention& a) { return {{kQ, a.q.at}, {kK, a.k.at}, {kV, a.v.at}}; }

  /// Rows as they lie: token by token, of each the sequences, of each the heads.
  static void rows(fe::graph::Tensor_attributes& t, Uid uid, const Attention& a,
                   std::int64_t tokens, std::int64_t heads, std::int64_t width) {
    t.set_uid(uid)
        .set_dim({a.sequences, heads, tokens, width})
        .set_stride({heads * width, width, a.sequences * heads * width, 1});
  }
  static Tensor input(fe::graph::Graph& g, Uid uid, const Attention& a, std::int64_t tokens,
                      std::int64_t heads, std::int64_t width) {
    fe::graph::Tensor_attributes t;
    rows(t, uid, a, tokens, heads, width);
    return g.tensor(t);
  }
  static void sums_of(fe::graph::Tensor_attributes& t, const Attention& a) {
    t.set_uid(kSums)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({a.sequences, a.heads, a.queries, 1})
        .set_stride({a.heads * a.queries, a.queries, 1, 1});
  }
  static std::unique_ptr<fe::graph::Graph> graph() {
    auto g = std::make_unique<fe::graph::Graph>();
    g->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    return g;
  }

  static std::unique_ptr<fe::graph::Graph> build_forward(const Attention& a) {
    auto g = graph();
    const Tensor q = input(*g, kQ, a, a.queries, a.heads, a.q_width);
    const Tensor k = input(*g, kK, a, a.keys, a.kv_heads, a.q_width);
    const Tensor v = input(*g, kV, a, a.keys, a.kv_heads, a.v_width);
    auto how = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(a.scale());
    if (a.causal) how.set_causal_mask(true);
    const auto [o, sums] = g->sdpa(q, k, v, how);
    rows(*o, kO, a, a.queries, a.heads, a.v_width);
    o->set_output(true);
    sums_of(*sums, a);
    sums->set_output(true);
    return g;
  }

  static std::unique_ptr<fe::graph::Graph> build_backward(const Attention& a) {
    auto g = graph();
    const Tensor q = input(*g, kQ, a, a.queries, a.heads, a.q_width);
    const Tensor k = input(*g, kK, a, a.keys, a.kv_heads, a.q_width);
    const Tensor v = input(*g, kV, a, a.keys, a.kv_heads, a.v_width);
    const Tensor o = input(*g, kO, a, a.queries, a.heads, a.v_width);
    const Tensor gradient = input(*g, kDO, a, a.queries, a.heads, a.v_width);
    fe::graph::Tensor_attributes kept;
    sums_of(kept, a);
    const Tensor sums = g->tensor(kept);
    auto how = fe::graph::SDPA_backward_attributes().set_attn_scale(a.scale());
    if (a.causal) how.set_causal_mask(true);
    const auto [dq, dk, dv] = g->sdpa_backward(q, k, v, o, gradient, sums, how);
    rows(*dq, kDQ, a, a.queries, a.heads, a.q_width);
    rows(*dk, kDK, a, a.keys, a.kv_heads, a.q_width);
    rows(*dv, kDV, a, a.keys, a.kv_heads, a.v_width);
    for (const Tensor& t : {dq, dk, dv}) t->set_output(true);
    return g;
  }

  template <class Build>
  bool run(Graphs& graphs, const Attention& a, Build build, Pack& pack, const Space& space) {
    const auto [at, is_new] = graphs.try_emplace(shape_of(a));
    if (is_new) {
      auto made = build(a);
      if (made->build(handle_, {fe::HeurMode_t::A}).is_good()) at->second = std::move(made);
    }
    fe::graph::Graph* g = at->second.get();
    if (!g) return false;
    std::int64_t bytes = 0;
    check(g->get_workspace_size(bytes));
    void* workspace = bytes > 0 ? space(bytes) : nullptr;
    check(g->execute(handle_, pack, workspace));
    return true;
  }
  static void check(fe::error_t answer) {
    if (answer.is_bad()) throw GpuError("cuDNN: " + answer.get_message());
  }

  cudnnHandle_t handle_ = nullptr;
  Graphs forward_, backward_;
};

}  // namespace

std::unique_ptr<LibraryAttention> cudnn_attention(void* stream) {
  try {
    return std::make_unique<Cudnn>(stream);
  } catch (const GpuError&) {
    throw;
  } catch (const std::exception& e) {  // a function or CUDA's runtime library is missing
    throw GpuError(std::string("cuDNN: ") + e.what());
  }
}

}  // namespace plimsoll::runtime::cuda

#endif
