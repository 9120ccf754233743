// SPDX-License-Identifier: Apache-2.0
//
// The tensors that a model, or a part of it, has in files: names, shapes and types, without the data.
#pragma once

#include <string>
#include <vector>

#include "layers/base/host_tensor.h"

namespace convoy {

struct TensorEntry {
  std::string name;  ///< dotted torchvision path
  Shape shape;
  DType dtype = DType::kF32;
  bool buffer = false;  ///< of a batch norm: not trained, no optimizer state
};

/// Finds each of `wanted` in `there`: returned in the order of `wanted`, null where a parameter's name begins with
/// `skip`. Throws one usage Error that lists all missing, unknown and mis-shaped names. `source` names the file in it.
[[nodiscard]] std::vector<const HostTensor*> match_manifest(const std::vector<TensorEntry>& wanted,
                                                            const std::vector<HostTensor>& there,
                                                            const std::string& source, const std::string& skip = "");

/// The entries that are parameters, and with them running means and variances: what an average of the model has.
[[nodiscard]] std::vector<TensorEntry> averaged(const std::vector<TensorEntry>& entries);

/// The entries that are parameters.
[[nodiscard]] std::vector<TensorEntry> only_parameters(const std::vector<TensorEntry>& entries);

}  // namespace convoy
