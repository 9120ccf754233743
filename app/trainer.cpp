// SPDX-License-Identifier: Apache-2.0
#include "app/trainer.h"

#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "app/config_printer.h"
#include "app/trace_run.h"
#include "layers/base/error.h"
#include "layers/base/trace.h"
#include "parallel/agree.h"

namespace convoy {

namespace {

LoaderOptions training_options(const Run& run, const RunState& state) {
  LoaderOptions options = training_loader(run);
  options.epoch = state.epoch;
  options.position = state.samples_seen;
  return options;
}

const char* reason_word(bool signal) { return signal ? "signal" : "max_time"; }

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

Trainer::Trainer(Run& run, const RunState& state)
    : run_(run), state_(state), stop_(run.config.run.stop_signals, run.config.run.max_time) {
  agree(
      *run_.communicator, [&] { open_files(); }, "opening the run's files");
  const Sampler sampler(run_.train->size(), run_.config.run.seed, run_.config.data.shuffle);
  feed_ = std::make_unique<BatchFeed>(std::make_unique<Loader>(*run_.train, sampler, training_options(run_, state_)),
                                      *run_.runner, run_.total_steps - state_.step);
}

void Trainer::open_files() {
  if (!run_.is_root()) return;
  const Config& c = run_.config;
  const std::filesystem::path folder = run_folder(c);
  metrics_ = std::make_unique<MetricsLog>((folder / "metrics.jsonl").string());
  const std::int64_t kept_step = state_.source.empty() ? -1 : state_.step;  // what lies after it is another past
  metrics_->truncate_after(kept_step);
  if (c.log.tensorboard) tensorboard_ = std::make_unique<TensorboardWriter>(folder.string(), state_.step);
  // Checkpoints of another past of this run, which a later resume = auto would take for its own.
  for (const std::string& moved : set_aside_checkpoints_after(checkpoint_folder(c), kept_step)) {
    std::cout << fmt::format("set aside  {} (of a later step than this run starts from)\n", moved) << std::flush;
  }
  writer_ =
      std::make_unique<CheckpointWriter>(checkpoint_folder(c), static_cast<int>(c.checkpoint.keep), c.checkpoint.async);
  progress_ = std::make_unique<Progress>(c.log.progress, run_.total_steps, run_.plan.steps_per_epoch());
  metrics_->write({{"event", "start"},
                   {"step", state_.step},
                   {"ranks", run_.communicator->size()},
                   {"replicas", run_.layout.mesh.replicas()},
                   {"stages", run_.layout.mesh.stages()},
                   {"device", run_.backend->description()},
                   {"parameters", run_.model->parameter_count()},
                   {"total_steps", run_.total_steps},
                   {"resumed_from", state_.source}});
}

ExitCode Trainer::train() {
  Stop stop = Stop::kNo;
  if (run_.config.log.trace) trace::start();
  while (!is_finished(run_.config, state_) && stop == Stop::kNo) stop = step();
  finish(is_finished(run_.config, state_) ? Stop::kNo : stop);
  return is_finished(run_.config, state_) || stop == Stop::kNo ? ExitCode::kDone : ExitCode::kStopped;
}

Trainer::Stop Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  trace::set_step(state_.step + 1);
  const double asked = trace::now();
  const LoaderStep batch = feed_->next();
  if (trace::enabled()) trace::record(trace::Track::kData, "data", asked, trace::now());
  const double lr = run_.lr.at(state_.step);
  const LossTotals totals = run_.runner->train_step(batch.microbatches, batch.global_samples, lr, state_.step,
                                                    [this] { feed_->fetch_ahead(); });
  // One small exchange a step: the loss, and whether anybody wants to stop.
  std::array<double, 3> shared{totals.loss, stop_.signalled() ? 1.0 : 0.0, stop_.time_is_up() ? 1.0 : 0.0};
  run_.communicator->all_reduce(std::span<double>(shared), ReduceOp::kSum, "step loss");
  const double loss = shared[0] / static_cast<double>(batch.global_samples);
  ++state_.step;
  if (!std::isfinite(loss)) {
    if (writer_) writer_->wait();
    Error error(
        fmt::format("step {}: the loss is {} (a smaller optimizer.lr, or a longer lr_schedule.warmup_epochs); {}",
                    state_.step, loss, last_checkpoint()));
    error.set_collective();
    throw error;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  report_step(batch, loss, lr, seconds.count());
  state_.samples_seen = batch.last_of_epoch ? 0 : batch.first_position + batch.global_samples;
  state_.epoch = batch.last_of_epoch ? batch.epoch + 1 : batch.epoch;
  after_step(batch.last_of_epoch);
  if (shared[1] > 0) return Stop::kSignal;
  return shared[2] > 0 ? Stop::kMaxTime : Stop::kNo;
}

std::string Trainer::last_checkpoint() const {
  if (saved_step_ >= 0)
    return fmt::format("the checkpoint of step {} is in {}", saved_step_, checkpoint_folder(run_.config));
  if (!state_.source.empty()) return "the last checkpoint is " + state_.source;
  return "no checkpoint had been written";
}

void Trainer::report_step(const LoaderStep& batch, double loss, double lr, double seconds) {
  if (!run_.is_root()) return;
  const double speed = static_cast<double>(batch.global_samples) / seconds;
  progress_->step(state_.step, batch.epoch, loss, speed);
  if (state_.step % run_.config.log.every_steps != 0 && state_.step != run_.total_steps) return;
  const Sampler order(run_.train->size(), run_.config.run.seed, run_.config.data.shuffle);
  metrics_->write({{"event", "step"},
                   {"step", state_.step},
                   {"epoch", batch.epoch},
                   {"position", batch.first_position},
                   {"samples", batch.global_samples},
                   {"samples_crc32c", order.digest(batch.epoch, batch.first_position, batch.global_samples)},
                   {"loss", loss},
                   {"lr", lr},
                   {"images_per_second", speed},
                   {"data_wait_s", batch.wait_seconds}});
  if (!tensorboard_) return;
  tensorboard_->scalar("train/loss", state_.step, loss);
  tensorboard_->scalar("train/lr", state_.step, lr);
  tensorboard_->scalar("train/images_per_second", state_.step, speed);
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
  const EvalResult result = evaluate(run_, *run_.validation);
  if (!run_.is_root()) return;
  metrics_->write({{"event", "eval"},
                   {"step", state_.step},
                   {"epoch", state_.epoch},
                   {"loss", result.loss},
                   {"top1", result.top1},
                   {"top5", result.top5},
                   {"samples", result.samples}});
  if (tensorboard_) {
    tensorboard_->scalar("eval/loss", state_.step, result.loss);
    tensorboard_->scalar("eval/top1", state_.step, result.top1);
    tensorboard_->scalar("eval/top5", state_.step, result.top5);
  }
  const std::string hits = run_.train->target_size() > 0
                               ? ""
                               : fmt::format(", top-1 {:.2f} %, top-5 {:.2f} %", 100 * result.top1, 100 * result.top5);
  progress_->message(fmt::format("epoch {}: validation loss {:.4f}{}", state_.epoch, result.loss, hits));
}

void Trainer::save() {
  if (saved_step_ == state_.step) return;
  saved_step_ = state_.step;
  const trace::Span span(trace::Track::kCheckpoint, "state copied out");
  Checkpoint checkpoint = capture_checkpoint(run_, state_);
  if (run_.is_root()) writer_->write(std::move(checkpoint));
}

// Reports the checkpoints that the writer has finished; its errors come out here.
void Trainer::drain_checkpoints() {
  if (!run_.is_root()) return;
  for (const auto& written : writer_->poll()) {
    metrics_->write(
        {{"event", "checkpoint"}, {"step", written.step}, {"path", written.path}, {"seconds", written.seconds}});
  }
}

void Trainer::finish(Stop stop) {
  if (stop == Stop::kNo && run_.config.train.eval_every_epochs == 0) evaluate_now();
  save();
  if (run_.config.log.trace) write_trace(run_, run_folder(run_.config) + "/trace.json");
  if (!run_.is_root()) return;
  writer_->wait();
  drain_checkpoints();
  const bool finished = stop == Stop::kNo;
  metrics_->write({{"event", "end"},
                   {"reason", finished ? "finished" : reason_word(stop == Stop::kSignal)},
                   {"step", state_.step},
                   {"epoch", state_.epoch}});
  progress_->finish();
  progress_->message(finished ? fmt::format("finished after step {}", state_.step)
                              : fmt::format("stopped after step {} ({}); run the same command again to go on",
                                            state_.step, stop == Stop::kSignal ? "signal" : "run.max_time is over"));
}

}  // namespace convoy
