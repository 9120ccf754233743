// SPDX-License-Identifier: Apache-2.0
//
// Optimizer updates of the CPU backend over flat float32 buffers, each in one pass but for norms, in the order of
// operations of torch.optim. An element's result depends neither on where it lies in the buffer nor on the thread
// count, so a network cut into stages trains to the same bits.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kGrain = 32768;  // elements that make a part worth a thread

// Kernels return whether a new value is not finite, gathered as integers: those loops are vectorised.
inline std::uint32_t is_nonfinite(float value) {
  return static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & 0x7f800000U) == 0x7f800000U);
}

CONVOY_VECTORIZED bool sgd_kernel(ops::SgdUpdate::Hyperparameters u, float* w, const float* g, float* v,
                                  std::int64_t count) {
  std::uint32_t nonfinite = 0;
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    const float d = g[i] + u.weight_decay * w[i];
    const float velocity = u.momentum * v[i] + d;
    v[i] = velocity;
    w[i] -= u.lr * (u.nesterov ? d + u.momentum * velocity : velocity);
    nonfinite |= is_nonfinite(w[i]);
  }
  return nonfinite != 0;
}

CONVOY_VECTORIZED bool plain_sgd_kernel(ops::SgdUpdate::Hyperparameters u, float* w, const float* g,
                                        std::int64_t count) {
  std::uint32_t nonfinite = 0;
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    w[i] -= u.lr * (g[i] + u.weight_decay * w[i]);
    nonfinite |= is_nonfinite(w[i]);
  }
  return nonfinite != 0;
}

struct AdamwFactors {
  float keep;                        // 1 - lr * weight_decay
  float beta1, rest1, beta2, rest2;  // rest = 1 - beta
  float step;                        // lr / bias1
  float root_bias2, epsilon;
};

CONVOY_VECTORIZED bool adamw_kernel(AdamwFactors f, float* w, const float* g, float* m, float* v, std::int64_t count) {
  constexpr std::int64_t kPiece = 256;
  std::uint32_t nonfinite = 0;
  float roots[kPiece];
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const std::int64_t n = std::min(kPiece, count - at);
    CONVOY_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) {
      m[at + i] = f.beta1 * m[at + i] + f.rest1 * g[at + i];
      v[at + i] = f.beta2 * v[at + i] + f.rest2 * g[at + i] * g[at + i];
    }
    // Apart, since compilers that keep errno do not vectorise it.
    for (std::int64_t i = 0; i < n; ++i) roots[i] = std::sqrt(v[at + i]);
    CONVOY_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) {
      const float decayed = w[at + i] * f.keep;
      w[at + i] = decayed - f.step * (m[at + i] / (roots[i] / f.root_bias2 + f.epsilon));
      nonfinite |= is_nonfinite(w[at + i]);
    }
  }
  return nonfinite != 0;
}

struct LambFactors {
  float beta1, rest1, beta2, rest2;  // rest = 1 - beta
  float bias1, root_bias2, epsilon, decay;
};
constexpr std::int64_t kLambPiece = 256;

// Sets direction[i] from the moments and the weights.
CONVOY_VECTORIZED void lamb_direction(LambFactors f, const float* w, const float* m, const float* v, float* direction,
                                      std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) direction[i] = std::sqrt(v[i]);
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    direction[i] = m[i] / f.bias1 / (direction[i] / f.root_bias2 + f.epsilon) + f.decay * w[i];
  }
}

CONVOY_VECTORIZED void lamb_moments(LambFactors f, const float* g, float* m, float* v, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    m[i] = f.beta1 * m[i] + f.rest1 * g[i];
    v[i] = f.beta2 * v[i] + f.rest2 * g[i] * g[i];
  }
}

CONVOY_VECTORIZED bool lamb_step(float rate, float* w, const float* direction, std::int64_t count) {
  std::uint32_t nonfinite = 0;
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    w[i] -= rate * direction[i];
    nonfinite |= is_nonfinite(w[i]);
  }
  return nonfinite != 0;
}

CONVOY_VECTORIZED bool lars_kernel(float momentum, float rate, float decay, float* w, const float* g, float* v,
                                   std::int64_t count) {
  std::uint32_t nonfinite = 0;
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    v[i] = momentum * v[i] + rate * (g[i] + decay * w[i]);
    w[i] -= v[i];
    nonfinite |= is_nonfinite(w[i]);
  }
  return nonfinite != 0;
}

// The sum of squares in eight fixed lanes: the same bits wherever x lies in memory.
CONVOY_VECTORIZED double sum_of_squares(const float* x, std::int64_t count) {
  double lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::int64_t lane = 0; lane < 8; ++lane) {
      const double value = x[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) lanes[i % 8] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

std::int64_t pieces_of(const Segment& segment) { return (segment.elements + kGrain - 1) / kGrain; }

// Calls body(segment index, piece index, offset, elements) for all pieces of all segments, spread over the threads.
// A segment's pieces are the same whatever surrounds it.
template <class Body>
void for_each_piece(std::span<const Segment> segments, Body&& body) {
  std::int64_t total = 0;
  for (const Segment& segment : segments) total += pieces_of(segment);
  parallel_ranges(total, 1, [&](std::int64_t first, std::int64_t last, int) {
    std::int64_t start = 0;
    for (std::size_t s = 0; s < segments.size() && start < last; ++s) {
      const std::int64_t pieces = pieces_of(segments[s]);
      for (std::int64_t p = std::max(first, start); p < std::min(last, start + pieces); ++p) {
        const std::int64_t at = (p - start) * kGrain;
        body(s, p, segments[s].offset + at, std::min(kGrain, segments[s].elements - at));
      }
      start += pieces;
    }
  });
}

// Calls body(first, last, decays) for each run of elements of [first, last) of which weight decay applies to all or to
// none. no_decay: see training_operations.h, or null.
template <class Body>
void for_each_decay(const std::uint8_t* no_decay, std::int64_t first, std::int64_t last, Body&& body) {
  if (no_decay == nullptr) return body(first, last, true);
  while (first < last) {
    std::int64_t block = first / kParameterAlignment;
    const bool decays = no_decay[block++] == 0;
    while (block * kParameterAlignment < last && (no_decay[block] == 0) == decays) ++block;
    const std::int64_t end = std::min(last, block * kParameterAlignment);
    body(first, end, decays);
    first = end;
  }
}

// What the threads of an update have found, for the operand of that name.
class NonfiniteFlag {
 public:
  explicit NonfiniteFlag(const Tensor& flag) : flag_(flag) {}
  ~NonfiniteFlag() {
    if (flag_ && found_) *flag_.data<double>() = 1;
  }
  NonfiniteFlag(const NonfiniteFlag&) = delete;
  NonfiniteFlag& operator=(const NonfiniteFlag&) = delete;
  void add(bool found) {
    if (found) found_ = true;
  }

 private:
  const Tensor& flag_;
  std::atomic<bool> found_{false};
};

}  // namespace

void OnednnBackend::run(const ops::SquaredNorms& op) {
  if (rehearsing()) return;
  const float* x = op.x.data<float>();
  std::int64_t pieces = 0;
  for (const Segment& segment : op.segments) pieces += pieces_of(segment);
  double* sums = scratch(static_cast<std::size_t>(pieces));
  for_each_piece(op.segments, [=](std::size_t, std::int64_t piece, std::int64_t at, std::int64_t count) {
    sums[piece] = sum_of_squares(x + at, count);
  });
  for (std::size_t s = 0; s < op.segments.size(); ++s) {
    double sum = 0.0;
    for (std::int64_t p = pieces_of(op.segments[s]); p > 0; --p) sum += *sums++;
    op.squares.data<double>()[s] = sum;
  }
}

void OnednnBackend::run(const ops::ClipFactor& op) {
  if (rehearsing()) return;
  const auto* squares = op.squares.data<double>();
  double sum = 0.0;
  for (std::int64_t i = 0; i < op.squares.size(); ++i) sum += squares[i];
  const double norm = std::sqrt(sum), factor = op.clip_norm / (norm + ops::kClipEpsilon);
  *op.norm.data<double>() = norm;
  *op.factor.data<float>() = factor >= 1.0 ? 1.0F : static_cast<float>(factor);
}

void OnednnBackend::run(const ops::SgdUpdate& op) {
  NonfiniteFlag flag(op.nonfinite);
  float *w = op.values.data<float>(), *v = op.momentum.data<float>();
  const float* g = op.gradients.data<float>();
  const auto* no_decay = op.no_decay.data<std::uint8_t>();
  parallel_ranges(op.values.size(), kGrain, [=, &flag](std::int64_t begin, std::int64_t end, int) {
    for_each_decay(no_decay, begin, end, [&](std::int64_t first, std::int64_t last, bool decays) {
      auto u = op.hyperparameters;
      if (!decays) u.weight_decay = 0;
      flag.add(v == nullptr ? plain_sgd_kernel(u, w + first, g + first, last - first)
                            : sgd_kernel(u, w + first, g + first, v + first, last - first));
    });
  });
}

void OnednnBackend::run(const ops::AdamwUpdate& op) {
  const double lr = op.hyperparameters.lr, beta1 = op.hyperparameters.beta1, beta2 = op.hyperparameters.beta2,
               decay = op.hyperparameters.weight_decay;
  const AdamwFactors factors{static_cast<float>(1.0 - lr * decay),
                             static_cast<float>(beta1),
                             static_cast<float>(1.0 - beta1),
                             static_cast<float>(beta2),
                             static_cast<float>(1.0 - beta2),
                             static_cast<float>(lr / op.hyperparameters.bias1),
                             static_cast<float>(std::sqrt(op.hyperparameters.bias2)),
                             static_cast<float>(op.hyperparameters.epsilon)};
  float *w = op.values.data<float>(), *m = op.first_moment.data<float>(), *v = op.second_moment.data<float>();
  const float* g = op.gradients.data<float>();
  const auto* no_decay = op.no_decay.data<std::uint8_t>();
  NonfiniteFlag flag(op.nonfinite);
  parallel_ranges(op.values.size(), kGrain, [=, &flag](std::int64_t begin, std::int64_t end, int) {
    for_each_decay(no_decay, begin, end, [&](std::int64_t first, std::int64_t last, bool decays) {
      AdamwFactors f = factors;
      if (!decays) f.keep = 1;
      flag.add(adamw_kernel(f, w + first, g + first, m + first, v + first, last - first));
    });
  });
}

void OnednnBackend::run(const ops::LambUpdate& op) {
  if (rehearsing()) return;
  const auto& u = op.hyperparameters;
  const LambFactors factors{static_cast<float>(u.beta1),
                            static_cast<float>(1.0 - u.beta1),
                            static_cast<float>(u.beta2),
                            static_cast<float>(1.0 - u.beta2),
                            static_cast<float>(u.bias1),
                            static_cast<float>(std::sqrt(u.bias2)),
                            u.epsilon,
                            u.weight_decay};
  float *w = op.values.data<float>(), *m = op.first_moment.data<float>(), *v = op.second_moment.data<float>();
  const float* g = op.gradients.data<float>();
  const auto* no_decay = op.no_decay.data<std::uint8_t>();
  const auto factors_of = [=](const Segment& segment) {
    LambFactors f = factors;
    if (no_decay != nullptr && no_decay[segment.offset / kParameterAlignment] != 0) f.decay = 0;
    return f;
  };
  std::int64_t pieces = 0;
  for (const Segment& segment : op.segments) pieces += pieces_of(segment);
  double* rates = scratch(op.segments.size() + 2 * static_cast<std::size_t>(pieces));
  double *w_squares = rates + op.segments.size(), *u_squares = w_squares + pieces;
  for_each_piece(op.segments, [=](std::size_t s, std::int64_t piece, std::int64_t at, std::int64_t count) {
    const LambFactors f = factors_of(op.segments[s]);
    lamb_moments(f, g + at, m + at, v + at, count);
    if (!op.segments[s].adapt) return;
    w_squares[piece] = sum_of_squares(w + at, count);
    u_squares[piece] = 0.0;
    float direction[kLambPiece];
    for (std::int64_t i = 0; i < count; i += kLambPiece) {
      const std::int64_t n = std::min(kLambPiece, count - i);
      lamb_direction(f, w + at + i, m + at + i, v + at + i, direction, n);
      u_squares[piece] += sum_of_squares(direction, n);
    }
  });
  std::int64_t piece = 0;
  for (std::size_t s = 0; s < op.segments.size(); ++s) {
    const std::int64_t end = piece + pieces_of(op.segments[s]);
    double ratio = 1.0;
    if (op.segments[s].adapt) {
      double w_sum = 0.0, u_sum = 0.0;
      for (std::int64_t p = piece; p < end; ++p) {
        w_sum += w_squares[p];
        u_sum += u_squares[p];
      }
      if (w_sum > 0.0 && u_sum > 0.0) ratio = std::sqrt(w_sum) / std::sqrt(u_sum);
    }
    rates[s] = u.lr * ratio;
    piece = end;
  }
  NonfiniteFlag flag(op.nonfinite);
  for_each_piece(op.segments, [=, &flag](std::size_t s, std::int64_t, std::int64_t at, std::int64_t count) {
    const LambFactors f = factors_of(op.segments[s]);
    float direction[kLambPiece];
    for (std::int64_t i = 0; i < count; i += kLambPiece) {
      const std::int64_t n = std::min(kLambPiece, count - i);
      lamb_direction(f, w + at + i, m + at + i, v + at + i, direction, n);
      flag.add(lamb_step(static_cast<float>(rates[s]), w + at + i, direction, n));
    }
  });
}

void OnednnBackend::run(const ops::LarsUpdate& op) {
  float *w = op.values.data<float>(), *v = op.momentum.data<float>();
  const float* g = op.gradients.data<float>();
  std::int64_t pieces = 0;
  for (const Segment& segment : op.segments) pieces += pieces_of(segment);
  double* rates = scratch(op.segments.size() + 2 * static_cast<std::size_t>(pieces));
  double *w_squares = rates + op.segments.size(), *g_squares = w_squares + pieces;
  for_each_piece(op.segments, [=](std::size_t s, std::int64_t piece, std::int64_t at, std::int64_t count) {
    if (!op.segments[s].adapt) return;
    w_squares[piece] = sum_of_squares(w + at, count);
    g_squares[piece] = sum_of_squares(g + at, count);
  });
  std::int64_t piece = 0;
  for (std::size_t s = 0; s < op.segments.size(); ++s) {
    const std::int64_t end = piece + pieces_of(op.segments[s]);
    double ratio = 1.0;
    if (op.segments[s].adapt) {
      double w_sum = 0.0, g_sum = 0.0;
      for (std::int64_t p = piece; p < end; ++p) {
        w_sum += w_squares[p];
        g_sum += g_squares[p];
      }
      const double w_norm = std::sqrt(w_sum), g_norm = std::sqrt(g_sum);
      if (w_norm > 0.0 && g_norm > 0.0) {
        ratio = op.hyperparameters.trust * w_norm /
                (g_norm + op.hyperparameters.weight_decay * w_norm + op.hyperparameters.epsilon);
      }
    }
    rates[s] = op.hyperparameters.lr * ratio;
    piece = end;
  }
  NonfiniteFlag flag(op.nonfinite);
  for_each_piece(op.segments, [=, &flag](std::size_t s, std::int64_t, std::int64_t at, std::int64_t count) {
    flag.add(lars_kernel(op.hyperparameters.momentum, static_cast<float>(rates[s]),
                         op.segments[s].adapt ? op.hyperparameters.weight_decay : 0.0F, w + at, g + at, v + at, count));
  });
}

}  // namespace convoy
