// SPDX-License-Identifier: Apache-2.0
//
// The bfloat16 copies of a weight: what oneDNN's reorders make the first time is what our own pass makes after that.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "layers/backend/onednn/onednn_state.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;

TEST_CASE("both bfloat16 copies of a weight are bit for bit those of oneDNN") {
  if (!has_bf16()) {
    MESSAGE("skipped: this CPU has no bfloat16 instructions");
    return;
  }
  struct Case {
    std::int64_t in, out, kernel, size;
    bool tiled;
  };
  // 48 outputs of a forward block do not divide 512; 3 and 40 channels are no whole tiles.
  for (const Case& c : {Case{64, 256, 1, 16, true}, Case{32, 128, 3, 8, true}, Case{2048, 512, 1, 4, true},
                        Case{16, 48, 3, 5, true}, Case{3, 64, 7, 32, false}, Case{40, 24, 3, 8, false}}) {
    OnednnBackend device(2, DType::kBF16);
    const auto direct = device.with_direct_convolutions();  // where its products are not in bfloat16
    Backend& backend = this_cpu().rules.bf16_products ? static_cast<Backend&>(device) : *direct;
    const Conv2dSpec spec{c.in, c.out, c.kernel, 1, c.kernel / 2};
    auto layout = backend.conv2d_layout(spec, {4, c.in, c.size, c.size});
    CAPTURE(c.in);
    CAPTURE(c.out);
    CHECK(static_cast<const OnednnWeightLayout&>(*layout).tiles.has_value() == c.tiled);
    reference::Array stored = reference::uniform({c.out * c.in * c.kernel * c.kernel}, 7);
    std::vector<double>& values = stored.values;
    values[3] = std::numeric_limits<double>::quiet_NaN();
    values[5] = std::numeric_limits<double>::infinity();
    values[6] = 1.0 + 0x1p-8;  // a tie: to even
    values[9] = 3.4e38;        // rounds to infinity
    reference::ImportedWeight imported(backend, std::move(layout), stored);
    Weight& weight = imported.weight;
    const auto copies = [&] {
      backend.refresh_compute(weight);
      std::vector<std::uint16_t> bits;
      for (const Tensor* copy : {&weight.compute, &weight.backward}) {
        std::vector<std::uint16_t> part(copy->bytes() / 2);
        backend.copy_to_host(*copy, part.data());
        for (auto& half : part) {
          if ((half & 0x7fffU) > 0x7f80U) half = 0x7fc0;  // one NaN is as good as another
        }
        bits.insert(bits.end(), part.begin(), part.end());
      }
      return bits;
    };
    const auto first = copies();
    // Once more over spoiled copies, but for what pads them, which stays zero.
    const auto spoil = [&](const Tensor& copy) {
      std::vector<std::uint16_t> bits(copy.bytes() / 2);
      backend.copy_to_host(copy, bits.data());
      for (auto& half : bits) {
        if (half != 0) half = 0x4242;
      }
      backend.copy_from_host(bits.data(), copy);
    };
    spoil(weight.compute);
    spoil(weight.backward);
    CHECK(copies() == first);
  }
}
