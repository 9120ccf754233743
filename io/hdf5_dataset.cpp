// SPDX-License-Identifier: Apache-2.0
//
// Relies on row_source.h for the elements. Labels are read whole, since they are small and must be checked. Invariant:
// an error found here is one of bad input (exit code 2) and names the file, the data set and the remedy.
#include "io/hdf5_dataset.h"

#include <algorithm>
#include <filesystem>

namespace convoy {

namespace {

constexpr std::int64_t kMostClasses = 10'000'000;  // as model.classes

constexpr const char* kNeeded =
    "needed: images uint8 [N, H, W, C] + labels int64 [N], or inputs float32 [N, ...] + targets float32 [N, ...], "
    "or inputs + labels";

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
  if (file.has(group + "/jpeg")) text += "; encoded JPEGs (jpeg/bytes) are not read by this version, decode them first";
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

Hdf5Dataset::Hdf5Dataset(const std::string& source) : path_(source) {
  std::error_code ignored;
  const auto colon = source.rfind(":/");
  if (colon != std::string::npos && !std::filesystem::exists(source, ignored)) {
    path_ = source.substr(0, colon);
    group_ = source.substr(colon + 1);
    while (!group_.empty() && group_.back() == '/') group_.pop_back();
  }
  hdf5::input_errors([&] {
    const hdf5::File file(path_);
    if (!group_.empty() && !file.has(group_)) {
      fail("{}: no group {} (there are: /{})", path_, group_, fmt::join(file.groups("/"), ", /"));
    }
    if (!group_.empty() && file.is_dataset(group_))
      fail("{}: {} is a data set; name the group that holds it", path_, group_);
    const auto has = [&](const char* name) { return file.is_dataset(group_ + "/" + name); };
    const bool images = has("images"), inputs = has("inputs"), labels = has("labels"), targets = has("targets");
    if (images == inputs || labels == targets || (images && targets)) {
      const char* problem = images && inputs    ? "both images and inputs: which of them is meant?"
                            : labels && targets ? "both labels and targets: which of them is meant?"
                            : images && targets ? "images go with labels, not with targets"
                                                : "not the data sets of a data file";
      fail("{}: {} ({})", name_of(""), problem, found_instead(file, group_));
    }
    open_inputs(file, images ? "images" : "inputs");
    if (labels) {
      open_labels(file, "labels");
    } else {
      open_targets(file, "targets");
    }
    for (const std::string& object : {group_.empty() ? std::string("/") : group_, group_ + "/labels"}) {
      if (class_names_.empty()) class_names_ = file.strings_attribute(object, "class_names");
    }
  });
}

std::string Hdf5Dataset::name_of(const std::string& dataset) const {
  if (dataset.empty()) return group_.empty() ? path_ : path_ + ":" + group_;
  return path_ + ":" + group_ + "/" + dataset;
}

void Hdf5Dataset::open_inputs(const hdf5::File& file, const std::string& name) {
  const hdf5::DatasetInfo info = file.info(group_ + "/" + name);
  const auto& dims = info.dims;
  const bool images = name == "images";
  const std::string what = fmt::format("{}: {} {}", name_of(name), info.type_name, info.shape_text());
  if (images && (dims.size() != 4 || info.dtype != DType::kU8)) fail("{}, but images are uint8 [N, H, W, C]", what);
  if (!images && (dims.empty() || dims.size() > 4 || !info.type_name.starts_with("float"))) {
    fail("{}, but inputs are float32 [N, features] or [N, C, H, W]", what);
  }
  if (info.size() < 1) fail("{}: no samples", what);
  size_ = dims[0];
  if (images) {
    sample_shape_ = Shape{dims[3], dims[1], dims[2]};
  } else if (dims.size() == 4) {
    sample_shape_ = Shape{dims[1], dims[2], dims[3]};
    planar_ = dims[1] > 1 && dims[2] * dims[3] > 1;
  } else {
    sample_shape_ = Shape{info.size() / size_};
  }
  inputs_ = std::make_unique<RowSource>(file, info.path, images ? DType::kU8 : DType::kF32);
}

void Hdf5Dataset::open_labels(const hdf5::File& file, const std::string& name) {
  const hdf5::DatasetInfo info = file.info(group_ + "/" + name);
  if (info.dims.size() != 1 || info.type_name.find("int") == std::string::npos) {
    fail("{}: {} {}, but labels are int64 [N]", name_of(name), info.type_name, info.shape_text());
  }
  if (info.dims[0] != size_) {
    fail("{}: {} labels for {} samples; there must be one each", name_of(name), info.dims[0], size_);
  }
  labels_.resize(static_cast<std::size_t>(size_));
  hdf5::RowReader(file, info.path).read(0, size_, DType::kI64, labels_.data());
  const auto bad = std::find_if(labels_.begin(), labels_.end(), [](std::int64_t label) { return label < 0; });
  if (bad != labels_.end()) {
    fail("{}: sample {} has the label {}; labels count from 0 (repair or remove such samples)", name_of(name),
         bad - labels_.begin(), *bad);
  }
  const auto largest = std::max_element(labels_.begin(), labels_.end());
  if (*largest >= kMostClasses) {
    fail("{}: sample {} has the label {}; labels stay below {} (repair or remove such samples)", name_of(name),
         largest - labels_.begin(), *largest, kMostClasses);
  }
  classes_ = 1 + *largest;
}

void Hdf5Dataset::open_targets(const hdf5::File& file, const std::string& name) {
  const hdf5::DatasetInfo info = file.info(group_ + "/" + name);
  if (info.dims.empty() || !info.type_name.starts_with("float")) {
    fail("{}: {} {}, but targets are float32 [N, ...]", name_of(name), info.type_name, info.shape_text());
  }
  if (info.dims[0] != size_) {
    fail("{}: {} targets for {} samples; there must be one each", name_of(name), info.dims[0], size_);
  }
  targets_ = std::make_unique<RowSource>(file, info.path, DType::kF32);
  target_size_ = targets_->row_elements();
}

void Hdf5Dataset::check_labels(std::int64_t classes) const {
  if (classes_ <= classes) return;
  const auto bad = std::find_if(labels_.begin(), labels_.end(), [&](std::int64_t label) { return label >= classes; });
  fail_usage(
      "{}: sample {} has the label {}, but there are {} classes (labels 0 to {}): set model.classes to {} or more, "
      "or repair the labels",
      name_of("labels"), bad - labels_.begin(), *bad, classes, classes - 1, classes_);
}

void Hdf5Dataset::read(std::int64_t index, void* input, std::int64_t* label, float* target) const {
  if (index < 0 || index >= size_) fail("{}: sample {} of {}", name_of(""), index, size_);
  if (input != nullptr && planar_) {
    thread_local std::vector<float> planar;  // grows once per thread
    planar.resize(static_cast<std::size_t>(sample_shape_.size()));
    inputs_->read(index, planar.data());
    to_channels_last(planar.data(), sample_shape_, static_cast<float*>(input));
  } else if (input != nullptr) {
    inputs_->read(index, input);
  }
  if (label != nullptr && !labels_.empty()) *label = labels_[static_cast<std::size_t>(index)];
  if (target != nullptr && targets_ != nullptr) targets_->read(index, target);
}

}  // namespace convoy
