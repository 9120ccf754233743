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

namespace convoy {

/// source: data.train or data.validation, named by `key` in errors.
std::unique_ptr<Dataset> build_dataset(const Config& config, const std::string& source, const std::string& key);

/// data.validation with the class labels of the training data, matched by name where both have names.
MatchedClasses build_validation(const Config& config, const std::string& source, const Dataset& train);

/// What training samples come when.
[[nodiscard]] Sampler training_order(const Config& config, const Dataset& train);

/// Shapes, labels and targets of both sets against each other and against the config. validation may be null.
void check_data(const Config& config, const Dataset& train, const Dataset* validation);

/// Every part of every step has samples. parts: replicas times microbatches.
void check_plan(const Config& config, const BatchPlan& plan, std::int64_t parts);

}  // namespace convoy
