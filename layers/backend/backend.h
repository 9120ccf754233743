// SPDX-License-Identifier: Apache-2.0
//
// The seam between networks and devices: memory and about two dozen operations. Layers, losses and
// optimizers call it; backend/onednn (CPU) and backend/cuda (GPU) implement it, backend/compare runs one beside
// another. Activations have the backend's compute type (float32, bfloat16 or float16); parameters, gradients,
// statistics and optimizer state are float32. Operations take effect in the order of the calls, perhaps after they
// have returned: only copy_to_host(), all_finite() and synchronize() wait.
// Every output tensor is the caller's; "set" and "added" below say what happens to what it held.
// Tensors of rank 4 are [N, C, H, W] in shape and channels-last in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "layers/base/batch.h"
#include "layers/base/memory_pool.h"
#include "layers/base/tensor.h"

namespace convoy {

/// A square 2-d convolution without dilation or groups; weight [out, in, kernel, kernel].
struct Conv2dSpec {
  std::int64_t in_channels = 0, out_channels = 0;
  std::int64_t kernel = 1, stride = 1, padding = 0;
  [[nodiscard]] std::int64_t output_extent(std::int64_t x) const { return (x + 2 * padding - kernel) / stride + 1; }
  [[nodiscard]] Shape output_shape(const Shape& x) const {
    return {x[0], out_channels, output_extent(x[2]), output_extent(x[3])};
  }
  bool operator==(const Conv2dSpec&) const = default;
};

/// A square pooling window.
struct PoolSpec {
  std::int64_t kernel = 2, stride = 2, padding = 0;
  [[nodiscard]] std::int64_t output_extent(std::int64_t x) const { return (x + 2 * padding - kernel) / stride + 1; }
  [[nodiscard]] Shape output_shape(const Shape& x) const {
    return {x[0], x[1], output_extent(x[2]), output_extent(x[3])};
  }
  bool operator==(const PoolSpec&) const = default;
};

/// How a backend keeps one parameter in its flat buffers. `elements` may exceed shape.size(): the
/// padding is zero and stays zero under every optimizer.
class WeightLayout {
 public:
  WeightLayout(const Shape& shape, std::int64_t elements) : shape_(shape), elements_(elements) {}
  virtual ~WeightLayout() = default;
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }

 private:
  Shape shape_;
  std::int64_t elements_;
};

/// A parameter as operations see it.
struct Weight {
  Tensor master;    ///< float32 [layout->elements()], a view of the flat parameter buffer
  Tensor compute;   ///< the same as forward operations read it; shares `master`'s memory where it can
  Tensor backward;  ///< the same as input gradients read it; shares the memory of either where it can
  const WeightLayout* layout = nullptr;
};

/// Hyper-parameters of one SGD update (torch.optim.SGD): d = g + weight_decay * w;
/// v = momentum * v + d (v starts at 0); w -= lr * (nesterov ? d + momentum * v : v).
struct SgdUpdate {
  float lr, momentum, weight_decay;
  bool nesterov;
};

/// One AdamW update (Loshchilov & Hutter 2019, as torch.optim.AdamW): w -= lr * weight_decay * w, then
/// w -= lr / bias1 * m / (sqrt(v / bias2) + epsilon), bias_i = 1 - beta_i^t.
struct AdamwUpdate {
  float lr, epsilon, weight_decay;
  double beta1, beta2;
  double bias1, bias2;
};

/// A stretch of the flat buffers that belongs to one parameter.
struct Segment {
  std::int64_t offset, elements;
  bool adapt;  ///< LARS: whether the trust ratio and the weight decay apply (not for biases and batch norm)
};

/// One LARS update (You et al. 2017): per segment r = trust * |w| / (|g| + weight_decay * |w| + epsilon) where
/// adapt and both norms are positive, else 1; v = momentum * v + lr * r * (g + weight_decay * w); w -= v.
struct LarsUpdate {
  float lr, momentum, weight_decay, trust, epsilon;
};

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

class Backend {
 public:
  virtual ~Backend() = default;

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
  /// Waits until everything started is done; throws what went wrong with it.
  virtual void synchronize() {}
  /// After everything started so far. The host's clock, for backends whose operations are done when they return.
  [[nodiscard]] virtual std::unique_ptr<TimeMark> mark();
  /// Runs `body`, which calls operations of this backend (and of communicators on its memory) but none that waits or
  /// copies from the host, and keeps them for replay(), which alone carries them out. Nothing, and `body` not run,
  /// where the device cannot.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& body) {
    static_cast<void>(body);
    return nullptr;
  }
  /// Whether no value of x (float32) is infinite or not a number.
  virtual bool all_finite(const Tensor& x) = 0;

  /// A backend on the same device and in the same compute type whose convolutions are all its library's own direct
  /// ones, to compare with; null where there is no other.
  [[nodiscard]] virtual std::unique_ptr<Backend> with_direct_convolutions() const { return nullptr; }

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

  // ---- input and layout
  /// Sets y (compute type) from uint8 images of the same shape: (x / 255 - mean[c]) / std[c].
  virtual void normalize_images(const Tensor& x, const Tensor& mean, const Tensor& std, const Tensor& y) = 0;
  /// Sets y from x, converting the element type (float32 and the compute type).
  virtual void cast(const Tensor& x, const Tensor& y) = 0;
  /// Sets y [N, C*H*W] in C, H, W order from x [N, C, H, W].
  virtual void flatten(const Tensor& x, const Tensor& y) = 0;
  /// The inverse: sets dx [N, C, H, W] from dy [N, C*H*W].
  virtual void unflatten(const Tensor& dy, const Tensor& dx) = 0;

  // ---- linear: y = x w^T + bias, then max(0, y) when relu. x [N, in], y [N, out]; bias may be null
  virtual void linear_forward(const Tensor& x, const Weight& w, const Weight* bias, bool relu, const Tensor& y) = 0;
  /// Sets dx.
  virtual void linear_backward_input(const Tensor& dy, const Weight& w, const Tensor& dx) = 0;
  /// dw and dbias (float32, native layout): added when `accumulate`, else set. dbias may be empty.
  virtual void linear_backward_weight(const Tensor& x, const Tensor& dy, const Weight& w, const Tensor& dw,
                                      const Tensor& dbias, bool accumulate) = 0;

  // ---- convolution; same rules as linear
  virtual void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Weight& w, const Weight* bias,
                              const Tensor& y) = 0;
  virtual void conv2d_backward_input(const Conv2dSpec& spec, const Tensor& dy, const Weight& w, const Tensor& dx) = 0;
  /// The same, added to dx.
  virtual void conv2d_backward_input_add(const Conv2dSpec& spec, const Tensor& dy, const Weight& w, const Tensor& dx) {
    const Tensor term = tensor(dx.shape(), dx.dtype());
    conv2d_backward_input(spec, dy, w, term);
    add(term, dx);
  }
  virtual void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& x, const Tensor& dy, const Weight& w,
                                      const Tensor& dw, const Tensor& dbias, bool accumulate) = 0;

  // ---- batch norm (Ioffe & Szegedy 2015) over N, H, W of x [N, C, H, W] or over N of x [N, C]; all [C] float32
  /// Sets mean and the biased variance.
  virtual void batch_norm_statistics(const Tensor& x, const Tensor& mean, const Tensor& variance) = 0;
  /// Sets y = gamma * (x - mean) / sqrt(variance + epsilon) + beta (+ residual), then max(0, y) when relu.
  virtual void batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& gamma,
                                const Tensor& beta, float epsilon, const Tensor& residual, bool relu,
                                const Tensor& y) = 0;
  /// The same with relu, for a forward that a backward follows. Returns the mask that lets gradients through where
  /// y > 0: y itself, or what is less to read.
  virtual Tensor batch_norm_apply_relu(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& gamma,
                                       const Tensor& beta, float epsilon, const Tensor& residual, const Tensor& y) {
    batch_norm_apply(x, mean, variance, gamma, beta, epsilon, residual, true, y);
    return y;
  }
  /// With g = dy where y > 0 when relu (y is the forward's output or its mask; empty when not relu), xhat the
  /// normalised input: sets dbeta = sum g and dgamma = sum g * xhat.
  virtual void batch_norm_backward_reduce(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                          const Tensor& variance, float epsilon, const Tensor& dgamma,
                                          const Tensor& dbeta) = 0;
  /// Sets dx = gamma / sqrt(variance + epsilon) * (g - dbeta / count - xhat * dgamma / count). dx may be x. `count` is
  /// the number of values per channel that mean and variance were taken over.
  virtual void batch_norm_backward_apply(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                         const Tensor& variance, const Tensor& gamma, const Tensor& dgamma,
                                         const Tensor& dbeta, double count, float epsilon, const Tensor& dx) = 0;
  /// dresidual += g, which is the residual's gradient.
  virtual void batch_norm_backward_residual(const Tensor& dy, const Tensor& y, const Tensor& dresidual) = 0;

  // ---- element-wise and pooling
  virtual void relu_forward(const Tensor& x, const Tensor& y) = 0;
  /// Sets dx = dy where y > 0, else 0. dx may be dy or y.
  virtual void relu_backward(const Tensor& dy, const Tensor& y, const Tensor& dx) = 0;
  /// y += x.
  virtual void add(const Tensor& x, const Tensor& y) = 0;
  /// x *= factor, float32.
  virtual void scale(float factor, const Tensor& x) = 0;
  /// y += scale * x, both float32 and of equal size.
  virtual void axpy(float scale, const Tensor& x, const Tensor& y) = 0;
  /// Sets y and, per output, the window position of the (first) maximum: argmax is uint8 of y's shape.
  virtual void max_pool_forward(const PoolSpec& spec, const Tensor& x, const Tensor& y, const Tensor& argmax) = 0;
  virtual void max_pool_backward(const PoolSpec& spec, const Tensor& dy, const Tensor& argmax, const Tensor& dx) = 0;
  /// Sets y [N, C] to the mean over H, W of x [N, C, H, W].
  virtual void global_avg_pool_forward(const Tensor& x, const Tensor& y) = 0;
  virtual void global_avg_pool_backward(const Tensor& dy, const Tensor& dx) = 0;

  // ---- losses. totals is float64 [3]: sum of per-sample losses, top-1 hits, top-5 hits; all added
  /// Cross-entropy of softmax(logits [N, K]) against labels (int64 [N]) mixed with the uniform distribution by
  /// `smoothing` (torch.nn.CrossEntropyLoss). Sets dlogits = scale * d(sum of losses)/dlogits unless it is empty.
  virtual void softmax_cross_entropy(const Tensor& logits, const Tensor& labels, float smoothing, float scale,
                                     const Tensor& dlogits, const Tensor& totals) = 0;
  /// Mean over K of (prediction - target)^2 per sample; targets float32 [N, K], or int64 [N] meaning one-hot
  /// (then hits are counted too).
  virtual void mse(const Tensor& predictions, const Tensor& targets, float scale, const Tensor& dpredictions,
                   const Tensor& totals) = 0;

  // ---- optimizers over flat float32 buffers
  virtual void sgd_update(const SgdUpdate& update, const Tensor& values, const Tensor& gradients,
                          const Tensor& momentum) = 0;
  virtual void adamw_update(const AdamwUpdate& update, const Tensor& values, const Tensor& gradients,
                            const Tensor& first_moment, const Tensor& second_moment) = 0;
  virtual void lars_update(const LarsUpdate& update, std::span<const Segment> segments, const Tensor& values,
                           const Tensor& gradients, const Tensor& momentum) = 0;
};

}  // namespace convoy
