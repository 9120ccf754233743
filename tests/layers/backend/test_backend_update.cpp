// SPDX-License-Identifier: Apache-2.0
//
// Optimizer updates of the CPU backend: the formulas in float64 over several steps, closed forms, and that an
// element's bits do not depend on its place in the buffer.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

constexpr int kSteps = 5;

// Parameters of about 1 with steps of about 0.1: each step rounds the state a few times.
constexpr double kRelative = 2e-6, kAbsolute = 2e-6;

struct Buffers {
  Array w, first, second;
  Tensor w_tensor, first_tensor, second_tensor;
  Buffers(Device& device, std::int64_t count) : w(uniform({count}, 1)), first({count}), second({count}) {
    w_tensor = device.put(w);
    first_tensor = device.put(first);
    second_tensor = device.put(second);
  }
};

Array gradient_of(std::int64_t count, int step) { return uniform({count}, 100 + static_cast<std::uint64_t>(step)); }

}  // namespace

TEST_CASE("SGD follows torch.optim.SGD") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const std::int64_t count : {1, 9, 1000, 100003}) {
      for (const float momentum : {0.0F, 0.9F}) {
        for (const bool nesterov : {false, true}) {
          for (const float decay : {0.0F, 0.01F}) {
            Buffers b(device, count), plain(device, count);
            const ops::SgdUpdate::Hyperparameters update{0.1F, momentum, decay, nesterov};
            for (int step = 0; step < kSteps; ++step) {
              Array g = gradient_of(count, step);
              const Tensor g_tensor = device.put(g);
              device.backend.run(ops::SgdUpdate{update, b.w_tensor, g_tensor, b.first_tensor});
              if (momentum == 0.0F) device.backend.run(ops::SgdUpdate{update, plain.w_tensor, g_tensor, Tensor()});
              for (std::size_t i = 0; i < g.values.size(); ++i) {
                double &w = b.w.values[i], &v = b.first.values[i];
                const double d = g.values[i] + static_cast<double>(decay) * w;
                v = static_cast<double>(momentum) * v + d;
                w -= static_cast<double>(update.lr) * (nesterov ? d + static_cast<double>(momentum) * v : v);
              }
            }
            check_close(device.get(b.w_tensor), b.w, kRelative, kAbsolute, "w");
            check_close(device.get(b.first_tensor), b.first, kRelative, kAbsolute, "momentum");
            if (momentum == 0.0F) CHECK(device.bytes(plain.w_tensor) == device.bytes(b.w_tensor));
          }
        }
      }
    }
  }
}

TEST_CASE("AdamW follows torch.optim.AdamW") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const std::int64_t count : {1, 9, 255, 1000, 100003}) {
      Buffers b(device, count);
      ops::AdamwUpdate::Hyperparameters update{};
      update.lr = 0.01F;
      update.beta1 = 0.9;
      update.beta2 = 0.999;
      update.epsilon = 1e-8F;
      update.weight_decay = 0.05F;
      const double lr = update.lr, beta1 = update.beta1, beta2 = update.beta2, decay = update.weight_decay;
      for (int step = 1; step <= kSteps; ++step) {
        update.bias1 = 1.0 - std::pow(beta1, step);
        update.bias2 = 1.0 - std::pow(beta2, step);
        Array g = gradient_of(count, step);
        device.backend.run(ops::AdamwUpdate{update, b.w_tensor, device.put(g), b.first_tensor, b.second_tensor});
        for (std::size_t i = 0; i < g.values.size(); ++i) {
          double &w = b.w.values[i], &m = b.first.values[i], &v = b.second.values[i];
          m = beta1 * m + (1.0 - beta1) * g.values[i];
          v = beta2 * v + (1.0 - beta2) * g.values[i] * g.values[i];
          w -= lr * decay * w;
          w -= lr / update.bias1 * m / (std::sqrt(v / update.bias2) + static_cast<double>(update.epsilon));
        }
      }
      check_close(device.get(b.w_tensor), b.w, kRelative, kAbsolute, "w");
      check_close(device.get(b.first_tensor), b.first, kRelative, kAbsolute, "first moment");
      check_close(device.get(b.second_tensor), b.second, kRelative, 1e-9, "second moment");  // of 1e-3 and less
    }
  }
}

TEST_CASE("AdamW's first step is lr against the sign of the gradient, and zeros stay zero") {
  Device device(1);
  Array w({4}), g({4}), zeros({4});
  g.values = {0.3, -20.0, 0.0, 1e-3};
  const Tensor w_tensor = device.put(w), m = device.put(zeros), v = device.put(zeros);
  ops::AdamwUpdate::Hyperparameters update{};
  update.lr = 0.01F;
  update.beta1 = 0.9;
  update.beta2 = 0.999;
  update.epsilon = 1e-8F;
  update.weight_decay = 0.1F;
  update.bias1 = 1.0 - update.beta1;
  update.bias2 = 1.0 - update.beta2;
  device.backend.run(ops::AdamwUpdate{update, w_tensor, device.put(g), m, v});
  Array expected({4});
  expected.values = {-0.01, 0.01, 0.0, -0.01};
  check_close(device.get(w_tensor), expected, 2e-5, 0.0, "w");  // epsilon is 1e-5 of the smallest gradient
}

TEST_CASE("weight decay leaves alone what no_decay flags, and that alone") {
  for (const int threads : {1, 2, 3}) {
    Device device(threads);
    for (const std::int64_t count : {16, 48, 1600, 100000}) {
      // Runs of every length, across the ranges of the threads.
      std::vector<std::uint8_t> flags(static_cast<std::size_t>(count / kParameterAlignment));
      for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = i % 7 < 3 || i % 11 == 5 ? 1 : 0;
      const Tensor no_decay = device.backend.tensor({count / kParameterAlignment}, DType::kU8);
      device.backend.copy_from_host(flags.data(), no_decay);
      Array g = gradient_of(count, 0), v = uniform({count}, 4, 0.1, 1);
      const Tensor gradients = device.put(g);
      ops::AdamwUpdate::Hyperparameters adamw{};
      adamw.lr = 0.01F;
      adamw.beta1 = 0.9;
      adamw.beta2 = 0.999;
      adamw.epsilon = 1e-8F;
      adamw.bias1 = 0.5;
      adamw.bias2 = 0.25;
      // With flags everywhere it is the update without decay, without any it is the one with it.
      const auto updated = [&](float decay, const Tensor& mask, int which) {
        Buffers b(device, count);
        b.second_tensor = device.put(v);
        adamw.weight_decay = decay;
        if (which == 0) {
          device.backend.run(
              ops::SgdUpdate{{0.1F, 0.9F, decay, true}, b.w_tensor, gradients, b.first_tensor, ops::none(), mask});
        } else if (which == 1) {
          device.backend.run(
              ops::SgdUpdate{{0.1F, 0, decay, false}, b.w_tensor, gradients, Tensor(), ops::none(), mask});
        } else {
          device.backend.run(
              ops::AdamwUpdate{adamw, b.w_tensor, gradients, b.first_tensor, b.second_tensor, ops::none(), mask});
        }
        return device.get(b.w_tensor).values;
      };
      for (const int which : {0, 1, 2}) {
        const auto with = updated(0.1F, Tensor(), which), without = updated(0, Tensor(), which);
        const auto chosen = updated(0.1F, no_decay, which);
        for (std::size_t i = 0; i < chosen.size(); ++i) {
          REQUIRE(with[i] != without[i]);
          REQUIRE(chosen[i] == (flags[i / kParameterAlignment] != 0 ? without[i] : with[i]));
        }
      }
    }
  }
}

TEST_CASE("LARS scales each segment by its own norms") {
  for (const int threads : {1, 2, 3}) {
    Device device(threads);
    const std::int64_t count = 150000;
    // One of several pieces, one of a few elements, one that is not adapted, one of zeros (padding), a short one.
    const std::vector<Segment> segments{
        {0, 100001, true}, {100001, 7, true}, {100008, 64, false}, {100072, 928, true}, {101000, 49000, true}};
    Buffers b(device, count);
    for (std::size_t i = 100072; i < 101000; ++i) b.w.values[i] = 0.0;
    b.w_tensor = device.put(b.w);
    const ops::LarsUpdate::Hyperparameters update{0.5F, 0.9F, 1e-3F, 0.02F, 1e-9F};
    for (int step = 0; step < kSteps; ++step) {
      Array g = gradient_of(count, step);
      for (std::size_t i = 100072; i < 101000; ++i) g.values[i] = 0.0;
      device.backend.run(ops::LarsUpdate{update, segments, b.w_tensor, device.put(g), b.first_tensor});
      for (const Segment& segment : segments) {
        const auto first = static_cast<std::size_t>(segment.offset);
        const auto last = first + static_cast<std::size_t>(segment.elements);
        const double decay = segment.adapt ? static_cast<double>(update.weight_decay) : 0.0;
        double w_norm = 0.0, g_norm = 0.0, ratio = 1.0;
        for (std::size_t i = first; i < last; ++i) {
          w_norm += b.w.values[i] * b.w.values[i];
          g_norm += g.values[i] * g.values[i];
        }
        w_norm = std::sqrt(w_norm);
        g_norm = std::sqrt(g_norm);
        if (segment.adapt && w_norm > 0.0 && g_norm > 0.0) {
          ratio = static_cast<double>(update.trust) * w_norm /
                  (g_norm + decay * w_norm + static_cast<double>(update.epsilon));
        }
        for (std::size_t i = first; i < last; ++i) {
          double &w = b.w.values[i], &v = b.first.values[i];
          v = static_cast<double>(update.momentum) * v +
              static_cast<double>(update.lr) * ratio * (g.values[i] + decay * w);
          w -= v;
        }
      }
    }
    check_close(device.get(b.w_tensor), b.w, kRelative, kAbsolute, "w");
    check_close(device.get(b.first_tensor), b.first, kRelative, kAbsolute, "momentum");
    for (std::size_t i = 100072; i < 101000; ++i)
      REQUIRE(device.get(b.w_tensor.view(100072, {928})).values[i - 100072] == 0.0);
  }
}

TEST_CASE("an element is updated to the same bits wherever it lies, on any number of threads") {
  const std::int64_t count = 70000;
  std::vector<std::vector<std::uint8_t>> first;
  for (const int threads : {1, 2, 3}) {
    for (const std::int64_t shift : {0, 1, 13}) {
      Device device(threads);
      const auto shifted = [&](const Array& values) {
        Array longer({count + shift}, 0.25);
        std::copy(values.values.begin(), values.values.end(), longer.values.begin() + shift);
        return device.put(longer);
      };
      const Array w = uniform({count}, 1), g = uniform({count}, 2), m = uniform({count}, 3),
                  v = uniform({count}, 4, 0.0, 1.0);
      const Tensor gradient = shifted(g);
      std::vector<std::vector<std::uint8_t>> results;
      const auto keep = [&](const Tensor& t) { results.push_back(device.bytes(t.view(shift, {count}))); };
      Tensor values = shifted(w), moment = shifted(m), second = shifted(v);
      device.backend.run(ops::SgdUpdate{{0.1F, 0.9F, 1e-3F, true}, values, gradient, moment});
      keep(values);
      ops::AdamwUpdate::Hyperparameters adamw{};
      adamw.lr = 0.01F;
      adamw.beta1 = 0.9;
      adamw.beta2 = 0.999;
      adamw.epsilon = 1e-8F;
      adamw.weight_decay = 0.05F;
      adamw.bias1 = 0.5;
      adamw.bias2 = 0.25;
      device.backend.run(ops::AdamwUpdate{adamw, values, gradient, moment, second});
      keep(values);
      keep(second);
      const std::vector<Segment> segments{{0, shift, false}, {shift, 50000, true}, {shift + 50000, 20000, true}};
      device.backend.run(ops::LarsUpdate{{0.5F, 0.9F, 1e-3F, 0.02F, 1e-9F}, segments, values, gradient, moment});
      keep(values);
      device.backend.run(ops::LambUpdate{adamw, segments, values, gradient, moment, second});
      keep(values);
      if (first.empty()) first = results;
      CHECK(results == first);
    }
  }
}
