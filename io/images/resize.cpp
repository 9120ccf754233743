// SPDX-License-Identifier: Apache-2.0
//
// Rows are combined first: that vectorises for any number of channels, and one combined row stays in the first cache
// until its columns are combined. Weights have 14 bits behind the point and combined rows 6, which leaves space in 16
// bits: so two products and their sum are one instruction of AVX2 (pmaddwd). NEON multiplies by one weight at a time.
#include "io/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "layers/base/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace convoy {

namespace {

constexpr int kWeightBits = 14, kRowBits = 6;
constexpr int kRowShift = kWeightBits - kRowBits, kColumnShift = kWeightBits + kRowBits;
constexpr int kRowHalf = 1 << (kRowShift - 1), kColumnHalf = 1 << (kColumnShift - 1);
constexpr std::size_t kSlack = 64;  // elements behind a row that vectors may read; their weights are 0

// Pillow: Resample.c, precompute_coeffs and bilinear_filter. The source are pixels [0, pixels).
void make_filter(Resizer::Filter& filter, std::vector<double>& exact, int pixels, double start, double length,
                 int outputs, bool mirror) {
  const double step = length / outputs, reach = std::max(step, 1.0);
  const int most = static_cast<int>(std::ceil(2 * reach));  // pixel centres that fit under the triangle
  filter.taps = most + (most & 1);
  filter.first.resize(static_cast<std::size_t>(outputs));
  filter.weights.assign(static_cast<std::size_t>(outputs) * static_cast<std::size_t>(filter.taps), 0);
  exact.resize(static_cast<std::size_t>(filter.taps));
  for (int i = 0; i < outputs; ++i) {
    const double center = start + (i + 0.5) * step;
    const int first = std::clamp(static_cast<int>(std::floor(center - reach + 0.5)), 0, pixels - 1);
    const int behind = static_cast<int>(std::floor(center + reach + 0.5));
    const int last = std::clamp(behind, first + 1, std::min(pixels, first + filter.taps));
    double sum = 0;
    for (int x = first; x < last; ++x) {
      const double weight = std::max(0.0, 1.0 - std::abs(x - center + 0.5) / reach);
      exact[static_cast<std::size_t>(x - first)] = weight;
      sum += weight;
    }
    if (sum <= 0) exact[0] = sum = 1;
    const int place = mirror ? outputs - 1 - i : i;
    std::int16_t* weights = filter.weights.data() + std::size_t(place) * std::size_t(filter.taps);
    // Rounding the running sum, not each weight, keeps the total at exactly 1.
    double running = 0;
    int given = 0;
    for (int x = first; x < last; ++x) {
      running += exact[static_cast<std::size_t>(x - first)];
      const int until = static_cast<int>(std::lround(running / sum * (1 << kWeightBits)));
      weights[x - first] = static_cast<std::int16_t>(until - given);
      given = until;
    }
    filter.first[static_cast<std::size_t>(place)] = first;
  }
}

// Bytes [from, count) of one combined row.
void combine_rows_plainly(const std::uint8_t* const* rows, const std::int16_t* weights, int taps, int from, int count,
                          std::int16_t* out) {
  for (int i = from; i < count; ++i) {
    int sum = kRowHalf;
    for (int t = 0; t < taps; ++t) sum += weights[t] * rows[t][i];
    out[i] = static_cast<std::int16_t>(sum >> kRowShift);
  }
}

// Output pixels [from, outputs).
void combine_columns_plainly(const std::int16_t* row, const Resizer::Filter& filter, int channels, int from,
                             int outputs, std::uint8_t* out) {
  for (int i = from; i < outputs; ++i) {
    const std::int16_t* weights = filter.weights.data() + std::size_t(i) * std::size_t(filter.taps);
    const std::int16_t* pixel = row + filter.first[static_cast<std::size_t>(i)] * channels;
    for (int c = 0; c < channels; ++c) {
      int sum = kColumnHalf;
      for (int t = 0; t < filter.taps; ++t) sum += weights[t] * pixel[t * channels + c];
      out[i * channels + c] = static_cast<std::uint8_t>(std::min(255, sum >> kColumnShift));
    }
  }
}

#if defined(__x86_64__)
int pair_of(const std::int16_t* weights) {
  int pair = 0;
  std::memcpy(&pair, weights, sizeof pair);
  return pair;
}

__attribute__((target("avx2"))) void combine_rows_fast(const std::uint8_t* const* rows, const std::int16_t* weights,
                                                       int taps, int count, std::int16_t* out) {
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    __m256i low = _mm256_set1_epi32(kRowHalf), high = low;
    for (int t = 0; t < taps; t += 2) {
      const __m256i pair = _mm256_set1_epi32(pair_of(weights + t));
      const __m256i a = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[t] + i)));
      const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[t + 1] + i)));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), pair));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), pair));
    }
    low = _mm256_srai_epi32(low, kRowShift);
    high = _mm256_srai_epi32(high, kRowShift);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_packs_epi32(low, high));
  }
  combine_rows_plainly(rows, weights, taps, i, count, out);
}

__attribute__((target("avx2"))) __m256i two_loads(const std::int16_t* low, const std::int16_t* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}

__attribute__((target("avx2"))) __m256i two_pairs(const std::int16_t* low, const std::int16_t* high) {
  return _mm256_blend_epi32(_mm256_set1_epi32(pair_of(low)), _mm256_set1_epi32(pair_of(high)), 0xf0);
}

// Three channels, four output pixels at a time: the first and the third in the halves of one vector, the second and
// the fourth in those of another.
__attribute__((target("avx2"))) void combine_rgb_fast(const std::int16_t* row, const Resizer::Filter& filter,
                                                      int outputs, std::uint8_t* out) {
  // r0 g0 b0 r1 g1 b1 . . -> r0 r1 g0 g1 b0 b1 . .
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1));
  // r g b . r g b . -> r g b r g b
  const __m256i bytes =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  const int taps = filter.taps;
  const std::int16_t* weights = filter.weights.data();
  const int* first = filter.first.data();
  int i = 0;
  for (; i + 4 <= outputs; i += 4, weights += 4 * taps) {
    const std::int16_t *a = row + 3 * first[i], *b = row + 3 * first[i + 1];
    const std::int16_t *c = row + 3 * first[i + 2], *d = row + 3 * first[i + 3];
    __m256i even = _mm256_set1_epi32(kColumnHalf), odd = even;
    for (int t = 0; t < taps; t += 2) {
      const __m256i x = _mm256_shuffle_epi8(two_loads(a + 3 * t, c + 3 * t), order);
      const __m256i y = _mm256_shuffle_epi8(two_loads(b + 3 * t, d + 3 * t), order);
      even = _mm256_add_epi32(even, _mm256_madd_epi16(x, two_pairs(weights + t, weights + 2 * taps + t)));
      odd = _mm256_add_epi32(odd, _mm256_madd_epi16(y, two_pairs(weights + taps + t, weights + 3 * taps + t)));
    }
    const __m256i words =
        _mm256_packs_epi32(_mm256_srai_epi32(even, kColumnShift), _mm256_srai_epi32(odd, kColumnShift));
    const __m256i pixels = _mm256_shuffle_epi8(_mm256_packus_epi16(words, words), bytes);  // 6 bytes in each half
    const auto low = static_cast<std::uint64_t>(_mm256_extract_epi64(pixels, 0));
    const auto high = static_cast<std::uint64_t>(_mm256_extract_epi64(pixels, 2));
    const std::uint64_t start = low | high << 48, end = high >> 16;
    std::memcpy(out + 3 * i, &start, 8);
    std::memcpy(out + 3 * i + 8, &end, 4);
  }
  combine_columns_plainly(row, filter, 3, i, outputs, out);
}

bool has_fast() { return cpu_features().avx2; }
#elif defined(__aarch64__)
void combine_rows_fast(const std::uint8_t* const* rows, const std::int16_t* weights, int taps, int count,
                       std::int16_t* out) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    int32x4_t low = vdupq_n_s32(kRowHalf), high = low;
    for (int t = 0; t < taps; ++t) {
      const int16x8_t pixels = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(rows[t] + i)));
      low = vmlal_n_s16(low, vget_low_s16(pixels), weights[t]);
      high = vmlal_high_n_s16(high, pixels, weights[t]);
    }
    vst1q_s16(out + i, vcombine_s16(vqshrn_n_s32(low, kRowShift), vqshrn_n_s32(high, kRowShift)));
  }
  combine_rows_plainly(rows, weights, taps, i, count, out);
}

// Three channels: the fourth number of each vector belongs to the next pixel and is not stored.
void combine_rgb_fast(const std::int16_t* row, const Resizer::Filter& filter, int outputs, std::uint8_t* out) {
  const std::int16_t* weights = filter.weights.data();
  for (int i = 0; i < outputs; ++i, weights += filter.taps) {
    const std::int16_t* pixel = row + 3 * filter.first[static_cast<std::size_t>(i)];
    int32x4_t sum = vdupq_n_s32(kColumnHalf);
    for (int t = 0; t < filter.taps; ++t) sum = vmlal_n_s16(sum, vld1_s16(pixel + 3 * t), weights[t]);
    sum = vminq_s32(vshrq_n_s32(sum, kColumnShift), vdupq_n_s32(255));
    out[3 * i] = static_cast<std::uint8_t>(vgetq_lane_s32(sum, 0));
    out[3 * i + 1] = static_cast<std::uint8_t>(vgetq_lane_s32(sum, 1));
    out[3 * i + 2] = static_cast<std::uint8_t>(vgetq_lane_s32(sum, 2));
  }
}

bool has_fast() { return true; }  // every 64-bit Arm CPU has NEON
#else
void combine_rows_fast(const std::uint8_t* const* rows, const std::int16_t* weights, int taps, int count,
                       std::int16_t* out) {
  combine_rows_plainly(rows, weights, taps, 0, count, out);
}

void combine_rgb_fast(const std::int16_t* row, const Resizer::Filter& filter, int outputs, std::uint8_t* out) {
  combine_columns_plainly(row, filter, 3, 0, outputs, out);
}

bool has_fast() { return false; }
#endif

}  // namespace

template <class Row, class Column>
void Resizer::run(const ImageView& image, const ResizeBox& box, int width, int height, bool flip, std::uint8_t* out,
                  const Row& combine_rows, const Column& combine_columns) {
  const int channels = image.channels;
  make_filter(across_, exact_, image.width, box.left, box.width, width, flip);
  make_filter(down_, exact_, image.height, box.top, box.height, height, false);
  // Columns that no output pixel needs are left out.
  const auto [least, most] = std::minmax_element(across_.first.begin(), across_.first.end());
  const int origin = *least;
  const int columns = std::min(image.width, *most + across_.taps) - origin;
  for (int& first : across_.first) first -= origin;
  row_.resize(std::size_t(columns + across_.taps) * std::size_t(channels) + kSlack);
  taps_.resize(static_cast<std::size_t>(down_.taps));
  for (int y = 0; y < height; ++y) {
    for (int t = 0; t < down_.taps; ++t) {
      const int line = std::min(down_.first[static_cast<std::size_t>(y)] + t, image.height - 1);
      taps_[static_cast<std::size_t>(t)] =
          image.pixels + std::size_t(line) * image.stride + std::size_t(origin) * std::size_t(channels);
    }
    const std::int16_t* weights = down_.weights.data() + std::size_t(y) * std::size_t(down_.taps);
    combine_rows(taps_.data(), weights, down_.taps, columns * channels, row_.data());
    combine_columns(row_.data(), across_, channels, width, out + std::size_t(y) * std::size_t(width * channels));
  }
}

void Resizer::resize_plainly(const ImageView& image, const ResizeBox& box, int width, int height, bool flip,
                             std::uint8_t* out) {
  run(
      image, box, width, height, flip, out,
      [](const std::uint8_t* const* rows, const std::int16_t* weights, int taps, int count, std::int16_t* row) {
        combine_rows_plainly(rows, weights, taps, 0, count, row);
      },
      [](const std::int16_t* row, const Filter& filter, int channels, int outputs, std::uint8_t* line) {
        combine_columns_plainly(row, filter, channels, 0, outputs, line);
      });
}

void Resizer::resize(const ImageView& image, const ResizeBox& box, int width, int height, bool flip,
                     std::uint8_t* out) {
  if (!has_fast()) return resize_plainly(image, box, width, height, flip, out);
  run(image, box, width, height, flip, out, combine_rows_fast,
      [](const std::int16_t* row, const Filter& filter, int channels, int outputs, std::uint8_t* line) {
        if (channels == 3) {
          combine_rgb_fast(row, filter, outputs, line);
        } else {
          combine_columns_plainly(row, filter, channels, 0, outputs, line);
        }
      });
}

}  // namespace convoy
