// SPDX-License-Identifier: Apache-2.0
#include "io/hdf5/hdf5_source.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "io/files/packed_bytes.h"

namespace convoy {

namespace {

constexpr std::int64_t kMaxClasses = 10'000'000;  // as model.classes

}  // namespace

Hdf5Source::Hdf5Source(const std::string& written) : path(written) {
  std::error_code ignored;
  const auto colon = written.rfind(":/");
  if (colon == std::string::npos || std::filesystem::exists(written, ignored)) return;
  path = written.substr(0, colon);
  group = written.substr(colon + 1);
  while (!group.empty() && group.back() == '/') group.pop_back();
  behind_ = written.size() - path.size();
}

Hdf5Source::Hdf5Source(const std::string& written, ByteUnpacker& packed)
    : behind_(static_cast<std::size_t>(packed.number())) {
  path = written.substr(0, written.size() - std::min(written.size(), behind_));
  group = packed.text();
}

void Hdf5Source::pack(BytePacker& packer) const {
  packer.number(static_cast<std::int64_t>(behind_));
  packer.text(group);
}

std::string Hdf5Source::name_of(const std::string& dataset) const {
  if (dataset.empty()) return group.empty() ? path : path + ":" + group;
  return path + ":" + group + "/" + dataset;
}

Hdf5Labels::Hdf5Labels(const hdf5::File& file, const Hdf5Source& source, std::int64_t size)
    : place_(source.name_of("labels")) {
  const hdf5::DatasetInfo info = file.info(source.group + "/labels");
  if (info.dims.size() != 1 || info.type_name.find("int") == std::string::npos) {
    fail("{}: {} {}, but labels are int64 [N]", place_, info.type_name, info.shape_text());
  }
  if (info.dims[0] != size) {
    fail("{}: {} labels for {} samples; there must be one each", place_, info.dims[0], size);
  }
  values_.resize(static_cast<std::size_t>(size));
  hdf5::RowReader(file, info.path).read(0, size, DType::kI64, values_.data());
  const auto bad = std::find_if(values_.begin(), values_.end(), [](std::int64_t label) { return label < 0; });
  if (bad != values_.end()) {
    fail("{}: sample {} has the label {}; labels count from 0 (repair or remove such samples)", place_,
         bad - values_.begin(), *bad);
  }
  const auto largest = std::max_element(values_.begin(), values_.end());
  if (largest != values_.end() && *largest >= kMaxClasses) {
    fail("{}: sample {} has the label {}; labels stay below {} (repair or remove such samples)", place_,
         largest - values_.begin(), *largest, kMaxClasses);
  }
  classes_ = largest == values_.end() ? 0 : 1 + *largest;
  for (const std::string& object : {source.group.empty() ? std::string("/") : source.group, source.group + "/labels"}) {
    if (class_names_.empty()) class_names_ = file.strings_attribute(object, "class_names");
  }
}

Hdf5Labels::Hdf5Labels(const Hdf5Source& source, ByteUnpacker& packed)
    : place_(source.name_of("labels")), values_(packed.counts()) {
  for (const std::int64_t label : values_) classes_ = std::max(classes_, label + 1);
  class_names_ = packed.texts();
}

void Hdf5Labels::pack(BytePacker& packer) const {
  packer.counts(values_);
  packer.texts(class_names_);
}

void Hdf5Labels::check(std::int64_t classes) const {
  if (classes_ <= classes) return;
  const auto bad = std::find_if(values_.begin(), values_.end(), [&](std::int64_t label) { return label >= classes; });
  fail_usage(
      "{}: sample {} has the label {}, but there are {} classes (labels 0 to {}): set model.classes to {} or more, "
      "or repair the labels",
      place_, bad - values_.begin(), *bad, classes, classes - 1, classes_);
}

}  // namespace convoy
