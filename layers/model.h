// SPDX-License-Identifier: Apache-2.0
//
// A network as a list of units, the pieces between which it may be cut. Owns its layers and their parameters; the
// caches of microbatches in flight belong to whoever runs it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/layer.h"

namespace convoy {

struct Unit {
  std::string name;  ///< for people: "stem", "layer1.0"
  std::string path;  ///< prefix of its parameters' names; may be empty
  std::unique_ptr<Layer> layer;
};

class Model {
 public:
  /// input: the shape of one microbatch, [n, C, H, W] or [n, F]. With a reducer, batch norm normalises over all
  /// replicas. Throws a usage Error when the layers do not fit.
  Model(Backend& backend, std::vector<Unit> units, const Shape& input, std::uint64_t seed,
        StatisticsReducer* reducer = nullptr);

  [[nodiscard]] Cache make_cache() const { return Cache(layers_); }
  /// x: compute type, any batch size. Evaluation leaves the cache empty and uses the running statistics.
  Tensor forward(const Tensor& x, Cache& cache, Mode mode);
  /// Both backwards, unit by unit from the last. After each, unit_done(n): the first n elements of the flat gradient
  /// buffer will not change any more in this microbatch.
  void backward(const Tensor& dy, Cache& cache, const std::function<void(std::int64_t)>& unit_done);

  [[nodiscard]] const Shape& input_shape() const { return input_; }
  [[nodiscard]] const Shape& output_shape() const { return output_; }
  [[nodiscard]] const std::vector<Unit>& units() const { return units_; }
  Backend& backend() { return backend_; }
  ParameterStore& parameters() { return store_; }

 private:
  Backend& backend_;
  ParameterStore store_;
  std::vector<Unit> units_;
  std::vector<std::int64_t> final_elements_;  // per unit: see unit_done
  Shape input_, output_;
  int layers_ = 0;
};

}  // namespace convoy
