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

#include "app/base/error_report.h"
#include "io/log/metrics_reader.h"
#include "layers/base/error.h"
#include "layers/base/file_status.h"
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
  return fs::is_directory(status_in(folder, "checkpoints")) ? folder + "/checkpoints" : folder;
}

std::string chosen(const std::string& which, const std::string& run, const std::string& checkpoints) {
  return which == "best" ? best_of(run, checkpoints) : newest_of(checkpoints);
}

struct Evaluation {
  double top1, loss;
};

// The evaluations in metrics.jsonl, which may not be there, by step: of each step the last one, and none from before a
// start that went on from elsewhere.
std::map<std::int64_t, Evaluation> read_evaluations(const std::string& metrics) {
  const auto fail_reading = [&] {
    fail_system(errno, "cannot read {}: {} (see its permissions, and the disk)", metrics, std::strerror(errno));
  };
  std::map<std::int64_t, Evaluation> evaluations;
  errno = 0;
  std::ifstream file(metrics);
  if (!file.is_open() && errno == ENOENT) return evaluations;
  if (!file.is_open()) fail_reading();
  MetricsLine line;
  for (std::string text; std::getline(file, text);) {
    if (!line.parse(text)) continue;
    const std::string_view event = line.text("event");
    if (event == "start" && line.number("continues") == 0) evaluations.clear();
    const auto step = line.integer("step");
    if (event == "eval" && step) evaluations[*step] = {line.number("top1"), line.number("loss")};
  }
  if (file.bad()) fail_reading();
  return evaluations;
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
  for (const auto& [step, evaluation] : read_evaluations(metrics)) {
    const bool labels = by.empty() ? !std::isnan(evaluation.top1) : by == "top1";
    const double score = evaluation_score(labels ? "top1" : "loss", evaluation.top1, evaluation.loss);
    if (std::isfinite(score)) scores[step] = score;
  }
  return scores;
}

bool was_evaluated(const std::string& run, std::int64_t step) {
  return read_evaluations(run + "/metrics.jsonl").contains(step);
}

void EarlyStop::add(double top1, double loss) {
  const double score = evaluation_score(metric_, top1, loss);
  const bool better = score > best_;  // a NaN is not
  if (better) best_ = score;
  without_ = better ? 0 : without_ + 1;
}

void EarlyStop::add_from(const std::string& metrics, std::int64_t last_step) {
  for (const auto& [step, evaluation] : read_evaluations(metrics)) {
    if (step <= last_step) add(evaluation.top1, evaluation.loss);
  }
}

bool is_run_folder(const std::string& path) { return fs::is_regular_file(status_in(path, "config.toml")); }

}  // namespace convoy
