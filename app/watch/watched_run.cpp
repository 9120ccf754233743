// SPDX-License-Identifier: Apache-2.0
#include "app/watch/watched_run.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <ios>
#include <system_error>
#include <utility>

#include "app/base/duration.h"
#include "app/report/report_run.h"
#include "app/watch/text_plot.h"
#include "layers/base/counted.h"
#include "layers/base/median.h"
#include "layers/base/message_text.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPlotRows = 14, kRecent = 50;

std::string clock_text(double seconds) {
  return format_duration(std::chrono::seconds(static_cast<std::int64_t>(std::clamp(seconds, 0.0, 3.6e9))));
}

std::string state_text(const WatchedRun& run) {
  const std::string& reason = run.metrics().end_reason;
  switch (run.state()) {
    case WatchedState::kEnded: return "ended: " + name_text(reason);
    case WatchedState::kRunning:
      return fmt::format("running ({}), last line {} ago", name_text(run.holder()), clock_text(run.silence()));
    default: return fmt::format("stale: no process writes it, last line {} ago", clock_text(run.silence()));
  }
}

// The median of the last logged steps; NaN: unknown.
double recent_rate(const std::vector<StepLine>& steps) {
  std::vector<double> rates;
  for (std::size_t i = steps.size() > kRecent ? steps.size() - kRecent : 0; i < steps.size(); ++i) {
    rates.push_back(steps[i].images_per_second);
  }
  std::erase_if(rates, [](double rate) { return !std::isfinite(rate); });
  return rates.empty() ? std::nan("") : median(std::move(rates));
}

std::string step_text(const WatchedRun& run) {
  const RunMetrics& m = run.metrics();
  const std::int64_t total = m.starts.empty() ? 0 : m.starts.back().total_steps;
  if (m.steps.empty()) return total > 0 ? fmt::format("step 0 of {}", total) : "no step yet";
  const StepLine& last = m.steps.back();
  std::string text = fmt::format("step {}", last.step);
  if (total > 0) {
    text +=
        fmt::format(" of {} ({:.1f} %)", total, 100.0 * static_cast<double>(last.step) / static_cast<double>(total));
  }
  text += fmt::format(", epoch {}", last.epoch + 1);
  const double rate = recent_rate(m.steps);
  if (run.state() != WatchedState::kEnded && total > last.step && rate > 0 && last.samples > 0) {
    const double left = static_cast<double>(total - last.step) * last.samples / rate;
    text += fmt::format(", {} left", clock_text(left));
  }
  return text;
}

std::string evaluation_text(const EvalLine& eval) {
  std::string text = fmt::format("evaluation of step {}: loss {:.4g}", eval.step, eval.loss);
  if (!std::isnan(eval.top1)) text += fmt::format(", top-1 {:.2f} %", 100 * eval.top1);
  if (!std::isnan(eval.top5)) text += fmt::format(", top-5 {:.2f} %", 100 * eval.top5);
  return text;
}

// To at most so many bytes, and never within a character.
void cut_utf8(std::string& text, std::size_t bytes) {
  if (text.size() <= bytes) return;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) --bytes;
  text.resize(bytes);
}

}  // namespace

WatchedRun::WatchedRun(const std::string& path)
    : path_(metrics_path(path)), reader_(std::make_unique<MetricsReader>()) {
  const fs::path metrics = path_;
  std::error_code ignored;
  name_ = fs::weakly_canonical(metrics, ignored).parent_path().filename().string();
  const fs::path folder = metrics.parent_path().empty() ? fs::path(".") : metrics.parent_path();
  lock_ = std::make_unique<LockAttempt>((folder / "run.lock").string());
  refresh();
}

void WatchedRun::refresh() {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) fail_system(errno, "cannot read {}: {}", path_, std::strerror(errno));
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < offset_ || (inode_ != 0 && inode_ != status.st_ino)) {
    reader_ = std::make_unique<MetricsReader>();
    rest_.clear();
    offset_ = 0;
  }
  inode_ = status.st_ino;
  if (size > offset_) {
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset_));
    std::string text(size - offset_, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
    if (text.empty()) fail_system(errno, "cannot read {}: {}", path_, std::strerror(errno));
    offset_ += text.size();
    rest_ += text;
    rest_ = reader_->read_lines(rest_);
  }
  if (offset_ > 0 && reader_->is_empty() && reader_->run().bad_lines > 0) fail_no_metrics(path_);
  silence_ = std::max(0.0, std::difftime(std::time(nullptr), status.st_mtime));
  const auto owner = lock_->look();
  holder_ = owner ? owner->to_string() : "";
  const bool ended = !metrics().end_reason.empty();
  state_ = ended ? WatchedState::kEnded : owner ? WatchedState::kRunning : WatchedState::kStale;
}

std::vector<std::string> watch_view(const WatchedRun& run, std::size_t columns, std::size_t rows) {
  const RunMetrics& m = run.metrics();
  std::vector<std::string> lines{fmt::format("{}  {}", name_text(run.name()), state_text(run)), step_text(run)};
  if (!m.steps.empty()) {
    const StepLine& last = m.steps.back();
    lines.push_back(
        fmt::format("loss {:.4g}, learning rate {:.4g}, {:.1f} samples/s", last.loss, last.lr, recent_rate(m.steps)));
  }
  lines.push_back(m.evals.empty() ? "no evaluation yet" : evaluation_text(m.evals.back()));
  if (!m.starts.empty()) {
    const StartLine& start = m.starts.back();
    lines.push_back(fmt::format("{} ({} of {}), {}", counted(start.ranks, "rank"), counted(start.replicas, "replica"),
                                counted(start.stages, "stage"), name_text(start.device)));
  }
  for (std::string& line : lines) cut_utf8(line, columns);
  std::vector<PlotPoint> points;
  points.reserve(m.steps.size());
  for (const StepLine& step : m.steps) points.push_back({static_cast<double>(step.step), step.loss});
  constexpr std::size_t kAxis = 2, kTitle = 2;
  const std::size_t taken = lines.size() + kTitle + kAxis;
  const std::vector<std::string> plot =
      text_plot(points, columns, rows > taken ? std::min(kPlotRows, rows - taken) : 0);
  if (!plot.empty()) {
    lines.insert(lines.end(), {"", "loss"});
    lines.insert(lines.end(), plot.begin(), plot.end());
  }
  return lines;
}

}  // namespace convoy
