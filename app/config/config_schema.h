// SPDX-License-Identifier: Apache-2.0
//
// Every config key in one table: section, name, field, rule, help. The reader, the printer and the list of keys
// each walk it as a visitor with section(), key(), fallback() and layers(). The type of a key is its field's and
// its default is what the field holds, or its fallback where the default hangs on another key. Keys that decide
// whether others apply come before them.
#pragma once

#include <optional>

#include "app/config/config.h"
#include "app/config/config_rule.h"

namespace convoy {

inline constexpr auto kResumeWords = std::to_array<std::string_view>({"auto", "never"});
inline constexpr auto kAugmentWords = std::to_array<std::string_view>({"crop", "flip", "jitter"});
inline constexpr double kMaxCount = 1e15;  ///< samples, steps: products with the batch still fit in 64 bits

/// One [[model.layers]].
template <class Visitor, class Layer>
void visit_layer(Visitor& v, Layer& l) {
  using enum LayerKind;
  const auto owned = [&](const Rule& rule, std::initializer_list<LayerKind> types) {
    return rule.only_for("type", l.type, types);
  };
  v.key("type", l.type, anything().required(), "what the layer is");
  v.key("name", l.name, anything(), "its name in checkpoints; default: its index, from 0");
  v.key("out_features", l.out_features, owned(between(1, 1e7).required(), {kLinear}), "length of the output");
  v.key("out_channels", l.out_channels, owned(between(1, 65536).required(), {kConv2d}), "channels of the output");
  v.key("channels", l.channels, owned(between(1, 65536).required(), {kBasicBlock, kBottleneck}),
        "width of the block; a bottleneck puts out four times as many");
  v.key("kernel_size", l.kernel_size, owned(between(1, 1024).required(), {kConv2d, kMaxPool2d}), "height and width");
  v.fallback(l.stride, l.type == kMaxPool2d ? l.kernel_size : 1);
  v.key("stride", l.stride, owned(between(1, 1024), {kConv2d, kMaxPool2d, kBasicBlock, kBottleneck}),
        "step of the window; default of max_pool2d: kernel_size");
  v.key("padding", l.padding, owned(between(0, 1024), {kConv2d, kMaxPool2d}), "added on each side");
  v.key("bias", l.bias, owned(anything(), {kLinear, kConv2d}), "whether a bias is added");
}

template <class Visitor, class C>
void visit_run(Visitor& v, C& c) {
  v.section("run", "the run: its folder, its seed, its end");
  v.key("name", c.run.name, anything(), "folder of the run in run.dir; default: the config file's name");
  v.key("dir", c.run.dir, anything(), "where run folders are kept");
  v.key("seed", c.run.seed, at_least(0), "of the initial weights, the order of samples and synthetic data");
  v.key("max_time", c.run.max_time, anything(), "stop with a checkpoint after this time; \"\": no limit");
  v.key("stop_signals", c.run.stop_signals, one_of(signal_names()), "stop with a checkpoint on these");

  auto& d = c.device;
  const auto of_gpus = [&] {
    return anything().only_for("device.kind", d.kind, {DeviceKind::kAuto, DeviceKind::kCuda});
  };
  v.section("device", "what computes");
  v.key("kind", d.kind, anything(), "auto: a GPU where there is one and the program was built for it, else the CPU");
  v.key("threads", d.threads, between(0, 4096), "a rank's compute threads; 0: its share of the node's cores");
  v.key("share_gpu", d.share_gpu, of_gpus(), "several ranks may take turns on one GPU; for tests");
  v.key("deterministic", d.deterministic, of_gpus(),
        "equal inputs give equal bits on a GPU, too, perhaps more slowly; on the CPU they always do");
  v.key("graphs", d.graphs, of_gpus(), "record a step once and replay it (GPU)");
}

template <class Visitor, class C>
void visit_model(Visitor& v, C& c) {
  using enum ModelKind;
  auto& m = c.model;
  const auto owned = [&](const Rule& rule, std::initializer_list<ModelKind> models) {
    return rule.only_for("model.name", m.name, models);
  };
  v.section("model", "the network");
  v.key("name", m.name, anything().required(), "which network");
  v.key("classes", m.classes, between(0, 1e7), "length of the output; 0: as many as the data has");
  v.key("hidden", m.hidden, owned(between(1, 1e7), {kMlp}), "widths of the hidden layers");
  v.key("stem", m.stem, owned(anything(), {kResnet18, kResnet34, kResnet50, kResnet101, kResnet152}),
        "imagenet: 7x7 stride 2 and max-pool; small: 3x3 stride 1, for small images");
  v.key("weights", m.weights, input_file(), "start from the /model group of this HDF5 file; \"\": from random weights");
  v.key("reset_head", m.reset_head,
        anything().only_if(!m.weights.empty(), "means nothing without model.weights (give the file to start from)"),
        "with weights: the last layer starts from random weights");
  v.key("freeze", m.freeze, anything(),
        "units that stay as they are (\"stem\", \"layer1.0\"; \"layer1\": all of it), batch-norm statistics, too");
  v.layers(m.layers, owned(anything(), {kSequential}));
}

/// Keys of [data] about samples that are changed on their way.
template <class Visitor, class D>
void visit_augmentation(Visitor& v, D& d) {
  using enum DataKind;
  const auto in = [&](const Rule& rule, std::initializer_list<DataKind> kinds) {
    return rule.only_for("data.kind", d.kind, kinds);
  };
  const auto with = [&](const Rule& rule, const char* how) {
    return rule.only_if(d.augments(how),
                        fmt::format("means nothing without \"{}\" in data.augment (add it there)", how));
  };
  v.key("augment", d.augment, in(one_of(kAugmentWords), {kHdf5, kIdx, kCifar10, kImageFolder}),
        "random changes of training images: crop (of JPEGs a part of random size, of images of one size moved by up to "
        "crop_padding), flip (left to right), jitter (of colours)");
  v.key("crop_area", d.crop_area, with(in(between(0, 1), {kHdf5, kImageFolder}), "crop"),
        "JPEGs: smallest and largest share of the image in a crop");
  v.key("crop_ratio", d.crop_ratio, with(in(above(0), {kHdf5, kImageFolder}), "crop"),
        "JPEGs: smallest and largest width of a crop over its height");
  v.key("crop_padding", d.crop_padding, with(in(between(0, 1024), {kHdf5, kIdx, kCifar10}), "crop"),
        "images of one size: black pixels on each side before the crop");
  v.key("jitter", d.jitter, with(in(between(0, 10), {kHdf5, kIdx, kCifar10, kImageFolder}), "jitter"),
        "brightness, contrast and saturation change by a factor of 1 - this to 1 + this");
  v.key("resize", d.resize, in(between(0, 65536), {kHdf5, kImageFolder}),
        "JPEGs without a random crop: the shorter side before the central crop; 0: image_size * 256 / 224");
  v.key("max_broken", d.max_broken, in(between(0, 1), {kHdf5, kImageFolder}),
        "JPEGs: share of broken files that ends the run; up to it others of their class take their place");
}

template <class Visitor, class C>
void visit_data(Visitor& v, C& c) {
  using enum DataKind;
  auto& d = c.data;
  const auto owned = [&](const Rule& rule, DataKind kind) { return rule.only_for("data.kind", d.kind, {kind}); };
  const auto from_files = [&](const Rule& rule) {
    return rule.of_form(d.kind == kHdf5 ? InputForm::kFileOrShards : InputForm::kFileOrFolder)
        .only_for("data.kind", d.kind, {kHdf5, kIdx, kCifar10, kImageFolder});
  };
  v.section("data", "what it learns from");
  v.key("kind", d.kind, anything().required(),
        "synthetic: random samples; hdf5: an HDF5 data file; idx: MNIST's files; cifar10: CIFAR-10's binary batches; "
        "image_folder: a folder with a folder of JPEGs for each class");
  v.key("train", d.train, from_files(input_file().required()),
        "hdf5: FILE or FILE:/GROUP, of shards \"OUT-*.h5\"; idx: the file of images, or a folder; cifar10: a batch "
        "file, or a folder; "
        "image_folder: the folder");
  v.key("validation", d.validation, from_files(input_file()), "the same; \"\": no evaluation");
  v.key("stage_dir", d.stage_dir, anything().only_for("data.kind", d.kind, {kHdf5, kIdx, kCifar10, kImageFolder}),
        "folder on each node's own storage, to which it copies the files before they are read ($NAME is a variable of "
        "the "
        "environment); \"\": none");
  v.key("samples", d.samples, owned(between(1, kMaxCount), kSynthetic), "length of an epoch");
  v.key("features", d.features, owned(between(0, 1e7), kSynthetic), "float32 vectors of this length; 0: images");
  v.key("targets", d.targets, owned(between(0, 1e7), kSynthetic), "float32 targets of this length; 0: class labels");
  const bool synthetic = d.kind == kSynthetic, vectors = synthetic && d.features > 0;
  const auto images = [&](const Rule& rule) {
    return rule.only_if(!vectors, "means nothing beside data.features (samples are vectors, not images)");
  };
  const bool of_any_size = d.kind == kImageFolder, chosen = of_any_size || (synthetic && !vectors);
  v.fallback(d.image_size, chosen ? 224 : 0);
  v.fallback(d.channels, chosen ? 3 : 0);
  v.key("image_size", d.image_size, images(between(chosen ? 1 : 0, 65536)),
        "height and width; default 224, with hdf5 0: as in the file (else it must be the file's), 224 of JPEGs");
  v.key("channels", d.channels, images(between(chosen ? 1 : 0, of_any_size ? 3 : 65536)),
        "of an image; default 3, with hdf5 0: as in the file (else it must be the file's), 3 of JPEGs (or 1: grey)");
  v.key("train_sizes", d.train_sizes,
        images(between(1, 65536).only_for("data.kind", d.kind, {kSynthetic, kHdf5, kImageFolder})),
        "JPEGs, synthetic images: height and width of training images, one after the other; []: image_size");
  v.key("size_milestones", d.size_milestones,
        between(1, kMaxCount)
            .only_if(!d.train_sizes.empty(), "means nothing without data.train_sizes (give the sizes there)"),
        "epochs after which the next of them begins");
  v.key("mean", d.mean, images(anything().items(1)),
        "pixels from 0 to 1 become (x - mean) / std; per channel, or one for all");
  v.key("std", d.std, images(above(0).items(1)), "the same");
  visit_augmentation(v, d);
  v.key("shuffle", d.shuffle, anything(), "a new order of samples every epoch");
  v.key("drop_last", d.drop_last, anything(), "leave out an epoch's last samples when they do not fill a batch");
  v.key("loader_threads", d.loader_threads, between(0, 1024),
        "a rank's threads that prepare batches; 0: as many as cores that do not compute, at least 1");
}

template <class Visitor, class C>
void visit_train(Visitor& v, C& c) {
  auto& t = c.train;
  v.section("train", "how long, in what steps");
  v.key("epochs", t.epochs, between(1, kMaxCount), "times through the data; or give steps");
  v.key("steps", t.steps, between(1, kMaxCount), "optimizer steps; or give epochs");
  v.key("global_batch_size", t.global_batch_size, between(1, 1e9).required(), "samples per step, over all ranks");
  v.key("loss", t.loss, anything(), "mse also takes class labels, as one-hot targets");
  v.key("label_smoothing", t.label_smoothing, below(0, 1).only_for("train.loss", t.loss, {LossKind::kCrossEntropy}),
        "share of the target spread over all classes");
  v.key("precision", t.precision, anything(), "of activations and gradients; weights are kept in fp32");
  v.key("eval_every_epochs", t.eval_every_epochs, between(0, kMaxCount), "0: only at the end");
}

template <class Visitor, class C>
void visit_optimizer(Visitor& v, C& c) {
  using enum OptimizerKind;
  auto& o = c.optimizer;
  const auto owned = [&](const Rule& rule, std::initializer_list<OptimizerKind> names) {
    return rule.only_for("optimizer.name", o.name, names);
  };
  v.section("optimizer", "how weights follow gradients");
  v.key("name", o.name, anything(), "which update");
  v.key("lr", o.lr, above(0), "learning rate, after warm-up");
  v.key("momentum", o.momentum, owned(below(0, 1), {kSgd, kLars}), "share of the last step kept");
  v.key("nesterov", o.nesterov, owned(anything(), {kSgd}), "look ahead along the momentum");
  v.key("weight_decay", o.weight_decay, at_least(0), "pull of the weights to zero");
  v.key("betas", o.betas, owned(below(0, 1), {kAdamw}), "decay of the first and second moment");
  v.fallback(o.epsilon, o.name == kLars ? 1e-9 : 1e-8);
  v.key("epsilon", o.epsilon, owned(above(0), {kLars, kAdamw}), "added to divisors; default 1e-8, lars 1e-9");
  v.key("trust", o.trust, owned(above(0), {kLars}), "a layer's step as a share of its weights' norm");

  using enum LrScheduleKind;
  auto& s = c.lr_schedule;
  const auto of = [&](const Rule& rule, std::initializer_list<LrScheduleKind> names) {
    return rule.only_for("lr_schedule.name", s.name, names);
  };
  v.section("lr_schedule", "how the learning rate changes");
  v.key("name", s.name, anything(), "which curve");
  v.key("warmup_epochs", s.warmup_epochs, at_least(0),
        "epochs, or parts of one, in which the rate rises to optimizer.lr");
  v.key("milestones", s.milestones, of(above(0).items(1).required(), {kStep}),
        "epochs after which the rate is multiplied by gamma");
  v.key("gamma", s.gamma, of(above(0), {kStep}), "that factor");
  v.key("power", s.power, of(above(0), {kPolynomial}), "of the share of steps left");
  v.key("final_lr", s.final_lr, of(at_least(0), {kCosine, kPolynomial}), "the rate at the end");
}

template <class Visitor, class C>
void visit_parallel(Visitor& v, C& c) {
  using enum ParallelMode;
  auto& p = c.parallel;
  const auto in = [&](const Rule& rule, std::initializer_list<ParallelMode> modes) {
    return rule.only_for("parallel.mode", p.mode, modes);
  };
  v.section("parallel", "how ranks share the work");
  v.key("mode", p.mode, anything(),
        "data: each rank takes a share of every batch; model, pipeline: the layers are cut into stages; scatter: rank "
        "0 deals out every batch");
  v.key("stages", p.stages, in(between(0, 65536), {kModel, kPipeline}),
        "ranks that share one copy of the model; 0: all; other ranks hold further copies");
  v.key("microbatches", p.microbatches, in(between(1, 1e6), {kData, kPipeline}),
        "parts of a replica's share; in a pipeline they overlap");
  v.key("schedule", p.schedule, in(anything(), {kPipeline}), "the order of work of a pipeline");
  v.key("chunks", p.chunks,
        in(between(2, 64), {kPipeline}).only_for("parallel.schedule", p.schedule, {PipelineSchedule::kInterleaved}),
        "stretches of layers that a rank holds");
  v.key("partition", p.partition, in(anything(), {kModel, kPipeline}),
        "auto: cut by measured cost; or the first unit of each stretch of layers");
  v.key("stage_memory_gb", p.stage_memory_gb, in(at_least(0), {kModel, kPipeline}),
        "GB that auto lets a stage take; 0: the rank's share of the node's memory");
  v.key("bucket_mb", p.bucket_mb, in(above(0), {kData, kModel, kPipeline}), "MiB of gradients reduced at a time");
  v.key("first_bucket_mb", p.first_bucket_mb, in(above(0), {kData, kModel, kPipeline}),
        "the same for the first bucket");
  v.key("sync_batch_norm", p.sync_batch_norm, in(anything(), {kData, kModel, kPipeline}),
        "batch norm over the microbatch of all replicas");
  v.key("timeout", p.timeout, above(0), "seconds to wait for another rank before the job is ended");
}

template <class Visitor, class C>
void visit_running(Visitor& v, C& c) {
  v.section("checkpoint", "what is kept to go on from");
  v.key("dir", c.checkpoint.dir, anything(), "\"\": checkpoints in the run's folder");
  v.key("every_epochs", c.checkpoint.every_epochs, between(0, kMaxCount), "0: not by epochs");
  v.key("every_steps", c.checkpoint.every_steps, between(0, kMaxCount), "0: not by steps");
  v.key("keep", c.checkpoint.keep, between(1, 1e6), "how many; older ones are deleted");
  v.key("resume", c.checkpoint.resume, input_file(kResumeWords), "auto: from the newest whole checkpoint of the run");
  v.key("async", c.checkpoint.async, anything(), "write in the background");

  v.section("log", "what is shown and recorded");
  v.key("progress", c.log.progress, anything(), "auto: a bar on a terminal, else lines");
  v.key("every_steps", c.log.every_steps, between(1, kMaxCount), "steps from one metrics line to the next");
  v.key("tensorboard", c.log.tensorboard, anything(), "write event files");
  v.key("trace", c.log.trace, anything(), "record what each rank does when, in trace.json");
}

/// All keys, in the order in which they are printed.
template <class Visitor, class C>
void visit_config(Visitor& v, C& c) {
  visit_run(v, c);
  visit_model(v, c);
  visit_data(v, c);
  visit_train(v, c);
  visit_optimizer(v, c);
  visit_parallel(v, c);
  visit_running(v, c);
}

}  // namespace convoy
