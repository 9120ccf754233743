// SPDX-License-Identifier: Apache-2.0
//
// convoy predict: what a model says of images, folders of images and HDF5 files.
#include "app/predict/predict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/base/error_report.h"
#include "app/base/version.h"
#include "app/build/build_model.h"
#include "app/commands/commands.h"
#include "app/commands/evaluation_run.h"
#include "app/commands/write_result.h"
#include "app/predict/prediction_inputs.h"
#include "app/train/confusion.h"
#include "app/train/progress.h"
#include "io/files/packed_bytes.h"
#include "io/hdf5/hdf5.h"
#include "io/hdf5/hdf5_source.h"
#include "io/hdf5/validation.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;

/// What rank 0 knows at the end.
struct Predictions {
  std::string checkpoint;
  std::vector<std::string> names;    ///< of the inputs
  std::vector<std::string> classes;  ///< names; numbers where the data names none
  bool regression = false;           ///< `rows` alone
  ScoreKind kind = ScoreKind::kProbability;
  std::int64_t outputs = 0;                   ///< K
  std::vector<std::vector<ScoredClass>> top;  ///< of each input
  std::vector<float> rows;                    ///< [inputs, K]; empty when nobody wants them
};

// The inputs on every rank. Rank 0 looks for them and at the HDF5 files among them, for all.
std::unique_ptr<PredictionInputs> open_inputs(const std::vector<std::string>& given, const Run& run) {
  std::unique_ptr<PredictionInputs> inputs;
  const auto look = [&] {
    const std::vector<std::string> sources = find_prediction_inputs(given);
    BytePacker packer;
    packer.texts(sources);
    inputs = std::make_unique<PredictionInputs>(sources, run.config, *run.train, &packer, nullptr);
    packer.text(hdf5::validated_files());
    return packer.take();
  };
  const std::string layout = on_root(*run.communicator, look, "opening the inputs");
  const auto unpack = [&] {
    if (run.is_root()) return;
    ByteUnpacker packed(layout);
    const std::vector<std::string> sources = packed.texts();
    inputs = std::make_unique<PredictionInputs>(sources, run.config, *run.train, nullptr, &packed);
    hdf5::add_validated_files(packed.text());
  };
  agree(*run.communicator, unpack, "opening the inputs");
  return inputs;
}

std::string score_text(double score, ScoreKind kind) {
  if (std::isnan(score)) return "nan";
  return kind == ScoreKind::kProbability ? fmt::format("{:.2f} %", 100 * score) : fmt::format("{:.6g}", score);
}

void print_table(const Predictions& p) {
  std::vector<std::vector<std::string>> lines;
  for (std::size_t i = 0; i < p.names.size(); ++i) {
    std::vector<std::string> line{name_text(p.names[i])};
    if (p.regression) {
      for (std::int64_t k = 0; k < p.outputs; ++k) {
        const double value = p.rows[i * static_cast<std::size_t>(p.outputs) + static_cast<std::size_t>(k)];
        line.push_back(score_text(value, ScoreKind::kOutput));
      }
    } else {
      for (const ScoredClass& one : p.top[i]) {
        line.push_back(name_text(p.classes[static_cast<std::size_t>(one.index)]));
        line.push_back(score_text(one.score, p.kind));
      }
    }
    lines.push_back(std::move(line));
  }
  std::vector<std::size_t> widths(lines.empty() ? 0 : lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  for (const auto& line : lines) {
    std::string text = fmt::format("{:<{}}", line.front(), widths.front());
    for (std::size_t c = 1; c < line.size(); ++c) {
      const bool number = p.regression || c % 2 == 0;
      text += number ? fmt::format("  {:>{}}", line[c], widths[c]) : fmt::format("  {:<{}}", line[c], widths[c]);
    }
    std::cout << text << "\n";
  }
  std::cout << std::flush;
}

std::string predictions_json(const Predictions& p) {
  Json list = Json::array();
  const auto columns = static_cast<std::size_t>(p.outputs);
  for (std::size_t i = 0; i < p.names.size(); ++i) {
    Json one{{"input", p.names[i]}};
    if (p.regression) {
      one["outputs"] = std::vector<float>(p.rows.begin() + static_cast<std::ptrdiff_t>(i * columns),
                                          p.rows.begin() + static_cast<std::ptrdiff_t>((i + 1) * columns));
    } else {
      const char* what = p.kind == ScoreKind::kProbability ? "probability" : "output";
      Json top = Json::array();
      for (const ScoredClass& c : p.top[i]) {
        top.push_back({{"class", p.classes[static_cast<std::size_t>(c.index)]}, {"index", c.index}, {what, c.score}});
      }
      one["top"] = std::move(top);
    }
    list.push_back(std::move(one));
  }
  const Json all{
      {"program_version", program_version()}, {"checkpoint", p.checkpoint}, {"predictions", std::move(list)}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_hdf5(const std::string& path, const Predictions& p) {
  const auto samples = static_cast<std::int64_t>(p.names.size());
  HostTensor outputs("outputs", {samples, p.outputs}, DType::kF32);
  std::memcpy(outputs.bytes.data(), p.rows.data(), outputs.bytes.size());
  hdf5::FileImage image(path, outputs.bytes.size());
  image.write("/outputs", outputs);
  image.write("/names", p.names);
  image.write_attribute("/", "format", std::string("convoy-predictions"));
  image.write_attribute("/", "program_version", program_version());
  image.write_attribute("/", "checkpoint", p.checkpoint);
  if (!p.regression) image.write_attribute("/", "class_names", p.classes);
  write_result("--out", path, image.bytes());
}

void refuse_sharded_outputs(const LoadedConfig& loaded) {
  const auto check = [&] {
    if (!loaded.config.parallel.shard_head || loaded.communicator->size() == 1) return;
    fail_usage(
        "predict: parallel.shard_head divides the outputs of a sample (add --set parallel.shard_head=false, or run one "
        "rank)");
  };
  agree(*loaded.communicator, check, "checking parallel.shard_head");
}

}  // namespace

int predict_command(World& world, const PredictArguments& arguments) {
  const EvaluationRun of = evaluation_run(world, "predict", arguments.config, arguments.overrides, arguments.checkpoint,
                                          [](LoadedConfig& loaded) {
                                            refuse_sharded_outputs(loaded);
                                            loaded.config.data.validation.clear();
                                            loaded.stage_data = false;  // of the training data only the form is needed
                                          });
  Run& run = *of.run;
  const std::unique_ptr<PredictionInputs> inputs = open_inputs(arguments.inputs, run);
  const auto check = [&] {
    if (!run.is_root()) return;
    check_result_path("--json", arguments.json);
    check_result_path("--out", arguments.out);
    std::vector<std::string> read = of.files;
    for (const std::string& input : arguments.inputs) read.push_back(Hdf5Source(input).path);
    check_results({{"--json", arguments.json}, {"--out", arguments.out}}, read);
  };
  agree(*run.communicator, check, "checking the options");

  Predictions p;
  p.checkpoint = of.file;
  p.outputs = output_size(run.config, *run.train);
  p.regression = run.config.train.loss.scores(run.train->target_size() > 0) == Scores::kRegression;
  p.kind = score_kind(run.config.train.loss);
  std::unique_ptr<Progress> progress;
  if (run.is_root()) {
    progress = std::make_unique<Progress>(run.config.log.progress, 0, 1);
    const auto samples = static_cast<std::size_t>(inputs->size());
    if (p.regression || !arguments.out.empty()) p.rows.resize(samples * static_cast<std::size_t>(p.outputs));
    if (!p.regression) p.top.resize(samples);
  }
  const auto take = [&](std::int64_t first, std::span<const float> rows) {
    const auto columns = static_cast<std::size_t>(p.outputs), at = static_cast<std::size_t>(first);
    if (!p.rows.empty()) {
      std::copy(rows.begin(), rows.end(), p.rows.begin() + static_cast<std::ptrdiff_t>(at * columns));
    }
    for (std::size_t i = 0; !p.regression && i < rows.size() / columns; ++i) {
      p.top[at + i] = top_classes(rows.subspan(i * columns, columns), arguments.top, p.kind);
    }
  };
  const bool shows = progress && progress->mode() == ProgressMode::kBar;  // lines would be among the results
  predict(run, *inputs, p.outputs, take, [&](std::int64_t done, std::int64_t batches) {
    if (shows && done < batches) progress->evaluating(0, 0, done, batches);
    return true;
  });
  if (shows) progress->clear();
  if (!run.is_root()) return 0;
  if (!run.memory.warning.empty()) print_warning(run.memory.warning);
  p.classes = class_names_or_numbers(run.train->class_names(), p.outputs);
  for (std::int64_t i = 0; i < inputs->size(); ++i) p.names.push_back(inputs->name(i));
  print_table(p);
  if (!arguments.json.empty()) {
    const std::string text = predictions_json(p);
    write_result("--json", arguments.json, std::as_bytes(std::span(text)));
  }
  if (!arguments.out.empty()) write_hdf5(arguments.out, p);
  return 0;
}

}  // namespace convoy
