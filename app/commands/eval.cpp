// SPDX-License-Identifier: Apache-2.0
//
// convoy eval: validation loss, top-1 and top-5 of a checkpoint, or of any HDF5 file with a /model group.
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "app/base/error_report.h"
#include "app/build/build_model.h"
#include "app/commands/commands.h"
#include "app/commands/evaluation_run.h"
#include "app/train/evaluate.h"
#include "app/train/progress.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"

namespace convoy {

namespace {

std::string number_line(const char* name, double value) {
  return std::isnan(value) ? fmt::format("{:<6} nan\n", name) : fmt::format("{:<6} {:.9g}\n", name, value);
}

}  // namespace

int eval_command(World& world, const EvalArguments& arguments) {
  const EvaluationRun of = evaluation_run(world, "eval", arguments.config, arguments.overrides, arguments.checkpoint,
                                          [](LoadedConfig& /*loaded*/) {});
  const auto& [run, file] = of;
  const bool held_out = run->validation != nullptr;
  const Dataset& data = held_out ? *run->validation : *run->train;
  std::unique_ptr<Progress> progress;
  if (run->is_root()) progress = std::make_unique<Progress>(run->config.log.progress, 0, 1);
  const bool shows = progress && progress->mode() == ProgressMode::kBar;  // lines would be among the results
  const auto after_batch = [&](std::int64_t done, std::int64_t batches) {
    if (shows) progress->evaluating(0, 0, done, batches);
    return true;
  };
  const EvalResult result = *evaluate(*run, data, after_batch);
  if (shows) progress->clear();
  if (!run->is_root()) return 0;
  if (!run->memory.warning.empty()) print_warning(run->memory.warning);
  for (const std::string& note : run->notes) std::cout << without_controls(note) << "\n";
  for (const std::string& warning : result.warnings) print_warning(warning);
  std::cout << fmt::format("{} on {} of {}\n", name_text(file), counted(result.samples, "sample"),
                           held_out ? "data.validation" : "data.train (no data.validation in the config)")
            << number_line("loss", result.loss);
  if (data.target_size() > 0) {
    std::cout << number_line("MAE", result.mae) << number_line("R2", result.r2);
  } else {
    std::cout << fmt::format("top-1  {:.4f} %\n", 100 * result.top1);
    if (output_size(run->config, *run->train) > 5) std::cout << fmt::format("top-5  {:.4f} %\n", 100 * result.top5);
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace convoy
