// SPDX-License-Identifier: Apache-2.0
//
// Configs that must be accepted: defaults, overrides, origins, files, and the way through the printer and back.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "app/base/duration.h"
#include "app/base/input_path.h"
#include "app/build/read_config.h"
#include "app/config/config_keys.h"
#include "app/config/config_printer.h"
#include "app/config/toml_text.h"
#include "layers/base/error.h"
#include "layers/base/option_error.h"

using namespace convoy;

namespace {

constexpr const char* kMlp =
    "[model]\nname = \"mlp\"\nclasses = 3\n[data]\nkind = \"synthetic\"\n[train]\nepochs = 2\nglobal_batch_size = 8\n";

Config parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "dir/first.run.toml", overrides);
}

void check_round_trip(const Config& config) {
  for (const bool with_origins : {false, true}) {
    const std::string text = resolved_toml(config, with_origins);
    CAPTURE(text);
    const Config again = parse_config(text, "other.toml", {}, InputFiles::kTrust);
    CHECK(again == config);
    CHECK(resolved_toml(again, false) == resolved_toml(config, false));
  }
}

/// A folder that is gone at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "convoy-test-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  void write(const std::string& name, const std::string& text) const { std::ofstream(path / name) << text; }

  std::filesystem::path path;
};

}  // namespace

TEST_CASE("defaults") {
  const Config c = parse(kMlp);
  CHECK(c.run.name == "first.run");
  CHECK(run_folder(c) == "runs/first.run");
  CHECK(checkpoint_folder(c) == "runs/first.run/checkpoints");
  CHECK(c.run.seed == 42);
  CHECK_FALSE(c.run.max_time);
  CHECK(c.run.replay_every == 0);
  CHECK(c.run.stop_signals == std::vector<std::string>{"SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT"});
  CHECK(c.model.hidden == std::vector<std::int64_t>{256});
  CHECK(c.data.image_size == 224);
  CHECK(c.data.channels == 3);
  CHECK(c.data.samples == 1024);
  CHECK(c.train.epochs == 2);
  CHECK_FALSE(c.train.steps);
  CHECK(c.optimizer.name() == "sgd");
  CHECK(c.optimizer.lr == 0.1);
  CHECK(c.parallel.bucket_mb == 25.0);
  CHECK(c.parallel.timeout == 600.0);
  CHECK(c.checkpoint.resume == "auto");
  CHECK(c.checkpoint.keep_best.empty());
  CHECK(copy_folder(c).empty());
  CHECK(c.log.progress == ProgressMode::kAuto);
}

TEST_CASE("defaults that hang on other keys") {
  CHECK(std::get<AdamwOptions>(parse(kMlp, {"optimizer.name=adamw"}).optimizer.update).epsilon == 1e-8);
  CHECK(std::get<LarsOptions>(parse(kMlp, {"optimizer.name=lars"}).optimizer.update).epsilon == 1e-9);
  CHECK(std::get<LambOptions>(parse(kMlp, {"optimizer.name=lamb"}).optimizer.update).epsilon == 1e-6);
  const Config vectors = parse(kMlp, {"data.features=7"});
  CHECK(vectors.data.image_size == 0);
  CHECK(vectors.data.channels == 0);
  CHECK(parse(kMlp, {"checkpoint.dir=/big/ckpt"}).checkpoint.dir == "/big/ckpt");
  CHECK(parse(kMlp, {"checkpoint.keep_best=loss"}).checkpoint.keep_best == "loss");
}

TEST_CASE("each run folder has its own folder of second copies") {
  const auto folder = [](const std::string& dir) {
    return copy_folder(parse(kMlp, {"run.dir=" + dir, "checkpoint.copy_to=/big"}));
  };
  CHECK(folder("/a").starts_with("/big/first.run-"));
  CHECK(folder("/a").size() == std::string("/big/first.run-").size() + 8);
  CHECK(folder("/a") != folder("/b"));
  CHECK(folder("/a/../a/.") == folder("/a"));
  CHECK(folder("here") == folder(std::filesystem::current_path().string() + "/here"));
}

TEST_CASE("values") {
  const Config c =
      parse(fmt::format("{}precision = \"bf16\"\n[run]\nmax_time = \"26:30:05\"\n[optimizer]\nlr = 1\n", kMlp));
  CHECK(c.train.precision == Precision::kBf16);
  CHECK(c.run.max_time == std::chrono::seconds(95405));
  CHECK(c.optimizer.lr == 1.0);
}

TEST_CASE("overrides") {
  const Config c = parse(kMlp, {"optimizer.lr=0.5", "model.hidden=[4, 5]", "run.name=word", "run.dir=\"with space\"",
                                " log.progress = off ", "optimizer.lr=0.25"});
  CHECK(c.optimizer.lr == 0.25);
  CHECK(c.model.hidden == std::vector<std::int64_t>{4, 5});
  CHECK(c.run.name == "word");
  CHECK(c.run.dir == "with space");
  CHECK(c.log.progress == ProgressMode::kOff);
  const Config layers =
      parse(kMlp, {"model.name=sequential", "model.layers=[{type='flatten'}, {type='linear', out_features=3}]"});
  REQUIRE(layers.model.layers.size() == 2);
  CHECK(std::get<LinearOptions>(layers.model.layers[1].layer).out_features == 3);
  CHECK(layers.model.layers[1].name == "1");
}

TEST_CASE("an override of epochs or steps replaces the other one") {
  const Config c = parse(kMlp, {"train.steps=7"});
  CHECK(c.train.steps == 7);
  CHECK_FALSE(c.train.epochs);
}

TEST_CASE("origins") {
  const std::string text = resolved_toml(parse(kMlp, {"optimizer.lr=0.5"}), true);
  CHECK(text.find("epochs = 2                                # dir/first.run.toml:7\n") != std::string::npos);
  CHECK(text.find("lr = 0.5                                  # --set\n") != std::string::npos);
  CHECK(text.find("seed = 42                                 # default\n") != std::string::npos);
}

TEST_CASE("through the printer and back") {
  check_round_trip(parse(kMlp));
  check_round_trip(
      parse(kMlp, {"run.name=it's \"q\" \\ é", "run.max_time=100:00:01", "optimizer.lr=0.30000000000000004",
                   "optimizer.weight_decay=1e-300", "run.seed=9223372036854775807"}));
  for (const char* name : {"sgd", "lars", "adamw", "lamb"})
    check_round_trip(parse(kMlp, {std::string("optimizer.name=") + name, "optimizer.no_decay=['norm', 'bias']"}));
  check_round_trip(parse(kMlp, {"optimizer.clip_norm=0.5", "train.ema_decay=0.999", "train.early_stop_epochs=3",
                                "train.early_stop_metric=loss"}));
  for (const char* name : {"constant", "cosine", "polynomial"}) {
    check_round_trip(parse(kMlp, {std::string("lr_schedule.name=") + name, "lr_schedule.warmup_epochs=0.5"}));
    check_round_trip(parse(kMlp, {std::string("lr_schedule.name=") + name, "lr_schedule.warmup_steps=500"}));
  }
  check_round_trip(parse(kMlp, {"lr_schedule.name=step", "lr_schedule.milestones=[1, 2.5]"}));
  check_round_trip(parse(kMlp, {"data.features=7", "train.loss=mse"}));
  check_round_trip(parse(kMlp, {"data.class_weights=[0.5, 1, 1e-3]"}));
  check_round_trip(parse(kMlp, {"model.hidden=[]", "run.stop_signals=[]", "train.steps=9"}));
}

TEST_CASE("sequential layers through the printer and back") {
  const Config c = parse(
      "data = {kind = \"synthetic\", image_size = 8}\ntrain = {steps = 5, global_batch_size = 4}\n"
      "[model]\nname = \"sequential\"\nclasses = 3\n"
      "[[model.layers]]\ntype = \"conv2d\"\nout_channels = 8\nkernel_size = 3\npadding = 1\nbias = false\n"
      "[[model.layers]]\ntype = \"batch_norm2d\"\n[[model.layers]]\ntype = \"relu\"\n"
      "[[model.layers]]\ntype = \"max_pool2d\"\nkernel_size = 2\n"
      "[[model.layers]]\ntype = \"bottleneck\"\nname = \"block\"\nchannels = 4\nstride = 2\n"
      "[[model.layers]]\ntype = \"global_avg_pool\"\n[[model.layers]]\ntype = \"linear\"\nout_features = 3\n");
  REQUIRE(c.model.layers.size() == 7);
  CHECK(std::get<Conv2dOptions>(c.model.layers[0].layer).stride == 1);
  CHECK_FALSE(std::get<Conv2dOptions>(c.model.layers[0].layer).bias);
  CHECK(std::get<MaxPool2dOptions>(c.model.layers[3].layer).stride == 2);  // as its kernel
  CHECK(c.model.layers[4].name == "block");
  CHECK(c.model.layers[6].name == "6");
  check_round_trip(c);
}

TEST_CASE("kernel sizes, strides and paddings are a number or two") {
  const Config c = parse(
      "data = {kind = \"synthetic\", image_size = 8}\ntrain = {steps = 5, global_batch_size = 4}\n"
      "[model]\nname = \"sequential\"\nclasses = 3\n"
      "[[model.layers]]\ntype = \"conv2d\"\nout_channels = 6\nkernel_size = [3, 1]\nstride = [1, 2]\npadding = [1, 0]\n"
      "groups = 3\n"
      "[[model.layers]]\ntype = \"max_pool2d\"\nkernel_size = [2, 1]\n"
      "[[model.layers]]\ntype = \"flatten\"\n[[model.layers]]\ntype = \"linear\"\nout_features = 3\n");
  const auto& conv = std::get<Conv2dOptions>(c.model.layers[0].layer);
  CHECK(conv.kernel_size == Size2d(3, 1));
  CHECK(conv.stride == Size2d(1, 2));
  CHECK(conv.padding == Size2d(1, 0));
  CHECK(conv.groups == 3);
  CHECK(std::get<MaxPool2dOptions>(c.model.layers[1].layer).stride == Size2d(2, 1));  // as its kernel
  check_round_trip(c);
}

TEST_CASE("the examples are good configs") {
  for (const auto& entry : std::filesystem::directory_iterator(CONVOY_CONFIGS)) {
    if (entry.path().extension() != ".toml") continue;
    const std::string path = entry.path().string();
    CAPTURE(path);
    check_round_trip(
        parse_config(read_config_text(path), path, {}, InputFiles::kTrust));  // not all data is in the tree
  }
}

TEST_CASE("files are looked for as written, then beside the config") {
  const TemporaryFolder folder;
  folder.write("data.h5", "x");
  const std::string config = (folder.path / "a.toml").string();
  const std::string beside = (folder.path / "data.h5").string();
  CHECK(find_input("data.h5", config, InputForm::kFile).path == beside);
  CHECK(find_input("data.h5:/train", config, InputForm::kFile).path == beside + ":/train");
  CHECK(find_input(beside, "x.toml", InputForm::kFile).path == beside);
  CHECK(find_input("no.h5:/train", config, InputForm::kFile).problem ==
        "there is no file \"no.h5\" (looked in the current folder and in " + folder.path.string() + ")");
  CHECK(find_input("no.h5", "a.toml", InputForm::kFile).problem == "there is no file \"no.h5\"");
  CHECK(find_input("/no.h5", config, InputForm::kFile).problem == "there is no file \"/no.h5\"");
  CHECK(find_input(folder.path.string(), config, InputForm::kFile).problem ==
        fmt::format("\"{}\" is a folder (must be a file)", folder.path.string()));
  CHECK(find_input(folder.path.string(), config, InputForm::kFileOrFolder).path == folder.path.string());

  folder.write("a.toml",
               "model.name = \"mlp\"\ntrain = {epochs = 1, global_batch_size = 2}\n[data]\nkind = \"hdf5\"\n"
               "train = \"data.h5:/train\"\n");
  const Config c = read_config(config);
  CHECK(c.data.train == beside + ":/train");
  CHECK(c.data.validation.empty());
  CHECK(c.data.image_size == 0);
  check_round_trip(c);
  CHECK_THROWS_AS((void)read_config(config, {"data.train=gone.h5"}), Error);
}

TEST_CASE("batches that divide") {
  const auto batch_problem = [](std::int64_t batch, std::int64_t replicas, std::int64_t microbatches) {
    try {
      check_batch(batch, replicas, microbatches);
    } catch (const OptionError& error) {
      CHECK(error.key() == "train.global_batch_size");
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_NOTHROW(check_batch(96, 3, 4));
  CHECK(batch_problem(100, 3, 4) ==
        "train.global_batch_size: 100 does not divide into 3 replicas x 4 microbatches (96 or 108 do)");
  CHECK(batch_problem(7, 2, 1) == "train.global_batch_size: 7 does not divide into 2 replicas (6 or 8 do)");
  CHECK(batch_problem(3, 1, 4) == "train.global_batch_size: 3 does not divide into 4 microbatches (4 does)");
  CHECK(batch_problem(96, 3, 4).empty());
  CHECK_THROWS_AS(check_batch(7, 2, 1), Error);
}

TEST_CASE("durations") {
  CHECK(parse_duration("00:00:01") == std::chrono::seconds(1));
  CHECK(parse_duration("123:59:59") == std::chrono::seconds(446399));
  for (const char* bad :
       {"", "5", "1:00", "00:00:00", "1:60:00", "1:00:60", "1:0:00", ":00:01", "-1:00:00", "a:00:00", "1:00:00 "}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_duration(bad));
  }
  CHECK(format_duration(std::chrono::seconds(446399)) == "123:59:59");
}

TEST_CASE("TOML text") {
  CHECK(toml_text(25.0) == "25.0");
  CHECK(toml_text(1e-8) == "1e-08");
  CHECK(toml_text(std::string("a\"b\\c")) == "\"a\\\"b\\\\c\"");
  CHECK(toml_text(std::vector<std::int64_t>{1, 2}) == "[1, 2]");
}

TEST_CASE("the list of keys has them all") {
  const std::string list = config_key_list();
  CHECK(list.find("  lr (0.1): a number above 0; learning rate, after warm-up\n") != std::string::npos);
  CHECK(list.find("  global_batch_size (required): ") != std::string::npos);
  CHECK(list.find("[[model.layers]]") != std::string::npos);
  CHECK(list.find("  image_size (224): ") != std::string::npos);
}

TEST_CASE("signals") {
  CHECK(signal_number("SIGTERM") == 15);
  CHECK(signal_number("SIGKILL") == 0);
}

TEST_CASE("a key that another override has replaced may be left out, too") {
  const std::string text =
      "model.name = \"toy\"\ndata = {kind = \"synthetic\", features = 10, targets = 5}\n[train]\nepochs = 5\n"
      "global_batch_size = 20\nloss = \"mse\"\n";
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{"train.steps=2", "-train.epochs"}, {"-train.epochs", "train.steps=2"}}) {
    const Config config = parse_config(text, "toy.toml", overrides);
    CHECK(config.train.steps == 2);
    CHECK(!config.train.epochs);
  }
}

TEST_CASE("overrides take any text where a string is expected, and leave keys out") {
  const Config c = parse_config(kMlp, "mlp.toml", {"run.name=2024", "run.max_time=08:00:00", "run.dir=1.5"});
  CHECK(c.run.name == "2024");
  CHECK(c.run.max_time == std::chrono::hours(8));
  CHECK(c.run.dir == "1.5");
  CHECK_FALSE(parse_config(kMlp, "mlp.toml", {"run.max_time="}).run.max_time);
  const std::string text =
      "[model]\nname = \"toy\"\n[data]\nkind = \"synthetic\"\nfeatures = 10\n[optimizer]\nlr = 0.5\n"
      "[train]\nsteps = 1\nglobal_batch_size = 4\n";
  CHECK(parse_config(text, "toy.toml", {"-optimizer.lr"}).optimizer.lr == 0.1);
  CHECK(parse_config(text, "toy.toml", {"optimizer.lr=0.2", "-optimizer.lr"}).optimizer.lr == 0.1);
  CHECK(parse_config(text, "toy.toml", {"-train.steps", "train.epochs=2"}).train.epochs == 2);
}
