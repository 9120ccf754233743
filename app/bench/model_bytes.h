// SPDX-License-Identifier: Apache-2.0
//
// convoy bench --model-bytes: what a training step of a config moves between GPU and memory on the CUDA backend, by
// unit and by kind of operation, beside the least that its convolutions and linear layers must move. Counted from a
// rehearsal of the step, not measured: it needs no GPU, and says nothing of time.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/config/config.h"
#include "io/data/dataset.h"
#include "layers/backend/observe/traffic_backend.h"
#include "layers/model.h"

namespace convoy {

/// Of a step.
struct BytesLine {
  std::string name;
  Moved forward, backward;
  [[nodiscard]] std::int64_t nodes() const { return forward.nodes + backward.nodes; }
};

struct ModelBytes {
  std::string backend;           ///< "CUDA backend, bfloat16, fused batch norms"
  std::int64_t images = 0;       ///< of a step
  BytesLine total;               ///< without the next two
  Moved gradient_casts;          ///< of weight gradients to float32, in the graph
  Moved optimizer;               ///< and what else is behind the graph
  std::vector<BytesLine> units;  ///< those of the model in its order, then what is in none
  std::vector<BytesLine> kinds;

  /// Of the recorded step.
  [[nodiscard]] std::int64_t nodes() const { return total.nodes() + gradient_casts.nodes; }
  [[nodiscard]] double bytes_per_image() const { return per_image(total.forward.bytes + total.backward.bytes); }
  [[nodiscard]] double per_image(double bytes) const { return bytes / static_cast<double>(images); }
};

/// Has one rank rehearse a training step of its whole batch on the backend, which then holds what that step counts. The
/// units of the model, for that batch.
[[nodiscard]] std::vector<UnitInfo> rehearse_step(const Config& config, const Dataset& data, TrafficBackend& backend);

/// Of one rank.
[[nodiscard]] ModelBytes count_model_bytes(const Config& config);

/// The tables; with a bandwidth in GB/s the bound that it sets, 0: without.
[[nodiscard]] std::string model_bytes_report(const ModelBytes& bytes, double bandwidth);

[[nodiscard]] nlohmann::ordered_json model_bytes_json(const ModelBytes& bytes);

}  // namespace convoy
