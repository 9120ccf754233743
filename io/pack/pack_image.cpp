// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_image.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "io/images/jpeg_encode.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr int kRgb = 3;
constexpr double kResizeOfSize = 256.0 / 224.0;  // data.resize, where none is given

}  // namespace

void ImagePacker::append_bytes(std::vector<std::byte>& out) const {
  out.insert(out.end(), tools_.bytes.begin(), tools_.bytes.end());
}

void ImagePacker::append_resized(const ImageHeader& header, std::vector<std::byte>& out) {
  const double scale = static_cast<double>(options_.resize) / std::min(header.width, header.height);
  DecodedSize size{header.width, header.height, header.components == 1 ? 1 : kRgb};
  const bool larger = scale < 1;
  if (larger) {
    size.width = std::max(options_.resize, static_cast<int>(std::lround(header.width * scale)));
    size.height = std::max(options_.resize, static_cast<int>(std::lround(header.height * scale)));
  }
  pixels_.resize(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) *
                 static_cast<std::size_t>(size.channels));
  tools_.decode_all(header, size, pixels_.data());
  if (!larger) return append_bytes(out);  // it is small enough, and whole
  append_jpeg(pixels_.data(), size.width, size.height, size.channels, options_.quality, out);
}

void ImagePacker::append_raw(const ImageHeader& header, std::vector<std::byte>& out) {
  const int side = options_.raw;
  pixels_.resize(static_cast<std::size_t>(side) * static_cast<std::size_t>(side) * kRgb);
  tools_.decode_central(header, static_cast<int>(std::lround(side * kResizeOfSize)), {side, side, kRgb},
                        pixels_.data());
  const auto* first = reinterpret_cast<const std::byte*>(pixels_.data());
  out.insert(out.end(), first, first + pixels_.size());
}

void ImagePacker::append(std::int64_t index, std::vector<std::byte>& out) {
  source_.read(index, tools_.bytes);
  if (!source_.encoded()) return append_bytes(out);
  if (options_.resize == 0 && options_.raw == 0 && !options_.verify) {
    if (tools_.bytes.empty()) fail("it is empty");
    return append_bytes(out);
  }
  const ImageHeader header = tools_.decoder.open(tools_.bytes);
  const bool smaller = options_.resize > 0 && std::min(header.width, header.height) > options_.resize;
  if (header.alpha && dropped_alpha_ < 0 && (options_.raw > 0 || smaller)) dropped_alpha_ = index;
  if (options_.raw > 0) return append_raw(header, out);
  if (options_.resize > 0) return append_resized(header, out);
  tools_.decoder.decode({0, 0, header.width, header.height}, header.width, header.height, kRgb);
  append_bytes(out);
}

void ImagePacker::measure(std::int64_t index, std::span<const std::byte> packed, PixelStatistics& statistics) {
  if (!source_.encoded()) {
    try {
      statistics.add(packed, static_cast<int>(source_.image()[2]), source_.type());
    } catch (const Error& error) {
      fail_usage("{}: {}", source_.name(index), error.what());
    }
  } else if (options_.raw > 0) {
    statistics.add(packed, kRgb, PixelType::kUint8);
  } else {
    const ImageHeader header = tools_.decoder.open(packed);
    const DecodedPixels all =
        tools_.decoder.decode({0, 0, header.width, header.height}, header.width, header.height, kRgb);
    const auto size = static_cast<std::size_t>(all.width) * static_cast<std::size_t>(all.height) * kRgb;
    statistics.add({reinterpret_cast<const std::byte*>(all.pixels), size}, kRgb, PixelType::kUint8);
  }
}

}  // namespace convoy
