// SPDX-License-Identifier: Apache-2.0
#include "app/build_backend.h"

#include "layers/backend/onednn/onednn_backend.h"

namespace convoy {

std::unique_ptr<Backend> build_backend(const Config& config, int threads) {
  const DType compute = config.train.precision == PrecisionKind::kBf16 ? DType::kBF16 : DType::kF32;
  return std::make_unique<OnednnBackend>(threads, compute);
}

}  // namespace convoy
