// SPDX-License-Identifier: Apache-2.0
//
// RUNFOLDER/run.json: the identity of a run, from its first start on, and what later starts need to know of the earlier
// ones. Only the holder of the run's lock writes it, atomically. Every checkpoint carries the identity too.
#pragma once

#include <string>

namespace convoy {

struct RunRecord {
  std::string id;            ///< a UUID; empty: the run has not started yet, or only with an earlier version
  std::string created;       ///< time of its first start, ISO 8601
  std::string resumed_file;  ///< absolute path of the last file that checkpoint.resume named and that was applied
  std::string checkpoints;   ///< absolute path of the folder of its checkpoints, once it has one; else empty

  bool operator==(const RunRecord&) const = default;
};

/// The record in the run folder `folder`; an empty one if there is none. Throws an Error if it cannot be read (exit
/// code 1) or is not one (2).
[[nodiscard]] RunRecord read_run_record(const std::string& folder);

/// Returns once it is on disk.
void write_run_record(const std::string& folder, const RunRecord& record);

/// Whether a run has started in this folder.
[[nodiscard]] bool has_run_record(const std::string& folder);

/// A random UUID (version 4, RFC 9562): "0b2f9c1e-5d4a-4c3b-9f8e-7a6b5c4d3e2f".
[[nodiscard]] std::string new_run_id();

/// `path` without links and dots, as far as it exists: equal for two names of one file or folder.
[[nodiscard]] std::string canonical_path(const std::string& path);

/// Whether `path` is the folder `folder` or lies in it. Both are canonical.
[[nodiscard]] bool lies_in(const std::string& path, const std::string& folder);

}  // namespace convoy
