// SPDX-License-Identifier: Apache-2.0
//
// The backend that [device] and train.precision ask for.
#pragma once

#include <memory>

#include "app/config.h"
#include "layers/backend/backend.h"

namespace convoy {

/// threads: of this rank.
[[nodiscard]] std::unique_ptr<Backend> build_backend(const Config& config, int threads);

}  // namespace convoy
