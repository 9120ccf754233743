// SPDX-License-Identifier: Apache-2.0
//
// What becomes of one sample when it is packed: its bytes as they are, a smaller JPEG, or pixels. Relies on
// decode_tools.h and jpeg_encode.h. Invariant: a pure function of the source's bytes and the options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/images/decode_tools.h"
#include "io/pack/pack_source.h"
#include "io/pack/pixel_statistics.h"

namespace convoy {

struct PackImageOptions {
  int resize = 0;           ///< of encoded images: the shorter side becomes at most this, as JPEG; 0: as it is
  int quality = 90;         ///< of that encoding
  int raw = 0;              ///< of encoded images: pixels of raw x raw, as evaluation sees them; 0: they stay encoded
  bool verify = false;      ///< decode those that are kept
  bool statistics = false;  ///< measure the pixels of training samples
};

/// Tools of one thread.
class ImagePacker {
 public:
  ImagePacker(const PackSource& source, const PackImageOptions& options) : source_(source), options_(options) {}
  /// Appends the packed sample to `out`. Throws an Error that says what is wrong with it, without its name.
  void append(std::int64_t index, std::vector<std::byte>& out);
  /// Adds the pixels of the packed sample `index` to `statistics`; encoded images as RGB. Throws as append() does.
  void measure(std::int64_t index, std::span<const std::byte> packed, PixelStatistics& statistics);
  /// The first sample whose transparency was dropped; -1: none so far.
  [[nodiscard]] std::int64_t dropped_alpha() const { return dropped_alpha_; }

 private:
  void append_resized(const ImageHeader& header, std::vector<std::byte>& out);
  void append_raw(const ImageHeader& header, std::vector<std::byte>& out);
  void append_bytes(std::vector<std::byte>& out) const;

  const PackSource& source_;
  const PackImageOptions options_;
  DecodeTools tools_;
  std::vector<std::uint8_t> pixels_;
  std::int64_t dropped_alpha_ = -1;
};

}  // namespace convoy
