// SPDX-License-Identifier: Apache-2.0
//
// What identifies a training set, so that a checkpoint is not resumed on other data by mistake.
#pragma once

#include <string>

#include "app/config/config.h"
#include "io/data/dataset.h"

namespace convoy {

/// "1437 samples, 10 classes, labels 4a7d1ed4": sizes, and a CRC-32C of class names and labels. It does not depend on
/// the form of the data (a folder, one file, shards). Reads every label, but of synthetic data none, and of more than
/// 2^24 samples as many at equal distances.
[[nodiscard]] std::string data_fingerprint(const Config& config, const Dataset& data);

}  // namespace convoy
