// SPDX-License-Identifier: Apache-2.0
//
// The backend that a rank computes with, and communicators that carry its tensors: the one place above layers/ and
// parallel/ that depends on whether this build has CUDA.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/base/expand_variables.h"
#include "app/build/device_choice.h"
#include "app/config/config.h"
#include "layers/backend/backend.h"
#include "layers/backend/cuda_devices.h"
#include "parallel/comm/communicator.h"

namespace convoy {

/// Of activations.
[[nodiscard]] DType compute_type(Precision precision);

[[nodiscard]] std::unique_ptr<Backend> build_backend(const Config& config, const DeviceChoice& device);

/// The folder that device.plan_cache means, with its variables replaced; empty: none. "auto" without a home: none.
[[nodiscard]] std::string plan_folder(const std::string& plan_cache, const VariableLookup& value);

/// For a rehearsal: a CPU backend with tensors as large as those of the device; only within a Rehearsal.
[[nodiscard]] std::unique_ptr<Backend> rehearsal_backend(const Config& config, const DeviceChoice& device);

/// What computes, as a text that is equal on ranks that compute alike: "oneDNN 2.6.3, AVX2".
[[nodiscard]] std::string compute_library(const DeviceChoice& device);

/// What a communicator will carry.
enum class Traffic { kCollectives, kMessages, kBoth };

/// A communicator for tensors of `backend`, which outlives it: `host` itself where they are in host memory, else one
/// over it. Every rank of `host` calls this. name: for reports.
[[nodiscard]] std::unique_ptr<Communicator> device_communicator(std::unique_ptr<Communicator> host, Backend& backend,
                                                                const Config& config, Traffic traffic,
                                                                const std::string& name);

/// Libraries that GPUs are used through; none in a build without CUDA.
[[nodiscard]] std::vector<LibraryVersion> gpu_libraries();

}  // namespace convoy
