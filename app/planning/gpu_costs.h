// SPDX-License-Identifier: Apache-2.0
//
// How long the operations of a model take on a GPU, from counts of their work and a few figures of the GPU: the
// roofline model (Williams et al. 2009) for each operation, with the quantisation of tiles and waves and a time for
// each kernel. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/schedule/unit_costs.h"

namespace convoy {

/// A count that is linear in the samples of a microbatch.
struct LinearCount {
  double fixed = 0, per_sample = 0;
  [[nodiscard]] double at(double samples) const { return fixed + per_sample * samples; }
};

/// One operation, with the parts that are fused with it.
struct OperationWork {
  double kernels = 0;
  LinearCount bytes;                 ///< between GPU and memory
  LinearCount rows, columns, depth;  ///< of a matrix product; zeros: none
  double groups = 1;
  bool splits_depth = false;  ///< several thread blocks may share the depth of a tile (split-K)

  [[nodiscard]] double flops(double samples) const {
    return 2 * rows.at(samples) * columns.at(samples) * depth.at(samples) * groups;
  }
};

struct UnitWork {
  std::string name;
  std::vector<OperationWork> forward, backward_input, backward_weight;
  double output_bytes = 0, cache_bytes = 0;  ///< of a sample, as UnitCost
  double parameter_bytes = 0;                ///< as UnitCost
};

/// A training step of one rank.
struct ModelWork {
  std::vector<UnitWork> units;
  double optimizer_bytes = 0, optimizer_kernels = 0;  ///< of all parameters
  [[nodiscard]] double parameter_bytes() const;
};

struct GpuFigures {
  double flops = 0;                    ///< per second, at best
  double flops_efficiency = 1;         ///< share of it that a matrix product of full tiles reaches, 0 to 1
  double memory_bytes_per_second = 0;  ///< at best
  double memory_efficiency = 1;        ///< share of it that operations reach, 0 to 1
  double kernel_seconds = 0;           ///< of each kernel, however small: launch, ramp-up and tail
  double multiprocessors = 0;          ///< that share the tiles of a product; 0: no quantisation
};

/// The share of the multiprocessors' time that a product of these sizes uses: edges of tiles reach beyond the result,
/// and the last wave of tiles leaves multiprocessors idle ("Matrix Multiplication Background", NVIDIA). The best of
/// several sizes of tiles, of which smaller ones are slower. Above 0, at most 1; 1 without multiprocessors.
[[nodiscard]] double tile_efficiency(double rows, double columns, double depth, double groups, bool splits_depth,
                                     double multiprocessors);

/// Kernels at kernel_seconds, and the longer of the product and the bytes.
[[nodiscard]] double operation_seconds(const OperationWork& work, const GpuFigures& gpu, double samples);

/// A microbatch of so many samples.
[[nodiscard]] UnitCost unit_cost(const UnitWork& work, const GpuFigures& gpu, std::int64_t samples);

/// Of the update, per byte of float32 parameters; 0 without parameters.
[[nodiscard]] double optimizer_seconds_per_byte(const ModelWork& work, const GpuFigures& gpu);

}  // namespace convoy
