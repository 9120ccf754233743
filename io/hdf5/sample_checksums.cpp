// SPDX-License-Identifier: Apache-2.0
#include "io/hdf5/sample_checksums.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "io/files/crc32c.h"
#include "io/files/packed_bytes.h"

namespace convoy {

std::uint32_t sample_checksum(std::uint32_t bytes, std::int64_t label) {
  std::array<char, 8> text{};
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>(static_cast<std::uint64_t>(label) >> (8 * i));
  }
  return crc32c({text.data(), text.size()}, bytes);
}

bool SampleChecksums::are_in(const hdf5::File& file, const Hdf5Source& source) {
  return file.is_dataset(source.group + "/" + kName);
}

SampleChecksums::SampleChecksums(const hdf5::File& file, const Hdf5Source& source, std::int64_t size)
    : place_(source.name_of()) {
  if (!are_in(file, source)) {
    fail_usage("{}: has no checksums of its samples (write them with `convoy pack`, or leave out data.verify)", place_);
  }
  const hdf5::DatasetInfo info = file.info(source.group + "/" + kName);
  if (info.dims.size() != 1 || info.type_name != "uint32" || info.dims[0] != size) {
    fail_usage("{}: {} {}, but checksums of {} samples are uint32 [{}] (pack the data again)", source.name_of(kName),
               info.type_name, info.shape_text(), size, size);
  }
  constexpr std::int64_t kAtOnce = 1 << 20;
  std::vector<std::int64_t> read(static_cast<std::size_t>(std::min(size, kAtOnce)));
  values_.reserve(static_cast<std::size_t>(size));
  const hdf5::RowReader reader(file, info.path);
  for (std::int64_t first = 0; first < size; first += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, size - first);
    reader.read(first, count, DType::kI64, read.data());
    values_.insert(values_.end(), read.begin(), read.begin() + count);
  }
}

SampleChecksums::SampleChecksums(const Hdf5Source& source, ByteUnpacker& packed)
    : place_(source.name_of()), values_(packed.array<std::uint32_t>()) {}

void SampleChecksums::pack(BytePacker& packer) const { packer.array(values_); }

void SampleChecksums::check(std::int64_t sample, std::span<const std::byte> bytes, std::int64_t label) const {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::uint32_t found = sample_checksum(crc32c(text), label),
                      expected = values_[static_cast<std::size_t>(sample)];
  if (found == expected) return;
  fail_usage("{}: block {} (sample {}) is damaged: its CRC-32C is {:08x}, not {:08x} (copy the file again, or pack it)",
             place_, sample, sample, found, expected);
}

}  // namespace convoy
