// SPDX-License-Identifier: Apache-2.0
//
// Keys that mean nothing with what was chosen: their defaults are accepted with every choice, and those of the file are
// set aside when an override has replaced the choice. The printer says what the defaults are: it prints the keys that
// mean something, with their origins.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/build/read_config.h"
#include "app/config/config_printer.h"
#include "layers/base/error.h"
#include "layers/models/models.h"
#include "layers/optim/lr_schedule.h"
#include "layers/optim/optimizer.h"
#include "parallel/schedule/schedule.h"

using namespace convoy;

namespace {

Config read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "net.toml", overrides, InputFiles::kTrust);
}

std::string refusal(const std::string& text, const std::vector<std::string>& overrides) {
  try {
    (void)read(text, overrides);
    return "";
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
}

/// Sections with their lines.
using Sections = std::map<std::string, std::string>;

const Sections kPlain{{"model", "name = \"mlp\"\nclasses = 3\n"},
                      {"data", "kind = \"synthetic\"\n"},
                      {"train", "steps = 5\nglobal_batch_size = 24\n"}};

std::string toml(const Sections& changes) {
  Sections sections = changes;
  sections.insert(kPlain.begin(), kPlain.end());
  std::string text;
  for (const auto& [name, lines] : sections) text += "[" + name + "]\n" + lines;
  return text;
}

/// A good config for each choice that decides which keys mean something.
std::vector<std::string> all_choices() {
  std::vector<std::string> texts;
  for (const std::string_view kind : dataset_names()) {
    const std::string files = kind == "synthetic" ? "" : "train = \"a\"\n";
    texts.push_back(toml({{"data", fmt::format("kind = \"{}\"\n{}", kind, files)}}));
    if (!files.empty()) {
      texts.push_back(
          toml({{"data", fmt::format("kind = \"{}\"\n{}augment = [\"crop\", \"jitter\"]\n", kind, files)}}));
      texts.push_back(
          toml({{"data", fmt::format("kind = \"{}\"\n{}augment = [\"rand\", \"hue\", \"repeated\"]\n", kind, files)}}));
    }
  }
  texts.push_back(toml({{"data", "kind = \"synthetic\"\nfeatures = 4\n"}}));
  texts.push_back(toml({{"model", "name = \"resnet18\"\nclasses = 3\n"},
                        {"data", "kind = \"synthetic\"\ntrain_sizes = [64, 32]\nsize_milestones = [2]\n"}}));
  for (const std::string_view model : model_names()) {
    if (model == "toy" || model == "sequential") continue;
    texts.push_back(toml({{"model", fmt::format("name = \"{}\"\nclasses = 3\n", model)}}));
  }
  texts.push_back(toml({{"model", "name = \"toy\"\n"}, {"data", "kind = \"synthetic\"\nfeatures = 10\n"}}));
  texts.push_back(toml({{"model", "name = \"mlp\"\nclasses = 3\nweights = \"w.h5\"\n"}}));
  texts.push_back(toml({{"train", "steps = 5\nglobal_batch_size = 24\nloss = \"mse\"\n"}}));
  for (const std::string_view kind : {"auto", "cpu"}) {
    texts.push_back(toml({{"device", fmt::format("kind = \"{}\"\n", kind)}}));
  }
  for (const std::string_view name : kChoiceNames<OptimizerChoice>) {
    texts.push_back(toml({{"optimizer", fmt::format("name = \"{}\"\n", name)}}));
  }
  for (const std::string_view name : kChoiceNames<LrCurve>) {
    const std::string more = name == "step" ? "milestones = [2]\n" : "";
    texts.push_back(toml({{"lr_schedule", fmt::format("name = \"{}\"\n{}", name, more)}}));
  }
  for (const ParallelMode mode :
       {ParallelMode::kData, ParallelMode::kModel, ParallelMode::kPipeline, ParallelMode::kScatter}) {
    texts.push_back(toml({{"parallel", fmt::format("mode = \"{}\"\n", to_string(mode))}}));
  }
  for (const std::string_view name : pipeline_schedule_names()) {
    texts.push_back(toml({{"parallel", fmt::format("mode = \"pipeline\"\nschedule = \"{}\"\n", name)}}));
  }
  return texts;
}

/// "section.key" and the value of each line of a config with origins; of those that are defaults, or of the others.
std::map<std::string, std::string> keys_of(const Config& config, bool defaults) {
  std::map<std::string, std::string> keys;
  std::istringstream lines(resolved_toml(config, true));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.size() - 2);
    const std::size_t equals = line.find(" = "), origin = line.rfind("  # ");
    if (equals == std::string::npos || (line.substr(origin) == "  # default") != defaults) continue;
    const std::string value = line.substr(equals + 3, origin - equals - 3);
    keys[section + "." + line.substr(0, equals)] = value.substr(0, value.find_last_not_of(' ') + 1);
  }
  return keys;
}

}  // namespace

TEST_CASE("the default of every key is accepted with every choice, and changes nothing") {
  std::set<std::pair<std::string, std::string>> defaults;
  for (const std::string& text : all_choices()) {
    for (const auto& pair : keys_of(read(text), true)) defaults.insert(pair);
  }
  const auto count = [&](const std::string& key) {
    return std::count_if(defaults.begin(), defaults.end(), [&](const auto& pair) { return pair.first == key; });
  };
  CHECK(count("parallel.microbatches") == 1);
  CHECK(count("data.image_size") == 2);    // 224, or 0: as in the file
  CHECK(count("optimizer.epsilon") == 3);  // of adamw, lamb and lars
  for (const char* key : {"data.augment", "data.crop_ratio", "lr_schedule.power", "model.reset_head", "model.stem",
                          "parallel.chunks", "parallel.partition", "device.graphs", "train.label_smoothing"}) {
    CAPTURE(key);
    CHECK(count(key) == 1);
  }
  int meaningless = 0;
  for (const std::string& text : all_choices()) {
    CAPTURE(text);
    const Config config = read(text);
    const auto given = keys_of(config, false), own = keys_of(config, true);
    for (const auto& [key, value] : defaults) {
      if (given.contains(key) || (own.contains(key) && own.at(key) != value)) continue;
      meaningless += own.contains(key) ? 0 : 1;
      const std::string override = key + "=" + value;
      CAPTURE(override);
      CHECK(refusal(text, {override}).empty());
      const Config same = read(text, {override});
      CHECK(same == config);
      CHECK(same.note.empty());
      CHECK(resolved_toml(same, false) == resolved_toml(config, false));
      // The same in the file, as one more line of its section.
      const std::size_t dot = key.find('.');
      const std::string head = "[" + key.substr(0, dot) + "]\n", line = key.substr(dot + 1) + " = " + value + "\n";
      std::string longer = text;
      const std::size_t at = longer.find(head);
      if (at == std::string::npos) {
        longer += head + line;
      } else {
        longer.insert(at + head.size(), line);
      }
      CHECK(read(longer) == config);
    }
  }
  CHECK(meaningless > 400);
}

TEST_CASE("the default of a layer's key is accepted with every type of layer") {
  const std::string text = toml({{"model",
                                  "name = \"sequential\"\n[[model.layers]]\ntype = \"flatten\"\n"
                                  "bias = true\nstride = 1\npadding = 0\ngroups = 1\nprobability = 0.5\n"
                                  "epsilon = 1e-5\n[[model.layers]]\ntype = \"linear\"\nout_features = 3\n"},
                                 {"data", "kind = \"hdf5\"\ntrain = \"a.h5\"\n"}});
  CHECK(refusal(text, {}).empty());
  CHECK(read(text).model.layers[0].layer == LayerChoice(FlattenOptions()));
  CHECK(refusal(toml({{"model", "name = \"mlp\"\nclasses = 3\nlayers = []\n"}}), {}).empty());
}

TEST_CASE("keys of the file that a replaced choice has made meaningless are set aside with a note") {
  struct Replaced {
    std::string text;
    std::vector<std::string> overrides;
    std::vector<std::string> gone;  ///< in the order of the note
  };
  const std::string images =
      toml({{"model", "name = \"resnet18\"\nclasses = 3\n"},
            {"data",
             "kind = \"image_folder\"\ntrain = \"no/such/folder\"\nvalidation = \"gone\"\nstage_dir = \"\"\n"
             "image_size = 64\naugment = [\"crop\", \"flip\"]\ncrop_area = [0.25, 1.0]\nresize = 80\n"
             "max_broken = 0.5\nmean = [0.5]\n"}});
  const std::string pipeline = toml({{"parallel",
                                      "mode = \"pipeline\"\nstages = 2\nmicrobatches = 4\n"
                                      "schedule = \"interleaved\"\nchunks = 4\nstage_memory_gb = 3\n"
                                      "partition = [\"fc1\", \"fc2\", \"a\", \"b\", \"c\", \"d\", \"e\", "
                                      "\"f\"]\nbucket_mb = 5\n"}});
  const std::string layers = toml({{"model",
                                    "name = \"sequential\"\nclasses = 3\n[[model.layers]]\n"
                                    "type = \"flatten\"\n[[model.layers]]\ntype = \"linear\"\n"
                                    "out_features = 3\n"}});
  const std::string sgd =
      toml({{"optimizer", "momentum = 0.8\nnesterov = true\nweight_decay = 0.1\n"},
            {"lr_schedule", "name = \"step\"\nmilestones = [2]\ngamma = 0.5\nwarmup_epochs = 1\n"}});
  const std::vector<std::string> data_only{"parallel.stages", "parallel.schedule", "parallel.chunks",
                                           "parallel.partition", "parallel.stage_memory_gb"};
  const std::vector<Replaced> cases{
      {images,
       {"data.kind=synthetic"},
       {"data.train", "data.validation", "data.augment", "data.crop_area", "data.resize", "data.max_broken"}},
      {images, {"data.kind=idx", "data.train=b"}, {"data.crop_area", "data.resize", "data.max_broken"}},
      {images,
       {"data.kind=synthetic", "data.augment=[]"},
       {"data.train", "data.validation", "data.crop_area", "data.resize", "data.max_broken"}},
      {pipeline, {"parallel.mode=data"}, data_only},
      {pipeline,
       {"parallel.mode=model", "parallel.partition=auto"},
       {"parallel.microbatches", "parallel.schedule", "parallel.chunks"}},
      {layers, {"model.name=mlp"}, {"model.layers"}},
      {toml({{"model", "name = \"mlp\"\nclasses = 3\nhidden = [8]\n"}}), {"model.name=resnet18"}, {"model.hidden"}},
      {sgd, {"optimizer.name=adamw"}, {"optimizer.momentum", "optimizer.nesterov"}},
      {sgd, {"lr_schedule.name=cosine"}, {"lr_schedule.milestones", "lr_schedule.gamma"}},
      {toml({{"data", "kind = \"synthetic\"\nsamples = 96\nfeatures = 4\n"}}),
       {"data.kind=hdf5", "data.train=a.h5"},
       {"data.samples", "data.features"}},
  };
  for (const Replaced& one : cases) {
    CAPTURE(one.text);
    CAPTURE(one.overrides.front());
    REQUIRE(refusal(one.text, one.overrides) == "");
    const Config config = read(one.text, one.overrides);
    CHECK(config.note == fmt::format("net.toml: set aside, since they mean nothing with --set {}: {}",
                                     one.overrides.front(), fmt::join(one.gone, ", ")));
    // What is left is the file without these keys.
    std::vector<std::string> without = one.overrides;
    for (const std::string& key : one.gone) {
      if (key != "model.layers") without.push_back("-" + key);
      CHECK_FALSE(keys_of(config, false).contains(key));
    }
    const Config other = read(one.text, without);
    CHECK(other == config);
    CHECK(resolved_toml(other, false) == resolved_toml(config, false));
    CHECK(read(resolved_toml(config, false)) == config);
  }
  const Config both = read(sgd, {"lr_schedule.name=cosine", "optimizer.name=adamw"});
  CHECK(both.note ==
        "net.toml: set aside, since they mean nothing with --set optimizer.name=adamw lr_schedule.name=cosine: "
        "optimizer.momentum, "
        "optimizer.nesterov, lr_schedule.milestones, lr_schedule.gamma");
}

TEST_CASE("other keys that mean nothing are refused") {
  const std::string text = toml({{"optimizer", "momentum = 0.8\n"},
                                 {"parallel", "mode = \"pipeline\"\nchunks = 4\nschedule = \"interleaved\"\n"}});
  // Given by an override itself.
  CHECK(refusal(text, {"optimizer.name=adamw", "optimizer.momentum=0.7"}) ==
        "--set: optimizer.momentum: is ignored with optimizer.name = \"adamw\" (it belongs to sgd, lars)");
  // The same choice as the file's, or none of the five.
  CHECK(refusal(text, {"parallel.schedule=1f1b"}) ==
        "net.toml:10:10: parallel.chunks: is ignored with parallel.schedule = \"1f1b\" (it belongs to interleaved)");
  const std::string wrong = toml({{"optimizer", "name = \"adamw\"\nmomentum = 0.8\n"}});
  CHECK(refusal(wrong, {"optimizer.name=adamw"}) ==
        "net.toml:8:12: optimizer.momentum: is ignored with optimizer.name = \"adamw\" (it belongs to sgd, lars)");
  // Wrong before and after: not what the override made of it.
  const std::string never = toml({{"optimizer", "name = \"adamw\"\ntrust = 0.5\n"}});
  CHECK(refusal(never, {"optimizer.name=sgd"}) ==
        "net.toml:8:9: optimizer.trust: is ignored with optimizer.name = \"sgd\" (it belongs to lars)");
  // A typing error stays one, also below a choice that is replaced.
  CHECK(refusal(toml({{"model", "name = \"sequential\"\n[[model.layers]]\ntype = \"linear\"\nout_feature = 3\n"}}),
                {"model.name=mlp", "model.classes=3"})
            .find("model.layers[0].out_feature: unknown key") != std::string::npos);
  // Not a default: the default of another key, a value of another type.
  for (const char* value : {"0.9", "[0.9, 0.99]", "true", "\"0.9\"", "[]"}) {
    CHECK(
        refusal(toml({}), {std::string("optimizer.betas=") + value}).starts_with("--set: optimizer.betas: is ignored"));
  }
}
