// SPDX-License-Identifier: Apache-2.0
//
// Relies on row_source.h for the elements. Invariant: an error found here is one of bad input (exit code 2) and names
// the file, the data set and the remedy.
#include "io/data/hdf5_dataset.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/files/packed_bytes.h"

namespace convoy {

namespace {

constexpr float kLargestUint16 = 65535;
constexpr const char* kNeeded =
    "needed: images uint8, uint16 or float32 [N, H, W, C] or inputs float32 [N, ...], with labels int64 [N], targets "
    "float32 [N, ...] or targets uint8 [N, classes]; or jpeg/bytes uint8 + jpeg/offsets int64 [N + 1] + labels";

// What the group holds, and what would be right.
std::string found_instead(const hdf5::File& file, const std::string& group) {
  std::string found;
  for (const auto& info : file.datasets(group.empty() ? "/" : group)) {
    if (found.size() > 300) {
      found += ", ...";
      break;
    }
    found += fmt::format("{}{} {} {}", found.empty() ? "" : ", ", info.path, info.type_name, info.shape_text());
  }
  std::string text = fmt::format("found: {}; {}", found.empty() ? "no data sets" : found, kNeeded);
  std::string groups;
  for (const auto& name : file.groups(group.empty() ? "/" : group)) {
    const std::string below = fmt::format("{}/{}", group, name);
    if (file.has(below + "/labels") || file.has(below + "/targets")) {
      groups += fmt::format("{}{}:{}/{}", groups.empty() ? "" : " or ", file.path(), group, name);
    }
  }
  if (!groups.empty()) text += "; did you mean " + groups + "?";
  return text;
}

// [H, W, C] from [C, H, W].
void to_channels_last(const float* planar, const Shape& shape, float* out) {
  const std::int64_t channels = shape[0], pixels = shape[1] * shape[2];
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t i = 0; i < pixels; ++i) out[i * channels + c] = planar[c * pixels + i];
  }
}

}  // namespace

Hdf5Dataset::Hdf5Dataset(const std::string& source, bool signals, bool verify, bool labelled) : source_(source) {
  hdf5::input_errors([&] {
    const hdf5::File file(source_.path);
    if (!source_.group.empty() && !file.has(source_.group)) {
      fail("{}: no group {} (there are: /{})", source_.path, source_.group, fmt::join(file.groups("/"), ", /"));
    }
    if (!source_.group.empty() && file.is_dataset(source_.group))
      fail("{}: {} is a data set; name the group that holds it", source_.path, source_.group);
    const auto has = [&](const char* name) { return file.is_dataset(source_.group + "/" + name); };
    const bool images = has("images"), inputs = has("inputs"), labels = has("labels"), targets = has("targets");
    if (images == inputs || (labels && targets) || (labelled && !labels && !targets)) {
      const char* problem = images && inputs    ? "both images and inputs: which of them is meant?"
                            : labels && targets ? "both labels and targets: which of them is meant?"
                                                : "not the data sets of a data file";
      fail("{}: {} ({})", source_.name_of(), problem, found_instead(file, source_.group));
    }
    open_inputs(file, images ? "images" : "inputs", signals);
    if (labels) {
      labels_.emplace(file, source_, size_);
    } else if (targets) {
      open_targets(file, "targets");
    }
    if (verify) checksums_.emplace(file, source_, size_);
  });
}

Hdf5Dataset::Hdf5Dataset(const std::string& source, ByteUnpacker& packed)
    : source_(source, packed), size_(packed.number()), sample_shape_(packed.shape()) {
  planar_ = packed.number() != 0;
  uint16_ = packed.number() != 0;
  inputs_ = std::make_unique<RowSource>(source_.path, packed);
  if (packed.number() != 0) targets_ = std::make_unique<RowSource>(source_.path, packed);
  target_size_ = packed.number();
  if (packed.number() != 0) labels_.emplace(source_, packed);
  if (packed.number() != 0) checksums_.emplace(source_, packed);
}

void Hdf5Dataset::pack(BytePacker& packer) const {
  source_.pack(packer);
  packer.number(size_);
  packer.shape(sample_shape_);
  packer.number(planar_ ? 1 : 0);
  packer.number(uint16_ ? 1 : 0);
  inputs_->pack(packer);
  packer.number(targets_ ? 1 : 0);
  if (targets_) targets_->pack(packer);
  packer.number(target_size_);
  packer.number(labels_ ? 1 : 0);
  if (labels_) labels_->pack(packer);
  packer.number(checksums_ ? 1 : 0);
  if (checksums_) checksums_->pack(packer);
}

void Hdf5Dataset::open_inputs(const hdf5::File& file, const std::string& name, bool signals) {
  const hdf5::DatasetInfo info = file.info(source_.group + "/" + name);
  const auto& dims = info.dims;
  const bool images = name == "images";
  const std::string what = fmt::format("{}: {} {}", source_.name_of(name), info.type_name, info.shape_text());
  const bool floats = info.type_name.starts_with("float");
  uint16_ = images && info.type_name == "uint16";
  if (images && (dims.size() != 4 || (info.dtype != DType::kU8 && !uint16_ && !floats))) {
    fail("{}, but images are uint8, uint16 or float32 [N, H, W, C]", what);
  }
  if (!images && (dims.empty() || dims.size() > 4 || !floats)) {
    fail("{}, but inputs are float32 [N, features], [N, C, L] or [N, C, H, W]", what);
  }
  if (info.size() < 1) fail("{}: no samples", what);
  const auto are_channels = [](std::int64_t count) { return count == 1 || count == 3 || count == 4; };
  if (images && are_channels(dims[1]) && !are_channels(dims[3]) && dims[2] > 4) {
    fail("{}, which looks like [N, C, H, W], but images are [N, H, W, C] (in h5py: images[:].transpose(0, 2, 3, 1))",
         what);
  }
  size_ = dims[0];
  if (images) {
    sample_shape_ = Shape{dims[3], dims[1], dims[2]};
  } else if (dims.size() == 4) {
    sample_shape_ = Shape{dims[1], dims[2], dims[3]};
    planar_ = dims[1] > 1 && dims[2] * dims[3] > 1;
  } else if (dims.size() == 3 && signals) {
    sample_shape_ = Shape{dims[1], 1, dims[2]};
    planar_ = dims[1] > 1 && dims[2] > 1;
  } else {
    sample_shape_ = Shape{info.size() / size_};
  }
  inputs_ = std::make_unique<RowSource>(file, info.path, images && info.dtype == DType::kU8 ? DType::kU8 : DType::kF32);
}

void Hdf5Dataset::open_targets(const hdf5::File& file, const std::string& name) {
  const hdf5::DatasetInfo info = file.info(source_.group + "/" + name);
  const bool several_labels = info.dtype == DType::kU8;
  if (several_labels ? info.dims.size() != 2 : info.dims.empty() || !info.type_name.starts_with("float")) {
    fail("{}: {} {}, but targets are float32 [N, ...], or uint8 [N, classes]", source_.name_of(name), info.type_name,
         info.shape_text());
  }
  if (info.dims[0] != size_) {
    fail("{}: {} targets for {} samples; there must be one each", source_.name_of(name), info.dims[0], size_);
  }
  targets_ = std::make_unique<RowSource>(file, info.path, several_labels ? DType::kU8 : DType::kF32);
  target_size_ = targets_->row_elements();
}

void Hdf5Dataset::read_target(std::int64_t index, float* target) const {
  if (targets_->dtype() == DType::kF32) return targets_->read(index, target);
  thread_local std::vector<std::uint8_t> labels;  // grows once per thread
  labels.resize(static_cast<std::size_t>(target_size_));
  targets_->read(index, labels.data());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] > 1) {
      fail_usage("{}: sample {} has the value {} for class {} (uint8 targets are 0 or 1; float32 may be anything)",
                 source_.name_of("targets"), index, labels[i], i);
    }
    target[i] = labels[i];
  }
}

void Hdf5Dataset::verify(std::int64_t index, const void* input) const {
  const auto count = static_cast<std::size_t>(sample_shape_.size());
  const auto* bytes = static_cast<const std::byte*>(input);
  std::size_t size = count * dtype_size(input_dtype());
  thread_local std::vector<std::uint16_t> elements;  // grows once per thread
  if (uint16_) {
    const auto* const values = static_cast<const float*>(input);
    elements.assign(values, values + count);
    bytes = reinterpret_cast<const std::byte*>(elements.data());
    size = count * sizeof elements[0];
  }
  checksums_->check(index, {bytes, size}, labels_ ? (*labels_)[index] : 0);
}

void Hdf5Dataset::check_labels(std::int64_t classes) const {
  if (labels_) labels_->check(classes);
}

void Hdf5Dataset::read(const SampleId& sample, void* input, std::int64_t* label, float* target) const {
  const std::int64_t index = sample.index;
  if (index < 0 || index >= size_) fail("{}: sample {} of {}", source_.name_of(), index, size_);
  if (input != nullptr && planar_) {
    thread_local std::vector<float> planar;  // grows once per thread
    planar.resize(static_cast<std::size_t>(sample_shape_.size()));
    inputs_->read(index, planar.data());
    to_channels_last(planar.data(), sample_shape_, static_cast<float*>(input));
  } else if (input != nullptr) {
    inputs_->read(index, input);
  }
  if (input != nullptr && checksums_) verify(index, input);
  if (input != nullptr && uint16_) {
    auto* const values = static_cast<float*>(input);
    for (std::int64_t i = 0; i < sample_shape_.size(); ++i) values[i] /= kLargestUint16;
  }
  if (label != nullptr && labels_) *label = (*labels_)[index];
  if (target != nullptr && targets_ != nullptr) read_target(index, target);
}

}  // namespace convoy
