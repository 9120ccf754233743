// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_report.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "app/base/error_report.h"
#include "app/build/build_model.h"
#include "layers/base/counted.h"

namespace convoy {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();  // of either sign, without it

std::string in_folder(const Config& config, const char* name) {
  return (std::filesystem::path(run_folder(config)) / name).string();
}

std::string hits_text(const EvalResult& result, std::int64_t classes) {
  std::string text = fmt::format(", top-1 {:.2f} %", 100 * result.top1);
  if (classes > 5) text += fmt::format(", top-5 {:.2f} %", 100 * result.top5);
  return text;
}

std::vector<double> listed(const MinMedianMax& s) { return {s.min, s.median, s.max}; }

}  // namespace

RunReport::RunReport(const Run& run, const RunState& state)
    : config_(run.config),
      total_steps_(run.total_steps),
      classes_(run.train->target_size() > 0 ? 0 : output_size(run.config, *run.train)),
      log_(in_folder(run.config, "log.txt")),
      metrics_(in_folder(run.config, "metrics.jsonl")),
      order_(training_sampler(*run.train, run.config.data, run.config.run.seed)) {
  metrics_.truncate_after(state.source.empty() ? -1 : state.step);  // what lies after it is another past
  if (config_.log.tensorboard) {
    tensorboard_ = std::make_unique<TensorboardWriter>(run_folder(config_), state.step);
  }
  progress_ = std::make_unique<Progress>(config_.log.progress, run.total_steps, run.plan.steps_per_epoch());
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
  if (s.image_size > 0) fields.emplace_back("image_size", s.image_size);
  metrics_.write(fields);
  if (!tensorboard_) return;
  tensorboard_->scalar("train/loss", s.step, s.loss);
  tensorboard_->scalar("train/lr", s.step, s.lr);
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

void RunReport::evaluation(const RunState& state, const EvalResult& result, double seconds) {
  std::vector<std::pair<const char*, double>> scores{{"loss", result.loss}};
  if (classes_ > 0) {
    scores.insert(scores.end(), {{"top1", result.top1}, {"top5", result.top5}});
  } else {
    scores.insert(scores.end(), {{"mae", result.mae}, {"r2", result.r2}});
  }
  std::vector<MetricsField> fields{{"event", "eval"}, {"step", state.step}, {"epoch", state.epoch}};
  for (const auto& [name, value] : scores) fields.emplace_back(name, value);
  fields.emplace_back("samples", result.samples);
  fields.emplace_back("seconds", seconds);
  metrics_.write(fields);
  for (const auto& [name, value] : scores) {
    if (tensorboard_) tensorboard_->scalar(std::string("eval/") + name, state.step, value);
  }
  message(fmt::format(
      "epoch {}: validation loss {:.4f}{}", state.epoch, std::isnan(result.loss) ? kNan : result.loss,
      classes_ > 0 ? hits_text(result, classes_) : fmt::format(", MAE {:.4g}, R2 {:.4f}", result.mae, result.r2)));
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
  metrics_.write({{"event", "end"}, {"reason", reason}, {"step", state.step}, {"epoch", state.epoch}});
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
