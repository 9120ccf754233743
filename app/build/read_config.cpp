// SPDX-License-Identifier: Apache-2.0
#include "app/build/read_config.h"

#include <algorithm>
#include <utility>

#include "app/base/examples.h"
#include "app/base/input_path.h"
#include "app/build/run_record.h"
#include "layers/base/error.h"
#include "layers/base/option_error.h"
#include "layers/model.h"

namespace convoy {

namespace {

// A run needs the file that it was to resume from for its first start only (resume_choice.h).
void check_resume_file(const Config& config, const std::string& path) {
  const std::string& file = config.checkpoint.resume;
  if (std::find(kResumeNames.begin(), kResumeNames.end(), file) != kResumeNames.end()) return;
  if (has_run_record(run_folder(config))) return;
  const InputPath found = find_input(file, path, InputForm::kFile);
  if (!found.problem.empty()) fail_option("checkpoint.resume", "{}", found.problem);
}

}  // namespace

Config parse_config(std::string_view text, const std::string& path, const std::vector<std::string>& overrides,
                    InputFiles files, DeviceCheck device) {
  ParsedConfig parsed = parse_keys(text, path, overrides, files);
  parsed.config.place = std::move(parsed.place);
  add_places(parsed.config, [&] {
    check_config(parsed.config, device);
    if (files == InputFiles::kLookFor) check_resume_file(parsed.config, path);
  });
  return std::move(parsed.config);
}

namespace {

// "net.toml:31:15: model.layers[1] conv2d: kernel_size 20 is larger than ...", or as it is for units that are no layer
// of a list.
std::string with_place(const Config& config, const LayerError& error) {
  const std::vector<LayerOptions>& layers = config.model.layers;
  const auto layer =
      std::find_if(layers.begin(), layers.end(), [&](const LayerOptions& one) { return one.name == error.unit(); });
  if (layer == layers.end()) return error.what();
  std::string key = fmt::format("model.layers[{}]", layer - layers.begin());
  const std::string subject = fmt::format("{} {}", key, choice_name(layer->layer));
  const std::string option = key + "." + error.text().substr(0, error.text().find(' '));  // if the text begins with one
  if (config.origins.contains(option)) key = option;
  return fmt::format("{}: {}: {}", config.place(key), subject, error.text());
}

}  // namespace

void add_places(const Config& config, const std::function<void()>& body) {
  if (!config.place) return body();
  try {
    body();
  } catch (const OptionError& error) {
    throw Error(fmt::format("{}: {}", config.place(error.key()), error.what()), error.code());
  } catch (const LayerError& error) {
    throw Error(with_place(config, error), error.code());
  }
}

Config read_config(const std::string& path, const std::vector<std::string>& overrides, DeviceCheck device) {
  const std::string file = find_example(path, ExampleKind::kConfig);
  return parse_config(read_config_text(file), file, overrides, InputFiles::kLookFor, device);
}

}  // namespace convoy
