// SPDX-License-Identifier: Apache-2.0
//
// CIFAR-10's binary batches (Krizhevsky 2009): records of a label byte and 3072 bytes of a 32x32 image, red, green and
// blue planes one after the other. Invariant: every record is whole and its label one of ten.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "io/data/dataset.h"

namespace convoy {

/// Of one image in a batch file: its label, then 32 x 32 pixels, plane by plane.
inline constexpr std::size_t kCifar10RecordBytes = 1 + 3 * 32 * 32;

/// source: one batch file, or the folder that holds data_batch_1.bin to data_batch_5.bin and test_batch.bin, of which
/// `training` says which are meant. Class names come from batches.meta.txt beside them, if it is there.
[[nodiscard]] std::unique_ptr<Dataset> open_cifar10(const std::string& source, bool training);

/// The files that open_cifar10() reads: batches, and the class names, if they are there.
[[nodiscard]] std::vector<std::string> cifar10_files(const std::string& source, bool training);

/// Whether the folder holds batches for training, or that for testing, where open_cifar10() looks for them.
[[nodiscard]] bool has_cifar10(const std::string& folder, bool training);

}  // namespace convoy
