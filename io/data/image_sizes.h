// SPDX-License-Identifier: Apache-2.0
//
// The height and width of the images of each epoch, for training that begins with small ones. Relies on nothing.
// Invariant: a pure function of the epoch, so that a resumed run continues with the same size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace convoy {

class ImageSizes {
 public:
  /// One for all epochs.
  ImageSizes(std::int64_t size) : sizes_{size} {}  // NOLINT: a size is one
  /// One size after the other, each from its epoch in `milestones` on: rising, one fewer than sizes.
  ImageSizes(std::vector<std::int64_t> sizes, std::vector<std::int64_t> milestones)
      : sizes_(std::move(sizes)), milestones_(std::move(milestones)) {}

  [[nodiscard]] std::int64_t at(std::int64_t epoch) const {
    const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
    return sizes_[static_cast<std::size_t>(next - milestones_.begin())];
  }
  [[nodiscard]] std::int64_t largest() const { return *std::max_element(sizes_.begin(), sizes_.end()); }
  bool operator==(const ImageSizes&) const = default;

 private:
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> milestones_;
};

}  // namespace convoy
