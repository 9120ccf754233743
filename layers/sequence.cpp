// SPDX-License-Identifier: Apache-2.0
#include "layers/sequence.h"

#include <cstddef>
#include <string>
#include <utility>

namespace convoy {

Sequence& Sequence::add(std::string name, std::unique_ptr<Layer> layer) {
  layers_.emplace_back(std::move(name), std::move(layer));
  return *this;
}

Shape Sequence::build(BuildContext& context, const std::string& path, const Shape& input) {
  Shape shape = input;
  const std::size_t before = context.store.parameters().size();
  first_learning_ = 0;
  BatchNorm2d* norm = nullptr;
  HeadExchange* head = std::exchange(context.head, nullptr);
  for (auto& [name, layer] : layers_) {
    if (layer == layers_.back().second) context.head = head;
    shape = layer->build(context, join_path(path, name), shape);
    layer->set_input_norm(norm);
    norm = layer->output_norm();
    if (context.store.parameters().size() == before) ++first_learning_;
  }
  return shape;
}

Shape Sequence::output_shape(const Shape& input) const {
  Shape shape = input;
  for (const auto& [name, layer] : layers_) shape = layer->output_shape(shape);
  return shape;
}

Tensor Sequence::forward(const Tensor& x, Cache& cache, Mode mode) {
  Tensor y = x;
  for (auto& [name, layer] : layers_) y = layer->forward(y, cache, mode);
  return y;
}

Tensor Sequence::backward_input(const Tensor& dy, Cache& cache) {
  Tensor dx = dy;
  for (std::size_t i = layers_.size(); i-- > lowest_;) dx = layers_[i].second->backward_input(dx, cache);
  return dx;
}

void Sequence::backward_weight(Cache& cache) {
  for (std::size_t i = layers_.size(); i-- > lowest_;) layers_[i].second->backward_weight(cache);
}

Tensor Sequence::backward(const Tensor& dy, Cache& cache) {
  Tensor dx = dy;
  for (std::size_t i = layers_.size(); i-- > lowest_;) dx = layers_[i].second->backward(dx, cache);
  return dx;
}

void Sequence::skip_input_gradient() {
  lowest_ = first_learning_;
  if (lowest_ < layers_.size()) layers_[lowest_].second->skip_input_gradient();
}

}  // namespace convoy
