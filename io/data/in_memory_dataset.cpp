// SPDX-License-Identifier: Apache-2.0
#include "io/data/in_memory_dataset.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "io/files/packed_bytes.h"

namespace convoy {

InMemoryDataset::InMemoryDataset(Content content) : content_(std::move(content)) {
  const auto samples = static_cast<std::int64_t>(content_.labels.size());
  if (samples == 0) fail_usage("{}: no samples in it", content_.source);
  if (static_cast<std::int64_t>(content_.pixels.size()) != samples * content_.sample.size()) {
    fail_usage("{}: {} labels for {} bytes of images of {}", content_.source, samples, content_.pixels.size(),
               content_.sample.str());
  }
  const auto [least, largest] = std::minmax_element(content_.labels.begin(), content_.labels.end());
  if (*least < 0) {
    fail_usage("{}: sample {} has the label {}", content_.source, least - content_.labels.begin(), *least);
  }
  classes_ = *largest + 1;
}

namespace {

InMemoryDataset::Content unpack_content(ByteUnpacker& packed) {
  InMemoryDataset::Content content;
  content.source = packed.text();
  content.sample = packed.shape();
  content.pixels = packed.array<std::uint8_t>();
  content.labels = packed.counts();
  content.class_names = packed.texts();
  return content;
}

}  // namespace

InMemoryDataset::InMemoryDataset(ByteUnpacker& packed) : InMemoryDataset(unpack_content(packed)) {}

void InMemoryDataset::pack(BytePacker& packer) const {
  packer.text(content_.source);
  packer.shape(content_.sample);
  packer.array(content_.pixels);
  packer.counts(content_.labels);
  packer.texts(content_.class_names);
}

void InMemoryDataset::check_labels(std::int64_t classes) const {
  const auto bad = std::find_if(content_.labels.begin(), content_.labels.end(),
                                [&](std::int64_t label) { return label >= classes; });
  if (bad == content_.labels.end()) return;
  fail_usage("{}: sample {} has the label {}, but there are {} classes (model.classes)", content_.source,
             bad - content_.labels.begin(), *bad, classes);
}

void InMemoryDataset::read(const SampleId& sample, void* input, std::int64_t* label, float* /*target*/) const {
  const auto bytes = static_cast<std::size_t>(content_.sample.size());
  const auto at = static_cast<std::size_t>(sample.index);
  if (input != nullptr) std::memcpy(input, content_.pixels.data() + at * bytes, bytes);
  if (label != nullptr) *label = content_.labels[at];
}

}  // namespace convoy
