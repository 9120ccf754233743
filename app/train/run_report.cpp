// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_report.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "app/base/error_report.h"
#include "app/build/build_model.h"
#include "app/train/confusion.h"
#include "io/files/atomic_file.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

// A NaN of either sign without it.
double plain_nan(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

constexpr const char* kRunningHelp = "1 while the run goes on, 0 once it has ended.";

std::string in_folder(const Config& config, const char* name) {
  return (std::filesystem::path(run_folder(config)) / name).string();
}

std::vector<double> listed(const MinMedianMax& s) { return {s.min, s.median, s.max}; }

}  // namespace

RunReport::RunReport(const Run& run, const RunState& state)
    : config_(run.config),
      total_steps_(run.total_steps),
      outputs_(output_size(run.config, *run.train)),
      classes_(run.train->target_size() > 0 ? 0 : output_size(run.config, *run.train)),
      class_names_(class_names_or_numbers(run.train->class_names(), classes_)),
      log_(in_folder(run.config, "log.txt")),
      metrics_(in_folder(run.config, "metrics.jsonl")),
      order_(training_sampler(*run.train, run.config.data, run.config.run.seed)) {
  metrics_.truncate_after(state.source.empty() ? -1 : state.step);  // what lies after it is another past
  if (config_.log.tensorboard) {
    tensorboard_ = std::make_unique<TensorboardWriter>(run_folder(config_), state.step);
  }
  const std::int64_t an_epoch = run.plan.steps_per_epoch(), steps = run.total_steps + run.steps_ahead;
  progress_ = std::make_unique<Progress>(config_.log.progress, run.total_steps, (steps + an_epoch - 1) / an_epoch);
  if (!config_.log.prometheus.empty()) {
    prometheus_ = std::make_unique<PrometheusFile>(config_.log.prometheus, config_.run.name);
    prometheus_->set("running", 1, kRunningHelp);
    prometheus_->set("total_steps", static_cast<double>(total_steps_), "Optimizer steps of the whole run.");
    try {
      prometheus_->write();
    } catch (const Error& error) {
      fail_alone_as(error, fmt::format("log.prometheus: {}", error.what()));
    }
  }
  metrics_.write({{"event", "start"},
                  {"step", state.step},
                  {"ranks", run.communicator->size()},
                  {"replicas", run.layout.mesh.replicas()},
                  {"stages", run.layout.mesh.stages()},
                  {"device", run.backend->description()},
                  {"cpus", run.cpus},
                  {"parameters", run.model->parameter_count()},
                  {"total_steps", run.total_steps},
                  {"resumed_from", state.source},
                  {"continues", state.in_folder},
                  {"run", state.record.id},
                  {"changes", state.changes}});
  log_.info(fmt::format("start on {} ({} x {}), {}, {}, {}", counted(run.communicator->size(), "rank"),
                        counted(run.layout.mesh.replicas(), "replica"), counted(run.layout.mesh.stages(), "stage"),
                        run.backend->description(), run.cpus, state.describe_start()));
}

void RunReport::step(const StepFacts& s) {
  const std::int64_t before = std::exchange(image_size_, s.image_size);
  if (before > 0 && before != s.image_size) {
    message(fmt::format("after epoch {}: training images of {}x{}", s.epoch, s.image_size, s.image_size));
  }
  progress_->step(s.step, s.epoch, s.loss, s.images_per_second);
  energy_pending_ += s.energy_j;
  energy_total_ += s.energy_j;
  last_ = s;
  if (prometheus_ && prometheus_->due()) to_prometheus([](PrometheusFile&) {});
  if (s.step % config_.log.every_steps != 0 && s.step != total_steps_) return;
  std::vector<MetricsField> fields{{"event", "step"},
                                   {"step", s.step},
                                   {"epoch", s.epoch},
                                   {"position", s.position},
                                   {"samples", s.samples},
                                   {"samples_crc32c", order_.digest(s.epoch, s.position, s.samples)},
                                   {"loss", s.loss},
                                   {"lr", s.lr},
                                   {"images_per_second", s.images_per_second},
                                   {"data_wait_s", s.data_wait_s}};
  const bool has_norm = !std::isnan(s.gradient_norm);
  if (has_norm) fields.emplace_back("grad_norm", s.gradient_norm);
  if (s.image_size > 0) fields.emplace_back("image_size", s.image_size);
  if (energy_pending_ > 0) fields.emplace_back("energy_j", std::exchange(energy_pending_, 0.0));
  metrics_.write(fields);
  if (!tensorboard_) return;
  tensorboard_->scalar("train/loss", s.step, s.loss);
  tensorboard_->scalar("train/lr", s.step, s.lr);
  if (has_norm) tensorboard_->scalar("train/grad_norm", s.step, s.gradient_norm);
  tensorboard_->scalar("train/images_per_second", s.step, s.images_per_second);
}

void RunReport::contention(std::int64_t step) {
  log_.info(fmt::format("step {}: threads compete for the CPUs: while they do, waits block and do not spin", step));
}

void RunReport::health(std::int64_t step, const HealthReport& r) {
  metrics_.write({{"event", "health"},
                  {"step", step},
                  {"steps", r.steps},
                  {"step_s", listed(r.step)},
                  {"busy_s", listed(r.busy)},
                  {"data_wait_s", listed(r.data_wait)},
                  {"communication_wait_s", listed(r.communication_wait)},
                  {"slowest_rank", r.slowest_rank},
                  {"slowest_host", r.slowest_host},
                  {"slowdown", r.slowdown}});
  log_.info(fmt::format("step {}: {}", step, health_line(r)));
  if (tensorboard_) tensorboard_->scalar("health/slowdown", step, r.slowdown);
  if (!r.uneven() || told_straggler_ == r.slowest_rank) return;
  told_straggler_ = r.slowest_rank;  // printed once; the log has every one
  progress_->message(fmt::format("step {}: rank {} on {} holds the others up: {}", step, r.slowest_rank, r.slowest_host,
                                 health_line(r)));
}

void RunReport::evaluating(const RunState& state, std::int64_t done, std::int64_t batches) {
  const bool between_epochs = state.samples_seen == 0 && state.epoch > 0;
  progress_->evaluating(state.step, state.epoch - (between_epochs ? 1 : 0), done, batches);
}

void RunReport::evaluation(const RunState& state, const EvalResults& results, double seconds) {
  const EvalResult& result = results.model;
  std::vector<std::pair<std::string_view, double>> scores{{"loss", result.loss}};
  scores.insert(scores.end(), result.scores.begin(), result.scores.end());
  if (results.average) {
    scores.emplace_back("ema_loss", results.average->loss);
    if (has_top1(*results.average)) scores.emplace_back("ema_top1", results.average->score("top1"));
  }
  std::vector<MetricsField> fields{{"event", "eval"}, {"step", state.step}, {"epoch", state.epoch}};
  for (const auto& [name, value] : scores) fields.emplace_back(name, value);
  fields.emplace_back("samples", result.samples);
  fields.emplace_back("seconds", seconds);
  metrics_.write(fields);
  write_confusion(result);
  to_prometheus([&](PrometheusFile& file) {
    file.set("evaluation_step", static_cast<double>(state.step), "Step of the last evaluation.");
    for (const auto& [name, value] : scores) {
      file.set(fmt::format("evaluation_{}", name), value, "Of the last evaluation.");
    }
  });
  for (const auto& [name, value] : scores) {
    if (tensorboard_) tensorboard_->scalar(fmt::format("eval/{}", name), state.step, value);
  }
  std::string line = fmt::format("epoch {}: validation loss {:.4f}", state.epoch, plain_nan(result.loss));
  for (const auto& [label, value] : shown_scores(result, outputs_, Digits::kLine)) {
    line += fmt::format(", {} {}", label, value);
  }
  if (results.average) {
    line += fmt::format("; of the average of the weights {:.4f}", plain_nan(results.average->loss));
    if (has_top1(*results.average)) {
      const ShownScore top1 = shown_scores(*results.average, outputs_, Digits::kLine).front();
      line += fmt::format(", {} {}", top1.label, top1.value);
    }
  }
  message(line);
}

void RunReport::to_prometheus(const std::function<void(PrometheusFile& file)>& change) {
  if (!prometheus_) return;
  PrometheusFile& file = *prometheus_;
  if (last_.step > 0) {
    file.set("step", static_cast<double>(last_.step), "Optimizer steps done.");
    file.set("epoch", static_cast<double>(last_.epoch), "Epoch of the last step, from 0.");
    file.set("loss", last_.loss, "Loss of the last step.");
    file.set("images_per_second", last_.images_per_second, "Samples per second of the last step.");
    file.set("learning_rate", last_.lr, "Learning rate of the last step.");
  }
  if (energy_total_ > 0) file.set("energy_joules", energy_total_, "Energy since this start of the run, all nodes.");
  change(file);
  try {
    file.write();
  } catch (const Error& error) {
    if (!std::exchange(prometheus_failed_, true)) warning(fmt::format("log.prometheus: {}", error.what()));
  }
}

void RunReport::energy_problem(const std::string& text) { log_.info(text); }

void RunReport::more_energy(double joules) { energy_total_ += joules; }

void RunReport::write_confusion(const EvalResult& result) {
  if (result.confusion.empty()) return;
  const std::string text = confusion_csv({class_names_, result.confusion});
  try {
    write_file_atomically(in_folder(config_, "confusion.csv"), std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    warning(error.what());
  }
}

void RunReport::checkpoint(const CheckpointWriter::Result& written) {
  metrics_.write({{"event", "checkpoint"},
                  {"step", written.step},
                  {"path", written.path},
                  {"seconds", written.seconds},
                  {"stall_s", written.stall_seconds}});
  log_.info(fmt::format("step {}: checkpoint written in {:.3g} s, training stood still for {:.3g} s: {}", written.step,
                        written.seconds, written.stall_seconds, written.path));
}

void RunReport::copy(const CheckpointCopier::Result& copied) {
  std::vector<MetricsField> fields{
      {"event", "copy"}, {"step", copied.step}, {"path", copied.path}, {"seconds", copied.seconds}};
  if (!copied.problem.empty()) fields.emplace_back("error", copied.problem);
  metrics_.write(fields);
  if (copied.problem.empty()) {
    log_.info(fmt::format("step {}: checkpoint copied in {:.3g} s: {}", copied.step, copied.seconds, copied.path));
  } else {
    const std::string text = fmt::format("checkpoint.copy_to: step {}: {}; the next checkpoint is copied again",
                                         copied.step, copied.problem);
    if (!copy_failed_) print_warning(text);
    log_.warn(text);
  }
  copy_failed_ = !copied.problem.empty();
}

void RunReport::end(const char* reason, const RunState& state, const std::string& sentence) {
  std::vector<MetricsField> fields{{"event", "end"}, {"reason", reason}, {"step", state.step}, {"epoch", state.epoch}};
  if (energy_total_ > 0) fields.emplace_back("energy_j", energy_total_);
  metrics_.write(fields);
  to_prometheus([](PrometheusFile& file) { file.set("running", 0, kRunningHelp); });
  metrics_.sync();
  progress_->finish();
  message(sentence);
}

void RunReport::warning(const std::string& text) {
  print_warning(text);
  log_.warn(text);
}

void RunReport::message(const std::string& text) {
  progress_->message(text);
  log_.info(text);
}

}  // namespace convoy
