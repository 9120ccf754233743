// SPDX-License-Identifier: Apache-2.0
#include "app/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "app/base/duration.h"
#include "layers/base/message_text.h"

namespace convoy {

namespace {

constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::seconds kLineInterval{5};
constexpr std::size_t kBarWidth = 24;
constexpr std::size_t kMinBarWidth = 4;
constexpr const char* kClearLine = "\r\x1b[2K";

/// Open MPI's launcher gives its ranks a terminal of its own making even when its output goes to a file, so under it
/// the launcher's output (our parent's) is what counts. Where that cannot be seen, it is taken for a file.
bool launcher_has_terminal() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return true;
  const std::string path = "/proc/" + std::to_string(getppid()) + "/fd/1";
  std::array<char, 64> target{};
  const ssize_t length = readlink(path.c_str(), target.data(), target.size() - 1);
  const std::string_view file(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return file.starts_with("/dev/pts/") || file.starts_with("/dev/tty");
}

bool redraws(std::FILE* out) {
  const char* terminal = std::getenv("TERM");
  const bool capable = terminal != nullptr && std::string_view(terminal) != "dumb";
  return capable && isatty(fileno(out)) == 1 && launcher_has_terminal();
}

std::size_t columns_of(std::FILE* out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string progress_line(const ProgressState& s) {
  if (s.to_evaluate > 0) {
    if (s.total_steps == 0) return fmt::format("evaluating batch {}/{}", s.evaluated, s.to_evaluate);
    return fmt::format("epoch {}/{}  step {}/{}  evaluating batch {}/{}", s.epoch + 1, s.epochs, s.step, s.total_steps,
                       s.evaluated, s.to_evaluate);
  }
  std::string line = s.packing ? fmt::format("image {}/{}  {:.1f} images/s", s.step, s.total_steps, s.images_per_second)
                               : fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {:.1f} samples/s", s.epoch + 1,
                                             s.epochs, s.step, s.total_steps, s.loss, s.images_per_second);
  if (s.left) line += fmt::format("  {} left", format_duration(*s.left));
  return line;
}

std::string progress_bar(const ProgressState& s, std::size_t columns, bool color) {
  const std::string text = progress_line(s);
  const std::size_t taken = text.size() + 4;  // brackets, a space, and the last column, where terminals wrap
  const std::size_t width = columns > taken ? std::min(kBarWidth, columns - taken) : 0;
  if (width < kMinBarWidth) return text.substr(0, columns > 0 ? columns - 1 : 0);
  const auto [done, all] = s.to_evaluate > 0 ? std::pair(s.evaluated, s.to_evaluate) : std::pair(s.step, s.total_steps);
  const double share = all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 0;
  const auto full = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(width));
  return fmt::format("[{}{}{}{}] {}", color ? "\x1b[32m" : "", std::string(full, '#'), color ? "\x1b[0m" : "",
                     std::string(width - full, '.'), text);
}

Progress::Progress(ProgressMode mode, std::int64_t total_steps, std::int64_t epochs, std::FILE* out)
    : mode_(mode), out_(out) {
  if (mode_ == ProgressMode::kAuto) mode_ = redraws(out) ? ProgressMode::kBar : ProgressMode::kLines;
  const char* no_color = std::getenv("NO_COLOR");
  color_ = redraws(out) && (no_color == nullptr || *no_color == '\0');
  state_.total_steps = total_steps;
  state_.epochs = epochs;
}

Progress::~Progress() {
  if (bar_drawn_) std::fputc('\n', out_);
  std::fflush(out_);
}

void Progress::step(std::int64_t step, std::int64_t epoch, double loss, double images_per_second) {
  state_.step = step;
  state_.epoch = epoch;
  state_.loss = loss;
  state_.images_per_second = images_per_second;
  state_.to_evaluate = 0;
  advance();
}

Progress::Clock::duration Progress::interval() const {
  return mode_ == ProgressMode::kBar ? Clock::duration(kBarInterval) : kLineInterval;
}

void Progress::evaluating(std::int64_t step, std::int64_t epoch, std::int64_t done, std::int64_t batches) {
  state_.step = step;
  state_.epoch = epoch;
  state_.evaluated = done;
  state_.to_evaluate = batches;
  const Clock::time_point now = Clock::now();
  if (mode_ == ProgressMode::kOff || now - last_shown_ < interval()) return;
  last_shown_ = now;
  const bool step_shown = shown_;
  show();
  shown_ = step_shown;
}

void Progress::images(std::int64_t done, double images_per_second) {
  state_.packing = true;
  state_.step = done;
  state_.images_per_second = images_per_second;
  advance();
}

void Progress::advance() {
  if (mode_ == ProgressMode::kOff) return;
  const Clock::time_point now = Clock::now();
  const bool first = first_step_ == 0;
  if (first) {
    first_step_ = state_.step;
    first_time_ = now;
  }
  if (state_.step > first_step_) {
    const double per_step =
        std::chrono::duration<double>(now - first_time_).count() / static_cast<double>(state_.step - first_step_);
    const double left = per_step * static_cast<double>(state_.total_steps - state_.step);
    state_.left = std::chrono::seconds(static_cast<std::int64_t>(std::clamp(left, 0.0, 3.6e9)));
  }
  shown_ = false;
  const bool last = state_.step == state_.total_steps;
  if (!first && !last && now - last_shown_ < interval()) return;
  last_shown_ = now;
  show();
}

void Progress::show() {
  shown_ = true;
  if (mode_ == ProgressMode::kBar) {
    clear_bar();
    fmt::print(out_, "{}", progress_bar(state_, columns_of(out_), color_));
    bar_drawn_ = true;
  } else {
    fmt::print(out_, "{}\n", progress_line(state_));
  }
  std::fflush(out_);
}

void Progress::clear_bar() {
  if (bar_drawn_) std::fputs(kClearLine, out_);
  bar_drawn_ = false;
}

void Progress::clear() {
  clear_bar();
  std::fflush(out_);
}

void Progress::message(const std::string& text) {
  state_.to_evaluate = 0;  // what ends an evaluation is a message
  const bool redraw = bar_drawn_;
  clear_bar();
  fmt::print(out_, "{}\n", message_text(text));
  if (redraw) show();
  std::fflush(out_);
}

void Progress::finish() {
  state_.to_evaluate = 0;
  if (!shown_) show();
  if (bar_drawn_) std::fputc('\n', out_);
  bar_drawn_ = false;
  std::fflush(out_);
}

}  // namespace convoy
