// SPDX-License-Identifier: Apache-2.0
//
// Measured speeds of a training on several numbers of ranks, as a CSV file: what convoy plan --fit reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convoy {

struct MeasuredRow {
  int ranks = 0;
  std::int64_t samples_per_rank = 0;  ///< of a step
  double images_per_second = 0;       ///< of all ranks together
  int line = 0;                       ///< of the file
};

/// A header that names at least the columns ranks, samples_per_rank and images_per_second, in any order; rows of
/// numbers; empty lines and lines with "#" are skipped. Throws a usage Error naming file and line; a file of fewer than
/// two rows is one, too.
[[nodiscard]] std::vector<MeasuredRow> read_measured_rows(const std::string& path);

}  // namespace convoy
