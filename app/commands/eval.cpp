// SPDX-License-Identifier: Apache-2.0
//
// convoy eval: validation loss, top-1 and top-5 of a checkpoint, or of any HDF5 file with a /model group.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/base/error_report.h"
#include "app/base/version.h"
#include "app/build/build_model.h"
#include "app/build/run_state.h"
#include "app/commands/commands.h"
#include "app/commands/evaluation_run.h"
#include "app/commands/write_result.h"
#include "app/train/confusion.h"
#include "app/train/evaluate.h"
#include "app/train/progress.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;

std::string line(std::string_view label, std::string_view value) { return fmt::format("{:<5}  {}\n", label, value); }

std::string loss_line(double loss) { return line("loss", std::isnan(loss) ? "nan" : fmt::format("{:.9g}", loss)); }

constexpr std::size_t kListedClasses = 20, kWorstClasses = 10;

// A line for each class, or for those with the lowest accuracy.
void print_classes(const Confusion& confusion) {
  std::vector<std::size_t> listed = confusion.by_accuracy();
  if (listed.empty()) return;
  if (confusion.classes.size() > kListedClasses) {
    listed.resize(std::min(listed.size(), kWorstClasses));
    std::cout << fmt::format("\nthe lowest accuracies of {}:\n", counted(confusion.classes.size(), "class"));
  } else {
    std::sort(listed.begin(), listed.end());
    std::cout << "\n";
  }
  std::size_t width = 5;
  for (const std::size_t k : listed) width = std::max(width, name_text(confusion.classes[k]).size());
  std::cout << fmt::format("{:<{}}  {:>8}  {:>10}  {}\n", "class", width, "samples", "correct", "most often taken for");
  for (const std::size_t k : listed) {
    const std::size_t other = confusion.most_taken_for(k);
    std::string taken;
    if (other != k) {
      taken = fmt::format("  {} ({:.2f} %)", name_text(confusion.classes[other]),
                          100 * confusion.at(k, other) / confusion.samples(k));
    }
    std::cout << fmt::format("{:<{}}  {:>8.0f}  {:>8.2f} %{}\n", name_text(confusion.classes[k]), width,
                             confusion.samples(k), 100 * confusion.accuracy(k), taken);
  }
}

std::string eval_json(const std::string& file, const EvalResult& result, const std::optional<EvalResult>& average,
                      const Confusion& confusion) {
  Json json{
      {"program_version", program_version()}, {"checkpoint", file}, {"samples", result.samples}, {"loss", result.loss}};
  for (const auto& [name, value] : result.scores) json[std::string(name)] = value;
  if (average) json["ema_loss"] = average->loss;
  if (average && has_top1(*average)) json["ema_top1"] = average->score("top1");
  if (!confusion.empty()) {
    Json classes = Json::array(), rows = Json::array();
    for (std::size_t k = 0; k < confusion.classes.size(); ++k) {
      classes.push_back({{"class", confusion.classes[k]},
                         {"samples", std::llround(confusion.samples(k))},
                         {"accuracy", confusion.accuracy(k)}});
      Json row = Json::array();
      for (std::size_t j = 0; j < confusion.classes.size(); ++j) row.push_back(std::llround(confusion.at(k, j)));
      rows.push_back(std::move(row));
    }
    json["classes"] = std::move(classes);
    json["confusion"] = std::move(rows);
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Throws a usage Error if a confusion matrix is wanted and there cannot be one.
void check_confusion(const EvalArguments& arguments, const Run& run, const Dataset& data) {
  if (arguments.confusion.empty() || confusion_classes(run, data) > 0) return;
  if (data.target_size() > 0) fail_usage("--confusion: the data have float targets, not class labels (leave it out)");
  if (run.head) {
    fail_usage(
        "--confusion: parallel.shard_head divides the outputs of a sample (add --set parallel.shard_head=false)");
  }
  fail_usage("--confusion: the model has {} classes; a matrix is made of at most {} (leave it out)",
             output_size(run.config, *run.train), kMostConfusionClasses);
}

}  // namespace

int eval_command(World& world, const EvalArguments& arguments) {
  const EvaluationRun of = evaluation_run(world, "eval", arguments.config, arguments.overrides, arguments.checkpoint,
                                          [](LoadedConfig& /*loaded*/) {});
  const std::unique_ptr<Run>& run = of.run;
  const std::string& file = of.file;
  const bool held_out = run->validation != nullptr;
  const Dataset& data = held_out ? *run->validation : *run->train;
  const auto check = [&] {
    check_confusion(arguments, *run, data);
    if (!run->is_root()) return;
    check_result_path("--confusion", arguments.confusion);
    check_result_path("--json", arguments.json);
    check_results({{"--confusion", arguments.confusion}, {"--json", arguments.json}}, of.files);
  };
  agree(*run->communicator, check, "checking the options");
  std::unique_ptr<Progress> progress;
  if (run->is_root()) progress = std::make_unique<Progress>(run->config.log.progress, 0, 1);
  const bool shows = progress && progress->mode() == ProgressMode::kBar;  // lines would be among the results
  const auto after_batch = [&](std::int64_t done, std::int64_t batches) {
    if (shows) progress->evaluating(0, 0, done, batches);
    return true;
  };
  const std::int64_t classes = confusion_classes(*run, data);
  const EvalResult result = *evaluate(*run, data, after_batch, classes);
  std::optional<EvalResult> average;
  if (load_average(*run, file)) average = evaluate(*run, data, after_batch);
  if (shows) progress->clear();
  if (!run->is_root()) return 0;
  if (!run->memory.warning.empty()) print_warning(run->memory.warning);
  for (const std::string& note : run->notes) std::cout << without_controls(note) << "\n";
  for (const std::string& warning : result.warnings) print_warning(warning);
  std::cout << fmt::format("{} on {} of {}\n", name_text(file), counted(result.samples, "sample"),
                           held_out ? "data.validation" : "data.train (no data.validation in the config)")
            << loss_line(result.loss);
  const std::int64_t outputs = output_size(run->config, *run->train);
  for (const auto& [label, value] : shown_scores(result, outputs, Digits::kResult)) std::cout << line(label, value);
  if (average) {
    std::cout << "of the average of the weights (train.ema_decay)\n" << loss_line(average->loss);
    if (has_top1(*average)) {
      const ShownScore top1 = shown_scores(*average, outputs, Digits::kResult).front();
      std::cout << line(top1.label, top1.value);
    }
  }
  Confusion confusion;
  if (classes > 0) confusion = {class_names_or_numbers(run->train->class_names(), classes), result.confusion};
  print_classes(confusion);
  std::cout << std::flush;
  if (!arguments.confusion.empty()) {
    const std::string text = confusion_csv(confusion);
    write_result("--confusion", arguments.confusion, std::as_bytes(std::span(text)));
  }
  if (!arguments.json.empty()) {
    const std::string text = eval_json(file, result, average, confusion);
    write_result("--json", arguments.json, std::as_bytes(std::span(text)));
  }
  return 0;
}

}  // namespace convoy
