// SPDX-License-Identifier: Apache-2.0
#include "app/commands/plan_output.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "io/log/trace_file.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kSmallPart = 1e-3;  // of a step: not printed

std::string describe_layout(const Layout& layout) {
  const Schedule& s = layout.schedule;
  std::string words = fmt::format("{} x {}  {}", layout.mesh.replicas(), s.stages, s.name);
  if (s.chunks > 1) words += fmt::format(" ({} chunks)", s.chunks);
  if (layout.recompute) words += ", recompute";
  return words;
}

double samples_per_rank(const Prediction& p) {
  return static_cast<double>(p.global_batch) / static_cast<double>(p.layout.mesh.ranks());
}

std::string percent(double predicted, double measured) {
  return fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
}

}  // namespace

std::string layout_head(bool with_time, bool gpus) {
  std::string text = fmt::format("{:<10} {:<36} {:>12} {:>10} {:>11} {:>13} {:>7} {:>10}", "ranks", "replicas x stages",
                                 "microbatches", "samples", "step ms", "samples/s", "bubble", "GB/rank");
  if (with_time)
    text += fmt::format(" {:>7} {:>10} {:>10} {:>10}", "epochs", "minutes", gpus ? "GPU hours" : "rank hours", "kWh");
  return text + "\n";
}

std::string layout_row(const std::string& label, const PlannedLayout& planned) {
  const Prediction& p = planned.prediction;
  std::string text =
      fmt::format("{:<10} {:<36} {:>12} {:>10} {:>11.2f} {:>13.1f} {:>6.1f}% {:>10.3f}", label,
                  describe_layout(p.layout), p.layout.schedule.microbatches, p.layout.microbatch(p.global_batch),
                  1e3 * p.seconds, p.images_per_second(), 100 * p.bubble(), p.peak_bytes / 1e9);
  if (planned.time) {
    const TrainingTime& time = *planned.time;
    text += fmt::format(" {:>7.1f} {:>10.2f} {:>10.2f} {:>10}", time.epochs, time.seconds() / 60, time.gpu_hours(),
                        time.watts > 0 ? fmt::format("{:.2f}", time.kilowatt_hours()) : "-");
  }
  return text + "\n";
}

std::string parts_row(const PlannedLayout& planned) {
  std::string text;
  for (const StepPart& part : planned.parts) {
    if (std::abs(part.seconds) < kSmallPart * planned.prediction.seconds) continue;
    text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", part.name, 1e3 * part.seconds);
  }
  if (planned.range) {
    text += fmt::format("; {:.1f} to {:.1f} samples/s without one row", planned.range->first, planned.range->second);
  }
  return fmt::format("{:<10} step ms: {}\n", "", text);
}

Json layout_json(const PlannedLayout& planned) {
  const Prediction& p = planned.prediction;
  Json json{{"ranks", p.layout.mesh.ranks()},
            {"own_layout", planned.own},
            {"replicas", p.layout.mesh.replicas()},
            {"stages", p.layout.mesh.stages()},
            {"schedule", p.layout.schedule.name},
            {"chunks", p.layout.schedule.chunks},
            {"microbatches", p.layout.schedule.microbatches},
            {"recompute", p.layout.recompute},
            {"global_batch_size", p.global_batch},
            {"samples_per_rank", samples_per_rank(p)},
            {"step_seconds", p.seconds},
            {"step_ms", 1e3 * p.seconds},
            {"images_per_second", p.images_per_second()},
            {"bubble_share", p.bubble()},
            {"peak_bytes", p.timeline.peak_bytes}};
  Json& parts = json["step_parts_ms"] = Json::object();
  for (const StepPart& part : planned.parts) parts[std::string(part.name)] = 1e3 * part.seconds;
  if (planned.range) json["images_per_second_range"] = {planned.range->first, planned.range->second};
  if (planned.time) {
    const TrainingTime& time = *planned.time;
    json["training"] = {{"epochs", time.epochs},
                        {"steps", time.steps},
                        {"minutes", time.seconds() / 60},
                        {"gpu_hours", time.gpu_hours()},
                        {"kilowatt_hours", time.watts > 0 ? Json(time.kilowatt_hours()) : Json()},
                        {"training_seconds", time.training},
                        {"evaluation_seconds", time.evaluation},
                        {"checkpoint_seconds", time.checkpoints},
                        {"startup_seconds", time.startup}};
  }
  return json;
}

std::string fit_report(const MachineFit& fit) {
  std::string text = fmt::format("{:>8} {:>17} {:>14} {:>14} {:>9} {:>9} {:>9}\n", "ranks", "samples per rank",
                                 "measured/s", "predicted/s", "error", "as stated", "left out");
  double worst = 0, worst_left_out = 0;
  for (const FittedRow& row : fit.rows) {
    const double measured = row.row.images_per_second;
    text += fmt::format("{:>8} {:>17} {:>14.1f} {:>14.1f} {:>9} {:>9} {:>9}\n", row.row.ranks, row.row.samples_per_rank,
                        measured, row.fitted, percent(row.fitted, measured), percent(row.stated, measured),
                        row.left_out ? percent(*row.left_out, measured) : "-");
    worst = std::max(worst, std::abs(row.fitted / measured - 1));
    if (row.left_out) worst_left_out = std::max(worst_left_out, std::abs(*row.left_out / measured - 1));
  }
  text += fmt::format("largest error: {:.1f} %", 100 * worst);
  if (fit.rows.front().left_out) text += fmt::format(", of a row that is left out: {:.1f} %", 100 * worst_left_out);
  text += fmt::format("\n\n{:<28} {:>12} {:>12} {:>12} {:>26}\n", "figure", "stated", "fitted", "determined",
                      "without one row");
  for (const FittedFigure& parameter : fit.parameters) {
    text += fmt::format("{:<28} {:>12.4g} {:>12.4g} {:>10.0f} % {:>26}\n", parameter.figure->key, parameter.stated,
                        parameter.fitted, 100 * parameter.determined,
                        fmt::format("{:.4g} to {:.4g}", parameter.least, parameter.most));
  }
  return text + "\n";
}

Json fit_json(const MachineFit& fit) {
  Json rows = Json::array(), parameters = Json::array();
  for (const FittedRow& row : fit.rows) {
    const double measured = row.row.images_per_second;
    rows.push_back({{"ranks", row.row.ranks},
                    {"samples_per_rank", row.row.samples_per_rank},
                    {"images_per_second", measured},
                    {"predicted_images_per_second", row.fitted},
                    {"relative_error", row.fitted / measured - 1},
                    {"stated_images_per_second", row.stated},
                    {"leave_one_out_images_per_second", row.left_out ? Json(*row.left_out) : Json()},
                    {"leave_one_out_relative_error", row.left_out ? Json(*row.left_out / measured - 1) : Json()}});
  }
  for (const FittedFigure& parameter : fit.parameters) {
    parameters.push_back({{"figure", parameter.figure->key},
                          {"stated", parameter.stated},
                          {"fitted", parameter.fitted},
                          {"determined", parameter.determined},
                          {"leave_one_out_min", parameter.least},
                          {"leave_one_out_max", parameter.most}});
  }
  return {{"rows", rows}, {"parameters", parameters}};
}

void write_timelines(const char* option, const std::string& path, const std::vector<Prediction>& predictions) {
  std::vector<RankTrace> ranks;
  for (const Prediction& prediction : predictions) {
    for (std::size_t stage = 0; stage < prediction.timeline.stages.size(); ++stage) {
      RankTrace& rank = ranks.emplace_back();
      rank.name = fmt::format("stage {} of {} (simulated)", stage, counted(prediction.layout.mesh.ranks(), "rank"));
      for (const TimedAction& timed : prediction.timeline.stages[stage]) {
        rank.events.push_back({action_name(timed.action), trace::Track::kCompute, 1, timed.start, timed.end});
      }
    }
  }
  try {
    write_trace_file(path, ranks);
  } catch (const Error& error) {
    fail_as(error, fmt::format("{}: {}", option, error.what()));
  }
}

}  // namespace convoy
