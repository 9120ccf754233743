// SPDX-License-Identifier: Apache-2.0
#include "app/launch/slurm_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <optional>
#include <sstream>

#include "app/base/error_report.h"
#include "app/launch/child_process.h"

namespace convoy {

namespace {

constexpr std::chrono::seconds kAnswerLimit{10};  // of squeue and scancel
constexpr std::chrono::seconds kEndLimit{60};     // Slurm kills after KillWait, 30 s by default
constexpr std::chrono::seconds kPause{1};

// The IDs of the steps that are left; nothing if squeue does not say.
std::optional<std::vector<std::string>> steps_left() {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr) return std::vector<std::string>{};
  const Captured listed = capture({"squeue", "--steps", "--noheader", "--jobs", job, "--format=%i %j"}, kAnswerLimit);
  if (listed.timed_out || listed.status.code != 0) return std::nullopt;
  return steps_named(listed.output, slurm_step_name());
}

void cancel(const std::vector<std::string>& steps) {
  if (steps.empty()) return;
  std::vector<std::string> words{"scancel"};
  words.insert(words.end(), steps.begin(), steps.end());
  static_cast<void>(capture(words, kAnswerLimit));  // squeue says whether it helped
}

}  // namespace

std::string slurm_step_name() { return fmt::format("convoy-{}", ::getpid()); }

std::vector<std::string> steps_named(const std::string& squeue_output, const std::string& name) {
  std::vector<std::string> steps;
  std::istringstream lines(squeue_output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, step;
    if (words >> id >> step && step == name) steps.push_back(id);
  }
  return steps;
}

bool SlurmStepEnd::done() {
  if (Clock::now() < next_) return false;
  const auto left = steps_left();
  if (left && left->empty()) return true;
  if (Clock::now() > start_ + kEndLimit) {
    print_warning(fmt::format("launch: {}, {} s after srun was killed",
                              left ? fmt::format("Slurm has not ended step {}", fmt::join(*left, ", "))
                                   : "squeue does not say whether Slurm has ended the ranks",
                              kEndLimit.count()));
    return true;
  }
  if (left) cancel(*left);
  next_ = Clock::now() + kPause;
  return false;
}

void SlurmStepEnd::cancel_all() noexcept {
  try {
    if (const auto left = steps_left()) cancel(*left);
  } catch (const std::exception&) {  // no process can be created
  }
}

}  // namespace convoy
