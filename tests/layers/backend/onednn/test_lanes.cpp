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

using namespace convoy;

namespace {

template <class Element>
CONVOY_INLINE void round_trip(const float* from, BFloat16* halves, float* to) {
  Lanes lanes;
  load(from, lanes);
  store(lanes, static_cast<Element*>(halves));
  load(static_cast<const Element*>(halves), lanes);
  store(lanes, to);
}

CONVOY_VECTORIZED void plain(const float* from, BFloat16* halves, float* to) { round_trip<BFloat16>(from, halves, to); }
CONVOY_NATIVE_BF16 void native(const float* from, BFloat16* halves, float* to) {
  round_trip<NativeBFloat16>(from, halves, to);
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
  for (const bool by_cpu : {false, true}) {
    if (by_cpu && !native_bf16()) continue;
    for (std::size_t i = 0; i + kLanes <= values.size(); i += kLanes) {
      BFloat16 halves[kLanes];
      float back[kLanes];
      (by_cpu ? native : plain)(values.data() + i, halves, back);
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

TEST_CASE("a block of vectors is transposed") {
  std::vector<float> from(static_cast<std::size_t>(kLanes * 20)), to(static_cast<std::size_t>(kLanes * kLanes));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  transpose(from.data(), 20, to.data());
  for (std::int64_t row = 0; row < kLanes; ++row) {
    for (std::int64_t column = 0; column < kLanes; ++column) {
      CHECK(to[static_cast<std::size_t>(row * kLanes + column)] == static_cast<float>(column * 20 + row));
    }
  }
}
