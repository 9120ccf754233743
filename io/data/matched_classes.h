// SPDX-License-Identifier: Apache-2.0
//
// Labels of one data set in terms of the class names of another: a folder or file may have fewer classes, or the same
// in another order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/data/dataset.h"

namespace convoy {

/// A data set whose labels mean the classes of the training data, and what to tell the user about it.
struct MatchedClasses {
  std::unique_ptr<Dataset> data;
  std::string note;  ///< which classes have no samples; empty when all do
};

/// The index in `names`, the classes of the training data, of each name in `own`. Throws a usage Error that shows both
/// lists if one is not there; `source` names the data.
[[nodiscard]] std::vector<std::int64_t> class_indices(const std::vector<std::string>& own, const std::string& source,
                                                      const std::vector<std::string>& names);

/// `data` with its labels matched to `names`, those of the training data, by name. Unchanged if either has no names.
/// Throws a usage Error that shows both lists when `data` has a class that is not among `names`.
[[nodiscard]] MatchedClasses match_classes(std::unique_ptr<Dataset> data, const std::string& source,
                                           const std::vector<std::string>& names);

}  // namespace convoy
