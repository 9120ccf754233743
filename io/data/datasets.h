// SPDX-License-Identifier: Apache-2.0
//
// Data sets by name (data.kind): how each is opened, by the process that looks at its files and by those that it tells,
// which files it is read from, and what it is called where these files have been copied to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/data_options.h"
#include "io/data/dataset.h"

namespace convoy {

class ByteUnpacker;

struct DatasetRequest {
  const DataOptions& options;
  const std::string& source;  ///< data.train or data.validation
  bool training = true;
  std::uint64_t seed = 0;
  bool signals = false;      ///< hdf5: inputs [N, C, L] are images [C, 1, L], not vectors
  std::int64_t classes = 0;  ///< model.classes: the labels of synthetic data; 0: as the kind has it
  /// Gets names, labels and layout of the source's files, from which other processes open the same data set.
  BytePacker* packer = nullptr;
  /// Has them: no file is looked at before a sample is read.
  ByteUnpacker* packed = nullptr;
};

/// Throws an OptionError when the options do not suit what the source holds.
[[nodiscard]] std::unique_ptr<Dataset> open_dataset(const DatasetRequest& request);

/// Whether the source's files can be copied to another folder; then:
[[nodiscard]] bool can_stage(std::string_view kind);
/// The files that a source is read from.
[[nodiscard]] std::vector<std::string> dataset_files(std::string_view kind, const std::string& source, bool training);
/// What the source is called when its files lie in `folder`.
[[nodiscard]] std::string moved_source(std::string_view kind, const std::string& source, const std::string& first_file,
                                       const std::string& folder);

}  // namespace convoy
