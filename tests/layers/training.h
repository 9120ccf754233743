// SPDX-License-Identifier: Apache-2.0
//
// A network in training on any backend, with random images and labels that depend on a key alone. A step is device
// work only, so that it can be recorded; load() before it brings the data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "layers/base/random.h"
#include "layers/loss.h"
#include "layers/model.h"
#include "layers/optim/loss_scaler.h"
#include "layers/optim/optimizer.h"

namespace convoy {

class Training {
 public:
  /// input: [N, C, H, W]. The factor on the loss stays in the gradients.
  Training(Backend& backend, std::vector<Unit> units, const Shape& input, const OptimizerChoice& optimizer = {},
           double loss_scale = 1)
      : backend_(backend),
        model_(backend, std::move(units), input, 42),
        cache_(model_.make_cache()),
        optimizer_(make_optimizer(optimizer, backend, model_.parameters())),
        loss_scale_(backend, loss_scale != 1),
        images_(backend.tensor(input, DType::kF32)),
        labels_(backend.tensor({input[0]}, DType::kI64)),
        totals_(backend.tensor({3}, DType::kF64)) {
    loss_scale_.set(loss_scale);
  }

  void load(std::uint64_t key) {
    std::vector<float> images(static_cast<std::size_t>(images_.size()));
    for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(random_normal(key, i));
    backend_.copy_from_host(images.data(), images_);
    std::vector<std::int64_t> labels(static_cast<std::size_t>(labels_.size()));
    const auto classes = static_cast<std::uint64_t>(model_.output_shape()[1]);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<std::int64_t>(random_bits(key + 1, i) % classes);
    }
    backend_.copy_from_host(labels.data(), labels_);
  }

  void forward_backward() {
    model_.parameters().begin_step();
    backend_.zero(totals_);
    Tensor x = images_;
    if (backend_.compute_type() != DType::kF32) {
      x = backend_.tensor(images_.shape(), backend_.compute_type());
      backend_.run(ops::Cast{images_, x});
    }
    const Tensor y = model_.forward(x, cache_, Mode::kTraining);
    const Tensor dy = backend_.tensor(y.shape(), y.dtype());
    Loss{}.apply(backend_, y, labels_, y.shape()[0], dy, totals_, loss_scale_.tensor());
    model_.backward(dy, cache_, [](std::int64_t) {});
  }

  void step(double lr) {
    forward_backward();
    optimizer_->step(lr, 2, Tensor());  // the same number each time: a recorded step cannot count
    model_.parameters().update_running_statistics();
    model_.parameters().refresh_compute();
  }

  /// Mean loss of the last step; waits.
  double loss() {
    std::array<double, 3> totals{};
    backend_.copy_to_host(totals_, totals.data());
    return totals[0] / static_cast<double>(labels_.size());
  }
  [[nodiscard]] std::vector<float> on_host(const Tensor& x) {
    std::vector<float> host(static_cast<std::size_t>(x.size()));
    backend_.copy_to_host(x, host.data());
    return host;
  }
  /// All that a step changes: parameters, gradients, running statistics.
  [[nodiscard]] std::vector<std::vector<float>> state() {
    ParameterStore& store = model_.parameters();
    return {on_host(store.values()), on_host(store.gradients()), on_host(store.running())};
  }
  Model& model() { return model_; }

 private:
  Backend& backend_;
  Model model_;
  Cache cache_;
  std::unique_ptr<Optimizer> optimizer_;
  DeviceLossScale loss_scale_;
  Tensor images_, labels_, totals_;
};

}  // namespace convoy
