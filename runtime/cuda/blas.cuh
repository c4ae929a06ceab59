// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <compare>
#include <map>

#include "runtime/cuda/library.hpp"
#include "runtime/cuda/machine.hpp"

/// Products of matrices by cuBLASLt, which is loaded with the first of them. What was found for a
/// shape is kept.
namespace plimsoll::runtime::cuda {

class Blas {
 public:
  Blas();
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  void use_workspace(void* at, std::int64_t bytes);
  void multiply(cudaStream_t, const Product&);

 private:
  /// All that a product's algorithm depends on.
  struct Shape {
    std::int64_t m, n, k, a_stride, b_stride, c_stride, batch, a_step, b_step, c_step;
    bool a_turned, b_turned;
    Number in, out;
    std::uint32_t a_align, b_align, c_align;
    std::int64_t workspace;
    auto operator<=>(const Shape&) const = default;
  };
  struct Recipe {
    cublasLtMatmulDesc_t what = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  const Recipe& recipe(const Shape&);
  cublasLtMatrixLayout_t layout(Number, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                std::int64_t batch, std::int64_t step);

  Library library_;
  decltype(cublasLtCreate)* create_ = nullptr;
  decltype(cublasLtDestroy)* destroy_ = nullptr;
  decltype(cublasLtMatmul)* matmul_ = nullptr;
  decltype(cublasLtMatmulDescCreate)* desc_create_ = nullptr;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy_ = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set_ = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* layout_create_ = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy_ = nullptr;
  decltype(cublasLtMatrixLayoutSetAttribute)* layout_set_ = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create_ = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy_ = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set_ = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, Recipe> recipes_;
  void* workspace_ = nullptr;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace plimsoll::runtime::cuda
