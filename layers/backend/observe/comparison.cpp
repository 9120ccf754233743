// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/observe/comparison.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "layers/backend/observe/host_values.h"

namespace convoy {

namespace {

// The reference's memory for a tensor of the subject: activations of 16 bits are float32 there.
Tensor reference_tensor(Backend& reference, const Tensor& x) {
  return reference.tensor(x.shape(), dtype_size(x.dtype()) == 2 ? DType::kF32 : x.dtype());
}

// All bits set: a NaN in every floating type, and no window position or label.
void fill_with_nan(Backend& backend, const Tensor& x) {
  const std::vector<std::byte> bytes(x.bytes(), std::byte{0xff});
  backend.copy_from_host(bytes.data(), x);
}

// Where element `index` of a tensor's memory lies, in the axes of its shape.
std::string place_of(const Shape& shape, std::int64_t index, bool channels_last) {
  const int rank = shape.rank();
  Shape place = shape;
  for (int i = rank - 1; i >= 0; --i) {
    const int axis = !channels_last || i == 0 ? i : i == rank - 1 ? 1 : i + 1;  // N, then what follows C, then C
    place.set(axis, index % shape[axis]);
    index /= shape[axis];
  }
  return place.str();
}

}  // namespace

const PairedLayout& paired_layout(const WeightLayout& layout) {
  const auto* paired = dynamic_cast<const PairedLayout*>(&layout);
  if (paired == nullptr) {
    fail(
        "the compare backend was given the layout of a weight {} that it did not make (make layouts and weights with "
        "it)",
        layout.shape().str());
  }
  return *paired;
}

std::vector<float> exported_weight(Backend& backend, const WeightLayout& layout, const Tensor& native,
                                   const std::string& what) {
  std::vector<float> host(static_cast<std::size_t>(layout.shape().size()));
  backend.export_weight(layout, native, host.data());
  const std::vector<float> all = converted<float>(host_bytes(backend, native), native.dtype());
  if (nonzeros(all) != nonzeros(host)) {
    fail("{}: the {} backend leaves values other than 0 in the padding of a weight {}", what, backend.name(),
         layout.shape().str());
  }
  return host;
}

const Weight& Comparison::Side::in(const Weight& w) const {
  const auto found = std::find_if(all_.weights_.begin(), all_.weights_.end(),
                                  [&](const WeightMirror& mirror) { return mirror.original == &w; });
  return reference_ ? found->reference : found->subject;
}

Comparison::Comparison(CompareBackend& owner, std::string operation, std::string what)
    : owner_(owner), operation_(std::move(operation)), what_(std::move(what)) {}

const Comparison::Mirror* Comparison::find(const Tensor& x) const {
  const auto found = std::find_if(mirrors_.begin(), mirrors_.end(), [&](const Mirror& mirror) {
    return mirror.data == x.raw() && mirror.bytes == x.bytes();
  });
  return found == mirrors_.end() ? nullptr : &*found;
}

void Comparison::mirror(const Tensor& x, const Tensor& reference) {
  mirrors_.push_back({x.raw(), x.bytes(), reference});
}

const Tensor& Comparison::in(const Tensor& x) {
  if (!x || find(x) != nullptr) return x;
  const Tensor copy = reference_tensor(owner_.reference_, x);
  mirror(x, copy);
  const std::vector<std::byte> bytes = host_bytes(owner_.subject(), x);
  if (copy.dtype() == x.dtype()) {
    owner_.reference_.copy_from_host(bytes.data(), copy);
  } else {
    owner_.reference_.copy_from_host(converted<float>(bytes, x.dtype()).data(), copy);
  }
  return x;
}

const Weight& Comparison::in(const Weight& w) {
  const PairedLayout& layout = paired_layout(*w.layout);
  Weight subject = w, reference;
  subject.layout = layout.subject.get();
  reference.layout = layout.reference.get();
  std::vector<float> host = exported_weight(owner_.subject(), *subject.layout, w.master, what_);
  if (layout.shape().rank() > 1) round_to(owner_.compute_type(), host);  // vectors are read in float32
  reference.master = owner_.reference_.tensor({reference.layout->elements()}, DType::kF32);
  owner_.reference_.import_weight(*reference.layout, host.data(), reference.master);
  owner_.reference_.refresh_compute(reference);
  weights_.push_back({&w, subject, reference});
  return w;
}

const Tensor& Comparison::out(const char* name, const Tensor& y) {
  if (!y) return y;
  if (find(y) == nullptr) {
    fill_with_nan(owner_.subject(), y);
    mirror(y, reference_tensor(owner_.reference_, y));
    fill_with_nan(owner_.reference_, find(y)->reference);
  }
  outputs_.push_back({name, y, find(y)->reference, nullptr});
  return y;
}

const Tensor& Comparison::in_out(const char* name, const Tensor& y) {
  if (!y) return y;
  in(y);
  outputs_.push_back({name, y, find(y)->reference, nullptr});
  return y;
}

const Tensor& Comparison::gradient(const char* name, const Tensor& dw, const Weight& w, bool accumulate) {
  const PairedLayout& layout = paired_layout(*w.layout);
  std::vector<float> host(static_cast<std::size_t>(layout.shape().size()), std::numeric_limits<float>::quiet_NaN());
  if (accumulate) {
    host = exported_weight(owner_.subject(), *layout.subject, dw, what_);
  } else {
    owner_.subject().import_weight(*layout.subject, host.data(), dw);
  }
  const Tensor reference = owner_.reference_.tensor({layout.reference->elements()}, DType::kF32);
  owner_.reference_.import_weight(*layout.reference, host.data(), reference);
  mirror(dw, reference);
  outputs_.push_back({name, dw, reference, &layout});
  return dw;
}

const Tensor& Comparison::gradient(const char* name, const Tensor& dbias, bool accumulate) {
  return accumulate ? in_out(name, dbias) : out(name, dbias);
}

void Comparison::compare() {
  CompareBackend::Seen& seen = owner_.seen_[operation_];
  ++seen.calls;
  for (const Output& output : outputs_) compare(output, seen);
}

void Comparison::compare(const Output& output, CompareBackend::Seen& seen) {
  std::vector<double> actual, expected;
  if (output.layout != nullptr) {
    const auto values = [&](Backend& backend, const WeightLayout& layout, const Tensor& native) {
      const std::vector<float> host = exported_weight(backend, layout, native, what_);
      return std::vector<double>(host.begin(), host.end());
    };
    actual = values(owner_.subject(), *output.layout->subject, output.subject);
    expected = values(owner_.reference_, *output.layout->reference, output.reference);
  } else {
    actual = converted<double>(host_bytes(owner_.subject(), output.subject), output.subject.dtype());
    expected = converted<double>(host_bytes(owner_.reference_, output.reference), output.reference.dtype());
  }
  const double tolerance = output.subject.dtype() == DType::kU8 ? 0 : owner_.tolerance_;
  const Difference found = difference(actual, expected, tolerance);
  seen.largest_difference = std::max(seen.largest_difference, found.size);
  if (found.element < 0) return;
  const Shape& shape = output.layout != nullptr ? output.layout->shape() : output.subject.shape();
  const auto at = static_cast<std::size_t>(found.element);
  fail(
      "{}: {} differs from the {} backend's by {:.1e} {} (tolerance {:.0e}), first beyond at element {}: {} against {}",
      what_, output.name, owner_.reference_.name(), found.size, found.absolute ? "absolute" : "relative", tolerance,
      place_of(shape, found.element, output.layout == nullptr && shape.rank() > 2), actual[at], expected[at]);
}

}  // namespace convoy
