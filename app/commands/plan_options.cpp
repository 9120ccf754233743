// SPDX-License-Identifier: Apache-2.0
#include "app/commands/plan_options.h"

#include <cstdint>

#include "app/commands/model_options.h"
#include "layers/base/error.h"

namespace convoy {

CLI::App* add_plan_command(CLI::App& app, PlanArguments& plan) {
  CLI::App* command = app.add_subcommand("plan", "predict the best layouts for a number of ranks");
  const CLI::Range many(std::int64_t{1}, std::int64_t{1000000000});
  add_config(command, plan.config, plan.overrides);
  command->add_option("--ranks", plan.ranks, "numbers of ranks to plan for")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N,...");
  command->add_option("--samples-per-rank", plan.samples_per_rank, "a global batch of so many samples for each rank")
      ->check(many)
      ->type_name("N");
  command->add_flag("--calibrate", plan.calibrate, "measure costs on the ranks started now, and keep them");
  command->add_option("--costs", plan.costs, "where measured costs are kept; default: costs.json in the run's folder")
      ->type_name("FILE");
  CLI::Option* machine =
      command
          ->add_option("--machine", plan.machine,
                       "stated figures of another machine, a TOML file or an example, instead of measured costs")
          ->excludes("--calibrate")
          ->type_name("FILE");
  CLI::Option* fit =
      command
          ->add_option("--fit", plan.fit, "fit these figures to measured rows, a CSV file, and show how well they do")
          ->needs(machine)
          ->type_name("FILE");
  command->add_option("--write-machine", plan.write_machine, "write the fitted figures to this file, for --machine")
      ->needs(fit)
      ->type_name("FILE");
  command->add_option("--without", plan.without, "leave these terms out of the cost model")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("TERM,...");
  CLI::Option* epochs =
      command->add_option("--epochs", plan.epochs, "say how long so many epochs take; default: train.epochs")
          ->check(many)
          ->type_name("N");
  command->add_option("--recipe", plan.recipe, "the same with the epochs that a published recipe needs: mlperf")
      ->excludes(epochs)
      ->type_name("NAME");
  command->add_option("--top", plan.top, "layouts to show for each number of ranks")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--trace", plan.trace, "write the simulated step of the config's own layout here")
      ->type_name("FILE");
  command->add_option("--json", plan.json, "write the predictions to this file too")->type_name("FILE");
  return command;
}

PlanArguments finish_plan(PlanArguments plan) {
  if (!plan.ranks.empty()) return plan;
  if (plan.fit.empty()) fail_usage("--ranks is required (see convoy plan --help)");
  if (plan.samples_per_rank > 0 || plan.epochs > 0 || !plan.recipe.empty() || !plan.trace.empty()) {
    fail_usage("--samples-per-rank, --epochs, --recipe and --trace are about layouts (give --ranks too)");
  }
  return plan;
}

}  // namespace convoy
