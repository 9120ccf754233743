// SPDX-License-Identifier: Apache-2.0
//
// The base class of layers. build() declares parameters. forward() saves tensors for the backward in a Cache, one per
// microbatch in flight, never in the layer. backward_input() and backward_weight() are separate because pipeline
// schedules may run them at different times; backward() does both.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "layers/backend/backend.h"
#include "layers/cache.h"
#include "layers/head_exchange.h"
#include "layers/parameters.h"
#include "layers/statistics_reducer.h"

namespace convoy {

class BatchNorm2d;

enum class Mode { kTraining, kEvaluation };

/// Arguments of Layer::build().
struct BuildContext {
  Backend& backend;
  ParameterStore& store;
  StatisticsReducer* reducer = nullptr;  ///< not null: batch norm statistics over all replicas
  HeadExchange* head = nullptr;          ///< not null: the last layer of what is built is divided; a layer that does it
                                         ///< sets this to null
  std::uint64_t unit_key = 0;            ///< for random numbers of the unit that is built; depends on seed and unit
  bool needs_position = false;           ///< whether a layer so far needs Cache::position
  int layers = 0;                        ///< cache entries handed out so far
  double flops = 0;                      ///< of one microbatch's forward so far: products and sums of matrices only
};

/// For a microbatch of so many layers. The position, if one is needed, is that of the run's first sample.
[[nodiscard]] inline Cache make_cache(Backend& backend, int layers, bool needs_position) {
  Cache cache(layers);
  if (needs_position) {
    cache.position = backend.tensor({2}, DType::kI64);
    backend.zero(cache.position);
  }
  return cache;
}

class Layer {
 public:
  virtual ~Layer() = default;

  /// Declares parameters named `path` + "." + ..., for `input` (a microbatch's shape); returns the output's shape.
  /// Throws a usage Error when the layer does not fit its input.
  virtual Shape build(BuildContext& context, const std::string& path, const Shape& input) = 0;
  /// Once built: what build() returns for such an input. Inputs of forward may have another batch than that of build(),
  /// and another image size where no parameter depends on it.
  [[nodiscard]] virtual Shape output_shape(const Shape& input) const = 0;
  virtual Tensor forward(const Tensor& x, Cache& cache, Mode mode) = 0;
  /// Returns dx; keeps dy for backward_weight. An empty tensor when the input needs no gradient.
  virtual Tensor backward_input(const Tensor& dy, Cache& cache) = 0;
  /// Sets or adds the gradients of this layer's parameters, and frees what the cache held for them.
  virtual void backward_weight(Cache& cache) { static_cast<void>(cache); }
  /// Both at once.
  virtual Tensor backward(const Tensor& dy, Cache& cache) {
    Tensor dx = backward_input(dy, cache);
    backward_weight(cache);
    return dx;
  }
  /// Channels of the images that it reads best, once built: see Backend::input_channels().
  [[nodiscard]] virtual std::int64_t input_channels(std::int64_t channels) const { return channels; }
  /// The batch norm whose output, behind its ReLU, is the layer's; null where there is none.
  [[nodiscard]] virtual BatchNorm2d* output_norm() { return nullptr; }
  /// Called, once built, with the output_norm() of the layer whose output is this one's input alone: its reductions may
  /// be computed along with the gradient of the input.
  virtual void set_input_norm(BatchNorm2d* norm) { static_cast<void>(norm); }
  /// Whether it has several layers inside. As a unit that is recomputed it is a block by itself, and nobody reads the
  /// output of its second forward.
  [[nodiscard]] virtual bool is_composite() const { return false; }
  /// Called, once built, on the lowest layer that learns: its dx is not used.
  virtual void skip_input_gradient() { needs_input_gradient_ = false; }

 protected:
  /// Called by build(): stores the backend and allocates a cache entry.
  void join(BuildContext& context) {
    backend_ = &context.backend;
    id_ = context.layers++;
  }
  [[nodiscard]] Cache::Entry& saved(Cache& cache) const { return cache[id_]; }
  [[nodiscard]] std::optional<PendingNorm>& saved_pending(Cache& cache) const { return cache.pending(id_); }
  [[nodiscard]] Shape& saved_input_shape(Cache& cache) const { return cache.input_shape(id_); }
  [[nodiscard]] Tensor output(const Shape& shape) const { return backend_->tensor(shape, backend_->compute_type()); }

  /// Memory for a gradient of the shape of `last`, which the operation reads for the last time: computed in place when
  /// no other tensor shares the memory of `last`.
  [[nodiscard]] Tensor in_place_of(const Tensor& last) const { return last.unshared() ? last : output(last.shape()); }

  Backend* backend_ = nullptr;
  int id_ = -1;
  bool needs_input_gradient_ = true;
};

/// The options of a layer that has none; L::kName is its type in configs.
template <class L>
struct NoOptions {
  static constexpr std::string_view kName = L::kName;
  template <class Visitor, class Self>
  static void visit(Visitor& /*v*/, Self& /*o*/) {}
  [[nodiscard]] std::unique_ptr<Layer> make() const { return std::make_unique<L>(); }
  bool operator==(const NoOptions&) const = default;
};

/// "a" + "b" -> "a.b"; an empty side is left out.
inline std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

}  // namespace convoy
