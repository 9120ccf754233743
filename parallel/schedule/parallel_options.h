// SPDX-License-Identifier: Apache-2.0
//
// How ranks share the work: the options of [parallel].
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "layers/base/options.h"
#include "parallel/schedule/schedule.h"

namespace convoy {

enum class ParallelMode { kData, kModel, kPipeline, kScatter };
CONVOY_OPTION_ENUM(ParallelMode, "data", "model", "pipeline", "scatter");

/// Where a model is cut.
struct PartitionOptions {
  static constexpr std::string_view kDescription = "\"auto\" or a list of unit names";
  std::vector<std::string> first_units;  ///< of each virtual stage; empty: "auto"
  bool operator==(const PartitionOptions&) const = default;
};

/// [parallel]
struct ParallelOptions {
  ParallelMode mode = ParallelMode::kData;
  std::int64_t stages = 0;  ///< model, pipeline: ranks of one replica; 0: all ranks
  std::int64_t microbatches = 1;
  std::string schedule = "1f1b";  ///< pipeline: one of pipeline_schedule_names()
  std::int64_t chunks = 2;        ///< interleaved: model chunks per rank
  PartitionOptions partition;     ///< model, pipeline
  double stage_memory_gb = 0;     ///< model, pipeline; 0: this rank's share of its node's memory
  double bucket_mb = 25.0;
  double first_bucket_mb = 1.0;
  bool sync_batch_norm = false;
  bool shard_optimizer = false;
  bool shard_head = false;
  double timeout = 600.0;  ///< seconds

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& p) {
    using enum ParallelMode;
    const auto in = [&](const Rule& rule, std::initializer_list<ParallelMode> modes) {
      return rule.only_for("parallel.mode", p.mode, modes);
    };
    v.key(
        "mode", p.mode, anything(),
        "data: each rank takes a share of every batch; model, pipeline: the layers are cut into stages; scatter: rank "
        "0 scatters every batch");
    v.key("stages", p.stages, in(between(0, 65536), {kModel, kPipeline}),
          "ranks that share one copy of the model; 0: all; other ranks hold further copies");
    v.key("microbatches", p.microbatches, in(between(1, 1e6), {kData, kPipeline}),
          "parts of a replica's share; in a pipeline they overlap");
    v.key("schedule", p.schedule, in(one_of(pipeline_schedule_names()), {kPipeline}),
          "the order of work of a pipeline");
    v.key("chunks", p.chunks,
          in(between(2, 64), {kPipeline}).only_for("parallel.schedule", p.schedule, {"interleaved"}),
          "model chunks that a rank holds");
    v.key("partition", p.partition, in(anything(), {kModel, kPipeline}),
          "auto: split by measured cost; or the first unit of each chunk");
    v.key("stage_memory_gb", p.stage_memory_gb, in(at_least(0), {kModel, kPipeline}),
          "memory limit of a stage when the partition is chosen automatically, in GB; 0: the rank's share of the "
          "node's memory");
    const Rule bucket{.minimum = 0, .maximum = 1e6, .open_minimum = true};
    v.key("bucket_mb", p.bucket_mb, in(bucket, {kData, kModel, kPipeline}), "MiB of gradients reduced at a time");
    v.key("first_bucket_mb", p.first_bucket_mb, in(bucket, {kData, kModel, kPipeline}),
          "the same for the first bucket");
    v.key("sync_batch_norm", p.sync_batch_norm, in(anything(), {kData, kModel, kPipeline}),
          "batch norm over the microbatch of all replicas");
    v.key("shard_optimizer", p.shard_optimizer, in(anything(), {kData, kModel, kPipeline}),
          "each replica keeps the optimizer state of, and updates, its share of the parameters");
    v.key("shard_head", p.shard_head, in(anything(), {kData}),
          "the last layer and its softmax are divided over the replicas by classes");
    v.key("timeout", p.timeout, above(0), "seconds to wait for another rank before the job is ended");
  }
  bool operator==(const ParallelOptions&) const = default;
};

/// How `stages` stages share a step: what make_schedule() takes.
struct ScheduleChoice {
  std::string_view name;
  int stages = 1, microbatches = 1, chunks = 1;

  [[nodiscard]] Schedule make() const { return make_schedule(name, stages, microbatches, chunks); }
};
[[nodiscard]] ScheduleChoice schedule_choice(const ParallelOptions& parallel, int stages);

/// Throws an OptionError, with the nearest sizes that do, unless `global_batch` divides into `replicas` equal parts of
/// `microbatches` equal parts. `which` ends the message.
void check_batch(std::int64_t global_batch, std::int64_t replicas, std::int64_t microbatches,
                 std::string_view which = "");

}  // namespace convoy
