// SPDX-License-Identifier: Apache-2.0
#include "app/train/trainer.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "app/base/duration.h"
#include "app/base/error_report.h"
#include "app/build/find_checkpoint.h"
#include "app/build/read_config.h"
#include "app/config/config_printer.h"
#include "app/train/broken_report.h"
#include "app/train/job_end.h"
#include "app/train/trace_run.h"
#include "io/data/broken_files.h"
#include "io/files/atomic_file.h"
#include "layers/base/clock.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/option_error.h"
#include "layers/base/system_error.h"
#include "layers/base/trace.h"
#include "parallel/base/wait_time.h"
#include "parallel/comm/agree.h"
#include "parallel/watchdog/activity.h"

namespace convoy {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kOwnNumbers =
    6;  // of the step's exchange: loss, signalled, time is up, news of samples, nonfinite, energy

LoaderOptions training_options(const Run& run, const RunState& state) {
  LoaderOptions options = training_loader(run);
  options.epoch = state.epoch;
  options.position = state.samples_seen;
  return options;
}

}  // namespace

void check_evaluation_keys(const Run& run) {
  const auto check_key = [&](const char* key, const char* metric_key, const std::string& metric) {
    if (!run.validation) fail_option(key, "needs an evaluation (set data.validation)");
    if (metric == "top1" && run.config.train.loss.scores(run.train->target_size() > 0) != Scores::kTopK) {
      fail_option(metric_key, "\"top1\" needs class labels, the data have float targets (use \"loss\")");
    }
  };
  const auto check = [&] {
    const TrainOptions& t = run.config.train;
    const std::string& best = run.config.checkpoint.keep_best;
    if (!best.empty()) check_key("checkpoint.keep_best", "checkpoint.keep_best", best);
    if (t.early_stop_epochs == 0) return;
    check_key("train.early_stop_epochs", "train.early_stop_metric", t.early_stop_metric);
    if (t.eval_every_epochs == 0) {
      fail_option("train.early_stop_epochs", "needs evaluations before the end (set train.eval_every_epochs above 0)");
    }
  };
  agree(
      *run.communicator, [&] { add_places(run.config, check); }, "checking the keys of evaluations");
}

Trainer::Trainer(Run& run, const RunState& state, StopRequest& stop)
    : run_(run),
      state_(state),
      stop_(stop),
      health_(*run.communicator, run.host),
      early_stop_(run.config.train.early_stop_epochs, run.config.train.early_stop_metric) {
  agree(
      *run_.communicator, [&] { open_files(); }, "opening the run's files");
  report_energy_counters();
  const Sampler sampler = training_sampler(*run_.train, run_.config.data, run_.config.run.seed);
  if (state_.source == checkpoint_path(checkpoint_folder(run_.config), state_.step)) saved_step_ = state_.step;
  feed_ = std::make_unique<BatchFeed>(std::make_unique<Loader>(*run_.train, sampler, training_options(run_, state_)),
                                      *run_.runner, run_.total_steps - state_.step);
}

void Trainer::open_files() {
  if (!run_.is_root()) return;
  const Config& c = run_.config;
  const std::string folder = run_folder(c), copy_warning = prepare_copies(run_, state_);
  const std::string config = resolved_toml(c, false);
  try {
    write_file_atomically(folder + "/config.toml", std::as_bytes(std::span(config)));
  } catch (const Error& error) {
    fail_as(error, fmt::format("run.dir: {} (choose another folder with --set run.dir=...)", error.what()));
  }
  report_ = std::make_unique<RunReport>(run_, state_);
  early_stop_.add_from(folder + "/metrics.jsonl", state_.step);  // of its own past
  for (const std::string& change : state_.changes) report_->message("differs from the checkpoint: " + change);
  for (const std::string& line : run_.notes) report_->message(line);
  checkpoints_ = std::make_unique<RunCheckpoints>(run_, state_, *report_, stop_, copy_warning);
  if (c.run.max_time) return;  // the user's own limit
  if (const auto left = time_left_in_job()) {
    stop_.set_job_end(*left);
    report_->message(fmt::format("time limit {} from now (the job's end); the run stops with a checkpoint before it",
                                 format_duration(std::chrono::duration_cast<std::chrono::seconds>(*left))));
  }
}

void Trainer::report_energy_counters() {
  Communicator& all = *run_.communicator;
  const std::string own = run_.energy->problem();
  // The first rank with a problem, and whether there is one that reads.
  std::array<double, 2> ranks{static_cast<double>(own.empty() ? all.size() : all.rank()),
                              run_.energy->readable() ? -1.0 : 0.0};
  all.all_reduce(ranks, ReduceOp::kMin, "energy counters");
  if (ranks[0] == all.size()) return;
  const std::string problem = all.broadcast(own, static_cast<int>(ranks[0]), "energy counters");
  if (!report_) return;
  report_->energy_problem(
      fmt::format("{} ({})", ranks[1] < 0 ? "not all energy is readable" : "energy is not readable", problem));
}

ExitCode Trainer::train() {
  watch_for_errors();
  if (run_.config.log.trace) trace::start();
  boundary_ = Clock::now();
  if (state_.evaluation_due) evaluate_now();  // the one that a stop or a failure of the run before has cut short
  while (!is_finished(run_.config, state_) && stopped_ == StopReason::kNo) {
    step();
    at_boundary();
  }
  finish();
  on_error_report({});
  return is_done() ? ExitCode::kDone : ExitCode::kStopped;
}

void Trainer::at_boundary() {
  const auto now = Clock::now();
  stop_.observe_boundary(now - boundary_);
  boundary_ = now;
}

// Any rank's error ends the run: whoever reports it leaves a trace in the run's folder. It may outlive this object.
void Trainer::watch_for_errors() {
  on_error_report([folder = run_folder(run_.config), at = at_](const std::string& message) {
    try {
      RunLog(folder + "/log.txt").error(message);
      MetricsLog(folder + "/metrics.jsonl")
          .write({{"event", "end"},
                  {"reason", "error"},
                  {"step", at->step.load()},
                  {"epoch", at->epoch.load()},
                  {"message", message}});
    } catch (const std::exception&) {  // the message is on stderr
    }
  });
}

void Trainer::step() {
  const auto start = Clock::now();
  const double waited = communication_wait_seconds();
  trace::set_step(state_.step + 1);
  const double asked = trace::now();
  note_activity("reading data");
  const LoaderStep batch = feed_->next();
  note_activity("computing a step");
  if (trace::enabled()) trace::record(trace::Track::kData, "data", asked, trace::now());
  const double lr = run_.lr.at(state_.step + run_.steps_ahead);
  const LossTotals totals = run_.runner->train_step(batch.microbatches, batch.global_samples, lr, state_.step,
                                                    [this] { feed_->fetch_ahead(); });
  health_.add(seconds_since(start), batch.wait_seconds, communication_wait_seconds() - waited);
  ++state_.step;
  const double loss = exchange(totals) / static_cast<double>(batch.global_samples);
  if (!std::isfinite(loss)) fail_nonfinite(fmt::format("the loss is {}", std::isnan(loss) ? "nan" : "inf"));
  if (shared_[4] > 0) fail_nonfinite("the loss is finite, but its gradients or the update are not");
  if (report_) {
    const bool sized = !run_.config.data.train_sizes.empty();
    report_->step({state_.step, batch.epoch, batch.first_position, batch.global_samples, loss, lr, totals.gradient_norm,
                   static_cast<double>(batch.global_samples) / seconds_since(start), batch.wait_seconds, shared_[5],
                   sized ? batch.microbatches.front().input_shape[2] : 0});
    if (run_.contention->take_first_contention()) report_->contention(state_.step);
  }
  state_.samples_seen = batch.last_of_epoch ? 0 : batch.first_position + batch.global_samples;
  state_.epoch = batch.last_of_epoch ? batch.epoch + 1 : batch.epoch;
  at_->step = state_.step;
  at_->epoch = state_.epoch;
  after_step(batch.last_of_epoch);
}

double Trainer::exchange(const LossTotals& totals) {
  const bool health_due = run_.communicator->size() > 1 && state_.step % run_.config.log.every_steps == 0;
  shared_.resize(kOwnNumbers + (health_due ? health_.slots() : 0));
  shared_[0] = totals.loss;
  shared_[1] = stop_.signalled() ? 1.0 : 0.0;
  shared_[2] = stop_.time_is_up() ? 1.0 : 0.0;
  shared_[3] = broken_news(*run_.train);
  shared_[4] = totals.nonfinite ? 1.0 : 0.0;
  shared_[5] = run_.energy->take_sometimes();
  const std::span<double> numbers(shared_);
  if (health_due) health_.put(numbers.subspan(kOwnNumbers));
  run_.communicator->all_reduce(numbers, ReduceOp::kSum, "step loss");
  stopped_ = stop_reason(shared_[1], shared_[2]);
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

void Trainer::fail_nonfinite(const std::string& what) {
  if (checkpoints_) {
    try {
      checkpoints_->wait();
    } catch (const Error&) {  // what is wrong with the run is said below
    }
  }
  std::string last = "no checkpoint had been written";
  if (const auto files = list_checkpoints(checkpoint_folder(run_.config)); !files.empty()) {
    last = "the last checkpoint is " + files.back().path;
  } else if (!state_.source.empty()) {
    last = "the last checkpoint is " + state_.source;
  }
  const BrokenFiles* samples = run_.config.data.allow_nonfinite ? run_.train->broken() : nullptr;
  const std::string data = samples != nullptr && samples->noted() > 0
                               ? "samples that are not finite were used (data.allow_nonfinite); else "
                               : "";
  Error error(fmt::format("step {}: {} ({}try a smaller optimizer.lr, or a longer lr_schedule.{}); {}", state_.step,
                          what, data, run_.config.lr_schedule.warmup_steps > 0 ? "warmup_steps" : "warmup_epochs",
                          last));
  error.set_collective();
  throw error;
}

void Trainer::after_step(bool end_of_epoch) {
  const Config& c = run_.config;
  const auto due = [&](std::int64_t every_epochs) {
    return end_of_epoch && every_epochs > 0 && state_.epoch % every_epochs == 0;
  };
  state_.evaluation_due = evaluates_now(run_, state_, end_of_epoch);
  const bool by_steps = c.checkpoint.every_steps > 0 && state_.step % c.checkpoint.every_steps == 0;
  const bool last_evaluation = state_.evaluation_due && is_finished(c, state_);
  if (due(c.checkpoint.every_epochs) || by_steps || last_evaluation) save();
  drain_checkpoints();
  if (!state_.evaluation_due || stopped_ != StopReason::kNo) return;
  at_boundary();
  evaluate_now();
  drain_checkpoints();
}

void Trainer::evaluate_now() {
  note_activity("evaluating");
  const auto start = Clock::now();
  const auto after_batch = [&](std::int64_t done, std::int64_t batches) {
    stopped_ = agree_on_stop(*run_.communicator, stop_);
    at_boundary();
    if (report_) report_->evaluating(state_, done, batches);
    if (stopped_ != StopReason::kNo) cut_short_ = fmt::format(" in batch {} of {} of its evaluation", done, batches);
    return stopped_ == StopReason::kNo;
  };
  const std::optional<EvalResults> result =
      evaluate_with_average(run_, *run_.validation, after_batch, confusion_classes(run_, *run_.validation));
  if (!result) return;
  state_.evaluation_due = false;
  if (report_) {
    for (const std::string& warning : result->model.warnings) report_->warning(warning);
    report_->evaluation(state_, *result, seconds_since(start));
  }
  if (is_best(result->model)) save();
  stop_early(result->model);
}

void Trainer::stop_early(const EvalResult& result) {
  if (run_.config.train.early_stop_epochs == 0) return;
  const auto ask = [&] {
    early_stop_.add(result.score("top1"), result.loss);
    return early_stop_.reached() ? "stop" : "";
  };
  state_.early_stop = !on_root(*run_.communicator, ask, "comparing evaluations for an early stop").empty();
}

bool Trainer::is_best(const EvalResult& result) {
  const std::string& by = run_.config.checkpoint.keep_best;
  if (by.empty()) return false;
  const auto ask = [&] {
    return checkpoints_->evaluated(state_.step, evaluation_score(by, result.score("top1"), result.loss)) ? "best" : "";
  };
  return !on_root(*run_.communicator, ask, "comparing the evaluation with earlier ones").empty();
}

void Trainer::save() {
  saved_step_ = state_.step;
  if (run_.replay) run_.replay->check_state(state_.step);
  note_activity("copying out the state for a checkpoint");
  const trace::Span span(trace::Track::kCheckpoint, "state copied out");
  const auto start = Clock::now();
  Checkpoint checkpoint = capture_checkpoint(run_, state_, checkpoints_ ? checkpoints_->recycle() : Checkpoint());
  const auto check = [&] { return first_nonfinite(checkpoint); };
  const std::string wrong = on_root(*run_.communicator, check, "checking the checkpoint's values");
  if (!wrong.empty()) fail_nonfinite(fmt::format("{} has values that are not finite, no checkpoint is written", wrong));
  if (checkpoints_ && !checkpoints_->write(std::move(checkpoint), seconds_since(start))) saved_step_ = -1;
}

void Trainer::drain_checkpoints() {
  if (checkpoints_ && !checkpoints_->drain()) saved_step_ = -1;
}

void Trainer::finish() {
  // Rank 0 alone knows whether the checkpoint of this step could be written.
  const auto missing = [&] { return std::string(saved_step_ == state_.step ? "" : "missing"); };
  if (!on_root(*run_.communicator, missing, "the last checkpoint").empty()) save();
  if (run_.config.log.trace) write_trace(run_, run_folder(run_.config) + "/trace.json");
  std::array<double, 1> energy{run_.energy->take()};
  run_.communicator->all_reduce(std::span<double>(energy), ReduceOp::kSum, "energy");
  if (!run_.is_root()) return;
  report_->more_energy(energy[0]);
  checkpoints_->finish();
  if (is_done()) {
    const TrainOptions& t = run_.config.train;
    if (is_trained(run_.config, state_)) {
      report_->end("finished", state_, fmt::format("finished after step {}", state_.step));
    } else {
      report_->end("early_stop", state_,
                   fmt::format("stopped early after step {}: {} of {} brought no improvement", state_.step,
                               counted(t.early_stop_epochs, "evaluation"), t.early_stop_metric));
    }
    return;
  }
  const bool signal = stopped_ == StopReason::kSignal;
  report_->end(signal ? "signal" : "max_time", state_,
               fmt::format("stopped after step {}{} ({}); run the same command again to resume", state_.step,
                           cut_short_, signal ? "signal" : "its time is over"));
}

}  // namespace convoy
