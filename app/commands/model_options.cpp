// SPDX-License-Identifier: Apache-2.0
#include "app/commands/model_options.h"

#include <cstdint>

namespace convoy {

void add_config(CLI::App* command, std::string& config, std::vector<std::string>& overrides) {
  command->add_option("CONFIG", config, "the run: a TOML file, or the name of an example")->required();
  command
      ->add_option(
          "--set", overrides,
          "SECTION.KEY=VALUE: a value that wins over the file's; -SECTION.KEY leaves a key out; may be repeated")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

CLI::App* add_eval_command(CLI::App& app, EvalArguments& eval) {
  CLI::App* command =
      app.add_subcommand("eval", "loss and accuracy (or MAE and R2) of a checkpoint on the validation data");
  add_config(command, eval.config, eval.overrides);
  command
      ->add_option("--checkpoint", eval.checkpoint,
                   "an HDF5 file with the weights, newest, best, or the folder of a run; default, where CONFIG is "
                   "such a folder: its newest")
      ->type_name("FILE");
  command->add_option("--confusion", eval.confusion, "write the confusion matrix to this CSV file")
      ->type_name("FILE.csv");
  command->add_option("--json", eval.json, "write the results to this file too, with those of each class")
      ->type_name("FILE");
  return command;
}

CLI::App* add_predict_command(CLI::App& app, PredictArguments& predict) {
  CLI::App* command =
      app.add_subcommand("predict", "classes and probabilities (or outputs) of images by a trained model");
  add_config(command, predict.config, predict.overrides);
  command
      ->add_option("INPUT", predict.inputs,
                   "JPEGs and PNGs, folders with them or below them, HDF5 data files (FILE, FILE:/GROUP, \"OUT-*.h5\")")
      ->required();
  command->add_option("--checkpoint", predict.checkpoint, "as that of eval")->type_name("FILE");
  command->add_option("--top", predict.top, "classes to show of each input")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000000000}))
      ->type_name("K")
      ->capture_default_str();
  command->add_option("--json", predict.json, "write them to this file too")->type_name("FILE");
  command->add_option("--out", predict.out, "write all outputs of the model to this HDF5 file")->type_name("FILE.h5");
  return command;
}

CLI::App* add_watch_command(CLI::App& app, WatchArguments& watch) {
  CLI::App* command = app.add_subcommand("watch", "show the curve and the state of a run that goes on elsewhere");
  command->add_option("RUN", watch.run, "the folder of a run (runs/NAME), or its metrics.jsonl")->required();
  command->add_flag("--once", watch.once, "print it once and end, as where the output is no terminal");
  return command;
}

}  // namespace convoy
