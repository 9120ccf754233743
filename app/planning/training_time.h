// SPDX-License-Identifier: Apache-2.0
//
// From the seconds of a step to a whole training: minutes, GPU hours and energy for so many epochs, and how many epochs
// large batches need. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/planning/predict.h"

namespace convoy {

/// How many epochs a published training recipe needs at a global batch, and its data.
struct Recipe {
  struct Point {
    double global_batch, epochs;
  };
  std::string_view name, about;  ///< about: model, data and goal
  double samples = 0;            ///< of an epoch
  double evaluation_samples = 0;
  std::int64_t eval_every_epochs = 0;
  std::vector<Point> points;  ///< rising
};

/// Throws a usage Error that lists the recipes for a name that is none.
[[nodiscard]] const Recipe& find_recipe(const std::string& name);

/// Linear in the logarithm of the batch between two points. Throws a usage Error outside of them.
[[nodiscard]] double recipe_epochs(const Recipe& recipe, std::int64_t global_batch);

/// What is trained, and how often it is interrupted.
struct TrainingPlan {
  double samples = 0;                                        ///< of an epoch
  double evaluation_samples = 0;                             ///< 0: no evaluation
  std::optional<double> epochs;                              ///< none: as the recipe says
  const Recipe* recipe = nullptr;                            ///< for `epochs`
  std::int64_t eval_every_epochs = 1;                        ///< 0: only at the end
  std::int64_t checkpoint_epochs = 0, checkpoint_steps = 0;  ///< 0: not by those; there is one at the end
  double state_bytes = 0;                                    ///< of a checkpoint
};

/// Of a layout. The parts in seconds.
struct TrainingTime {
  double epochs = 0, steps = 0;
  double training = 0, evaluation = 0, checkpoints = 0, startup = 0;
  double ranks = 0, watts = 0;  ///< watts of all GPUs and nodes; 0: not stated
  [[nodiscard]] double seconds() const { return training + evaluation + checkpoints + startup; }
  [[nodiscard]] double gpu_hours() const { return ranks * seconds() / 3600; }
  [[nodiscard]] double kilowatt_hours() const { return watts * seconds() / 3.6e6; }
};

/// Nodes that are only partly used count whole. An evaluation goes forward over its samples in batches of the
/// training's size, and takes the share of a step's time that forward has among the units.
[[nodiscard]] TrainingTime training_time(const Prediction& prediction, const MachineModel& machine,
                                         const TrainingPlan& plan);

}  // namespace convoy
