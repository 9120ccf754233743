// SPDX-License-Identifier: Apache-2.0
#include "app/planning/training_time.h"

#include <algorithm>
#include <cmath>

#include "layers/base/error.h"

namespace convoy {

namespace {

// Batches and epochs of published MLPerf Training runs of ResNet-50 to 75.9 % top-1; the evaluation is that of its
// rules.
const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all{{"mlperf",
                                        "ResNet-50 on ImageNet to 75.9 %",
                                        1281167,
                                        50000,
                                        4,
                                        {{3200, 35}, {13056, 45}, {20480, 50}, {32256, 56}, {57344, 77}}}};
  return all;
}

// Evaluations: every so many epochs, or once at the end. Those of a recipe end with one.
double evaluations(const TrainingPlan& plan, double epochs) {
  if (plan.eval_every_epochs <= 0) return 1;
  const double count = epochs / static_cast<double>(plan.eval_every_epochs);
  return plan.epochs ? std::floor(count) : std::ceil(count);
}

// Checkpoints: by steps, by epochs, and at the end, unless that is one of these.
double checkpoints(const TrainingPlan& plan, const TrainingTime& time) {
  double count = 0;
  bool ends = false;
  const auto add = [&](double total, std::int64_t every) {
    if (every <= 0) return;
    const double times = total / static_cast<double>(every);
    count += std::floor(times);
    ends = ends || times == std::floor(times);
  };
  add(time.steps, plan.checkpoint_steps);
  add(time.epochs, plan.checkpoint_epochs);
  return ends ? count : count + 1;
}

}  // namespace

const Recipe& find_recipe(const std::string& name) {
  std::string known;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    known += fmt::format("{}{}: {}", known.empty() ? "" : "; ", recipe.name, recipe.about);
  }
  fail_usage("--recipe: no recipe \"{}\" ({})", name, known);
}

double recipe_epochs(const Recipe& recipe, std::int64_t global_batch) {
  const auto batch = static_cast<double>(global_batch);
  const std::vector<Recipe::Point>& points = recipe.points;
  if (batch < points.front().global_batch || batch > points.back().global_batch) {
    fail_usage("--recipe: {} says nothing of a global batch of {} (it covers {} to {}; or give --epochs)", recipe.name,
               global_batch, points.front().global_batch, points.back().global_batch);
  }
  const auto above = std::find_if(points.begin() + 1, points.end(),
                                  [&](const Recipe::Point& point) { return point.global_batch >= batch; });
  const auto below = above - 1;
  const double share = std::log(batch / below->global_batch) / std::log(above->global_batch / below->global_batch);
  return below->epochs + share * (above->epochs - below->epochs);
}

TrainingTime training_time(const Prediction& prediction, const MachineModel& machine, const TrainingPlan& plan) {
  TrainingTime time;
  const auto batch = static_cast<double>(prediction.global_batch);
  time.epochs = plan.epochs ? *plan.epochs : recipe_epochs(*plan.recipe, prediction.global_batch);
  time.steps = std::ceil(time.epochs * plan.samples / batch);
  time.training = time.steps * prediction.seconds;
  if (machine.job.evaluates && plan.evaluation_samples > 0) {
    double forward = 0, all = 0;
    for (const UnitCost& cost : prediction.layout.costs) {
      forward += cost.forward;
      all += cost.seconds();
    }
    const double batches = std::ceil(plan.evaluation_samples / batch);
    const double share = all > 0 ? forward / all : 0;
    time.evaluation = evaluations(plan, time.epochs) * batches * share * prediction.seconds;
  }
  if (machine.job.checkpoints && machine.job.checkpoint_bytes_per_second > 0) {
    time.checkpoints = checkpoints(plan, time) * plan.state_bytes / machine.job.checkpoint_bytes_per_second;
  }
  time.startup = machine.job.startup_seconds;
  const double ranks = prediction.layout.mesh.ranks();
  const int per_node = machine.cluster.ranks_per_node;
  time.ranks = ranks;
  time.watts =
      ranks * machine.job.gpu_watts + (per_node == 0 ? 1 : std::ceil(ranks / per_node)) * machine.job.node_watts;
  return time;
}

}  // namespace convoy
