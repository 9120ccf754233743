// SPDX-License-Identifier: Apache-2.0
//
// LAMB against the formula in float64. Its calls, and those of other updates of which weight decay leaves a part alone.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/layers/backend/every_operation.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

constexpr int kSteps = 5;

// Parameters of about 1 with steps of about 0.02: each step rounds the state a few times.
constexpr double kRelative = 2e-6, kAbsolute = 2e-6;

const RegisterCalls registered([](Backend& backend, std::int64_t batch, std::int64_t channels) {
  for (const std::int64_t count : {1000 * batch + channels, std::int64_t{70000}}) {
    RandomData data(backend);
    const std::int64_t blocks = (count + kParameterAlignment - 1) / kParameterAlignment;
    const Shape whole{blocks * kParameterAlignment};
    std::vector<std::uint8_t> flags(static_cast<std::size_t>(blocks));
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = i % 5 < 2 ? 1 : 0;
    const Tensor no_decay = backend.tensor({blocks}, DType::kU8);
    backend.copy_from_host(flags.data(), no_decay);
    backend.run(ops::SgdUpdate{
        {0.1F, 0.9F, 0.01F, true}, data.floats(whole), data.floats(whole), data.floats(whole), ops::none(), no_decay});
    backend.run(ops::SgdUpdate{
        {0.1F, 0.0F, 0.01F, false}, data.floats(whole), data.floats(whole), Tensor(), ops::none(), no_decay});
    backend.run(ops::AdamwUpdate{{0.01F, 1e-8F, 0.05F, 0.9, 0.999, 0.3, 0.003},
                                 data.floats(whole),
                                 data.floats(whole),
                                 data.floats(whole),
                                 data.floats(whole, 0, 1),
                                 ops::none(),
                                 no_decay});
    for (std::int64_t i = 0; i < blocks; ++i) flags[static_cast<std::size_t>(i)] = i < blocks / 2 ? 1 : 0;
    const Tensor by_segment = backend.tensor({blocks}, DType::kU8);
    backend.copy_from_host(flags.data(), by_segment);
    const std::int64_t half = blocks / 2 * kParameterAlignment;
    std::vector<Segment> aligned{{0, half, true}, {half, whole[0] - half, false}};
    std::erase_if(aligned, [](const Segment& segment) { return segment.elements == 0; });
    for (const bool chooses : {false, true}) {
      const ops::AdamwUpdate::Hyperparameters lamb{0.01F, 1e-6F, 0.05F, 0.9, 0.999, 0.3, 0.003};
      backend.run(ops::LambUpdate{lamb, aligned, data.floats(whole), data.floats(whole), data.floats(whole),
                                  data.floats(whole, 0, 1), ops::none(), chooses ? by_segment : ops::none()});
    }
  }
});

}  // namespace

TEST_CASE("LAMB scales Adam's direction by the norms of each segment") {
  for (const int threads : {1, 2, 3}) {
    Device device(threads);
    const std::int64_t count = 150016;
    // One of several pieces, a short one, one that is not adapted, one of zeros (padding), one without decay.
    const std::vector<Segment> segments{
        {0, 100001, true}, {100016, 7, true}, {100032, 64, false}, {100096, 928, true}, {101024, 48992, true}};
    std::vector<std::uint8_t> flags(static_cast<std::size_t>(count / kParameterAlignment));
    for (std::size_t i = 101024 / kParameterAlignment; i < flags.size(); ++i) flags[i] = 1;
    for (std::size_t i = 100032 / kParameterAlignment; i < 100096 / kParameterAlignment; ++i) flags[i] = 1;
    for (const bool chooses : {false, true}) {
      Array w = uniform({count}, 1), first_moment({count}), second_moment({count});
      const Tensor no_decay = chooses ? device.backend.tensor({count / kParameterAlignment}, DType::kU8) : Tensor();
      if (chooses) device.backend.copy_from_host(flags.data(), no_decay);
      for (std::size_t i = 100096; i < 101024; ++i) w.values[i] = 0.0;
      const Tensor w_tensor = device.put(w), m_tensor = device.put(first_moment), v_tensor = device.put(second_moment);
      ops::AdamwUpdate::Hyperparameters update{0.02F, 1e-6F, 0.05F, 0.9, 0.999, 0, 0};
      for (int step = 0; step < kSteps; ++step) {
        update.bias1 = 1.0 - std::pow(update.beta1, step + 1);
        update.bias2 = 1.0 - std::pow(update.beta2, step + 1);
        Array g = uniform({count}, 100 + static_cast<std::uint64_t>(step));
        for (std::size_t i = 100096; i < 101024; ++i) g.values[i] = 0.0;
        device.backend.run(
            ops::LambUpdate{update, segments, w_tensor, device.put(g), m_tensor, v_tensor, ops::none(), no_decay});
        for (const Segment& segment : segments) {
          const auto first = static_cast<std::size_t>(segment.offset);
          const auto last = first + static_cast<std::size_t>(segment.elements);
          const bool decays = !chooses || flags[first / kParameterAlignment] == 0;
          const double decay = decays ? static_cast<double>(update.weight_decay) : 0.0;
          std::vector<double> direction;
          double w_norm = 0.0, u_norm = 0.0;
          for (std::size_t i = first; i < last; ++i) {
            double &m = first_moment.values[i], &v = second_moment.values[i];
            m = update.beta1 * m + (1 - update.beta1) * g.values[i];
            v = update.beta2 * v + (1 - update.beta2) * g.values[i] * g.values[i];
            direction.push_back(m / update.bias1 / (std::sqrt(v / update.bias2) + static_cast<double>(update.epsilon)) +
                                decay * w.values[i]);
            w_norm += w.values[i] * w.values[i];
            u_norm += direction.back() * direction.back();
          }
          const double ratio = segment.adapt && w_norm > 0 && u_norm > 0 ? std::sqrt(w_norm / u_norm) : 1;
          for (std::size_t i = first; i < last; ++i) {
            w.values[i] -= static_cast<double>(update.lr) * ratio * direction[i - first];
          }
        }
      }
      for (const Segment& segment : segments) {  // what lies between them is nobody's
        const auto part = [&](const Array& all) {
          Array result({segment.elements});
          for (std::size_t i = 0; i < result.values.size(); ++i) {
            result.values[i] = all.values[static_cast<std::size_t>(segment.offset) + i];
          }
          return result;
        };
        const Shape shape{segment.elements};
        check_close(device.get(w_tensor.view(segment.offset, shape)), part(w), kRelative, kAbsolute, "w");
        check_close(device.get(m_tensor.view(segment.offset, shape)), part(first_moment), kRelative, kAbsolute, "m");
        check_close(device.get(v_tensor.view(segment.offset, shape)), part(second_moment), kRelative, 1e-9, "v");
      }
    }
  }
}
