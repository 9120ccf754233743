// SPDX-License-Identifier: Apache-2.0
#include "app/build/find_checkpoint.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "app/base/error_report.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/log/metrics_reader.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

std::string newest_of(const std::string& checkpoints) {
  const auto found = find_newest_checkpoint(checkpoints, print_warning);
  if (!found) fail_usage("{}: no valid checkpoint there (name one, or another run)", checkpoints);
  return found->string();
}

// The score of each evaluated step of a run, the higher the better; NaN where the loss was.
std::map<std::int64_t, double> scores_of(const std::string& run) {
  std::map<std::int64_t, double> scores;
  std::ifstream file(run + "/metrics.jsonl");
  std::string text;
  MetricsLine line;
  while (std::getline(file, text)) {
    if (!line.parse(text) || line.text("event") != "eval") continue;
    const double score = std::isnan(line.number("top1")) ? -line.number("loss") : line.number("top1");
    if (const auto step = line.integer("step")) scores[*step] = score;
  }
  return scores;
}

std::string best_of(const std::string& run, const std::string& checkpoints) {
  const std::map<std::int64_t, double> scores = scores_of(run);
  std::string best;
  double best_score = -INFINITY;
  for (const CheckpointFile& file : list_checkpoints(checkpoints)) {
    const auto score = scores.find(file.step);
    if (score == scores.end() || !(score->second >= best_score)) continue;
    best_score = score->second;
    best = file.path;
  }
  if (best.empty()) {
    fail_usage(
        "{}: no checkpoint of a step that was evaluated ({}/metrics.jsonl has no eval event of one; name a file, "
        "or \"newest\")",
        checkpoints, run);
  }
  return best;
}

std::string checkpoints_of(const std::string& folder) {
  return fs::is_directory(folder + "/checkpoints") ? folder + "/checkpoints" : folder;
}

std::string chosen(const std::string& which, const std::string& run, const std::string& checkpoints) {
  return which == "best" ? best_of(run, checkpoints) : newest_of(checkpoints);
}

}  // namespace

std::string find_checkpoint(const std::string& named, const std::string& run, const std::string& checkpoints) {
  std::error_code ignored;
  if (fs::is_regular_file(named, ignored)) return named;
  if (named == "newest" || named == "best") return chosen(named, run, checkpoints);
  if (fs::is_directory(named, ignored)) return newest_of(checkpoints_of(named));
  const fs::path path = named;
  const std::string which = path.filename(), folder = path.parent_path();
  if ((which == "newest" || which == "best") && fs::is_directory(folder, ignored)) {
    return chosen(which, folder, checkpoints_of(folder));
  }
  return named;  // who reads it says what is wrong
}

bool was_evaluated(const std::string& run, std::int64_t step) { return scores_of(run).contains(step); }

bool is_run_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path + "/config.toml", ignored);
}

}  // namespace convoy
