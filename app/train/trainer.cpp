// SPDX-License-Identifier: Apache-2.0
#include "app/train/trainer.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>

#include "app/base/duration.h"
#include "app/config/config_printer.h"
#include "app/train/broken_report.h"
#include "app/train/job_end.h"
#include "app/train/trace_run.h"
#include "layers/base/clock.h"
#include "layers/base/error.h"
#include "layers/base/trace.h"
#include "parallel/base/wait_time.h"
#include "parallel/comm/agree.h"
#include "parallel/watchdog/activity.h"

namespace convoy {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kOwnNumbers = 4;  // of the step's exchange: loss, signalled, time is up, new broken samples

LoaderOptions training_options(const Run& run, const RunState& state) {
  LoaderOptions options = training_loader(run);
  options.epoch = state.epoch;
  options.position = state.samples_seen;
  return options;
}

}  // namespace

void prepare_run_folder(Run& run) {
  const auto write_config = [&] {
    if (!run.is_root()) return;
    const std::filesystem::path folder = run_folder(run.config);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    std::ofstream config(folder / "config.toml");
    config << resolved_toml(run.config, false) << std::flush;
    if (error || !config) {
      fail_usage("run.dir: cannot write to {} (choose another folder with --set run.dir=...)", folder.string());
    }
  };
  agree(*run.communicator, write_config, "opening the run's folder");
}

Trainer::Trainer(Run& run, const RunState& state, StopRequest& stop)
    : run_(run), state_(state), stop_(stop), health_(*run.communicator, run.host) {
  agree(
      *run_.communicator, [&] { open_files(); }, "opening the run's files");
  const Sampler sampler(run_.train->size(), run_.config.run.seed, run_.config.data.shuffle);
  feed_ = std::make_unique<BatchFeed>(std::make_unique<Loader>(*run_.train, sampler, training_options(run_, state_)),
                                      *run_.runner, run_.total_steps - state_.step);
}

void Trainer::open_files() {
  if (!run_.is_root()) return;
  const Config& c = run_.config;
  report_ = std::make_unique<RunReport>(run_, state_);
  for (const std::string& line : run_.staging) report_->message(line);
  // Checkpoints of another past of this run, which a later resume = auto would take for its own.
  const std::int64_t kept_step = state_.source.empty() ? -1 : state_.step;
  for (const std::string& moved : set_aside_checkpoints_after(checkpoint_folder(c), kept_step)) {
    report_->message(fmt::format("set aside  {} (of a later step than this run starts from)", moved));
  }
  writer_ =
      std::make_unique<CheckpointWriter>(checkpoint_folder(c), static_cast<int>(c.checkpoint.keep), c.checkpoint.async);
  if (c.run.max_time) return;  // the user's own limit
  if (const auto left = time_left_in_job()) {
    stop_.set_job_end(*left);
    report_->message(fmt::format("time limit {} from now (the job's end); the run stops with a checkpoint before it",
                                 format_duration(std::chrono::duration_cast<std::chrono::seconds>(*left))));
  }
}

ExitCode Trainer::train() {
  Stop stop = Stop::kNo;
  if (run_.config.log.trace) trace::start();
  while (!is_finished(run_.config, state_) && stop == Stop::kNo) {
    const auto start = Clock::now();
    stop = step();
    stop_.observe_boundary(Clock::now() - start);
  }
  finish(is_finished(run_.config, state_) ? Stop::kNo : stop);
  return is_finished(run_.config, state_) || stop == Stop::kNo ? ExitCode::kDone : ExitCode::kStopped;
}

Trainer::Stop Trainer::step() {
  const auto start = Clock::now();
  const double waited = communication_wait_seconds();
  trace::set_step(state_.step + 1);
  const double asked = trace::now();
  note_activity("reading data");
  const LoaderStep batch = feed_->next();
  note_activity("computing a step");
  if (trace::enabled()) trace::record(trace::Track::kData, "data", asked, trace::now());
  const double lr = run_.lr.at(state_.step);
  const LossTotals totals = run_.runner->train_step(batch.microbatches, batch.global_samples, lr, state_.step,
                                                    [this] { feed_->fetch_ahead(); });
  health_.add(seconds_since(start), batch.wait_seconds, communication_wait_seconds() - waited);
  ++state_.step;
  Stop stop = Stop::kNo;
  const double loss = exchange(totals.loss, stop) / static_cast<double>(batch.global_samples);
  if (!std::isfinite(loss)) fail_loss(loss);
  if (report_) {
    const bool sized = !run_.config.data.train_sizes.empty();
    report_->step({state_.step, batch.epoch, batch.first_position, batch.global_samples, loss, lr,
                   static_cast<double>(batch.global_samples) / seconds_since(start), batch.wait_seconds,
                   sized ? batch.microbatches.front().input_shape[2] : 0});
  }
  state_.samples_seen = batch.last_of_epoch ? 0 : batch.first_position + batch.global_samples;
  state_.epoch = batch.last_of_epoch ? batch.epoch + 1 : batch.epoch;
  after_step(batch.last_of_epoch);
  return stop;
}

double Trainer::exchange(double loss, Stop& stop) {
  const bool health_due = run_.communicator->size() > 1 && state_.step % run_.config.log.every_steps == 0;
  shared_.resize(kOwnNumbers + (health_due ? health_.slots() : 0));
  shared_[0] = loss;
  shared_[1] = stop_.signalled() ? 1.0 : 0.0;
  shared_[2] = stop_.time_is_up() ? 1.0 : 0.0;
  shared_[3] = broken_news(*run_.train);
  const std::span<double> numbers(shared_);
  if (health_due) health_.put(numbers.subspan(kOwnNumbers));
  run_.communicator->all_reduce(numbers, ReduceOp::kSum, "step loss");
  if (shared_[1] > 0) {
    stop = Stop::kSignal;
  } else if (shared_[2] > 0) {
    stop = Stop::kMaxTime;
  }
  if (shared_[3] > 0) {
    const auto warnings = share_broken(*run_.communicator, *run_.train);
    for (const std::string& warning : warnings) {
      if (report_) report_->warning(warning);
    }
  }
  if (health_due) {
    const HealthReport health = health_.take(numbers.subspan(kOwnNumbers));
    if (report_) report_->health(state_.step, health);
  }
  return shared_[0];
}

void Trainer::fail_loss(double loss) {
  if (writer_) writer_->wait();
  std::string last = "no checkpoint had been written";
  if (saved_step_ >= 0) {
    last = fmt::format("the checkpoint of step {} is in {}", saved_step_, checkpoint_folder(run_.config));
  } else if (!state_.source.empty()) {
    last = "the last checkpoint is " + state_.source;
  }
  Error error(fmt::format("step {}: the loss is {} (a smaller optimizer.lr, or a longer lr_schedule.warmup_epochs); {}",
                          state_.step, loss, last));
  error.set_collective();
  throw error;
}

void Trainer::after_step(bool end_of_epoch) {
  const Config& c = run_.config;
  const auto due = [&](std::int64_t every_epochs) {
    return end_of_epoch && every_epochs > 0 && state_.epoch % every_epochs == 0;
  };
  if (due(c.train.eval_every_epochs)) evaluate_now();
  const bool by_steps = c.checkpoint.every_steps > 0 && state_.step % c.checkpoint.every_steps == 0;
  if (due(c.checkpoint.every_epochs) || by_steps) save();
  drain_checkpoints();
}

void Trainer::evaluate_now() {
  if (!run_.validation || evaluated_step_ == state_.step) return;
  evaluated_step_ = state_.step;
  note_activity("evaluating");
  const auto start = Clock::now();
  const EvalResult result = evaluate(run_, *run_.validation);
  if (!report_) return;
  for (const std::string& warning : result.warnings) report_->warning(warning);
  report_->evaluation(state_, result, seconds_since(start));
}

void Trainer::save() {
  if (saved_step_ == state_.step) return;
  saved_step_ = state_.step;
  note_activity("copying out the state for a checkpoint");
  const trace::Span span(trace::Track::kCheckpoint, "state copied out");
  const auto start = Clock::now();
  Checkpoint checkpoint = capture_checkpoint(run_, state_, writer_ ? writer_->recycle() : Checkpoint());
  if (run_.is_root()) writer_->write(std::move(checkpoint), seconds_since(start));
}

// Reports the checkpoints that the writer has finished, and throws its errors.
void Trainer::drain_checkpoints() {
  if (!run_.is_root()) return;
  for (const auto& written : writer_->poll()) {
    stop_.observe_checkpoint(StopRequest::Seconds(written.seconds));
    report_->checkpoint(written);
  }
}

void Trainer::finish(Stop stop) {
  if (stop == Stop::kNo && run_.config.train.eval_every_epochs == 0) evaluate_now();
  save();
  if (run_.config.log.trace) write_trace(run_, run_folder(run_.config) + "/trace.json");
  if (!run_.is_root()) return;
  note_activity("writing the last checkpoint");
  writer_->wait();
  drain_checkpoints();
  if (stop == Stop::kNo) {
    report_->end("finished", state_, fmt::format("finished after step {}", state_.step));
    return;
  }
  const bool signal = stop == Stop::kSignal;
  report_->end(signal ? "signal" : "max_time", state_,
               fmt::format("stopped after step {} ({}); run the same command again to resume", state_.step,
                           signal ? "signal" : "its time is over"));
}

}  // namespace convoy
