// SPDX-License-Identifier: Apache-2.0
//
// The linear transforms of Winograd's minimal filtering F(m×m, 3×3), m = 2 or 4 (Winograd, 1980; Lavin & Gray, 2016,
// the matrices of sections 4.1 and 4.2): between pixels, weights or gradients and the (m + 2)² points at which their
// products are taken. Those of m = 2 add a few roundings; those of m = 4 take half the products, with coefficients up
// to 8 that cost some 3 bits (relative errors of some 3e-6 for sums of 256 channels). Channels are whole vectors of
// kLanes. Private to layers/backend/onednn.
#pragma once

#include <cstdint>

#include "layers/backend/onednn/bfloat16.h"
#include "layers/backend/onednn/lanes.h"

namespace convoy {

/// The points of a tile of m×m.
constexpr std::int64_t winograd_points(std::int64_t m) { return (m + 2) * (m + 2); }

/// How far apart the planes of `elements` values lie, one for each point: a cache line more than they need, so that a
/// place in all planes falls on different sets of the caches.
constexpr std::int64_t winograd_step(std::int64_t elements) { return elements + kLanes; }

/// Sets points[p * step + c / kLanes * panel + c % kLanes] = (Bᵀ d B)[p] for the patch d of (m + 2)×(m + 2) pixels of
/// `channels` values each, in rows. Pixel: float or BFloat16, here and below.
template <class Pixel>
void winograd_patch(std::int64_t m, const Pixel* const* pixels, std::int64_t channels, std::int64_t step,
                    std::int64_t panel, float* points);

/// The same of (A g Aᵀ)[p] for the gradient g of a tile of m×m output pixels.
template <class Pixel>
void winograd_gradient(std::int64_t m, const Pixel* const* pixels, std::int64_t channels, std::int64_t step,
                       std::int64_t panel, float* points);

/// Sets the tile of m×m output pixels to Aᵀ u A + bias for the products u[p] = points[p * step + c]; bias: [channels],
/// or null for none.
template <class Pixel>
void winograd_tile(std::int64_t m, const float* points, std::int64_t step, std::int64_t channels, const float* bias,
                   Pixel* const* pixels);

/// Sets points [(m + 2)², in, out], in planes winograd_step(in * out) apart, to G w Gᵀ for the weights [3, 3, in, out],
/// over all threads. Each plane is in the panels of panel_product.h.
void winograd_weight(std::int64_t m, const float* weights, std::int64_t in, std::int64_t out, float* points);

/// The same with the points [(m + 2)², out, in], for the input gradient.
void winograd_weight_transposed(std::int64_t m, const float* weights, std::int64_t in, std::int64_t out, float* points);

/// Sets the gradient of the weights [3, 3, count] to Gᵀ u G for the gradient u [(m + 2)², count] of their points, in
/// such planes without panels, over all threads; count: in whole vectors.
void winograd_weight_gradient(std::int64_t m, const float* points, std::int64_t count, float* gradient);

}  // namespace convoy
