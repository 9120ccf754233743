// SPDX-License-Identifier: Apache-2.0
//
// Optimizer updates of the CPU backend over flat float32 buffers, each in one pass, in the order of operations of
// torch.optim. An element's result depends neither on where it lies in the buffer nor on the thread count, so a
// network cut into stages trains to the same bits.
#include <algorithm>
#include <cmath>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kGrain = 32768;  // elements that make a part worth a thread

CONVOY_VECTORIZED void sgd_kernel(ops::SgdUpdate::Hyperparameters u, float* w, const float* g, float* v,
                                  std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    const float d = g[i] + u.weight_decay * w[i];
    const float velocity = u.momentum * v[i] + d;
    v[i] = velocity;
    w[i] -= u.lr * (u.nesterov ? d + u.momentum * velocity : velocity);
  }
}

CONVOY_VECTORIZED void plain_sgd_kernel(ops::SgdUpdate::Hyperparameters u, float* w, const float* g,
                                        std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) w[i] -= u.lr * (g[i] + u.weight_decay * w[i]);
}

struct AdamwFactors {
  float keep;                        // 1 - lr * weight_decay
  float beta1, rest1, beta2, rest2;  // rest = 1 - beta
  float step;                        // lr / bias1
  float root_bias2, epsilon;
};

CONVOY_VECTORIZED void adamw_kernel(AdamwFactors f, float* w, const float* g, float* m, float* v, std::int64_t count) {
  constexpr std::int64_t kPiece = 256;
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
    }
  }
}

CONVOY_VECTORIZED void lars_kernel(float momentum, float rate, float decay, float* w, const float* g, float* v,
                                   std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    v[i] = momentum * v[i] + rate * (g[i] + decay * w[i]);
    w[i] -= v[i];
  }
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

}  // namespace

void OnednnBackend::run(const ops::SgdUpdate& op) {
  float *w = op.values.data<float>(), *v = op.momentum.data<float>();
  const float* g = op.gradients.data<float>();
  parallel_ranges(op.values.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
    if (v == nullptr) {
      plain_sgd_kernel(op.hyperparameters, w + first, g + first, last - first);
    } else {
      sgd_kernel(op.hyperparameters, w + first, g + first, v + first, last - first);
    }
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
  parallel_ranges(op.values.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
    adamw_kernel(factors, w + first, g + first, m + first, v + first, last - first);
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
  for_each_piece(op.segments, [=](std::size_t s, std::int64_t, std::int64_t at, std::int64_t count) {
    lars_kernel(op.hyperparameters.momentum, static_cast<float>(rates[s]),
                op.segments[s].adapt ? op.hyperparameters.weight_decay : 0.0F, w + at, g + at, v + at, count);
  });
}

}  // namespace convoy
