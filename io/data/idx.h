// SPDX-License-Identifier: Apache-2.0
//
// The files of the MNIST family: IDX (Y. LeCun's format: a magic number with type and number of axes, the extents
// big-endian, the elements), plain or gzipped. Relies on zlib. Invariant: a file is read only if its size is the one
// that its header says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/data/dataset.h"

namespace convoy {

/// source: the file of images ([N, H, W] or [N, H, W, C], unsigned bytes), whose labels lie beside it under the same
/// name with "labels" for "images" and "idx1" for "idx3"; or a folder with MNIST's own names, of which `training` says
/// whether the training or the test files are meant.
[[nodiscard]] std::unique_ptr<Dataset> open_idx(const std::string& source, bool training);

/// The files that open_idx() reads: that of images, that of labels.
[[nodiscard]] std::vector<std::string> idx_files(const std::string& source, bool training);

/// Whether the folder holds MNIST's images for training, or those for testing, where open_idx() looks for them.
[[nodiscard]] bool has_idx(const std::string& folder, bool training);

}  // namespace convoy
