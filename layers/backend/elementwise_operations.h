// SPDX-License-Identifier: Apache-2.0
//
// Input, memory layout, element-wise operations and pooling.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "layers/backend/operation.h"

namespace convoy::ops {

// ---- input and layout

/// Sets y (compute type) from uint8 images of the same shape: (x / 255 - mean[c]) / std[c]. Channels that y has and x
/// has not are set to 0. Boxes are int64: left, top, width, height. `erased` ([N of x, 4], may be empty): pixels of
/// each image that are 0 instead. With `weights` (float32 [2]) x has one image more than y, in front: within `mixed`
/// ([4]) image i of y is weights[0] * image i + 1 of x + weights[1] * image i, in float32; elsewhere it is image i + 1.
struct NormalizeImages {
  static constexpr const char* kName = "normalize_images";
  In x, mean, std;
  Out y;
  In erased = none(), weights = none(), mixed = none();
  template <class V>
  NormalizeImages visit(V& v) const {
    return {v.in(x), v.in(mean), v.in(std), v.out("y", y), v.in(erased), v.in(weights), v.in(mixed)};
  }
};

/// Sets y from x of the same size and converts the element type (float32 and the compute type).
struct Cast {
  static constexpr const char* kName = "cast";
  In x;
  Out y;
  template <class V>
  Cast visit(V& v) const {
    return {v.in(x), v.out("y", y)};
  }
};

/// Sets y [N, C*H*W], in the order C, H, W, from x [N, C, H, W].
struct Flatten {
  static constexpr const char* kName = "flatten";
  In x;
  Out y;
  template <class V>
  Flatten visit(V& v) const {
    return {v.in(x), v.out("y", y)};
  }
};

/// The inverse: sets dx [N, C, H, W] from dy [N, C*H*W].
struct Unflatten {
  static constexpr const char* kName = "unflatten";
  In dy;
  Out dx;
  template <class V>
  Unflatten visit(V& v) const {
    return {v.in(dy), v.out("dx", dx)};
  }
  [[nodiscard]] std::string detail() const { return dx.shape().str(); }
};

// ---- element-wise

/// Sets y = max(0, x).
struct ReluForward {
  static constexpr const char* kName = "relu_forward";
  In x;
  Out y;
  template <class V>
  ReluForward visit(V& v) const {
    return {v.in(x), v.out("y", y)};
  }
};

/// Sets dx = dy where y > 0, else 0. dx may be dy or y.
struct ReluBackward {
  static constexpr const char* kName = "relu_backward";
  In dy, y;
  Out dx;
  template <class V>
  ReluBackward visit(V& v) const {
    return {v.in(dy), v.in(y), v.out("dx", dx)};
  }
};

/// Sets y = x / (1 - probability) where an element is kept, else 0; the same operation turns dy into dx. y may be x.
/// With position = {update, first} (int64 [2], see Cache) and stream = random_bits(key, update), element e (in
/// memory) of sample s of [N, ...] is kept if random_word(stream, (first + s) * elements of a sample + e) is at least
/// probability * 2^32.
struct Dropout {
  static constexpr const char* kName = "dropout";
  In x, position;
  std::uint64_t key = 0;
  double probability = 0;
  Out y;
  template <class V>
  Dropout visit(V& v) const {
    return {v.in(x), v.in(position), key, probability, v.out("y", y)};
  }
  [[nodiscard]] std::uint64_t threshold() const {
    return static_cast<std::uint64_t>(std::llround(probability * 0x1p32));
  }
  [[nodiscard]] float scale() const { return static_cast<float>(1 / (1 - probability)); }
};

/// y += x.
struct Add {
  static constexpr const char* kName = "add";
  In x;
  InOut y;
  template <class V>
  Add visit(V& v) const {
    return {v.in(x), v.in_out("y", y)};
  }
};

/// y = factor * x. y may be x.
struct Scale {
  static constexpr const char* kName = "scale";
  float factor = 1;
  In x;
  Out y;
  template <class V>
  Scale visit(V& v) const {
    return {factor, v.in(x), v.out("y", y)};
  }
};

/// x *= factor (float32 [1]), float32. x is not touched where the factor is 1.
struct ScaleBy {
  static constexpr const char* kName = "scale_by";
  In factor;
  InOut x;
  template <class V>
  ScaleBy visit(V& v) const {
    return {v.in(factor), v.in_out("x", x)};
  }
  [[nodiscard]] std::string detail() const { return x.shape().str(); }
};

/// y += scale * x, both float32 and of equal size.
struct Axpy {
  static constexpr const char* kName = "axpy";
  float scale = 1;
  In x;
  InOut y;
  template <class V>
  Axpy visit(V& v) const {
    return {scale, v.in(x), v.in_out("y", y)};
  }
};

/// y += weight * (x - y), both float32 and of equal size (torch.lerp of y and x, for a weight below 0.5).
struct Lerp {
  static constexpr const char* kName = "lerp";
  float weight = 0;
  In x;
  InOut y;
  template <class V>
  Lerp visit(V& v) const {
    return {weight, v.in(x), v.in_out("y", y)};
  }
};

/// Exchanges the values of x and y, both float32 and of equal size.
struct Exchange {
  static constexpr const char* kName = "exchange";
  InOut x, y;
  template <class V>
  Exchange visit(V& v) const {
    return {v.in_out("x", x), v.in_out("y", y)};
  }
  [[nodiscard]] std::string detail() const { return x.shape().str(); }
};

// ---- pooling

/// Sets y and, for each output, the position in its window of the (first) maximum: argmax is uint8 in the shape of y.
struct MaxPoolForward {
  static constexpr const char* kName = "max_pool_forward";
  const PoolSpec& spec;
  In x;
  Out y, argmax;
  template <class V>
  MaxPoolForward visit(V& v) const {
    return {spec, v.in(x), v.out("y", y), v.out("argmax", argmax)};
  }
};

/// Sets dx.
struct MaxPoolBackward {
  static constexpr const char* kName = "max_pool_backward";
  const PoolSpec& spec;
  In dy, argmax;
  Out dx;
  template <class V>
  MaxPoolBackward visit(V& v) const {
    return {spec, v.in(dy), v.in(argmax), v.out("dx", dx)};
  }
  [[nodiscard]] std::string detail() const { return dx.shape().str(); }
};

/// Sets y to the means of the windows, where pixels of the padding count as zeros (torch.nn.AvgPool2d).
struct AvgPoolForward {
  static constexpr const char* kName = "avg_pool_forward";
  const PoolSpec& spec;
  In x;
  Out y;
  template <class V>
  AvgPoolForward visit(V& v) const {
    return {spec, v.in(x), v.out("y", y)};
  }
};

/// Sets dx.
struct AvgPoolBackward {
  static constexpr const char* kName = "avg_pool_backward";
  const PoolSpec& spec;
  In dy;
  Out dx;
  template <class V>
  AvgPoolBackward visit(V& v) const {
    return {spec, v.in(dy), v.out("dx", dx)};
  }
  [[nodiscard]] std::string detail() const { return dx.shape().str(); }
};

/// Sets y [N, C] to the mean over H, W of x [N, C, H, W].
struct GlobalAvgPoolForward {
  static constexpr const char* kName = "global_avg_pool_forward";
  In x;
  Out y;
  template <class V>
  GlobalAvgPoolForward visit(V& v) const {
    return {v.in(x), v.out("y", y)};
  }
};

/// Sets dx [N, C, H, W].
struct GlobalAvgPoolBackward {
  static constexpr const char* kName = "global_avg_pool_backward";
  In dy;
  Out dx;
  template <class V>
  GlobalAvgPoolBackward visit(V& v) const {
    return {v.in(dy), v.out("dx", dx)};
  }
  [[nodiscard]] std::string detail() const { return dx.shape().str(); }
};

}  // namespace convoy::ops

// The operations above (operations.h).
#define CONVOY_ELEMENTWISE_OPERATIONS(X) \
  X(NormalizeImages)                     \
  X(Cast)                                \
  X(Flatten)                             \
  X(Unflatten)                           \
  X(ReluForward)                         \
  X(ReluBackward)                        \
  X(Dropout)                             \
  X(Add)                                 \
  X(Scale)                               \
  X(ScaleBy)                             \
  X(Axpy)                                \
  X(Lerp)                                \
  X(Exchange)                            \
  X(MaxPoolForward)                      \
  X(MaxPoolBackward)                     \
  X(AvgPoolForward)                      \
  X(AvgPoolBackward)                     \
  X(GlobalAvgPoolForward)                \
  X(GlobalAvgPoolBackward)
