// SPDX-License-Identifier: Apache-2.0
//
// What belongs to a run: its folder, its checkpoints, and the data that its config names. A config that cannot be read
// costs the data, not the rest.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "app/base/input_path.h"
#include "app/build/find_checkpoint.h"
#include "app/build/read_config.h"
#include "app/verify/file_check.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/data/cifar10.h"
#include "io/data/idx.h"
#include "io/data/image_folder.h"
#include "io/data/shards.h"
#include "io/hdf5/hdf5_source.h"
#include "io/images/image_decoder.h"
#include "io/pack/pack_source.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/file_status.h"
#include "layers/base/file_text.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

bool is_listed(const std::string& folder, const std::string& path) {
  const std::vector<CheckpointFile> files = list_checkpoints(folder);
  return std::any_of(files.begin(), files.end(), [&](const CheckpointFile& file) { return file.path == path; });
}

std::vector<FileCheck> check_checkpoints(const std::string& folder) {
  std::vector<FileCheck> checks;
  for (const CheckpointFile& file : list_checkpoints(folder)) {
    FileCheck check = check_hdf5(file.path);
    if (check.state == FileState::kDamaged && !is_listed(folder, file.path)) continue;  // the run has deleted it
    checks.push_back(std::move(check));
  }
  return checks;
}

bool has(const std::vector<FileCheck>& checks, const std::string& path) {
  return std::any_of(checks.begin(), checks.end(), [&](const FileCheck& check) { return check.path == path; });
}

// Each shard that is not among `checks` yet, or what is wrong with the set.
void check_shards(const std::string& source, std::vector<FileCheck>& checks) {
  try {
    for (const std::string& shard : shard_sources(source)) {
      const std::string path = Hdf5Source(shard).path;
      if (!has(checks, path)) checks.push_back(check_hdf5(path));
    }
  } catch (const Error& error) {
    checks.push_back({source, FileState::kDamaged, error.what()});
  }
}

std::vector<FileCheck> check_config_data(const Config& config, const std::string& config_path) {
  std::vector<FileCheck> checks;
  const DataOptions& d = config.data;
  if (d.kind == "synthetic") return checks;
  for (const bool training : {true, false}) {
    const std::string& written = training ? d.train : d.validation;
    if (written.empty()) continue;
    const InputForm form = d.kind == "hdf5" ? InputForm::kFileOrShards : InputForm::kFileOrFolder;
    const InputPath input = find_input(written, config_path, form);
    if (!input.problem.empty()) {
      checks.push_back({written, FileState::kDamaged, input.problem});
    } else if (d.kind == "hdf5") {
      check_shards(input.path, checks);
    } else {
      checks.push_back(check_data(d.kind, input.path, training));
    }
  }
  return checks;
}

std::vector<FileCheck> check_run(const std::string& folder) {
  std::vector<FileCheck> checks;
  std::error_code ignored;
  const auto add = [&](const std::string& name, FileCheck (*check)(const std::string& path)) {
    const std::string path = folder + "/" + name;
    if (fs::exists(path, ignored)) checks.push_back(check(path));
  };
  const std::string config_path = folder + "/config.toml";
  std::string checkpoints = folder + "/checkpoints", copies;
  std::vector<FileCheck> data;
  if (fs::exists(config_path, ignored)) {
    try {
      const auto text = file_text(config_path);
      if (!text) fail("cannot be read");
      Config config = parse_config(*text, config_path, {}, InputFiles::kTrust);
      const fs::path run = fs::absolute(folder + "/").lexically_normal().parent_path();
      config.run.dir = run.parent_path().string();  // which names the folder of copies, too
      config.run.name = run.filename().string();
      checks.push_back({config_path, FileState::kReadable, "the resolved config"});
      if (!config.checkpoint.dir.empty()) checkpoints = config.checkpoint.dir;
      copies = copy_folder(config);
      data = check_config_data(config, config_path);
    } catch (const Error& error) {
      checks.push_back({config_path, FileState::kDamaged, error.what()});
    }
  }
  for (FileCheck& check : check_checkpoints(checkpoints)) checks.push_back(std::move(check));
  if (!copies.empty() && fs::exists(copies, ignored)) {
    for (FileCheck& check : check_checkpoints(copies)) checks.push_back(std::move(check));
  }
  add("metrics.jsonl", check_metrics);
  std::vector<std::string> events;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("events.out.tfevents.")) events.push_back(at->path().string());
  }
  std::sort(events.begin(), events.end());
  for (const std::string& path : events) checks.push_back(check_events(path));
  add("log.txt", check_text);
  add("trace.json", check_json);
  add("confusion.csv", check_text);
  add("launch/state.json", check_job_state);
  add("launch/launch.log", check_text);
  for (FileCheck& check : data) checks.push_back(std::move(check));
  return checks;
}

constexpr const char* kRemedy = "name a run's folder, a checkpoint, data or a log of a run";

constexpr auto kOfRun = std::to_array<const char*>({"config.toml", "metrics.jsonl", "checkpoints"});

bool holds_run(const std::string& folder) {
  std::error_code ignored;
  return std::any_of(kOfRun.begin(), kOfRun.end(),
                     [&](const char* name) { return fs::exists(folder + "/" + name, ignored); });
}

// Throws when `folder` is that of several runs, such as runs/ itself.
void refuse_folder_of_runs(const std::string& folder) {
  std::vector<std::string> runs;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->is_directory(error) && holds_run(at->path().string()))
      runs.push_back(at->path().lexically_normal().string());
  }
  if (runs.empty()) return;
  std::sort(runs.begin(), runs.end());
  constexpr std::size_t kNamed = 5;
  const std::size_t more = runs.size() - std::min(runs.size(), kNamed);
  runs.resize(runs.size() - more);
  fail_usage("{} is a folder of runs: name one of them ({}{})", folder, fmt::join(runs, ", "),
             more > 0 ? fmt::format(" and {} more", more) : "");
}

FileCheck check_images(const std::string& source) {
  const ImageFolder images(source);
  std::atomic<std::int64_t> next{0}, broken{0};
  std::string first;
  std::mutex mutex;
  const auto work = [&] {
    ImageDecoder decoder;
    std::vector<std::byte> bytes;
    for (std::int64_t i = 0; (i = next++) < images.size();) {
      try {
        images.read(i, bytes);
        const ImageHeader header = decoder.open(bytes);
        decoder.decode({0, 0, header.width, header.height}, 1, 1, 3);
      } catch (const std::exception& error) {
        const std::lock_guard guard(mutex);
        if (broken++ == 0) first = fmt::format("{}: {}", images.name(i), error.what());
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  }
  if (broken > 0)
    return {source, FileState::kDamaged, fmt::format("{} broken of {}: {}", broken.load(), images.size(), first)};
  return {source, FileState::kReadable, fmt::format("{}, each can be decoded", counted(images.size(), "image"))};
}

}  // namespace

FileCheck check_data(const std::string& kind, const std::string& source, bool training) {
  try {
    if (kind == "image_folder") return check_images(source);
    const auto data = kind == "idx" ? open_idx(source, training) : open_cifar10(source, training);
    return {source, FileState::kReadable, fmt::format("{} of {}", counted(data->size(), "sample"), kind)};
  } catch (const std::exception& error) {
    return {source, FileState::kDamaged, error.what()};
  }
}

std::vector<FileCheck> check_path(const std::string& path) {
  if (is_shard_pattern(Hdf5Source(path).path)) {
    if (matching_shards(Hdf5Source(path).path).empty()) fail_usage("{}: no file matches", path);
    std::vector<FileCheck> checks;
    check_shards(path, checks);
    return checks;
  }
  const std::string file = Hdf5Source(path).path;
  const fs::file_status status = status_of(file);
  if (!fs::exists(status)) fail_usage("there is no file or folder {}", path);
  if (fs::is_directory(status)) {
    const bool run = is_run_folder(file) || holds_run(file);  // the first throws where it may not look
    std::vector<FileCheck> checks = run ? check_run(file) : check_checkpoints(file);
    if (!checks.empty()) return checks;
    refuse_folder_of_runs(file);
    const PackKind kind = detect_pack_kind(file, kRemedy);  // throws when it is nothing that is known
    if (kind == PackKind::kImageFolder) return {check_data("image_folder", file, true)};
    return {check_data(kind == PackKind::kIdx ? "idx" : "cifar10", file, true)};
  }
  const std::string name = fs::path(file).filename().string();
  if (name.ends_with(".jsonl")) return {check_metrics(file)};
  if (name.find(".tfevents.") != std::string::npos) return {check_events(file)};
  if (name == "state.json") return {check_job_state(file)};
  if (name.ends_with(".json")) return {check_json(file)};
  if (name.ends_with(".txt") || name.ends_with(".log")) return {check_text(file)};
  if (name.find(".h5") != std::string::npos || name.ends_with(".hdf5")) return {check_hdf5(file)};
  const PackKind kind = detect_pack_kind(file, kRemedy);
  if (kind == PackKind::kHdf5) return {check_hdf5(file)};
  return {check_data(kind == PackKind::kIdx ? "idx" : "cifar10", file, true)};
}

}  // namespace convoy
