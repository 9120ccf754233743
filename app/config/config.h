// SPDX-License-Identifier: Apache-2.0
//
// A run as typed data: one struct per section of the TOML file, defaults included (docs/interface.md
// says what each key means; config_schema.h holds ranges and help). Nothing here reads or prints. A Config
// from config_reader is valid: every value in range, every key that it holds meant for the chosen
// model, data, optimizer and schedule.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

/// The words of an enum in the order of its values; specialised beside each enum.
template <class E>
struct EnumNames;

template <class E>
concept ConfigEnum = requires {
  EnumNames<E>::names;
};

/// The word that stands for a value in configs and logs.
template <ConfigEnum E>
[[nodiscard]] constexpr std::string_view to_string(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

/// The value that a word stands for, or nothing.
template <ConfigEnum E>
[[nodiscard]] constexpr std::optional<E> from_string(std::string_view word) {
  for (std::size_t i = 0; i < EnumNames<E>::names.size(); ++i) {
    if (EnumNames<E>::names[i] == word) return static_cast<E>(i);
  }
  return std::nullopt;
}

#define CONVOY_CONFIG_ENUM(E, ...)                                                \
  template <>                                                                     \
  struct EnumNames<E> {                                                           \
    static constexpr auto names = std::to_array<std::string_view>({__VA_ARGS__}); \
  }

enum class DeviceKind { kAuto, kCpu, kCuda };
CONVOY_CONFIG_ENUM(DeviceKind, "auto", "cpu", "cuda");

enum class ModelKind { kToy, kMlp, kResnet18, kResnet34, kResnet50, kResnet101, kResnet152, kSequential };
CONVOY_CONFIG_ENUM(ModelKind, "toy", "mlp", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "sequential");

/// What a ResNet begins with: 7x7 stride 2 and a max-pool, or 3x3 stride 1 without one.
enum class StemKind { kImagenet, kSmall };
CONVOY_CONFIG_ENUM(StemKind, "imagenet", "small");

enum class LayerKind {
  kLinear,
  kRelu,
  kConv2d,
  kBatchNorm2d,
  kMaxPool2d,
  kGlobalAvgPool,
  kFlatten,
  kBasicBlock,
  kBottleneck
};
CONVOY_CONFIG_ENUM(LayerKind, "linear", "relu", "conv2d", "batch_norm2d", "max_pool2d", "global_avg_pool", "flatten",
                   "basic_block", "bottleneck");

enum class DataKind { kSynthetic, kHdf5, kIdx, kCifar10, kImageFolder };
CONVOY_CONFIG_ENUM(DataKind, "synthetic", "hdf5", "idx", "cifar10", "image_folder");

enum class LossKind { kCrossEntropy, kMse };
CONVOY_CONFIG_ENUM(LossKind, "cross_entropy", "mse");

enum class PrecisionKind { kFp32, kTf32, kBf16, kFp16 };
CONVOY_CONFIG_ENUM(PrecisionKind, "fp32", "tf32", "bf16", "fp16");

enum class OptimizerKind { kSgd, kLars, kAdamw };
CONVOY_CONFIG_ENUM(OptimizerKind, "sgd", "lars", "adamw");

enum class LrScheduleKind { kConstant, kStep, kCosine, kPolynomial };
CONVOY_CONFIG_ENUM(LrScheduleKind, "constant", "step", "cosine", "polynomial");

enum class ParallelMode { kData, kModel, kPipeline, kScatter };
CONVOY_CONFIG_ENUM(ParallelMode, "data", "model", "pipeline", "scatter");

enum class PipelineSchedule { kGpipe, k1f1b, kInterleaved, kZeroBubble, kZbV };
CONVOY_CONFIG_ENUM(PipelineSchedule, "gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v");

enum class ProgressMode { kAuto, kBar, kLines, kOff };
CONVOY_CONFIG_ENUM(ProgressMode, "auto", "bar", "lines", "off");

#undef CONVOY_CONFIG_ENUM

/// [run]
struct RunConfig {
  std::string name;  ///< the config file's name without its ending unless given
  std::string dir = "runs";
  std::uint64_t seed = 42;
  std::optional<std::chrono::seconds> max_time;
  std::vector<std::string> stop_signals = {"SIGUSR2", "SIGTERM"};
  bool operator==(const RunConfig&) const = default;
};

/// [device]
struct DeviceConfig {
  DeviceKind kind = DeviceKind::kAuto;
  std::int64_t threads = 0;    ///< 0: this rank's share of its node's cores
  bool share_gpu = false;      ///< several ranks may take turns on one GPU
  bool deterministic = false;  ///< of GPUs: equal inputs give equal bits
  bool graphs = true;          ///< of GPUs: a step is recorded once and then replayed
  bool operator==(const DeviceConfig&) const = default;
};

/// One [[model.layers]] of a sequential model; keys that a type does not have keep their defaults.
struct LayerConfig {
  LayerKind type = LayerKind::kRelu;
  std::string name;               ///< its index unless given
  std::int64_t out_features = 0;  ///< linear
  std::int64_t out_channels = 0;  ///< conv2d
  std::int64_t channels = 0;      ///< basic_block, bottleneck: torchvision's `planes`
  std::int64_t kernel_size = 0;   ///< conv2d, max_pool2d
  std::int64_t stride = 1;        ///< conv2d, blocks; max_pool2d: kernel_size unless given
  std::int64_t padding = 0;       ///< conv2d, max_pool2d
  bool bias = true;               ///< linear, conv2d
  bool operator==(const LayerConfig&) const = default;
};

/// [model]
struct ModelConfig {
  ModelKind name = ModelKind::kToy;
  std::int64_t classes = 0;                  ///< 0: from the data
  std::vector<std::int64_t> hidden = {256};  ///< mlp: widths of the hidden layers
  StemKind stem = StemKind::kImagenet;       ///< resnet*
  std::string weights;                       ///< HDF5 file whose /model the training starts from; empty: none
  bool reset_head = false;                   ///< with weights: the last layer starts afresh
  std::vector<std::string> freeze;           ///< units that stay as they are, or prefixes of units' names
  std::vector<LayerConfig> layers;           ///< sequential
  bool operator==(const ModelConfig&) const = default;
};

/// [data]
struct DataConfig {
  DataKind kind = DataKind::kSynthetic;
  std::string train;            ///< hdf5: FILE or FILE:/GROUP
  std::string validation;       ///< the same; empty: no evaluation
  std::string stage_dir;        ///< where each node copies them to first; empty: read where they are
  std::int64_t image_size = 0;  ///< height and width; hdf5: 0 takes the file's, else checked against it; JPEGs: 224
  std::int64_t channels = 0;    ///< the same
  std::vector<std::int64_t> train_sizes;      ///< of training images, one after the other; empty: image_size
  std::vector<std::int64_t> size_milestones;  ///< the epochs from which on the next size is taken: rising
  std::int64_t features = 0;         ///< synthetic: samples are float32 [features] instead of images; 0: images
  std::int64_t targets = 0;          ///< synthetic: targets are float32 [targets] instead of labels; 0: labels
  std::int64_t samples = 1024;       ///< synthetic: length of an epoch
  std::vector<double> mean = {0.0};  ///< one per channel, or one for all
  std::vector<double> std = {1.0};
  std::vector<std::string> augment;  ///< of training samples: "crop", "flip", "jitter"
  std::array<double, 2> crop_area = {0.08, 1.0};
  std::array<double, 2> crop_ratio = {3.0 / 4.0, 4.0 / 3.0};
  std::int64_t crop_padding = 4;                 ///< of images of one size
  std::vector<double> jitter = {0.4, 0.4, 0.4};  ///< brightness, contrast, saturation
  std::int64_t resize = 0;   ///< JPEGs: shorter side before the central crop; 0: image_size * 256 / 224
  double max_broken = 0.01;  ///< JPEGs: share of the files
  bool shuffle = true;
  bool drop_last = true;
  std::int64_t loader_threads = 0;  ///< 0: as many as cores that do not compute, at least 1

  [[nodiscard]] bool augments(std::string_view how) const {
    return std::find(augment.begin(), augment.end(), how) != augment.end();
  }
  bool operator==(const DataConfig&) const = default;
};

/// [train]; exactly one of epochs and steps is there.
struct TrainConfig {
  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;
  std::int64_t global_batch_size = 0;
  LossKind loss = LossKind::kCrossEntropy;
  double label_smoothing = 0.0;
  PrecisionKind precision = PrecisionKind::kFp32;
  std::int64_t eval_every_epochs = 1;  ///< 0: only at the end
  bool operator==(const TrainConfig&) const = default;
};

/// [optimizer]
struct OptimizerConfig {
  OptimizerKind name = OptimizerKind::kSgd;
  double lr = 0.1;
  double momentum = 0.9;  ///< sgd, lars
  bool nesterov = false;  ///< sgd
  double weight_decay = 0.0;
  std::array<double, 2> betas = {0.9, 0.999};  ///< adamw
  double epsilon = 1e-8;                       ///< adamw 1e-8, lars 1e-9 unless given
  double trust = 0.001;                        ///< lars
  bool operator==(const OptimizerConfig&) const = default;
};

/// [lr_schedule]; times are epochs.
struct LrScheduleConfig {
  LrScheduleKind name = LrScheduleKind::kConstant;
  double warmup_epochs = 0.0;
  std::vector<double> milestones;  ///< step: rising
  double gamma = 0.1;              ///< step
  double power = 2.0;              ///< polynomial
  double final_lr = 0.0;           ///< cosine, polynomial
  bool operator==(const LrScheduleConfig&) const = default;
};

/// Where a model is cut.
struct PartitionConfig {
  std::vector<std::string> first_units;  ///< of each virtual stage; empty: "auto"
  bool operator==(const PartitionConfig&) const = default;
};

/// [parallel]
struct ParallelConfig {
  ParallelMode mode = ParallelMode::kData;
  std::int64_t stages = 0;  ///< model, pipeline: ranks of one replica; 0: all ranks
  std::int64_t microbatches = 1;
  PipelineSchedule schedule = PipelineSchedule::k1f1b;  ///< pipeline
  std::int64_t chunks = 2;                              ///< interleaved: stretches of layers per rank
  PartitionConfig partition;                            ///< model, pipeline
  double stage_memory_gb = 0;                           ///< model, pipeline; 0: this rank's share of its node's memory
  double bucket_mb = 25.0;
  double first_bucket_mb = 1.0;
  bool sync_batch_norm = false;
  double timeout = 600.0;  ///< seconds
  bool operator==(const ParallelConfig&) const = default;
};

/// [checkpoint]
struct CheckpointConfig {
  std::string dir;                ///< empty: `checkpoints` in the run's folder
  std::int64_t every_epochs = 1;  ///< 0: not by epochs
  std::int64_t every_steps = 0;   ///< 0: not by steps
  std::int64_t keep = 3;
  std::string resume = "auto";  ///< auto, never or a file
  bool async = true;
  bool operator==(const CheckpointConfig&) const = default;
};

/// [log]
struct LogConfig {
  ProgressMode progress = ProgressMode::kAuto;
  std::int64_t every_steps = 1;
  bool tensorboard = true;
  bool trace = false;
  bool operator==(const LogConfig&) const = default;
};

/// A whole run.
struct Config {
  RunConfig run;
  DeviceConfig device;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  LrScheduleConfig lr_schedule;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  LogConfig log;

  /// Where each given key came from, by "section.key": "FILE:LINE" or "--set". What is absent is a default.
  std::map<std::string, std::string> origins;

  /// Equal values; where they came from does not count.
  bool operator==(const Config& other) const {
    return run == other.run && device == other.device && model == other.model && data == other.data &&
           train == other.train && optimizer == other.optimizer && lr_schedule == other.lr_schedule &&
           parallel == other.parallel && checkpoint == other.checkpoint && log == other.log;
  }
};

/// `run.dir/run.name`.
[[nodiscard]] std::string run_folder(const Config& config);

/// checkpoint.dir, or `checkpoints` in the run's folder.
[[nodiscard]] std::string checkpoint_folder(const Config& config);

/// The number of a signal that run.stop_signals may name ("SIGTERM"), or 0.
[[nodiscard]] int signal_number(std::string_view name);

/// The names that signal_number knows.
[[nodiscard]] std::span<const std::string_view> signal_names();

/// Why `global_batch` does not divide into `replicas` equal parts of `microbatches` equal parts, with the nearest
/// sizes that do; empty when it divides.
[[nodiscard]] std::string batch_problem(std::int64_t global_batch, std::int64_t replicas, std::int64_t microbatches);

/// Throws that as a usage error.
void check_batch(std::int64_t global_batch, std::int64_t replicas, std::int64_t microbatches);

}  // namespace convoy
