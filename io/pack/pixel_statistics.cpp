// SPDX-License-Identifier: Apache-2.0
//
// Sums of integers are exact, in 64 bits: an image has at most 2^31 pixels of at most 2^32 as a square. Floats are
// summed in float64, first to their mean, then around it.
#include "io/pack/pixel_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

template <class Value>
Value value_at(std::span<const std::byte> image, std::size_t index) {
  Value value;
  std::memcpy(&value, image.data() + index * sizeof value, sizeof value);
  return value;
}

template <class Value>
void measure_integers(std::span<const std::byte> image, double largest, PixelStatistics& result) {
  const std::size_t channels = result.mean.size(), values = image.size() / sizeof(Value);
  std::vector<std::uint64_t> sums(channels), squares(channels);
  for (std::size_t i = 0; i < values; i += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const std::uint64_t value = value_at<Value>(image, i + c);
      sums[c] += value;
      squares[c] += value * value;
    }
  }
  const auto count = static_cast<double>(result.pixels);
  for (std::size_t c = 0; c < channels; ++c) {
    const auto sum = static_cast<double>(sums[c]);
    result.mean[c] = sum / count / largest;
    result.squares[c] = std::max(0.0, static_cast<double>(squares[c]) - sum * (sum / count)) / (largest * largest);
  }
}

void measure_floats(std::span<const std::byte> image, PixelStatistics& result) {
  const std::size_t channels = result.mean.size(), values = image.size() / sizeof(float);
  for (std::size_t i = 0; i < values; ++i) {
    const auto value = value_at<float>(image, i);
    if (!std::isfinite(value)) fail("value {} of its pixels is {} (repair it, or leave out --statistics)", i, value);
    result.mean[i % channels] += value;
  }
  for (double& mean : result.mean) mean /= static_cast<double>(result.pixels);
  for (std::size_t i = 0; i < values; ++i) {
    const double off = value_at<float>(image, i) - result.mean[i % channels];
    result.squares[i % channels] += off * off;
  }
}

std::string toml_list(const std::vector<double>& values) {
  std::vector<std::string> words;
  words.reserve(values.size());
  for (const double value : values) {
    std::string word = fmt::format("{:.9g}", value);
    if (word.find_first_of(".e") == std::string::npos) word += ".0";
    words.push_back(std::move(word));
  }
  return fmt::format("[{}]", fmt::join(words, ", "));
}

}  // namespace

std::int64_t pixel_bytes(PixelType type) {
  return type == PixelType::kUint8 ? 1 : type == PixelType::kUint16 ? sizeof(std::uint16_t) : sizeof(float);
}

void PixelStatistics::add(std::span<const std::byte> image, int channels, PixelType type) {
  PixelStatistics own;
  own.pixels = static_cast<std::int64_t>(image.size()) / (pixel_bytes(type) * channels);
  own.mean.resize(static_cast<std::size_t>(channels));
  own.squares.resize(static_cast<std::size_t>(channels));
  switch (type) {
    case PixelType::kUint8: measure_integers<std::uint8_t>(image, 255, own); break;
    case PixelType::kUint16: measure_integers<std::uint16_t>(image, 65535, own); break;
    case PixelType::kFloat32: measure_floats(image, own); break;
  }
  add(own);
}

void PixelStatistics::add(const PixelStatistics& other) {
  if (other.pixels == 0) return;
  if (pixels == 0) {
    *this = other;
    return;
  }
  const auto n = static_cast<double>(pixels), m = static_cast<double>(other.pixels);
  for (std::size_t c = 0; c < mean.size(); ++c) {
    const double apart = other.mean[c] - mean[c];
    mean[c] += apart * (m / (n + m));
    squares[c] += other.squares[c] + apart * apart * (n * m / (n + m));
  }
  pixels += other.pixels;
}

std::vector<double> PixelStatistics::deviation() const {
  std::vector<double> result;
  result.reserve(squares.size());
  for (const double sum : squares) result.push_back(std::sqrt(sum / static_cast<double>(pixels)));
  return result;
}

std::string normalisation_lines(const std::vector<double>& mean, const std::vector<double>& deviation) {
  return fmt::format("mean = {}\nstd = {}\n", toml_list(mean), toml_list(deviation));
}

}  // namespace convoy
