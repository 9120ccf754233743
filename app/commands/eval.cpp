// SPDX-License-Identifier: Apache-2.0
//
// convoy eval: validation loss, top-1 and top-5 of a checkpoint, or of any HDF5 file with a /model group.
#include <iostream>
#include <utility>

#include "app/build/run_state.h"
#include "app/commands/commands.h"
#include "app/train/broken_report.h"
#include "app/train/evaluate.h"
#include "layers/base/error.h"

namespace convoy {

int eval_command(World& world, const EvalArguments& arguments) {
  LoadedConfig loaded = load_config(world.ranks(), arguments.config, arguments.overrides);
  DataOptions& read = loaded.config.data;  // as validation is, should it evaluate on the training data
  read.augment.clear();
  read.train_sizes.clear();
  read.size_milestones.clear();
  const auto run = build_run(world, world.ranks(), std::move(loaded));
  load_model(*run, arguments.checkpoint);
  const bool held_out = run->validation != nullptr;
  const Dataset& data = held_out ? *run->validation : *run->train;
  const EvalResult result = evaluate(*run, data);
  if (!run->is_root()) return 0;
  for (const std::string& warning : result.warnings) print_warning(warning);
  std::cout << fmt::format("{} on {} samples of {}\n", arguments.checkpoint, result.samples,
                           held_out ? "data.validation" : "data.train (no data.validation in the config)")
            << fmt::format("loss   {:.9g}\n", result.loss);
  if (data.target_size() == 0) {
    std::cout << fmt::format("top-1  {:.4f} %\ntop-5  {:.4f} %\n", 100 * result.top1, 100 * result.top5);
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace convoy
