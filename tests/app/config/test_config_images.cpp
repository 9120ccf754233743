// SPDX-License-Identifier: Apache-2.0
//
// The keys of [data] about JPEGs and augmentation: defaults, what belongs to what, and what contradicts itself.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "app/build/read_config.h"
#include "app/config/config_printer.h"
#include "layers/base/error.h"

using namespace convoy;

namespace {

// The folder "." is there, whatever is in it.
Config images(const std::string& keys, const std::string& kind = "image_folder") {
  return parse_config("model.name = \"resnet18\"\ntrain = {steps = 1, global_batch_size = 1}\n[data]\nkind = \"" +
                          kind + "\"\ntrain = \".\"\n" + keys,
                      "a.toml");
}

std::string refused(const std::string& keys, const std::string& kind = "image_folder") {
  try {
    (void)images(keys, kind);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("image folders: defaults are torchvision's") {
  const DataOptions d = images("augment = [\"crop\", \"flip\", \"jitter\"]\n").data;
  CHECK(d.kind == "image_folder");
  CHECK(d.image_size == 224);
  CHECK(d.channels == 3);
  CHECK(d.crop_area == std::array{0.08, 1.0});
  CHECK(d.crop_ratio == std::array{3.0 / 4.0, 4.0 / 3.0});
  CHECK(d.jitter == std::vector{0.4, 0.4, 0.4});
  CHECK(d.augments("crop"));
  CHECK(d.hue == 0.1);
  CHECK(d.rand_operations == 2);
  CHECK(d.repetitions() == 1);
  CHECK(d.rand_magnitude == 9);
  CHECK(d.resize == 0);
  CHECK(d.max_broken == 0.01);
  CHECK(d.loader_threads == 0);
  CHECK(images("").data.augment.empty());
}

TEST_CASE("the sampler") {
  CHECK(images("").data.sampler == "shuffle");
  const Config c = images("sampler = \"balanced\"\n");
  CHECK(c.data.sampler == "balanced");
  CHECK(parse_config(resolved_toml(c, false), "a.toml") == c);
  CHECK(refused("sampler = \"balance\"\n").find("data.sampler") != std::string::npos);
  CHECK(refused("sampler = \"balanced\"\nshuffle = false\n").find("is ignored with data.shuffle = false") !=
        std::string::npos);
  CHECK(images("sampler = \"shuffle\"\nshuffle = false\n").data.sampler == "shuffle");  // a default means nothing
}

TEST_CASE("augmentation through the printer and back") {
  const Config c = images(
      "augment = [\"jitter\", \"crop\", \"hue\"]\ncrop_area = [0.25, 0.5]\ncrop_ratio = [1, 1]\njitter = [0.1, 0, "
      "0.3]\n"
      "hue = 0.5\n"
      "resize = 300\nmax_broken = 0\nimage_size = 64\nchannels = 1\n");
  CHECK(parse_config(resolved_toml(c, false), "a.toml") == c);
  const Config rand = images("augment = [\"rand\"]\nrand_operations = 3\nrand_magnitude = 5\n", "cifar10");
  CHECK(rand.data.augmentation().rand);
  CHECK(rand.data.augmentation().rand_operations == 3);
  CHECK(rand.data.augmentation().rand_magnitude == 5);
  CHECK(parse_config(resolved_toml(rand, false), "a.toml") == rand);
  CHECK(images("augment = [\"flip\", \"repeated\"]\n").data.repetitions() == 3);
  const Config small = images("augment = [\"crop\"]\ncrop_padding = 2\n", "cifar10");
  CHECK(small.data.crop_padding == 2);
  CHECK(parse_config(resolved_toml(small, false), "a.toml") == small);
}

TEST_CASE("data.stage_dir") {
  const Config c = images("stage_dir = \"$TMPDIR/${USER}\"\n", "idx");
  CHECK(c.data.stage_dir == "$TMPDIR/${USER}");  // each node's own
  CHECK(parse_config(resolved_toml(c, false), "a.toml") == c);
  CHECK(images("", "idx").data.stage_dir.empty());
  CHECK(refused("stage_dir = \"/tmp\"\n") ==
        "a.toml:6:13: data.stage_dir: does not copy folders of images (pack it with `convoy pack` and train on that: "
        "data.kind = \"hdf5\")");
  CHECK(refused("stage_dir = \"/tmp/${USER\"\n", "idx") ==
        "a.toml:6:13: data.stage_dir: \"/tmp/${USER\" has a '$' without a variable's name (must be $NAME or ${NAME})");
  CHECK(refused("stage_dir = 3\n", "idx") == "a.toml:6:13: data.stage_dir: is an integer (must be a string)");
}

TEST_CASE("image keys that are wrong") {
  const std::string line = "a.toml:6:";
  CHECK(refused("augment = [\"crops\"]\n") == line +
                                                  "12: data.augment[0]: unknown name \"crops\" (did you mean \"crop\"? "
                                                  "must be one of crop, flip, trivial, rand, jitter, hue, repeated, "
                                                  "erase, mixup, cutmix)");
  CHECK(refused("augment = [\"flip\", \"flip\"]\n") ==
        line + "11: data.augment: \"flip\" is there twice (list each once)");
  CHECK(refused("crop_area = [0.1, 1]\n") ==
        line + "13: data.crop_area: is ignored without \"crop\" in data.augment (add it there)");
  CHECK(refused("jitter = [0.1, 1, 1]\n") ==
        line + "10: data.jitter: is ignored without \"jitter\" in data.augment (add it there)");
  CHECK(refused("augment = [\"crop\"]\ncrop_padding = 3\n") ==
        "a.toml:7:16: data.crop_padding: is ignored with data.kind = \"image_folder\" (it belongs to hdf5, idx, "
        "cifar10)");
  CHECK(refused("augment = [\"crop\"]\ncrop_area = [0, 1]\n") ==
        "a.toml:7:13: data.crop_area: [0, 1] (the smaller share first, above 0)");
  CHECK(refused("augment = [\"crop\"]\ncrop_area = [0.5, 0.4]\n") ==
        "a.toml:7:13: data.crop_area: [0.5, 0.4] (the smaller share first, above 0)");
  CHECK(refused("augment = [\"crop\"]\ncrop_ratio = [2, 1]\n") ==
        "a.toml:7:14: data.crop_ratio: [2, 1] (the smaller one first)");
  CHECK(refused("augment = [\"jitter\"]\njitter = [0.4]\n") ==
        "a.toml:7:10: data.jitter: has 1 items (three: brightness, contrast, saturation)");
  CHECK(refused("augment = [\"rand\", \"trivial\"]\n") ==
        line + "11: data.augment: has \"trivial\" and \"rand\" (one of the two policies)");
  CHECK(refused("augment = [\"trivial\"]\nrand_operations = 3\n") ==
        "a.toml:7:19: data.rand_operations: is ignored without \"rand\" in data.augment (add it there)");
  CHECK(refused("augment = [\"rand\"]\nrand_magnitude = 31\n") ==
        "a.toml:7:18: data.rand_magnitude: 31 is out of range (must be an integer from 0 to 30)");
  CHECK(refused("augment = [\"repeated\"]\n") ==
        line + "11: data.augment: \"repeated\" alone repeats equal samples (add crop, flip or another random change)");
  CHECK(refused("augment = [\"repeated\", \"flip\"]\nrepeated_times = 1\n") ==
        "a.toml:7:18: data.repeated_times: 1 is out of range (must be an integer from 2 to 1000)");
  CHECK(refused("augment = [\"flip\"]\nrepeated_times = 4\n") ==
        "a.toml:7:18: data.repeated_times: is ignored without \"repeated\" in data.augment (add it there)");
  CHECK(refused("augment = [\"flip\", \"repeated\"]\nshuffle = false\n") ==
        "a.toml:7:11: data.shuffle: false with \"repeated\" in data.augment: every epoch would have the same first 1/3 "
        "of the samples (true)");
  CHECK(refused("hue = 0.2\n") == line + "7: data.hue: is ignored without \"hue\" in data.augment (add it there)");
  CHECK(refused("augment = [\"hue\"]\nhue = 0.6\n") ==
        "a.toml:7:7: data.hue: 0.6 is out of range (must be a number from 0 to 0.5)");
  CHECK(refused("channels = 2\n") == line + "12: data.channels: 2 (3: RGB, or 1: grey)");
  CHECK(refused("resize = 200\n") ==
        line + "10: data.resize: 200 is smaller than data.image_size, 224 (at least that, or 0)");
  CHECK(refused("max_broken = 1.5\n") ==
        line + "14: data.max_broken: 1.5 is out of range (must be a number from 0 to 1)");
  CHECK(refused("resize = 300\n", "cifar10") ==
        line + "10: data.resize: is ignored with data.kind = \"cifar10\" (it belongs to hdf5, image_folder)");
}

TEST_CASE("sizes of training images by epoch") {
  const Config c = images("train_sizes = [160, 192]\nsize_milestones = [12]\nimage_size = 256\n");
  CHECK(c.data.train_sizes == std::vector<std::int64_t>{160, 192});
  CHECK(c.data.size_milestones == std::vector<std::int64_t>{12});
  CHECK(parse_config(resolved_toml(c, false), "a.toml") == c);
  CHECK(images("train_sizes = [32]\n").data.size_milestones.empty());
  CHECK(images("").data.train_sizes.empty());
  CHECK(images("train_sizes = [192, 128, 160]\nsize_milestones = [1, 2]\n").data.train_sizes.size() == 3);  // may fall

  CHECK(refused("train_sizes = [1, 2]\n") ==
        "a.toml:3:1: data.size_milestones: 0 epochs for 2 sizes in data.train_sizes (one fewer than sizes: the first "
        "applies from the start)");
  CHECK(refused("train_sizes = [1]\nsize_milestones = [3]\n") ==
        "a.toml:7:19: data.size_milestones: 1 epoch for 1 size in data.train_sizes (one fewer than sizes: the first "
        "applies from the start)");
  CHECK(refused("train_sizes = [8, 9, 10]\nsize_milestones = [3, 3]\n") ==
        "a.toml:7:19: data.size_milestones: [3, 3] is not rising (list each epoch once, in order)");
  CHECK(refused("size_milestones = [3]\n") ==
        "a.toml:6:19: data.size_milestones: is ignored without data.train_sizes (give the sizes there)");
  CHECK(refused("train_sizes = [0]\n").find("data.train_sizes[0]: 0 is out of range") != std::string::npos);
  CHECK(refused("train_sizes = [8, 9]\nsize_milestones = [0]\n").find("data.size_milestones[0]: 0 is out of range") !=
        std::string::npos);
  CHECK(refused("train_sizes = [8]\n", "cifar10") ==
        "a.toml:6:15: data.train_sizes: is ignored with data.kind = \"cifar10\" (it belongs to synthetic, hdf5, "
        "image_folder)");
}

TEST_CASE("sizes of training images: only for networks that do not depend on them") {
  const auto network = [](const std::string& model) {
    try {
      (void)parse_config(
          "train = {steps = 1, global_batch_size = 1}\n[data]\nkind = \"synthetic\"\ntrain_sizes = "
          "[8]\n[model]\nclasses = 10\n" +
              model,
          "a.toml");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string remedy =
      " takes images of one size (use a resnet, or global_avg_pool before the first flatten and linear)";
  CHECK(network("name = \"mlp\"\n") == "a.toml:4:15: data.train_sizes: mlp" + remedy);
  const auto layers = [&](const std::string& first, const std::string& second) {
    return network(
        "name = \"sequential\"\nlayers = [{type = \"conv2d\", out_channels = 4, kernel_size = 3}, {type = \"" + first +
        "\", name = \"f\"}, {type = \"" + second + "\"}, {type = \"linear\", out_features = 10}]\n");
  };
  CHECK(layers("flatten", "relu") == "a.toml:4:15: data.train_sizes: the layer \"f\"" + remedy);
  CHECK(layers("global_avg_pool", "flatten").empty());
  CHECK(network("name = \"resnet50\"\n").empty());
}
