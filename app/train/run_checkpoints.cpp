// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_checkpoints.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "app/build/find_checkpoint.h"
#include "app/build/read_config.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/format_bytes.h"
#include "layers/base/option_error.h"
#include "layers/base/system_error.h"
#include "parallel/watchdog/activity.h"

namespace convoy {

namespace {

constexpr std::chrono::seconds kCopyPatience{60};
constexpr int kCheckpointTries = 3;  // in a row, at that many occasions

}  // namespace

// A folder that cannot be used is a usage error at the first start with it. Later it may be gone for a while.
std::string prepare_copies(const Run& run, const RunState& state) {
  const Config& c = run.config;
  const std::string folder = copy_folder(c);
  if (folder.empty()) return "";
  std::string warning;
  try {
    prepare_copy_folder(folder, absolute_run_folder(c));
    remove_stale_temporaries(folder);
    static_cast<void>(set_aside_checkpoints_after(folder, state.in_folder ? state.step : -1));
  } catch (const Error& error) {
    const bool is_new = std::any_of(state.changes.begin(), state.changes.end(), [](const std::string& change) {
      return change.starts_with("checkpoint.copy_to ");
    });
    if (state.source.empty() || is_new || error.code() == ExitCode::kUsage) {
      add_places(c, [&] { fail_option("checkpoint.copy_to", "{}", error.what()); });
    }
    warning = fmt::format("checkpoint.copy_to: {}; tried again after each checkpoint", error.what());
  }
  return warning;
}

RunCheckpoints::RunCheckpoints(const Run& run, RunState& state, RunReport& report, StopRequest& stop,
                               const std::string& copy_warning)
    : run_(run), state_(state), report_(report), stop_(stop) {
  const Config& c = run_.config;
  set_aside_other_past();
  std::optional<StepScores> scores;
  if (const std::string& by = c.checkpoint.keep_best; !by.empty())
    scores = evaluation_scores(run_folder(c) + "/metrics.jsonl", by);
  writer_ = std::make_unique<CheckpointWriter>(checkpoint_folder(c), static_cast<int>(c.checkpoint.keep),
                                               c.checkpoint.async, std::move(scores));
  // A power loss must not leave a checkpoint without the lines of the steps before it.
  writer_->set_before_write([this] { report_.sync(); });
  if (!copy_warning.empty()) report_.warning(copy_warning);
  if (const std::string copies = copy_folder(c); !copies.empty()) {
    copier_ = std::make_unique<CheckpointCopier>(checkpoint_folder(c), copies, static_cast<int>(c.checkpoint.keep));
    copier_->wake(writer_->scores());  // what an earlier start has left
  }
  warn_of_disk_space();
}

bool RunCheckpoints::write(Checkpoint checkpoint, double seconds) {
  try {
    writer_->write(std::move(checkpoint), seconds);
    return true;
  } catch (const Error& error) {
    not_written(error);
    return false;
  }
}

bool RunCheckpoints::drain() {
  bool complete = true;
  for (const std::string& warning : writer_->take_warnings()) report_.warning(warning);
  try {
    for (const auto& written : writer_->poll()) {
      failed_writes_ = 0;
      stop_.observe_checkpoint(StopRequest::Seconds(written.seconds));
      report_.checkpoint(written);
      record();
      write_seconds_ = written.seconds;
      if (copier_) copier_->wake(writer_->scores());
    }
  } catch (const Error& error) {
    not_written(error);
    complete = false;
  }
  drain_copies();
  return complete;
}

void RunCheckpoints::finish() {
  note_activity("writing the last checkpoint");
  writer_->wait();  // the last one: its error is the run's
  static_cast<void>(drain());
  if (copier_) {
    note_activity("copying the last checkpoint");
    if (!copier_->finish(kCopyPatience)) {
      report_.warning(
          fmt::format("checkpoint.copy_to: nothing was read or written for {} s, so the last copy is left "
                      "to the next start",
                      kCopyPatience.count()));
    }
    drain_copies();
  }
}

// Checkpoints of another past of this run, which its next start would take for its own. Only then is it on record that
// the run resumed from a file that the config names: a kill in between has the next start do this again.
void RunCheckpoints::set_aside_other_past() {
  const std::int64_t kept_step = state_.in_folder ? state_.step : -1;
  if (!state_.source.empty()) {
    for (const std::string& moved : set_aside_checkpoints_after(checkpoint_folder(run_.config), kept_step)) {
      report_.message(fmt::format("set aside  {} (not of the past of {})", moved, state_.source));
    }
  }
  const std::string folder = run_folder(run_.config);
  if (read_run_record(folder) != state_.record) write_run_record(folder, state_.record);
}

// That there are checkpoints is on record, so that the run does not start over when their folder has gone.
void RunCheckpoints::record() {
  RunRecord record = state_.record;
  record.checkpoints = canonical_path(checkpoint_folder(run_.config));
  if (record == state_.record) return;
  try {
    write_run_record(run_folder(run_.config), record);
    state_.record = record;
  } catch (const Error& error) {
    report_.warning(fmt::format("{} (tried again with the next checkpoint)", error.what()));
  }
}

void RunCheckpoints::warn_of_disk_space() {
  const Config& c = run_.config;
  std::int64_t elements = 0;
  for (const TensorEntry& entry : run_.model->manifest()) elements += entry.shape.size();
  const double floats = static_cast<double>(elements) + c.slots() * static_cast<double>(run_.model->parameter_count());
  const auto there = static_cast<std::int64_t>(list_checkpoints(checkpoint_folder(c)).size());
  const std::int64_t kept = c.checkpoint.keep + (c.checkpoint.keep_best.empty() ? 0 : 1);
  const auto files = static_cast<double>(std::max<std::int64_t>(1, kept + 1 - there));
  const double spool = run_.head ? floats : 0;  // at most, beside the file that it goes into
  const auto needed = static_cast<std::uintmax_t>((files * floats + spool) * sizeof(float));
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(checkpoint_folder(c), error);
  if (error || needed <= space.available) return;
  report_.warning(
      fmt::format("{} has {} free, and {} take {} (free space there, or name another folder with checkpoint.dir)",
                  checkpoint_folder(c), format_bytes(space.available),
                  counted(static_cast<std::int64_t>(files), "checkpoint"), format_bytes(needed)));
}

// Reports what the copier has finished. The last copy counts for the time that the end of a run takes.
void RunCheckpoints::drain_copies() {
  if (!copier_) return;
  for (const auto& copied : copier_->take()) {
    if (copied.problem.empty()) stop_.observe_checkpoint(StopRequest::Seconds(write_seconds_ + copied.seconds));
    report_.copy(copied);
  }
}

// A checkpoint is tried again at the next occasion, while training continues: a full disk may be cleared meanwhile.
void RunCheckpoints::not_written(const Error& error) {
  if (++failed_writes_ >= kCheckpointTries) {
    fail_running_as(error,
                    fmt::format("{}; {} checkpoints in a row could not be written", error.what(), failed_writes_));
  }
  report_.warning(fmt::format("{}; training continues without it, {} left until the run ends", error.what(),
                              counted(kCheckpointTries - failed_writes_, "try")));
}

}  // namespace convoy
