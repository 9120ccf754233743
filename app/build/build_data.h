// SPDX-License-Identifier: Apache-2.0
//
// From the [data] section to data sets, and what must hold between data, model and batch before training starts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/config/config.h"
#include "io/data/dataset.h"
#include "io/data/matched_classes.h"
#include "io/data/sampler.h"
#include "parallel/comm/communicator.h"

namespace convoy {

/// source: data.train or data.validation, named by `key` in errors.
std::unique_ptr<Dataset> build_dataset(const Config& config, const std::string& source, const std::string& key);

/// Shapes, labels and targets of both sets against each other and against the config. validation may be null.
void check_data(const Config& config, const Dataset& train, const Dataset* validation);

struct DataSets {
  std::unique_ptr<Dataset> train;
  MatchedClasses validation;  ///< with the class labels of the training data, by name where both have names; or null
};

/// The data sets of the config, read from `train` and `validation` ("": none), checked against each other and against
/// the config. Rank 0 lists folders and reads the metadata of files; the others get names, labels and layout from it
/// and open a file when they read a sample. leads: whether this rank is the first of its node, which sees whether the
/// sources are there. Collective.
DataSets build_data(const Config& config, const std::string& train, const std::string& validation, Communicator& all,
                    bool leads);

/// Every part of every step has samples. parts: replicas times microbatches.
void check_plan(const Config& config, const BatchPlan& plan, std::int64_t parts);

}  // namespace convoy
