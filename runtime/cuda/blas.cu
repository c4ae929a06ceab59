// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "runtime/cuda/blas.cuh"
#include "runtime/cuda/check.cuh"

namespace plimsoll::runtime::cuda {

namespace {

void check(cublasStatus_t answer, const char* call, const char* file, int line) {
  if (answer != CUBLAS_STATUS_SUCCESS)
    throw GpuError("cuBLASLt says " + std::to_string(static_cast<int>(answer)), call, file, line);
}
#define PLIMSOLL_BLAS_CHECK(call) check((call), #call, __FILE__, __LINE__)

cudaDataType_t type_of(Number n) { return n == Number::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

/// Largest power of two up to 256 that divides an address.
std::uint32_t alignment(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  std::uint32_t a = 256;
  while (a > 1 && address % a != 0) a /= 2;
  return a;
}

std::vector<std::string> library_names() {
  const std::string name = "libcublasLt.so";
  return {name + '.' + std::to_string(CUBLAS_VER_MAJOR), name};
}

}  // namespace

Blas::Blas() : library_(library_names()) {
  library_.get(create_, "cublasLtCreate");
  library_.get(destroy_, "cublasLtDestroy");
  library_.get(matmul_, "cublasLtMatmul");
  library_.get(desc_create_, "cublasLtMatmulDescCreate");
  library_.get(desc_destroy_, "cublasLtMatmulDescDestroy");
  library_.get(desc_set_, "cublasLtMatmulDescSetAttribute");
  library_.get(layout_create_, "cublasLtMatrixLayoutCreate");
  library_.get(layout_destroy_, "cublasLtMatrixLayoutDestroy");
  library_.get(layout_set_, "cublasLtMatrixLayoutSetAttribute");
  library_.get(preference_create_, "cublasLtMatmulPreferenceCreate");
  library_.get(preference_destroy_, "cublasLtMatmulPreferenceDestroy");
  library_.get(preference_set_, "cublasLtMatmulPreferenceSetAttribute");
  library_.get(heuristic_, "cublasLtMatmulAlgoGetHeuristic");
  PLIMSOLL_BLAS_CHECK(create_(&handle_));
}

Blas::~Blas() {
  for (auto& [shape, r] : recipes_) {
    layout_destroy_(r.a);
    layout_destroy_(r.b);
    layout_destroy_(r.c);
    desc_destroy_(r.what);
  }
  destroy_(handle_);
}

void Blas::use_workspace(void* at, std::int64_t bytes) {
  workspace_ = at;
  workspace_bytes_ = bytes;
}

cublasLtMatrixLayout_t Blas::layout(Number number, std::int64_t rows, std::int64_t cols,
                                    std::int64_t stride, std::int64_t batch, std::int64_t step) {
  cublasLtMatrixLayout_t l = nullptr;
  PLIMSOLL_BLAS_CHECK(layout_create_(&l, type_of(number), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(cols), stride));
  const auto count = static_cast<std::int32_t>(batch);
  PLIMSOLL_BLAS_CHECK(layout_set_(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  PLIMSOLL_BLAS_CHECK(
      layout_set_(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step));
  return l;
}

/// cuBLAS has columns in a row: a row-major matrix is its own turned, so that c = a b is asked for
/// as c^T = b^T a^T with the operands in the other order.
const Blas::Recipe& Blas::recipe(const Shape& s) {
  const auto [at, is_new] = recipes_.try_emplace(s);
  Recipe& r = at->second;
  if (!is_new) return r;
  PLIMSOLL_BLAS_CHECK(desc_create_(&r.what, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t left = s.b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t right = s.a_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
  PLIMSOLL_BLAS_CHECK(desc_set_(r.what, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left));
  PLIMSOLL_BLAS_CHECK(desc_set_(r.what, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right));
  r.b = layout(s.in, s.b_turned ? s.k : s.n, s.b_turned ? s.n : s.k, s.b_stride, s.batch, s.b_step);
  r.a = layout(s.in, s.a_turned ? s.m : s.k, s.a_turned ? s.k : s.m, s.a_stride, s.batch, s.a_step);
  r.c = layout(s.out, s.n, s.m, s.c_stride, s.batch, s.c_step);
  cublasLtMatmulPreference_t wish = nullptr;
  PLIMSOLL_BLAS_CHECK(preference_create_(&wish));
  const auto workspace = static_cast<std::uint64_t>(s.workspace);
  const auto wants = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    PLIMSOLL_BLAS_CHECK(preference_set_(wish, what, &value, sizeof value));
  };
  wants(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  wants(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.b_align);
  wants(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.a_align);
  wants(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.c_align);
  wants(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.c_align);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t answer =
      heuristic_(handle_, r.what, r.b, r.a, r.c, r.c, wish, 1, &found, &count);
  preference_destroy_(wish);
  PLIMSOLL_BLAS_CHECK(answer);
  if (count == 0) throw GpuError("cuBLASLt has no algorithm for a product of this shape");
  r.algorithm = found.algo;
  return r;
}

void Blas::multiply(cudaStream_t stream, const Product& p) {
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batch == 0) return;
  const auto or_own = [](std::int64_t stride, std::int64_t own) { return stride ? stride : own; };
  Shape s{};
  s.m = p.m;
  s.n = p.n;
  s.k = p.k;
  s.a_stride = or_own(p.a_stride, p.a_turned ? p.m : p.k);
  s.b_stride = or_own(p.b_stride, p.b_turned ? p.k : p.n);
  s.c_stride = or_own(p.c_stride, p.n);
  s.batch = p.batch;
  s.a_step = p.a_step;
  s.b_step = p.b_step;
  s.c_step = p.c_step;
  s.a_turned = p.a_turned;
  s.b_turned = p.b_turned;
  s.in = p.a.number;
  s.out = p.c.number;
  s.a_align = alignment(p.a.at);
  s.b_align = alignment(p.b.at);
  s.c_align = alignment(p.c.at);
  s.workspace = workspace_bytes_;
  const Recipe& r = recipe(s);
  const float alpha = p.scale, beta = p.add ? 1 : 0;
  PLIMSOLL_BLAS_CHECK(matmul_(handle_, r.what, &alpha, p.b.at, r.b, p.a.at, r.a, &beta, p.c.at, r.c,
                              p.c.at, r.c, &r.algorithm, workspace_,
                              static_cast<std::size_t>(workspace_bytes_), stream));
}

}  // namespace plimsoll::runtime::cuda
