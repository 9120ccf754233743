// SPDX-License-Identifier: Apache-2.0
//
// Relies on std::filesystem and checkpoint.h. Invariant: a name is parsed by one function, so listing, rotation and
// cleaning agree on which files are checkpoints.
#include "io/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "io/checkpoint/checkpoint.h"
#include "io/files/atomic_file.h"
#include "layers/base/error.h"

namespace convoy {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".h5";
constexpr std::size_t kDigits = 8;

// The step in "step-00000120.h5"; empty for any other name.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (name.size() < kDigits || name.front() == '-' || error != std::errc() || end != name.data() + name.size()) {
    return std::nullopt;
  }
  return step;
}

std::string in_folder(const std::string& dir, const std::string& name) { return fmt::format("{}/{}", dir, name); }

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) fail("cannot list {}: {}", dir, error.message());
  return names;
}

void remove_file(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail("cannot remove {}: {}", path, error.message());
}

}  // namespace

std::string checkpoint_path(const std::string& dir, std::int64_t step) {
  return fmt::format("{}/{}{:08d}{}", dir, kPrefix, step, kSuffix);
}

std::vector<CheckpointFile> list_checkpoints(const std::string& dir) {
  std::vector<CheckpointFile> files;
  for (const auto& name : names_in(dir)) {
    if (const auto step = step_of(name)) files.push_back({*step, in_folder(dir, name)});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return files;
}

std::optional<std::filesystem::path> find_newest_checkpoint(const std::string& dir, const WarnCallback& warn) {
  std::optional<fs::path> found;
  std::vector<std::string> problems;
  const auto files = list_checkpoints(dir);
  for (auto file = files.rbegin(); file != files.rend() && !found; ++file) {
    std::string problem = checkpoint_problem(file->path);
    if (problem.empty()) {
      found = file->path;
    } else {
      problems.push_back(std::move(problem));
    }
  }
  const std::string instead =
      found ? fmt::format("using {} instead", found->string()) : "no earlier checkpoint is valid, so none is used";
  for (const auto& problem : problems) warn(fmt::format("checkpoint skipped: {}; {}", problem, instead));
  return found;
}

void rotate_checkpoints(const std::string& dir, int keep, std::int64_t newest_step) {
  if (keep <= 0) return;
  auto files = list_checkpoints(dir);
  std::erase_if(files, [&](const auto& file) { return file.step > newest_step; });
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < files.size(); ++i) remove_file(files[i].path);
}

void remove_stale_temporaries(const std::string& dir) {
  const std::string_view suffix = kTemporarySuffix;
  for (const auto& name : names_in(dir)) {
    const std::string_view view = name;
    const std::string_view target = view.substr(0, view.find(kSuffix) + kSuffix.size());
    if (step_of(target) &&
        (is_temporary_of(view, target) || view.substr(target.size()) == suffix)) {  // or of an earlier version
      remove_file(in_folder(dir, name));
    }
  }
}

std::vector<std::string> set_aside_checkpoints_after(const std::string& dir, std::int64_t step) {
  std::vector<std::string> renamed;
  for (const auto& file : list_checkpoints(dir)) {
    if (file.step <= step) continue;
    const std::string name = file.path + ".superseded";
    std::error_code error;
    fs::rename(file.path, name, error);
    if (error) fail("cannot rename {} to {}: {}", file.path, name, error.message());
    renamed.push_back(name);
  }
  return renamed;
}

}  // namespace convoy
