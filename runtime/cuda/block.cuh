// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <mma.h>

#include "runtime/cuda/kernel.hpp"

/// A block of threads as a team (see Solo in scalar.hpp), and the two shapes that kernels have.
namespace plimsoll::runtime::cuda {

class Block {
 public:
  __device__ explicit Block(void* shared) : shared_(shared) {}
  __device__ static int lane() { return static_cast<int>(threadIdx.x); }
  __device__ static int size() { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  __device__ void* shared() const { return shared_; }

  __device__ float sum(float x) const {
    return reduce(x, 0.0f, [](float a, float b) { return a + b; });
  }
  __device__ float most(float x) const {
    return reduce(x, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
  }
  __device__ void add(Array to, std::int64_t i, float x) const {
    if (to.number == Number::bf16)
      atomicAdd(static_cast<__nv_bfloat16*>(to.at) + i, __float2bfloat16_rn(x));
    else
      atomicAdd(static_cast<float*>(to.at) + i, x);
  }

  /// In fp32 each thread makes elements of its own.
  __device__ void multiply(const Tile<float>& a, bool a_turned, const Tile<float>& b, bool b_turned,
                           const Tile<float>& c, bool add_to) const {
    const int inner = a_turned ? a.rows : a.cols;
    for (int u = lane(); u < c.rows * c.cols; u += size()) {
      const int i = u / c.cols, j = u % c.cols;
      float total = add_to ? c(i, j) : 0;
      for (int k = 0; k < inner; ++k)
        total += (a_turned ? a(k, i) : a(i, k)) * (b_turned ? b(j, k) : b(k, j));
      c(i, j) = total;
    }
  }
  /// In bf16 a warp makes 16 x 16 elements at a time on the tensor cores.
  __device__ void multiply(const Tile<Bf16>& a, bool a_turned, const Tile<Bf16>& b, bool b_turned,
                           const Tile<float>& c, bool add_to) const {
    if (a_turned)
      b_turned ? product<nvcuda::wmma::col_major, nvcuda::wmma::col_major>(a, b, c, add_to)
               : product<nvcuda::wmma::col_major, nvcuda::wmma::row_major>(a, b, c, add_to);
    else
      b_turned ? product<nvcuda::wmma::row_major, nvcuda::wmma::col_major>(a, b, c, add_to)
               : product<nvcuda::wmma::row_major, nvcuda::wmma::row_major>(a, b, c, add_to);
  }

 private:
  template <class F>
  __device__ float reduce(float x, float neutral, F f) const {
    __shared__ float parts[32];
    for (int offset = 16; offset > 0; offset /= 2)
      x = f(x, __shfl_xor_sync(0xffffffffu, x, offset));
    __syncthreads();  // an earlier reduction is read to the end
    if (lane() % 32 == 0) parts[lane() / 32] = x;
    __syncthreads();
    x = lane() % 32 < size() / 32 ? parts[lane() % 32] : neutral;
    for (int offset = 16; offset > 0; offset /= 2)
      x = f(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
  }

  template <class ALayout, class BLayout>
  __device__ void product(const Tile<Bf16>& a, const Tile<Bf16>& b, const Tile<float>& c,
                          bool add_to) const {
    namespace wmma = nvcuda::wmma;
    constexpr bool kATurned = std::is_same_v<ALayout, wmma::col_major>;
    constexpr bool kBTurned = std::is_same_v<BLayout, wmma::col_major>;
    const auto* ap = reinterpret_cast<const __nv_bfloat16*>(a.at);
    const auto* bp = reinterpret_cast<const __nv_bfloat16*>(b.at);
    const int inner = kATurned ? a.rows : a.cols, across = c.cols / 16;
    for (int piece = lane() / 32; piece < c.rows / 16 * across; piece += size() / 32) {
      const int i = piece / across * 16, j = piece % across * 16;
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
      float* at = c.at + i * c.stride + j;
      if (add_to)
        wmma::load_matrix_sync(sum, at, c.stride, wmma::mem_row_major);
      else
        wmma::fill_fragment(sum, 0.0f);
      for (int k = 0; k < inner; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, ALayout> left;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, BLayout> right;
        wmma::load_matrix_sync(left, ap + (kATurned ? k * a.stride + i : i * a.stride + k),
                               a.stride);
        wmma::load_matrix_sync(right, bp + (kBTurned ? j * b.stride + k : k * b.stride + j),
                               b.stride);
        wmma::mma_sync(sum, left, right, sum);
      }
      wmma::store_matrix_sync(at, sum, c.stride, wmma::mem_row_major);
    }
  }

  void* shared_;
};

template <class K>
__global__ void __launch_bounds__(256) run_elements(const __grid_constant__ K k) {
  const std::int64_t items = k.items(), step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < items; i += step)
    k.at(i);
}

template <class K>
__global__ void __launch_bounds__(256) run_teams(const __grid_constant__ K k) {
  extern __shared__ __align__(128) char shared[];
  const Block team(shared);
  const std::int64_t items = k.items();
  for (std::int64_t i = blockIdx.x; i < items; i += gridDim.x) {
    k.team(team, i);
    team.sync();
  }
}

}  // namespace plimsoll::runtime::cuda
