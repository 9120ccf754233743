// SPDX-License-Identifier: Apache-2.0
//
// Mean and standard deviation of each channel of images, for data.mean and data.std, and the types of the pixels that
// data files hold. Invariant: the result depends on the images and on how they are grouped, not on threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace convoy {

enum class PixelType { kUint8, kUint16, kFloat32 };

/// Bytes of a pixel's channel.
[[nodiscard]] std::int64_t pixel_bytes(PixelType type);

/// Of pixels as training sees them before it normalises: uint8 / 255, uint16 / 65535, floats as they are.
struct PixelStatistics {
  std::int64_t pixels = 0;
  std::vector<double> mean;     ///< of each channel; empty: of nothing
  std::vector<double> squares;  ///< sum of squared deviations from the mean

  /// Adds an image, [..., channels] in this machine's byte order. Throws an Error for a float that is not finite.
  void add(std::span<const std::byte> image, int channels, PixelType type);
  /// Adds what `other` has seen (Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance").
  void add(const PixelStatistics& other);
  /// Standard deviation over all pixels: the mean square deviation's root.
  [[nodiscard]] std::vector<double> deviation() const;
};

/// "mean = [...]\nstd = [...]\n" with 9 significant digits, as [data] of a config takes them.
[[nodiscard]] std::string normalisation_lines(const std::vector<double>& mean, const std::vector<double>& deviation);

}  // namespace convoy
