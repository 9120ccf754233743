// SPDX-License-Identifier: Apache-2.0
//
// Checks of single files for `convoy verify`: each reads a file back from the disk, and says in a line what it is and
// whether it is what was written. Relies on the readers that a training uses. Invariant: no check throws for what is
// wrong with a file, and none changes anything.
#pragma once

#include <string>
#include <vector>

namespace convoy {

enum class FileState {
  kValid,     ///< every checksum holds, or the format tells by itself
  kReadable,  ///< can be read as a whole, but carries no checksum over it
  kDamaged,   ///< or cannot be read
};

struct FileCheck {
  std::string path;
  FileState state = FileState::kDamaged;
  std::string text;  ///< what it is, or what is wrong with it
};

/// "valid", "readable", "damaged".
[[nodiscard]] const char* state_word(FileState state);

/// A checkpoint: checksums, completeness, the step of its name, weights that are finite. Or another HDF5 file: the
/// checksum trailer, the checksums of the samples, or else every element is read.
[[nodiscard]] FileCheck check_hdf5(const std::string& path);

/// metrics.jsonl: whole lines of JSON with an event each; steps rise.
[[nodiscard]] FileCheck check_metrics(const std::string& path);

/// An event file of TensorBoard: the checksums of each record.
[[nodiscard]] FileCheck check_events(const std::string& path);

/// launch/state.json, trace.json, and logs for people.
[[nodiscard]] FileCheck check_job_state(const std::string& path);
[[nodiscard]] FileCheck check_json(const std::string& path);
[[nodiscard]] FileCheck check_text(const std::string& path);

/// Data of another kind than HDF5, as data.kind and data.train or data.validation have it. Decodes every image.
[[nodiscard]] FileCheck check_data(const std::string& kind, const std::string& source, bool training);

/// A file of whatever kind, by its name and content; shards by their pattern; a run, or a folder of checkpoints or
/// data. Throws a usage Error when there is nothing that can be checked.
[[nodiscard]] std::vector<FileCheck> check_path(const std::string& path);

}  // namespace convoy
