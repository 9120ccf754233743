// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt's part that the CUDA backend uses: products as they are written down, in float64.
#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "elements.h"
#include "layers/base/tensor.h"
#include "tests/layers/backend/cuda/host/streams.h"

using convoy::DType;
using convoy::on_host::no_algorithm;
using convoy::on_host::NoAlgorithm;

namespace {

DType element_type(cudaDataType_t type) {
  return type == CUDA_R_32F ? DType::kF32 : type == CUDA_R_16BF ? DType::kBF16 : DType::kF16;
}

std::vector<double> values_of(const void* data, const OnHostMatrix& matrix) {
  return convoy::numbers(data, static_cast<std::int64_t>(matrix.rows * matrix.columns), element_type(matrix.type));
}

template <class T>
void set(T& to, const void* value) {
  std::memcpy(&to, value, sizeof(T));
}

/// op(X): a matrix that may be read transposed.
struct Factor {
  std::vector<double> values;
  std::uint64_t rows, columns;  ///< of op(X)
  bool transposed;

  Factor(const void* data, const OnHostMatrix& matrix, cublasOperation_t operation)
      : values(values_of(data, matrix)),
        rows(operation == CUBLAS_OP_T ? matrix.columns : matrix.rows),
        columns(operation == CUBLAS_OP_T ? matrix.rows : matrix.columns),
        transposed(operation == CUBLAS_OP_T) {}
  [[nodiscard]] double at(std::uint64_t row, std::uint64_t column) const {
    return values[transposed ? row * columns + column : column * rows + row];
  }
};

struct Operand {
  const void* data;
  OnHostMatrix matrix;
};

/// A product as it was called, with copies of its descriptions.
struct Product {
  OnHostProduct how;
  Operand a, b, d;
  float product_scale, former_scale;

  [[nodiscard]] bool with_bias() const { return how.epilogue == CUBLASLT_EPILOGUE_BIAS; }
  [[nodiscard]] bool fits() const {
    const bool left = how.transpose_a == CUBLAS_OP_T, right = how.transpose_b == CUBLAS_OP_T;
    const std::uint64_t m = left ? a.matrix.columns : a.matrix.rows, k = left ? a.matrix.rows : a.matrix.columns;
    return k == (right ? b.matrix.columns : b.matrix.rows) && m == d.matrix.rows &&
           (right ? b.matrix.rows : b.matrix.columns) == d.matrix.columns && (!with_bias() || how.bias != nullptr);
  }
  void run(void* out) const {
    const Factor left(a.data, a.matrix, how.transpose_a), right(b.data, b.matrix, how.transpose_b);
    const DType type = element_type(d.matrix.type);
    const auto rows = static_cast<std::int64_t>(d.matrix.rows);
    const std::vector<double> added = with_bias() ? convoy::numbers(how.bias, rows, type) : std::vector<double>();
    std::vector<double> result =
        former_scale != 0 ? values_of(out, d.matrix) : std::vector<double>(d.matrix.rows * d.matrix.columns);
    for (std::uint64_t column = 0; column < d.matrix.columns; ++column) {
      for (std::uint64_t row = 0; row < d.matrix.rows; ++row) {
        double sum = 0;
        for (std::uint64_t i = 0; i < left.columns; ++i) sum += left.at(row, i) * right.at(i, column);
        double& element = result[column * d.matrix.rows + row];
        element = former_scale * element + product_scale * sum + (with_bias() ? added[row] : 0);
      }
    }
    convoy::put(result, out, type);
  }
};

}  // namespace

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading_dimension) {
  if (leading_dimension != static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new OnHostMatrix{type, rows, columns};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t /*compute*/,
                                        cudaDataType_t /*scale*/) {
  *product = new OnHostProduct;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t /*bytes*/) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: set(product->transpose_a, value); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: set(product->transpose_b, value); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: set(product->epilogue, value); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: set(product->bias, value); break;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t /*preference*/) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t /*preference*/,
                                                    cublasLtMatmulPreferenceAttributes_t /*attribute*/,
                                                    const void* /*value*/, std::size_t /*bytes*/) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t /*a*/, cublasLtMatrixLayout_t /*b*/,
                                              cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
                                              cublasLtMatmulPreference_t /*preference*/, int /*wanted*/,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const bool with_bias = product->epilogue == CUBLASLT_EPILOGUE_BIAS;
  const bool none = no_algorithm == NoAlgorithm::kAlways || (no_algorithm == NoAlgorithm::kWithBias && with_bias);
  *found = none ? 0 : 1;
  results->workspaceSize = 4096;  // which the product leaves NaN in
  return none ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* /*algorithm*/, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  const Product call{*product,
                     {a, *a_layout},
                     {b, *b_layout},
                     {d, *d_layout},
                     *static_cast<const float*>(alpha),
                     *static_cast<const float*>(beta)};
  const bool fits = call.fits() && c == d && c_layout == d_layout && (workspace != nullptr || workspace_bytes == 0);
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t status = convoy::on_host::enqueue(stream, "matrix product", [=] {
    std::memset(workspace, 0xff, workspace_bytes);
    call.run(const_cast<void*>(call.d.data));
  });
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
