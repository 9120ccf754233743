// SPDX-License-Identifier: Apache-2.0
#include "app/planning/gpu_costs.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace convoy {

namespace {

// Of the result, in elements. rate: of a multiprocessor with this tile against the largest one; a smaller tile reads
// more operands for each product. The rates are assumptions.
struct Tile {
  double rows, columns, rate;
};
constexpr std::array<Tile, 3> kTiles{{{128, 128, 1}, {128, 64, 0.9}, {64, 64, 0.75}}};
constexpr double kMinDepth = 1024;  // of a part of a tile whose depth is split: an assumption

double seconds_of(const std::vector<OperationWork>& operations, const GpuFigures& gpu, double samples) {
  double sum = 0;
  for (const OperationWork& operation : operations) sum += operation_seconds(operation, gpu, samples);
  return sum;
}

double memory_seconds(double bytes, const GpuFigures& gpu) {
  return bytes / (gpu.memory_bytes_per_second * gpu.memory_efficiency);
}

}  // namespace

double ModelWork::parameter_bytes() const {
  double sum = 0;
  for (const UnitWork& unit : units) sum += unit.parameter_bytes;
  return sum;
}

double tile_efficiency(double rows, double columns, double depth, double groups, bool splits_depth,
                       double multiprocessors) {
  if (multiprocessors <= 0) return 1;
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(rows / tile.rows) * std::ceil(columns / tile.columns) * groups;
    double parts = 1;
    if (splits_depth) {
      parts = std::clamp(std::floor(multiprocessors / tiles), 1.0, std::max(1.0, std::floor(depth / kMinDepth)));
    }
    const double useful = rows * columns * groups / (tile.rows * tile.columns);
    const double waves = std::ceil(tiles * parts / multiprocessors);
    best = std::max(best, tile.rate * useful * parts / (waves * multiprocessors));
  }
  return best;
}

double operation_seconds(const OperationWork& work, const GpuFigures& gpu, double samples) {
  double product = 0;
  if (const double flops = work.flops(samples); flops > 0) {
    const double tiles = tile_efficiency(work.rows.at(samples), work.columns.at(samples), work.depth.at(samples),
                                         work.groups, work.splits_depth, gpu.multiprocessors);
    product = flops / (gpu.flops * gpu.flops_efficiency * tiles);
  }
  return work.kernels * gpu.kernel_seconds + std::max(product, memory_seconds(work.bytes.at(samples), gpu));
}

UnitCost unit_cost(const UnitWork& work, const GpuFigures& gpu, std::int64_t samples) {
  const auto n = static_cast<double>(samples);
  return {seconds_of(work.forward, gpu, n),
          seconds_of(work.backward_input, gpu, n),
          seconds_of(work.backward_weight, gpu, n),
          n * work.output_bytes,
          n * work.cache_bytes,
          work.parameter_bytes};
}

double optimizer_seconds_per_byte(const ModelWork& work, const GpuFigures& gpu) {
  const double parameters = work.parameter_bytes();
  if (parameters <= 0) return 0;
  return (work.optimizer_kernels * gpu.kernel_seconds + memory_seconds(work.optimizer_bytes, gpu)) / parameters;
}

}  // namespace convoy
