// SPDX-License-Identifier: Apache-2.0
//
// Relies on std::filesystem and checkpoint.h. Invariant: a name is parsed by one function, so listing, rotation and
// cleaning agree on which files are checkpoints.
#include "io/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/checkpoint/checkpoint.h"
#include "io/files/atomic_file.h"
#include "layers/base/error.h"

namespace convoy {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".h5";
constexpr std::size_t kDigits = 8;
constexpr const char* kBestLink = "best.h5";

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

// Renames the checkpoints from step `first` on to NAME + `suffix`, NAME + `suffix`-2, ...
std::vector<std::string> set_aside(const std::string& dir, std::int64_t first, const std::string& suffix) {
  std::vector<std::string> renamed;
  for (const auto& file : list_checkpoints(dir)) {
    if (file.step < first) continue;
    std::string name = file.path + suffix;
    std::error_code error;
    for (int i = 2; fs::exists(name, error); ++i) name = fmt::format("{}{}-{}", file.path, suffix, i);
    fs::rename(file.path, name, error);
    if (error) fail("cannot rename {} to {}: {}", file.path, name, error.message());
    renamed.push_back(name);
  }
  return renamed;
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

CheckpointSearch search_checkpoints(const std::string& dir) {
  CheckpointSearch search;
  auto files = list_checkpoints(dir);
  std::reverse(files.begin(), files.end());
  for (auto file = files.begin(); file != files.end(); ++file) {
    CheckpointCheck check = examine_checkpoint(file->path);
    if (check.state == CheckpointState::kInvalid) {
      search.invalid.push_back(std::move(check.problem));
      continue;
    }
    if (check.state == CheckpointState::kValid) {
      search.found = *file;
      search.run = std::move(check.run);
    } else {
      search.unreadable = std::move(check.problem);
      search.older.assign(file + 1, files.end());
    }
    break;
  }
  return search;
}

void warn_of_skipped(const CheckpointSearch& search, const WarnCallback& warn) {
  const std::string instead = search.found ? fmt::format("using {} instead", search.found->path)
                                           : "no earlier checkpoint is valid, so none is used";
  for (const auto& problem : search.invalid) warn(fmt::format("checkpoint skipped: {}; {}", problem, instead));
}

std::optional<std::filesystem::path> find_newest_checkpoint(const std::string& dir, const WarnCallback& warn) {
  const CheckpointSearch search = search_checkpoints(dir);
  if (!search.unreadable.empty()) {
    fail("{} (the newest checkpoint cannot be read; name an older one to use that)", search.unreadable);
  }
  warn_of_skipped(search, warn);
  if (!search.found) return std::nullopt;
  return search.found->path;
}

std::optional<CheckpointFile> best_checkpoint(const std::vector<CheckpointFile>& files, const StepScores& scores) {
  std::optional<CheckpointFile> best;
  double best_score = 0;
  for (const CheckpointFile& file : files) {
    const auto score = scores.find(file.step);
    if (score == scores.end() || (best && score->second <= best_score)) continue;
    best_score = score->second;
    best = file;
  }
  return best;
}

std::vector<std::string> rotate_checkpoints(const std::string& dir, int keep, std::int64_t newest_step,
                                            const StepScores& scores) {
  std::vector<std::string> problems;
  if (keep <= 0) return problems;
  const auto note = [&](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  };
  std::vector<CheckpointFile> files;
  note([&] { files = list_checkpoints(dir); });
  const std::optional<CheckpointFile> best = best_checkpoint(files, scores);
  std::erase_if(files, [&](const auto& file) { return file.step > newest_step; });
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < files.size(); ++i) {
    if (best && best->step == files[i].step) continue;
    note([&] { remove_file(files[i].path); });
  }
  return problems;
}

std::string link_best_checkpoint(const std::string& dir, const StepScores& scores) {
  const fs::path link = in_folder(dir, kBestLink);
  try {
    const auto best = best_checkpoint(list_checkpoints(dir), scores);
    const fs::file_status status = fs::symlink_status(link);
    const bool ours = fs::is_symlink(status) && step_of(fs::read_symlink(link).string());
    if (fs::exists(status) && !ours) {
      return best ? fmt::format("{} is no link to a checkpoint, so it stays (rename it)", link.string()) : "";
    }
    if (!best) {
      fs::remove(link);
      return "";
    }
    const fs::path target = fs::path(best->path).filename();
    if (ours && fs::read_symlink(link) == target) return "";
    const fs::path temporary = link.string() + kTemporarySuffix;
    fs::remove(temporary);
    fs::create_symlink(target, temporary);
    fs::rename(temporary, link);
    return "";
  } catch (const std::exception& error) {
    return fmt::format("{} cannot be made a link to the best checkpoint: {}", link.string(), error.what());
  }
}

std::string linked_best_checkpoint(const std::string& dir) {
  std::error_code error;
  const std::string name = fs::read_symlink(in_folder(dir, kBestLink), error).string();
  if (error || !step_of(name) || !fs::is_regular_file(in_folder(dir, name), error)) return "";
  return in_folder(dir, name);
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
  return set_aside(dir, step + 1, ".superseded");
}

std::vector<std::string> set_aside_failed_checkpoints(const std::string& dir, std::int64_t step) {
  return set_aside(dir, step, ".failed");
}

}  // namespace convoy
