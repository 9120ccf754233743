// SPDX-License-Identifier: Apache-2.0
//
// The peak memory of a rank, before any of it is used: a rehearsal (layers/base/rehearsal.h) of training steps and an
// evaluation with the run's own model, optimizer and schedule gives the tensors, arithmetic the host's buffers. A
// function of config, layout and the shapes of the data; the same for train, bench and plan. docs/memory.md says what
// it counts.
#pragma once

#include <cstdint>
#include <optional>

#include "app/build/build_layout.h"
#include "app/build/device_choice.h"
#include "app/config/config.h"
#include "io/data/dataset.h"

namespace convoy {

/// What a run is for: it does not need all of what training needs.
enum class RunPurpose { kTraining, kTiming, kEvaluation };

/// What of a data set decides how much memory its batches take.
struct DataShape {
  Shape sample;  ///< [C, H, W] or [F]; the largest
  DType dtype = DType::kF32;
  std::int64_t target_size = 0;  ///< 0: labels
  std::int64_t outputs = 0;      ///< length of the network's output for it
};
[[nodiscard]] DataShape data_shape(const Config& config, const Dataset& data);

struct MemoryRequest {
  const Config& config;
  const Layout& layout;  ///< with its partition
  int rank = 0;
  DataShape train;
  std::optional<DataShape> validation;
  RunPurpose purpose = RunPurpose::kTraining;
  DeviceChoice device;
  bool shares_gradients = false;  ///< the replicas are on one node, where gradients lie in shared memory
};

/// Bytes.
struct MemoryPrediction {
  double tensors = 0;        ///< the largest size of the backend's memory pool
  double untouched = 0;      ///< of that: what rounding adds to the flat buffers, which never becomes resident
  double gradients = 0;      ///< in memory shared between replicas, outside of that pool
  double loader = 0;         ///< buffers of batches
  double checkpoint = 0;     ///< copies of the state on their way to a file
  double communication = 0;  ///< what MPI needs to add gradients up
  double start = 0;          ///< the largest parameter as it is initialised, which the C library keeps
  [[nodiscard]] double host() const { return gradients + loader + checkpoint + communication + start; }
};

[[nodiscard]] MemoryPrediction predict_memory(const MemoryRequest& request);

/// Of the measurement of units that precedes partition = "auto", on the request's rank.
[[nodiscard]] MemoryPrediction predict_measuring(const MemoryRequest& request);

}  // namespace convoy
