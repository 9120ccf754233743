// SPDX-License-Identifier: Apache-2.0
#include "io/data/hdf5_jpegs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "io/files/packed_bytes.h"

namespace convoy {

namespace {

constexpr const char* kBytes = "jpeg/bytes";
constexpr const char* kOffsets = "jpeg/offsets";

}  // namespace

bool Hdf5Jpegs::are_in(const std::string& source) {
  const Hdf5Source place(source);
  try {
    const hdf5::File file(place.path);
    return (place.group.empty() || file.has(place.group)) && file.has(place.group + "/jpeg");
  } catch (const Error&) {
    return false;  // whoever opens it in earnest says why
  }
}

Hdf5Jpegs::Hdf5Jpegs(const std::string& source, bool verify, bool labelled) : source_(source) {
  hdf5::input_errors([&] {
    const hdf5::File file(source_.path);
    const bool has_labels = file.is_dataset(source_.group + "/labels");
    for (const std::string name : {kBytes, kOffsets, "labels"}) {
      if (name == "labels" && !labelled) continue;
      if (!file.is_dataset(source_.group + "/" + name)) {
        fail(
            "{}: no data set {} next to the others (needed: jpeg/bytes uint8, jpeg/offsets int64 [N + 1], labels int64 "
            "[N])",
            source_.name_of(), name);
      }
    }
    if (file.is_dataset(source_.group + "/images")) {
      fail("{}: both images and jpeg/bytes: which of them is meant? (one to a group)", source_.name_of());
    }
    const hdf5::DatasetInfo info = file.info(source_.group + "/" + kBytes);
    if (info.dims.size() != 1 || info.dtype != DType::kU8) {
      fail("{}: {} {}, but encoded images are uint8 [bytes]", source_.name_of(kBytes), info.type_name,
           info.shape_text());
    }
    open_offsets(file, info.dims[0]);
    if (has_labels) labels_ = std::make_unique<Hdf5Labels>(file, source_, size());
    bytes_ = std::make_unique<RowSource>(file, info.path, DType::kU8);
    if (verify) checksums_ = std::make_unique<SampleChecksums>(file, source_, size());
  });
}

Hdf5Jpegs::Hdf5Jpegs(const std::string& source, ByteUnpacker& packed) : source_(source, packed) {
  offsets_ = packed.counts();  // the first, and how much each of the others is above the one before
  std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
  bytes_ = std::make_unique<RowSource>(source_.path, packed);
  if (packed.number() != 0) labels_ = std::make_unique<Hdf5Labels>(source_, packed);
  if (packed.number() != 0) checksums_ = std::make_unique<SampleChecksums>(source_, packed);
}

void Hdf5Jpegs::pack(BytePacker& packer) const {
  source_.pack(packer);
  std::vector<std::int64_t> differences(offsets_.size());
  std::adjacent_difference(offsets_.begin(), offsets_.end(), differences.begin());
  packer.counts(differences);
  bytes_->pack(packer);
  packer.number(labels_ ? 1 : 0);
  if (labels_) labels_->pack(packer);
  packer.number(checksums_ ? 1 : 0);
  if (checksums_) checksums_->pack(packer);
}

void Hdf5Jpegs::open_offsets(const hdf5::File& file, std::int64_t bytes) {
  const std::string place = source_.name_of(kOffsets);
  const hdf5::DatasetInfo info = file.info(source_.group + "/" + kOffsets);
  if (info.dims.size() != 1 || info.type_name.find("int") == std::string::npos || info.dims[0] < 2) {
    fail("{}: {} {}, but offsets are int64 [N + 1], N at least 1", place, info.type_name, info.shape_text());
  }
  offsets_.resize(static_cast<std::size_t>(info.dims[0]));
  hdf5::RowReader(file, info.path).read(0, info.dims[0], DType::kI64, offsets_.data());
  if (offsets_.front() < 0 || offsets_.back() > bytes) {
    fail("{}: from {} to {}, but {} has {} bytes", place, offsets_.front(), offsets_.back(), kBytes, bytes);
  }
  const auto falls = std::adjacent_find(offsets_.begin(), offsets_.end(), std::greater<>());
  if (falls == offsets_.end()) return;
  fail("{}: image {} starts at {} and the next one at {} (offsets must not fall)", place, falls - offsets_.begin(),
       falls[0], falls[1]);
}

std::string Hdf5Jpegs::name(std::int64_t index) const {
  return fmt::format("{} image {}", source_.name_of(kBytes), index);
}

void Hdf5Jpegs::read(std::int64_t index, std::vector<std::byte>& bytes) const {
  const auto at = static_cast<std::size_t>(index);
  const std::int64_t count = offsets_[at + 1] - offsets_[at];
  bytes.resize(static_cast<std::size_t>(count));
  if (count > 0) bytes_->read(offsets_[at], bytes.data(), count);
  if (checksums_) checksums_->check(index, bytes, label(index));
}

}  // namespace convoy
