// SPDX-License-Identifier: Apache-2.0
#include "app/build/find_checkpoint.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include "app/base/error_report.h"
#include "io/log/metrics_reader.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

std::string newest_of(const std::string& checkpoints) {
  const auto found = find_newest_checkpoint(checkpoints, print_warning);
  if (!found) fail_usage("{}: no valid checkpoint there (name one, or another run)", checkpoints);
  return found->string();
}

std::string best_of(const std::string& run, const std::string& checkpoints) {
  if (std::string linked = linked_best_checkpoint(checkpoints); !linked.empty()) return linked;
  const auto best = best_checkpoint(list_checkpoints(checkpoints), evaluation_scores(run + "/metrics.jsonl", ""));
  if (!best) {
    fail_usage(
        "{}: no checkpoint of a step that was evaluated ({}/metrics.jsonl has no eval event of one; name a file, "
        "or \"newest\")",
        checkpoints, run);
  }
  return best->path;
}

std::string checkpoints_of(const std::string& folder) {
  return fs::is_directory(folder + "/checkpoints") ? folder + "/checkpoints" : folder;
}

std::string chosen(const std::string& which, const std::string& run, const std::string& checkpoints) {
  return which == "best" ? best_of(run, checkpoints) : newest_of(checkpoints);
}

// Calls `use` with the step and the line of each evaluation in metrics.jsonl, which may not be there.
template <class Use>
void for_each_evaluation(const std::string& metrics, const Use& use) {
  const auto fail_reading = [&] {
    fail_system(errno, "cannot read {}: {} (see its permissions, and the disk)", metrics, std::strerror(errno));
  };
  errno = 0;
  std::ifstream file(metrics);
  if (!file.is_open() && errno == ENOENT) return;
  if (!file.is_open()) fail_reading();
  MetricsLine line;
  for (std::string text; std::getline(file, text);) {
    if (!line.parse(text) || line.text("event") != "eval") continue;
    if (const auto step = line.integer("step")) use(*step, line);
  }
  if (file.bad()) fail_reading();
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

double evaluation_score(std::string_view by, double top1, double loss) {
  const std::string digits = fmt::format("{:.9g}", by == "top1" ? top1 : -loss);
  double score = std::numeric_limits<double>::quiet_NaN();
  static_cast<void>(std::from_chars(digits.data(), digits.data() + digits.size(), score));
  return score;
}

StepScores evaluation_scores(const std::string& metrics, std::string_view by) {
  StepScores scores;
  for_each_evaluation(metrics, [&](std::int64_t step, const MetricsLine& line) {
    const double top1 = line.number("top1");
    const bool labels = by.empty() ? !std::isnan(top1) : by == "top1";
    const double score = evaluation_score(labels ? "top1" : "loss", top1, line.number("loss"));
    scores.erase(step);
    if (std::isfinite(score)) scores[step] = score;
  });
  return scores;
}

bool was_evaluated(const std::string& run, std::int64_t step) {
  bool found = false;
  for_each_evaluation(run + "/metrics.jsonl",
                      [&](std::int64_t at, const MetricsLine&) { found = found || at == step; });
  return found;
}

void EarlyStop::add(double top1, double loss) {
  const double score = evaluation_score(metric_, top1, loss);
  const bool better = score > best_;  // a NaN is not
  if (better) best_ = score;
  without_ = better ? 0 : without_ + 1;
}

void EarlyStop::add_from(const std::string& metrics, std::int64_t last_step) {
  std::map<std::int64_t, std::pair<double, double>> evaluations;
  for_each_evaluation(metrics, [&](std::int64_t step, const MetricsLine& line) {
    if (step <= last_step) evaluations[step] = {line.number("top1"), line.number("loss")};
  });
  for (const auto& [step, scores] : evaluations) add(scores.first, scores.second);
}

bool is_run_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path + "/config.toml", ignored);
}

}  // namespace convoy
