// SPDX-License-Identifier: Apache-2.0
//
// A head that is divided over the replicas (parallel.shard_head) on its way to and from files: rank 0 exchanges the
// rows of one replica and one tensor at a time, and never holds the whole. Functions with a Run are collective.
#pragma once

#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "io/checkpoint/checkpoint.h"

namespace convoy {

/// The names of its parameters, which are not read with the others; none without such a head.
[[nodiscard]] UnreadTensors sharded_names(const Run& run);

/// A group of a checkpoint, and the flat buffer that has the same tensors: parameters or an optimizer slot.
struct HeadPart {
  std::string group;
  Tensor flat;
};

/// Appends the rows of all replicas to `spool`, of rank 0; null on others.
void gather_head(Run& run, const std::vector<HeadPart>& parts, TensorSpool* spool);
/// The other way, from the file that rank 0 has opened (null on others); then the compute-type copies of all weights.
void scatter_head(Run& run, const std::vector<HeadPart>& parts, const TensorRows* file);
/// On rank 0: the name of the first tensor of the head in /model with a value that is infinite or NaN; empty: none.
[[nodiscard]] std::string first_nonfinite_of_head(const Run& run, const TensorRows& file);

}  // namespace convoy
