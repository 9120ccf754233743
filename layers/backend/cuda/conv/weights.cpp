// SPDX-License-Identifier: Apache-2.0
//
// Weights of the CUDA backend on their way between files (row-major float32), the flat buffers on the device
// (weight_layout.h) and the compute type. Files are read and written seldom: the host transposes.
#include <vector>

#include "layers/backend/cuda/conv/weight_layout.h"
#include "layers/backend/cuda/cuda_backend.h"

namespace convoy {

namespace {

// The layout of a convolution's weight; none when the flat buffers hold it as files do.
const CudaWeightLayout* transposed_layout(const WeightLayout& layout) {
  return layout.shape().rank() == 4 ? dynamic_cast<const CudaWeightLayout*>(&layout) : nullptr;
}

// Calls f(row-major index, native index) for every element of [out, in, height, width].
template <class F>
void for_each_element(const CudaWeightLayout& layout, F&& f) {
  const Shape& shape = layout.shape();
  const std::int64_t window = shape[2] * shape[3];
  for (std::int64_t out = 0; out < shape[0]; ++out) {
    for (std::int64_t in = 0; in < shape[1]; ++in) {
      for (std::int64_t place = 0; place < window; ++place) {
        f(static_cast<std::size_t>((out * shape[1] + in) * window + place),
          static_cast<std::size_t>((out * window + place) * layout.padded_inputs + in));
      }
    }
  }
}

}  // namespace

std::unique_ptr<WeightLayout> CudaBackend::linear_layout(std::int64_t in_features, std::int64_t out_features,
                                                         std::int64_t) {
  return std::make_unique<CudaWeightLayout>(Shape{out_features, in_features}, in_features);
}

std::unique_ptr<WeightLayout> CudaBackend::vector_layout(std::int64_t count) {
  return std::make_unique<WeightLayout>(Shape{count}, count);
}

void CudaBackend::import_weight(const WeightLayout& layout, const float* host, const Tensor& native) {
  const CudaWeightLayout* transposed = transposed_layout(layout);
  if (transposed == nullptr) {
    copy_from_host(host, native);
    return;
  }
  std::vector<float> staged(static_cast<std::size_t>(layout.elements()), 0.0F);
  for_each_element(*transposed, [&](std::size_t file, std::size_t device) { staged[device] = host[file]; });
  copy_from_host(staged.data(), native);
}

void CudaBackend::export_weight(const WeightLayout& layout, const Tensor& native, float* host) {
  const CudaWeightLayout* transposed = transposed_layout(layout);
  if (transposed == nullptr) {
    copy_to_host(native, host);
    return;
  }
  std::vector<float> staged(static_cast<std::size_t>(layout.elements()));
  copy_to_host(native, staged.data());
  for_each_element(*transposed, [&](std::size_t file, std::size_t device) { host[file] = staged[device]; });
}

void CudaBackend::refresh_compute(Weight& weight) {
  const bool converted = dynamic_cast<const CudaWeightLayout*>(weight.layout) != nullptr;
  if (!converted || options_.compute == DType::kF32) {  // biases and batch norm stay float32
    weight.compute = weight.backward = weight.master;
    return;
  }
  if (!weight.compute) weight.compute = tensor({weight.layout->elements()}, options_.compute);
  run(ops::Cast{weight.master, weight.compute});
  weight.backward = weight.compute;
}

}  // namespace convoy
