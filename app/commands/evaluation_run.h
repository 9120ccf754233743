// SPDX-License-Identifier: Apache-2.0
//
// What eval and predict have in common: a run that is built for evaluation, with the weights of a checkpoint.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/build/build_run.h"

namespace convoy {

struct EvaluationRun {
  std::unique_ptr<Run> run;
  std::string file;                ///< the checkpoint
  std::vector<std::string> files;  ///< that it reads, but for data
};

/// command: "eval", for errors. config: a config file, an example or a run's folder. checkpoint: as find_checkpoint()
/// takes it; empty: the newest of that run's folder. The training data is read as validation data is. change: called
/// before the run is built. Collective.
[[nodiscard]] EvaluationRun evaluation_run(World& world, const std::string& command, const std::string& config,
                                           const std::vector<std::string>& overrides, const std::string& checkpoint,
                                           const std::function<void(LoadedConfig& loaded)>& change);

}  // namespace convoy
