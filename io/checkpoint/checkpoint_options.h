// SPDX-License-Identifier: Apache-2.0
//
// When checkpoints are written, where, and which one a run resumes from: the options of [checkpoint].
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "layers/base/options.h"

namespace convoy {

/// What checkpoint.resume may be instead of a file.
inline constexpr auto kResumeNames = std::to_array<std::string_view>({"auto", "never"});

/// What checkpoint.keep_best may be.
inline constexpr auto kBestNames = std::to_array<std::string_view>({"", "top1", "loss"});

/// [checkpoint]
struct CheckpointOptions {
  std::string dir;                ///< empty: `checkpoints` in the run's folder
  std::int64_t every_epochs = 1;  ///< 0: not by epochs
  std::int64_t every_steps = 0;   ///< 0: not by steps
  std::int64_t keep = 3;
  std::string keep_best;        ///< by which score of an evaluation the best one is kept, too; empty: it is not
  std::string resume = "auto";  ///< auto, never or a file
  bool async = true;
  std::string copy_to;  ///< a second copy goes to a folder of the run in this folder; empty: none

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("dir", o.dir, anything(), "\"\": checkpoints in the run's folder");
    v.key("every_epochs", o.every_epochs, between(0, kMaxCount), "0: not by epochs");
    v.key("every_steps", o.every_steps, between(0, kMaxCount), "0: not by steps");
    v.key("keep", o.keep, between(1, 1e6), "how many; older ones are deleted");
    v.key("keep_best", o.keep_best, one_of(kBestNames), "keep the best by this score of evaluations as well; \"\": no");
    v.key("resume", o.resume, input_file(kResumeNames).or_gone(),
          "where a run starts from: auto (its newest valid checkpoint), never or a file; a run that exists already "
          "restarts from a newly named file, once");
    v.key("async", o.async, anything(), "write in the background");
    v.key("copy_to", o.copy_to, anything(), "folder of second copies, in a folder for each run; \"\": none");
  }
  bool operator==(const CheckpointOptions&) const = default;
};

}  // namespace convoy
