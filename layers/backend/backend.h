// SPDX-License-Identifier: Apache-2.0
//
// The operation interface between networks and devices: memory, layouts of parameters, and operations (operations.h).
// Layers, losses and optimizers call it. backend/onednn (CPU) and backend/cuda (GPU) implement it; backend/observe
// profiles or compares another backend. Operations take effect in the order of the calls, perhaps after they have
// returned: only copy_to_host(), all_finite() and synchronize() wait. The caller owns every output tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "layers/backend/operations.h"
#include "layers/base/memory_pool.h"
#include "layers/base/tensor.h"

namespace convoy {

/// Work that was recorded once and can be started again as a whole.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void replay() = 0;
};

/// A point in the order of a backend's operations, for timing them.
class TimeMark {
 public:
  virtual ~TimeMark() = default;
  /// Between `earlier`, of the same backend, and this; both have been passed (synchronize()).
  [[nodiscard]] virtual double seconds_since(const TimeMark& earlier) const = 0;
};

class Backend : public ops::Interface {
 public:
  // void run(const ops::Add& op) and so on, for each operation (operations.h), comes from ops::Interface.

  /// "cpu", and a line for people: library and version, threads, precision.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string description() const = 0;
  /// The type of activations and of the weights that operations read.
  [[nodiscard]] virtual DType compute_type() const = 0;

  // ---- memory
  virtual MemoryPool& pool() = 0;
  /// Uninitialised pooled memory.
  [[nodiscard]] Tensor tensor(const Shape& shape, DType dtype) {
    return {pool().acquire(static_cast<std::size_t>(shape.size()) * dtype_size(dtype)), shape, dtype};
  }
  virtual void copy_from_host(const void* source, const Tensor& destination) = 0;
  virtual void copy_to_host(const Tensor& source, void* destination) = 0;
  virtual void zero(const Tensor& x) = 0;
  /// A tensor of zeros. Small ones may share one call that clears them.
  [[nodiscard]] virtual Tensor zeros(const Shape& shape, DType dtype);
  /// Waits until everything started is done; throws what went wrong with it.
  virtual void synchronize() {}
  /// After everything started so far. The host's clock, for backends whose operations are done when they return.
  [[nodiscard]] virtual std::unique_ptr<TimeMark> mark();
  /// Whether the mask of a ReLU behind a batch norm is computed again from the batch norm's input, not kept.
  [[nodiscard]] virtual bool recomputes_relu_masks() const { return false; }
  /// Whether batch norms are fused with the convolutions around them, where fuses() says so, which then read
  /// BatchNormStatistics::coefficients.
  [[nodiscard]] virtual bool fuses_batch_norms() const { return false; }
  /// Whether run(op) fuses the parts that op has.
  [[nodiscard]] virtual bool fuses(const ops::Conv2dForward& /*op*/) const { return false; }
  [[nodiscard]] virtual bool fuses(const ops::Conv2dBackwardInput& /*op*/) const { return false; }
  [[nodiscard]] virtual bool fuses(const ops::Conv2dBackwardWeight& /*op*/) const { return false; }
  [[nodiscard]] virtual bool fuses(const ops::BatchNormApply& /*op*/) const { return false; }
  [[nodiscard]] virtual bool fuses(const ops::BatchNormBackwardReduce& /*op*/) const { return false; }
  [[nodiscard]] virtual bool fuses(const ops::BatchNormBackwardApply& /*op*/) const { return false; }
  /// Run an operation that has parts, and its parts, one after the other. False, and nothing done, if it has none.
  bool run_apart(const ops::Conv2dForward& op);
  bool run_apart(const ops::Conv2dBackwardInput& op);
  bool run_apart(const ops::Conv2dBackwardWeight& op);
  bool run_apart(const ops::BatchNormApply& op);
  bool run_apart(const ops::BatchNormBackwardReduce& op);
  bool run_apart(const ops::BatchNormBackwardApply& op);
  /// Sets gradient to sum, or with accumulate adds it, both float32.
  void set_or_add(const Tensor& sum, bool accumulate, const Tensor& gradient) {
    if (!accumulate) zero(gradient);
    run(ops::Axpy{1.0F, sum, gradient});
  }
  /// Completes the gradients that Conv2dBackwardWeight has left for later: after it they may be read by others.
  virtual void finish_gradients() {}
  [[nodiscard]] virtual bool has_unfinished_gradients() const { return false; }

  /// Runs `body`, which calls operations of this backend (and of communicators on its memory) but none that waits or
  /// copies from the host, and keeps them for replay(), which alone carries them out. Recorded works share the memory
  /// of their temporaries: a tensor made by `body` has what it set only until another work is replayed. Nothing, and
  /// `body` not run, where the device cannot.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& body) {
    static_cast<void>(body);
    return nullptr;
  }
  /// Whether no value of x (float32) is infinite or not a number.
  virtual bool all_finite(const Tensor& x) = 0;
  /// memory_checksum() of the bits of x, whose first word is number `first` of the whole (layers/backend/checksum.h).
  /// Copies x to the host unless it is there. Waits for the operations before.
  [[nodiscard]] virtual std::uint64_t checksum(const Tensor& x, std::int64_t first = 0);

  /// A backend on the same device and in the same compute type whose convolutions are all its library's own direct
  /// ones, to compare with; null where there is no other.
  [[nodiscard]] virtual std::unique_ptr<Backend> with_direct_convolutions() const { return nullptr; }

  /// Channels of the images that the convolution reads best, at least spec.in_channels: it takes inputs that have so
  /// many, of which the further ones are 0, and no gradient is asked for.
  [[nodiscard]] virtual std::int64_t input_channels(const Conv2dSpec& spec) const { return spec.in_channels; }

  // ---- parameter layouts; host arrays are float32, row-major in the logical shape
  /// For input [N, in_channels, H, W]. Shape [out, in, k, k].
  virtual std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) = 0;
  /// Shape [out_features, in_features].
  virtual std::unique_ptr<WeightLayout> linear_layout(std::int64_t in_features, std::int64_t out_features,
                                                      std::int64_t batch) = 0;
  /// Shape [count], without padding.
  virtual std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) = 0;
  /// Sets native (float32, layout.elements()) from host, padding zeroed.
  virtual void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) = 0;
  virtual void export_weight(const WeightLayout& layout, const Tensor& native, float* host) = 0;
  /// Whether a weight in the compute type is in the order of its master: then all of them lie in one flat buffer, which
  /// one cast() refreshes, and refresh_compute() is not called.
  [[nodiscard]] virtual bool weights_mirror_master() const { return false; }
  /// Sets weight.compute and weight.backward from weight.master; to be called whenever the master has changed.
  virtual void refresh_compute(Weight& weight) = 0;

 protected:
  /// Conv2dBackwardInput with a residual, for shapes that a backend does not fuse: the gradient, then the sum.
  void add_residual(const ops::Conv2dBackwardInput& op);
  /// The values of a prologue: its y, or a temporary tensor.
  [[nodiscard]] Tensor run_prologue(const ops::BatchNormApply& op);
  [[nodiscard]] Tensor run_prologue(const ops::MaxPoolBackward& op, const Shape& shape);
};

}  // namespace convoy
