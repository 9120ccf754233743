// SPDX-License-Identifier: Apache-2.0
//
// Construction of the compare backend, host copies, and weights on their way in and out: each is checked by reading
// back what was written.
#include "layers/backend/observe/compare_backend.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "layers/backend/observe/comparison.h"
#include "layers/backend/observe/host_values.h"
#include "layers/base/error.h"

namespace convoy {

CompareBackend::CompareBackend(Backend& subject, Backend& reference, double tolerance)
    : subject_(subject), reference_(reference), tolerance_(tolerance) {
  if (reference.compute_type() != DType::kF32) {
    fail_usage(
        "the compare backend wants a reference that computes in float32, and the {} backend given computes in {}",
        reference.name(), dtype_name(reference.compute_type()));
  }
  if (tolerance_ == 0) tolerance_ = subject.compute_type() == DType::kF32 ? 1e-5 : 1e-2;
}

std::string CompareBackend::description() const {
  return fmt::format("{}, beside {} (tolerance {:.0e})", subject_.description(), reference_.description(), tolerance_);
}

void CompareBackend::copy_from_host(const void* source, const Tensor& destination) {
  subject_.copy_from_host(source, destination);
  const std::vector<std::byte> back = host_bytes(subject_, destination);
  if (!std::equal(back.begin(), back.end(), static_cast<const std::byte*>(source))) {
    fail("copy_from_host, {} {}: copy_to_host of the {} backend brings other bytes back",
         dtype_name(destination.dtype()), destination.shape().str(), subject_.name());
  }
  ++seen_["copy_from_host"].calls;
}

std::unique_ptr<WeightLayout> CompareBackend::conv2d_layout(const Conv2dSpec& spec, const Shape& input) {
  return std::make_unique<PairedLayout>(subject_.conv2d_layout(spec, input), reference_.conv2d_layout(spec, input));
}

std::unique_ptr<WeightLayout> CompareBackend::linear_layout(std::int64_t in_features, std::int64_t out_features,
                                                            std::int64_t batch) {
  return std::make_unique<PairedLayout>(subject_.linear_layout(in_features, out_features, batch),
                                        reference_.linear_layout(in_features, out_features, batch));
}

std::unique_ptr<WeightLayout> CompareBackend::vector_layout(std::int64_t count) {
  return std::make_unique<PairedLayout>(subject_.vector_layout(count), reference_.vector_layout(count));
}

void CompareBackend::import_weight(const WeightLayout& layout, const float* host, const Tensor& native) {
  const WeightLayout& own = *paired_layout(layout).subject;
  const std::vector<float> spoiled(static_cast<std::size_t>(own.elements()), std::numeric_limits<float>::quiet_NaN());
  subject_.copy_from_host(spoiled.data(), native);
  subject_.import_weight(own, host, native);
  const std::string what = fmt::format("import_weight, {}", own.shape().str());
  const std::vector<float> back = exported_weight(subject_, own, native, what);
  if (std::memcmp(back.data(), host, back.size() * sizeof(float)) != 0) {
    fail("{}: export_weight of the {} backend brings other values back", what, subject_.name());
  }
  ++seen_["import_weight"].calls;
}

void CompareBackend::export_weight(const WeightLayout& layout, const Tensor& native, float* host) {
  subject_.export_weight(*paired_layout(layout).subject, native, host);
}

void CompareBackend::refresh_compute(Weight& weight) {
  const WeightLayout* layout = weight.layout;
  weight.layout = paired_layout(*layout).subject.get();
  subject_.refresh_compute(weight);
  weight.layout = layout;
}

}  // namespace convoy
