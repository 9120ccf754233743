// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/cuda/conv/linear_plans.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "layers/backend/cuda/conv/plan_choice.h"
#include "layers/backend/cuda/cuda_check.h"

namespace convoy {

namespace {

constexpr std::uint64_t kMaxWorkspace = std::uint64_t{32} << 20;  // bytes: what cuBLAS recommends for Hopper

cudaDataType_t cublas_type(DType type) {
  switch (type) {
    case DType::kF32: return CUDA_R_32F;
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    default: fail("matrix products in {} are not supported on a GPU", dtype_name(type));
  }
}

// The largest power of two, up to 256, that divides all these addresses.
template <class... Pointer>
std::uint32_t common_alignment(Pointer... pointers) {
  const auto bits = (reinterpret_cast<std::uintptr_t>(pointers) | ... | std::uintptr_t{256});
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

class Layout {
 public:
  Layout(DType type, std::int64_t rows, std::int64_t columns) {
    CONVOY_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&handle_, cublas_type(type), static_cast<std::uint64_t>(rows),
                                                   static_cast<std::uint64_t>(columns), rows));
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(handle_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  [[nodiscard]] cublasLtMatrixLayout_t get() const { return handle_; }

 private:
  cublasLtMatrixLayout_t handle_ = nullptr;
};

class Operation {
 public:
  Operation(const MatrixProduct& p, bool tf32) {
    const auto compute = p.in == DType::kF32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    CONVOY_CUBLAS_CHECK(cublasLtMatmulDescCreate(&handle_, compute, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
  }
  ~Operation() { cublasLtMatmulDescDestroy(handle_); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  [[nodiscard]] cublasLtMatmulDesc_t get() const { return handle_; }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    CONVOY_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(handle_, attribute, &value, sizeof(value)));
  }

 private:
  cublasLtMatmulDesc_t handle_ = nullptr;
};

class Preference {
 public:
  explicit Preference(std::uint32_t alignment) {
    CONVOY_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&handle_));
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
    // Parts of a sum that is split over blocks meet in float32, in a fixed order.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(attribute, alignment);
    }
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  [[nodiscard]] cublasLtMatmulPreference_t get() const { return handle_; }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    CONVOY_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(handle_, attribute, &value, sizeof(value)));
  }
  cublasLtMatmulPreference_t handle_ = nullptr;
};

}  // namespace

struct LinearPlans::Plan {
  Plan(const MatrixProduct& p, bool tf32)
      : adds_bias(p.bias),
        operation(p, tf32),
        a(p.in, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k),
        b(p.in, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n),
        d(p.out, p.m, p.n) {}

  /// Whether cuBLAS has an algorithm; it is `choice` then.
  bool find_algorithm(const CudaState& state, std::uint32_t alignment) {
    int found = 0;
    const Preference preference(alignment);
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        state.cublas, operation.get(), a.get(), b.get(), d.get(), d.get(), preference.get(), 1, &choice, &found);
    return status == CUBLAS_STATUS_SUCCESS && found > 0;
  }

  bool adds_bias;  ///< else the bias, if there is one, is added apart
  Operation operation;
  Layout a, b, d;
  cublasLtMatmulHeuristicResult_t choice{};
};

LinearPlans::LinearPlans() = default;
LinearPlans::~LinearPlans() = default;

std::unique_ptr<LinearPlans::Plan> LinearPlans::make_plan(const CudaState& state, const Key& key, const void* bias) {
  auto plan = std::make_unique<Plan>(key.product, state.tf32);
  if (bias != nullptr) plan->operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (plan->find_algorithm(state, key.alignment)) return plan;
  if (!key.product.bias) return nullptr;
  MatrixProduct without_bias = key.product;
  without_bias.bias = false;
  plan = std::make_unique<Plan>(without_bias, state.tf32);
  return plan->find_algorithm(state, key.alignment) ? std::move(plan) : nullptr;
}

void LinearPlans::run(CudaState& state, Backend& backend, const MatrixProduct& p, const void* a, const void* b,
                      const void* bias, void* d, bool accumulate) {
  const Key key{p, common_alignment(a, b, d)};
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, make_plan(state, key, bias)).first;
  Plan* plan = found->second.get();
  if (plan == nullptr) return gpu::matrix_product(state, p, a, b, bias, d, accumulate);
  if (plan->adds_bias) plan->operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  Tensor workspace;
  const auto bytes = static_cast<std::int64_t>(plan->choice.workspaceSize);
  if (bytes > 0) workspace = backend.tensor({workspace_block(bytes)}, DType::kU8);
  const float alpha = 1.0F, beta = accumulate ? 1.0F : 0.0F;
  CONVOY_CUBLAS_CHECK(cublasLtMatmul(state.cublas, plan->operation.get(), &alpha, a, plan->a.get(), b, plan->b.get(),
                                     &beta, d, plan->d.get(), d, plan->d.get(), &plan->choice.algo, workspace.raw(),
                                     plan->choice.workspaceSize, state.stream));
  if (bias != nullptr && !plan->adds_bias) gpu::add_to_columns(state, p, bias, d);
}

}  // namespace convoy
