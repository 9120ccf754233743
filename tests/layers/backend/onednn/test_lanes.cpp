// SPDX-License-Identifier: Apache-2.0
//
// Conversions of whole vectors to bfloat16 and back, by sums and by the CPU's instructions, against those of single
// numbers; and the transpose.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/vectorized.h"

using namespace convoy;

namespace {

// Of kLanes numbers.
template <class Floats, class Element>
CONVOY_INLINE void round_trip(const float* from, BFloat16* halves, float* to) {
  for (std::int64_t lane = 0; lane < kLanes; lane += kWidth<Floats>) {
    Floats floats;
    load(from + lane, floats);
    store(floats, static_cast<Element*>(halves + lane));
    load(static_cast<const Element*>(halves + lane), floats);
    store(floats, to + lane);
  }
}

template <int width>
void of_width(const float* from, BFloat16* halves, float* to) {
  round_trip<Vector<float, width>, BFloat16>(from, halves, to);
}
void widest(const float* from, BFloat16* halves, float* to) {
  vectorized([=](auto width) CONVOY_INLINE_LAMBDA { round_trip<Vector<float, width>, BFloat16>(from, halves, to); });
}
CONVOY_NATIVE_BF16 void native(const float* from, BFloat16* halves, float* to) {
  round_trip<Lanes, NativeBFloat16>(from, halves, to);
}

bool subnormal(float value) { return value != 0 && std::abs(value) < std::numeric_limits<float>::min(); }

}  // namespace

TEST_CASE("vectors are rounded to bfloat16 as single numbers are") {
  std::vector<float> values{0.0F,
                            -0.0F,
                            1.0F + 0x1p-8F,
                            1.0F + 0x1.8p-7F,
                            1.0F + 0x1.02p-8F,
                            3.4e38F,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            std::bit_cast<float>(0x7f800001U),
                            std::bit_cast<float>(0xffffffffU),
                            0x1p-126F,
                            0x1p-130F,
                            -0x1.fp-127F,
                            65504.0F,
                            -1e-20F};
  for (std::uint32_t i = 0; i < 4096; ++i) values.push_back(std::bit_cast<float>(i * 1048573U + 12345U));
  for (const auto convert : {of_width<4>, of_width<8>, of_width<kLanes>, widest, native}) {
    const bool by_cpu = convert == native;
    if (by_cpu && !native_bf16()) continue;
    for (std::size_t i = 0; i + kLanes <= values.size(); i += kLanes) {
      BFloat16 halves[kLanes];
      float back[kLanes];
      convert(values.data() + i, halves, back);
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const float value = values[i + lane];
        CAPTURE(std::bit_cast<std::uint32_t>(value));
        if (std::isnan(value)) {
          CHECK(std::isnan(back[lane]));
        } else if (by_cpu && subnormal(value)) {
          CHECK((halves[lane].bits & 0x7fffU) <= 0x80U);  // to 0, or up to the least normal number
        } else {
          CHECK(halves[lane].bits == BFloat16(value).bits);
          CHECK(back[lane] == static_cast<float>(BFloat16(value)));
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("a block is transposed by vectors", Floats, Vector<float, 4>, Vector<float, 8>, Lanes) {
  std::vector<float> from(static_cast<std::size_t>(kLanes * 20)), to(static_cast<std::size_t>(kLanes * kLanes));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  transpose<Floats>(from.data(), 20, to.data());
  for (std::int64_t row = 0; row < kLanes; ++row) {
    for (std::int64_t column = 0; column < kLanes; ++column) {
      CHECK(to[static_cast<std::size_t>(row * kLanes + column)] == static_cast<float>(column * 20 + row));
    }
  }
}
