// SPDX-License-Identifier: Apache-2.0
//
// convoy inspect: what an HDF5 file holds; configs are for inspect_data.cpp. A checkpoint: where the run stood, its
// config, every tensor and whether its checksum holds. A data file: every data set, class names, how labels are spread.
// A damaged file is described too, then reported as an error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "app/base/examples.h"
#include "app/build/find_checkpoint.h"
#include "app/commands/commands.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/shards.h"
#include "io/hdf5/validation.h"
#include "io/pack/pixel_statistics.h"
#include "layers/base/error.h"
#include "layers/base/format_bytes.h"
#include "layers/base/message_text.h"

namespace convoy {

namespace {

using hdf5::File;

constexpr std::int64_t kRowsAtOnce = 1 << 20;

// To stdout; names and attributes come from the file.
template <class... Args>
void show(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print("{}", without_controls(fmt::format(format, std::forward<Args>(args)...)));
}

// By its first bytes, or by its name when they say nothing.
bool is_config(const std::string& path) {
  constexpr std::string_view kHdf5 = "\x89HDF\r\n\x1a\n";
  std::string head(kHdf5.size(), '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), static_cast<std::streamsize>(head.size()));
  return head != kHdf5 && path.ends_with(".toml");
}

void print_attributes(const File& file) {
  const auto line = [](const char* name, const std::string& value) { show("{:<16} {}\n", name, name_text(value)); };
  for (const char* name : {"step", "epoch", "samples_seen", "lr_step", "ranks", "format_version", "complete"}) {
    if (const auto value = file.int_attribute("/", name)) line(name, std::to_string(*value));
  }
  if (const auto seed = file.uint_attribute("/", "seed")) line("seed", std::to_string(*seed));
  if (const auto scale = file.double_attribute("/", "loss_scale")) line("loss_scale", fmt::format("{}", *scale));
  for (const char* name : {"mode", "program_version", "created", "run"}) {
    if (const auto value = file.string_attribute("/", name)) line(name, *value);
  }
  if (const auto config = file.string_attribute("/", "config")) show("\nconfig:\n{}\n", *config);
}

/// How often each label is there, in one line.
std::string label_spread(const File& file, const hdf5::DatasetInfo& labels) {
  std::map<std::int64_t, std::int64_t> counts;
  const std::int64_t size = labels.dims.front();
  std::vector<std::int64_t> values(static_cast<std::size_t>(std::min(size, kRowsAtOnce)));
  const hdf5::RowReader reader(file, labels.path);
  for (std::int64_t first = 0; first < size; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, size - first);
    reader.read(first, count, DType::kI64, values.data());
    for (std::int64_t i = 0; i < count; ++i) ++counts[values[static_cast<std::size_t>(i)]];
  }
  if (counts.empty()) return "no labels";
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end(), fewer);
  return fmt::format("{} different, {} to {}; {} to {} samples each", counts.size(), counts.begin()->first,
                     counts.rbegin()->first, least->second, most->second);
}

void print_labels(const File& file, const std::vector<DatasetCheck>& checks) {
  for (const DatasetCheck& check : checks) {
    const std::string& path = check.info.path;
    const bool labels = path.ends_with("/labels") && check.info.dims.size() == 1 && check.info.dtype == DType::kI64;
    if (!labels || !check.problem.empty()) continue;
    show("\n{}: {}\n", name_text(path), label_spread(file, check.info));
    const std::string group = path == "/labels" ? "/" : path.substr(0, path.rfind('/'));
    const auto names = file.strings_attribute(group, "class_names");
    if (!names.empty())
      show("class names ({}): {}\n", names.size(), name_text(fmt::format("{}", fmt::join(names, ", "))));
    for (const char* pixels : {"images", "jpeg"}) {  // as convoy pack --statistics writes them
      const std::string object = fmt::format("{}{}{}", group, group == "/" ? "" : "/", pixels);
      const auto mean = file.numbers_attribute(object, "mean"), deviation = file.numbers_attribute(object, "std");
      if (!mean.empty() && !deviation.empty()) show("{}", normalisation_lines(mean, deviation));
    }
  }
}

std::string verdict(const DatasetCheck& check) {
  if (!check.problem.empty()) return "DAMAGED";
  return check.verifiable ? "ok" : "readable";
}

/// Prints a line for each data set; returns how many are damaged.
std::size_t print_datasets(const std::vector<DatasetCheck>& checks) {
  std::size_t path_width = 8, shape_width = 5;
  for (const DatasetCheck& check : checks) {
    path_width = std::max(path_width, check.info.path.size());
    shape_width = std::max(shape_width, check.info.shape_text().size());
  }
  show("{:<{}}  {:<{}}  {:<8}  {}\n", "data set", path_width, "shape", shape_width, "type", "checksum");
  for (const DatasetCheck& check : checks) {
    show("{:<{}}  {:<{}}  {:<8}  {}\n", name_text(check.info.path), path_width, check.info.shape_text(), shape_width,
         check.info.type_name, verdict(check));
  }
  const auto good = [](const DatasetCheck& check) { return check.problem.empty() && check.verifiable; };
  const auto bad = [](const DatasetCheck& check) { return !check.problem.empty(); };
  const auto held = std::count_if(checks.begin(), checks.end(), good);
  const auto damaged = std::count_if(checks.begin(), checks.end(), bad);
  show("{} data sets: {} with a checksum that holds, {} without one, {} damaged\n", checks.size(), held,
       static_cast<std::ptrdiff_t>(checks.size()) - held - damaged, damaged);
  return static_cast<std::size_t>(damaged);
}

// Prints what is in it; throws when it is damaged.
void inspect_file(const std::string& path) {
  const File file = hdf5::input_errors([&] { return File(path); });
  const bool checkpoint = is_checkpoint(file);
  std::error_code ignored;
  show("{}: {}, {}\n\n", name_text(path), checkpoint ? "a checkpoint" : "an HDF5 file",
       format_bytes(std::filesystem::file_size(path, ignored)));
  if (checkpoint) print_attributes(file);

  const std::vector<DatasetCheck> checks = check_datasets(path);
  const std::size_t damaged = print_datasets(checks);
  if (!checkpoint) print_labels(file, checks);
  std::fflush(stdout);
  const std::string problem = checkpoint ? checkpoint_problem(path) : "";
  if (!problem.empty()) fail("{}", problem);
  if (damaged > 0) fail("{}: {} of {} data sets are damaged", path, damaged, checks.size());
  if (!checkpoint) return;
  if (const std::string name = first_nonfinite(read_model_weights(path)); !name.empty()) {
    fail("{}: {} has values that are not finite (nan or infinite): the run had failed; take an earlier checkpoint",
         path, name);
  }
  show("the checkpoint is valid\n");
}

}  // namespace

int inspect_command(const InspectArguments& arguments) {
  const std::string path =
      is_shard_pattern(arguments.file)
          ? arguments.file
          : find_example(find_checkpoint(arguments.file, ".", "./checkpoints"), ExampleKind::kConfig);
  if (is_config(path)) return inspect_data_command(arguments);
  if (arguments.images > 0 || !arguments.overrides.empty()) {
    fail_usage("inspect: {} is no config: --images and --set are for a run's TOML file", path);
  }
  if (!is_shard_pattern(path)) {
    inspect_file(path);
    return 0;
  }
  const std::vector<std::string> shards = find_shards(path);
  hdf5::validate_together(shards);
  for (const std::string& shard : shards) {
    inspect_file(shard);
    show("\n");
  }
  show("{}: all {} shards are there\n", name_text(path), shards.size());
  return 0;
}

}  // namespace convoy
