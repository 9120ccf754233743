// SPDX-License-Identifier: Apache-2.0
//
// Configs that must be refused, each with the whole sentence that the user reads, place included.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "app/build/read_config.h"
#include "layers/base/error.h"
#include "layers/models/models.h"

using namespace convoy;

namespace {

// A good config without [run]: five lines that the snippets below follow or replace.
constexpr const char* kToy =
    "model.name = \"toy\"\n"
    "data = {kind = \"synthetic\", features = 10, targets = 5}\n"
    "[train]\n"
    "steps = 5\n"
    "global_batch_size = 20\n"
    "loss = \"mse\"\n";

/// The message of the usage Error that parsing throws; empty when it is accepted.
std::string refused(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    (void)parse_config(text, "cfg/a.toml", overrides);
    return "";
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
}

struct BadCase {
  std::string text;
  std::string message;  ///< without "cfg/a.toml:"
};

void check_all(const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    CAPTURE(bad.text);
    CHECK(refused(bad.text) == "cfg/a.toml:" + bad.message);
  }
}

std::string toy(const std::string& more) { return kToy + more; }

std::string model(const std::string& lines) {
  return "data = {kind = \"synthetic\", image_size = 8}\ntrain = {steps = 5, global_batch_size = 4}\n[model]\n" + lines;
}

}  // namespace

TEST_CASE("the good config that the bad ones are made from") {
  CHECK(refused(kToy).empty());
  CHECK(refused(model("name = \"resnet18\"\nclasses = 3\n")).empty());
}

TEST_CASE("what is not TOML") {
  check_all({
      {"[run\n", "1:5: this is not TOML: Error while parsing table header: expected ']', saw '\\n'"},
      {"a = 1\na = 2\n",
       "2:5: this is not TOML: Error while parsing key-value pair: cannot redefine existing integer 'a'"},
      {"[run]\n[run]\n",
       "2:1: this is not TOML: Error while parsing table header: cannot redefine existing table 'run'"},
      {"[run]\nname = toy\n",
       "2:9: this is not TOML: Error while parsing boolean: expected 'true', saw 'to' (strings are written in quotes)"},
  });
}

TEST_CASE("a key of very many parts, which the parser would take apart by recursion") {
  std::string parts = "a";
  for (int i = 0; i < 50000; ++i) parts += ".a";
  check_all({{"[run]\n[" + parts + "]\n", "2: a key of more than 100 parts"},
             {parts + " = 1\n", "1: a key of more than 100 parts"}});
  CHECK(refused(kToy, {"run." + parts + "=1"}) != "");
  CHECK(refused(kToy, {"run.dir={" + parts + " = 1}"}) != "");
  CHECK(refused(toy("# " + parts + " = 1\n[run]\ndir = \"" + std::string(200, '.') + "\"\n")).empty());
}

TEST_CASE("words that a config cannot hold") {
  CHECK(refused(kToy, {"run.dir=d\xe9"}) ==
        "--set: run.dir: d\\xe9 is not UTF-8, or has control characters (a config is text of UTF-8)");
  CHECK(refused(kToy, {"run.dir=d\x1b"}) != "");
  CHECK(refused(kToy, {"run.dir=d\xc3\xa9"}).empty());
  CHECK(refused(toy("[run]\nname = \"a\\nb\"\n")).find("run.name") != std::string::npos);
}

TEST_CASE("unknown names") {
  check_all({
      {toy("[optimiser]\nlr = 1.0\n"), "7:2: optimiser: unknown section (did you mean [optimizer]?)"},
      {toy("[augment]\n"),
       "7:2: augment: unknown section (the sections: run, device, model, data, train, optimizer, "
       "lr_schedule, parallel, checkpoint, log)"},
      {"epochs = 5\n" + toy(""),
       "1:1: epochs: unknown key outside the sections (the sections: run, device, model, data, "
       "train, optimizer, lr_schedule, parallel, checkpoint, log)"},
      {toy("  epoch = 5\n"), "7:3: train.epoch: unknown key (did you mean train.epochs?)"},
      {toy("lr = 0.1\n"), "7:1: train.lr: unknown key (did you mean optimizer.lr?)"},
      {toy("[log]\nlevel = 3\n"),
       "8:1: log.level: unknown key (its keys: progress, every_steps, tensorboard, trace, prometheus)"},
      {toy("[optimizer]\nname = \"sdg\"\n"),
       "8:8: optimizer.name: unknown name \"sdg\" (did you mean \"sgd\"? must be one of sgd, lars, adamw, lamb)"},
      {toy("[device]\nkind = \"tpu\"\n"),
       "8:8: device.kind: unknown name \"tpu\" (did you mean \"cpu\"? must be one of auto, "
       "cpu, cuda)"},
      {toy("[parallel]\nmode = \"pipline\"\n"),
       "8:8: parallel.mode: unknown name \"pipline\" (did you mean \"pipeline\"? must be one of data, model, pipeline, "
       "scatter)"},
      {toy("[run]\nstop_signals = [\"SIGTERM\", \"SIGKILL\"]\n"),
       "8:28: run.stop_signals[1]: unknown name \"SIGKILL\" (must be one of SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, "
       "SIGALRM, SIGXCPU)"},
      {model("name = \"sequential\"\n[[model.layers]]\ntype = \"linear\"\nout_feature = 3\n"),
       "7:1: model.layers[0].out_feature: unknown key (did you mean model.layers.out_features?)"},
  });
}

TEST_CASE("wrong types are never converted") {
  check_all({
      {"train = 5\n", "1:1: train: is an integer (must be a section, [train])"},
      {"[[train]]\nsteps = 5\n", "1:3: train: is a list of tables (must be a section, [train])"},
      {toy("[run]\nname = 5\n"), "8:8: run.name: is an integer (must be a string)"},
      {toy("[run]\nseed = 1.0\n"), "8:8: run.seed: is a number with a fraction (must be an integer of at least 0)"},
      {toy("[run]\nmax_time = 01:30:00\n"), "8:12: run.max_time: is a date or time (must be a time, \"HH:MM:SS\")"},
      {toy("[run]\nstop_signals = \"SIGTERM\"\n"),
       "8:16: run.stop_signals: is a string (must be a list of strings, each one "
       "of SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU)"},
      {toy("[optimizer]\nlr = \"0.1\"\n"), "8:6: optimizer.lr: is a string (must be a number above 0)"},
      {toy("[optimizer]\nnesterov = 1\n"), "8:12: optimizer.nesterov: is an integer (must be true or false)"},

      {model("name = \"mlp\"\nclasses = 2\nhidden = [8, 2.0]\n"),
       "6:14: model.hidden[1]: is a number with a fraction (must be an integer from 1 to 10000000)"},
      {model("name = \"mlp\"\nclasses = true\n"),
       "5:11: model.classes: is a boolean (must be an integer from 0 to 10000000)"},
      {model("name = \"sequential\"\nlayers = 5\n"),
       "5:10: model.layers: is an integer (must be a list of tables, [[model.layers]])"},
      {model("name = \"sequential\"\nlayers = [5]\n"),
       "5:10: model.layers: is a list with something else than tables (must be a list of tables, [[model.layers]])"},
  });
}

TEST_CASE("values out of range") {
  check_all({
      {toy("[optimizer]\nlr = 0\n"), "8:6: optimizer.lr: 0 is out of range (must be a number above 0)"},
      {toy("[optimizer]\nlr = nan\n"), "8:6: optimizer.lr: nan is not finite (must be a number above 0)"},
      {toy("[optimizer]\nlr = inf\n"), "8:6: optimizer.lr: inf is not finite (must be a number above 0)"},
      {toy("[optimizer]\nmomentum = 1.0\n"),
       "8:12: optimizer.momentum: 1 is out of range (must be a number of at least 0 and below 1)"},
      {toy("[optimizer]\nname = \"adamw\"\nbetas = [0.9]\n"),
       "9:9: optimizer.betas: has 1 items (must be a list of two numbers, each of at least 0 and below 1)"},
      {toy("[run]\nseed = -1\n"), "8:8: run.seed: -1 is out of range (must be an integer of at least 0)"},
      {toy("[run]\nmax_time = \"1:00\"\n"),
       "8:12: run.max_time: \"1:00\" is not a time above zero (must be a time, \"HH:MM:SS\")"},
      {toy("[run]\nname = \"a/b\"\n"),
       "8:8: run.name: \"a/b\" cannot be a folder's name (use letters, digits, '-', '_' and '.')"},
      {toy("[run]\ndir = \"\"\n"), "8:7: run.dir: is empty (\".\" is the current folder)"},
      {toy("[run]\ndir = \"a\\nb\"\n"), "8:7: run.dir: has a control character in it (must be plain text)"},
      {toy("[parallel]\ntimeout = 0\n"), "8:11: parallel.timeout: 0 is out of range (must be a number above 0)"},
      {toy("[checkpoint]\nkeep = 0\n"),
       "8:8: checkpoint.keep: 0 is out of range (must be an integer from 1 to 1000000)"},
      {toy("[checkpoint]\nkeep_best = \"top2\"\n"),
       "8:13: checkpoint.keep_best: unknown name \"top2\" (did you mean \"top1\"? must be one of \"\", top1, loss)"},
      {toy("[checkpoint]\nresume = \"Never\"\n"),
       "8:10: checkpoint.resume: unknown name \"Never\" (did you mean \"never\"?)"},
      {toy("[checkpoint]\nresume = \"no.h5\"\n"),
       "8:10: checkpoint.resume: there is no file \"no.h5\" (looked in the current folder and in cfg)"},
      {toy("[checkpoint]\nresume = \"\"\n"), "8:10: checkpoint.resume: is empty (must be auto, never or a file)"},
  });
}

TEST_CASE("missing keys") {
  check_all({
      {"",
       "1:1: model.name: missing (must be one of toy, mlp, resnet9, resnet18, resnet34, resnet50, resnet101, "
       "resnet152, "
       "sequential)"},
      {"\n[model]\nclasses = 3\n",
       "2:1: model.name: missing (must be one of toy, mlp, resnet9, resnet18, resnet34, resnet50, "
       "resnet101, resnet152, sequential)"},
      {"model.name = \"toy\"\n[data]\nkind = \"hdf5\"\n", "2:1: data.train: missing (must be a file)"},
      {"model.name = \"toy\"\ndata.kind = \"synthetic\"\n[train]\nsteps = 4\n",
       "3:1: train.global_batch_size: missing (must be an integer from 1 to 1000000000)"},
      {"model.name = \"toy\"\ndata = {kind = \"synthetic\", features = 10}\n[train]\nglobal_batch_size = 4\n",
       "3:1: train.epochs: missing (give train.epochs or train.steps)"},
      {model("name = \"sequential\"\n"), "3:1: model.layers: missing (a sequential model needs [[model.layers]])"},
      {model("name = \"sequential\"\n[[model.layers]]\nname = \"a\"\n"),
       "5:1: model.layers[0].type: missing (must be one of " + join(kChoiceNames<LayerChoice>) + ")"},
      {model("name = \"sequential\"\n[[model.layers]]\ntype = \"relu\"\n[[model.layers]]\ntype = \"linear\"\n"),
       "7:1: model.layers[1].out_features: missing (must be an integer from 1 to 10000000)"},
      {toy("[lr_schedule]\nname = \"step\"\n"),
       "7:1: lr_schedule.milestones: missing (must be a list of numbers, each above 0)"},
      {model("name = \"resnet18\"\n"), "3:1: model.classes: missing (synthetic labels need the number of classes)"},
  });
}

TEST_CASE("keys that do not belong to what was chosen") {
  check_all({
      {toy("[optimizer]\nname = \"adamw\"\nmomentum = 0.8\n"),
       "9:12: optimizer.momentum: is ignored with optimizer.name = \"adamw\" (it belongs to sgd, lars)"},
      {toy("[optimizer]\nbetas = [0.9, 0.99]\n"),
       "8:9: optimizer.betas: is ignored with optimizer.name = \"sgd\" (it belongs to adamw, lamb)"},
      {toy("[lr_schedule]\npower = 1.0\n"),
       "8:9: lr_schedule.power: is ignored with lr_schedule.name = \"constant\" (it belongs to polynomial)"},
      {toy("label_smoothing = 0.1\n"),
       "7:19: train.label_smoothing: is ignored with train.loss = \"mse\" (it belongs to cross_entropy, bce)"},
      {toy("[model.x]\n"),
       "7:8: model.x: unknown key (its keys: name, classes, hidden, stem, weights, reset_head, freeze, recompute, "
       "layers)"},
      {model("name = \"resnet18\"\nclasses = 3\nhidden = [4]\n"),
       "6:10: model.hidden: is ignored with model.name = \"resnet18\" (it belongs to mlp)"},
      {model("name = \"mlp\"\nclasses = 3\nstem = \"small\"\n"),
       "6:8: model.stem: is ignored with model.name = \"mlp\" (it "
       "belongs to resnet18, resnet34, resnet50, resnet101, resnet152)"},
      {model("name = \"mlp\"\nclasses = 3\n[[model.layers]]\ntype = \"relu\"\n"),
       "6:1: model.layers: is ignored with model.name = \"mlp\" (it belongs to sequential)"},
      {model("name = \"mlp\"\nclasses = 3\nreset_head = true\n"),
       "6:14: model.reset_head: is ignored without model.weights (give the file to start from)"},
      {model("name = \"sequential\"\n[[model.layers]]\ntype = \"relu\"\nbias = false\n"),
       "7:8: model.layers[0].bias: is ignored with type = \"relu\" (it belongs to linear, conv2d, conv1d)"},
      {"model.name = \"toy\"\n[data]\nkind = \"synthetic\"\ntrain = \"a.h5\"\n",
       "4:9: data.train: is ignored with data.kind = \"synthetic\" (it belongs to hdf5, idx, cifar10, "
       "image_folder)"},
      {"model.name = \"toy\"\n[data]\nkind = \"synthetic\"\nfeatures = 10\nimage_size = 8\n",
       "5:14: data.image_size: is ignored with data.features (samples are vectors, not images)"},
  });
}

TEST_CASE("keys that contradict each other") {
  check_all({
      {toy("epochs = 3\n"), "4:9: train.steps: given together with train.epochs (give one of the two)"},
      {toy("[parallel]\nmicrobatches = 3\n"),
       "5:21: train.global_batch_size: 20 does not divide into 3 microbatches (18 or 21 do), for one replica"},
      {toy("[optimizer]\nmomentum = 0.0\nnesterov = true\n"),
       "9:12: optimizer.nesterov: needs momentum (set optimizer.momentum above 0)"},
      {toy("[lr_schedule]\nname = \"cosine\"\nfinal_lr = 1\n"),
       "9:12: lr_schedule.final_lr: 1 is above optimizer.lr, 0.1 (the rate falls)"},
      {toy("[lr_schedule]\nname = \"step\"\nmilestones = [30, 30]\n"),
       "9:14: lr_schedule.milestones: [30, 30] is not rising (list each epoch once, in order)"},
      {"model.name = \"toy\"\ndata.kind = \"synthetic\"\ndata.features = 9\ntrain = {steps = 1, global_batch_size = "
       "1}\n",
       "3:17: data.features: 9 (toy takes vectors of 10)"},
      {"model = {name = \"toy\", classes = 4}\ndata = {kind = \"synthetic\", features = 10}\n"
       "train = {steps = 1, global_batch_size = 1}\n",
       "1:34: model.classes: 4 (toy puts out 5)"},
      {"model = {name = \"resnet18\", classes = 4}\ndata = {kind = \"synthetic\", features = 10}\n"
       "train = {steps = 1, global_batch_size = 1}\n",
       "2:40: data.features: resnet18 takes images (leave it out, or use mlp or sequential)"},
      {"model.name = \"toy\"\ndata = {kind = \"synthetic\", features = 10, targets = 5}\n"
       "train = {steps = 1, global_batch_size = 1}\n",
       "3:9: train.loss: cross_entropy needs class labels, but data.targets asks for float targets (use mse or l1, or "
       "leave data.targets out)"},
      {"model = {name = \"mlp\", classes = 4}\ndata = {kind = \"synthetic\", mean = [0.5, 0.5]}\n"
       "train = {steps = 1, global_batch_size = 1}\n",
       "2:36: data.mean: 2 values for 3 channels (give one for all, or one each)"},
      {"model = {name = \"mlp\", classes = 4}\ndata = {kind = \"synthetic\", samples = 8}\n"
       "train = {steps = 1, global_batch_size = 9}\n",
       "2:39: data.samples: 8 samples do not fill one batch of 9 (give at least that many, or drop_last = false)"},
      {model("name = \"sequential\"\n[[model.layers]]\ntype = \"relu\"\nname = \"a.b\"\n"),
       "7:8: model.layers[0].name: \"a.b\" cannot be a layer's name (use letters, digits, '-' and '_')"},
      {model("name = \"sequential\"\n[[model.layers]]\ntype = \"relu\"\nname = \"1\"\n[[model.layers]]\ntype = "
             "\"relu\"\n"),
       "8:1: model.layers[1].name: \"1\" is the name of an earlier layer too (names must differ)"},
  });
}

TEST_CASE("overrides are as strict as the file, and say where they are from") {
  const auto check = [](const std::vector<std::string>& overrides, const std::string& message) {
    CAPTURE(overrides.back());
    CHECK(refused(kToy, overrides) == message);
  };
  check({"steps=5"},
        "--set: \"steps=5\" is not an override (write section.key=value, or -section.key to leave a key out)");
  check({"train.steps"},
        "--set: \"train.steps\" is not an override (write section.key=value, or -section.key to leave a key out)");
  check({"train.step=5"}, "--set: train.step: unknown key (did you mean train.steps?)");
  check({"trian.steps=5"}, "--set: trian: unknown section (did you mean [train]?)");
  check({"train.steps=five"}, "--set: train.steps: is a string (must be an integer from 1 to 1e+15)");
  check({"train.steps=0"}, "--set: train.steps: 0 is out of range (must be an integer from 1 to 1e+15)");
  check({"train.steps="}, "--set: train.steps: is a string (must be an integer from 1 to 1e+15)");
  check({"run.stop_signals=[1"},
        "--set: run.stop_signals: [1 is not a value (a number, true, false, a word, \"text in quotes\", or a list "
        "[\"a\", \"b\"])");
  check(
      {"run.stop_signals=[SIGINT]"},
      "--set: run.stop_signals: [SIGINT] is not a value (a number, true, false, a word, \"text in quotes\", or a list "
      "[\"a\", \"b\"])");
  check({"-train.epochs"}, "--set: -train.epochs: cfg/a.toml does not give this key (leave the override out)");
  check({"run.name=[5]"}, "--set: run.name: is a list (must be a string)");
  check({"run.name=a\nb"},
        "--set: run.name: a is not a value (a number, true, false, a word, \"text in quotes\", or a list [\"a\", "
        "\"b\"])");
  check({"run.name.x=1"}, "--set: run.name.x: unknown key (did you mean run.name?)");
  check({"--case steps=5"},
        "--case: \"steps=5\" is not an override (write section.key=value, or -section.key to leave a key out)");
  check({"--case train.steps=0"}, "--case: train.steps: 0 is out of range (must be an integer from 1 to 1e+15)");
  check({"train.steps=5", "--sweep train.steps=0"},
        "--sweep: train.steps: 0 is out of range (must be an integer from 1 to 1e+15)");
  check({"parallel.bucket_mb=1e300"},
        "--set: parallel.bucket_mb: 1e+300 is out of range (must be a number above 0 and of at most 1000000)");
  check({"parallel.first_bucket_mb=0"},
        "--set: parallel.first_bucket_mb: 0 is out of range (must be a number above 0 and of at most 1000000)");
  check({"optimizer.betas=[0.9,0.99]"},
        "--set: optimizer.betas: is ignored with optimizer.name = \"sgd\" (it belongs to adamw, lamb)");
  check({"optimizer.clip_norm=-1"}, "--set: optimizer.clip_norm: -1 is out of range (must be a number of at least 0)");
  check({"train.ema_decay=1"},
        "--set: train.ema_decay: 1 is out of range (must be a number of at least 0 and below 1)");
  check({"train.early_stop_metric=loss"},
        "--set: train.early_stop_metric: is ignored without train.early_stop_epochs (set it, or leave this out)");
  check({"optimizer.no_decay=['norms']"},
        "--set: optimizer.no_decay[0]: unknown name \"norms\" (did you mean \"norm\"? must be one of norm, bias)");
  check({"lr_schedule.warmup_epochs=1", "lr_schedule.warmup_steps=5"},
        "--set: lr_schedule.warmup_steps: given together with lr_schedule.warmup_epochs (give one of the two)");
  const std::string weights = "--set: data.class_weights";
  const std::string wanted = " (must be a list of numbers, each from 1e-06 to 1000000)";
  check({"data.class_weights=[1, 0]"}, weights + "[1]: 0 is out of range (must be a number from 1e-06 to 1000000)");
  check({"data.class_weights=[1, -2.5]"},
        weights + "[1]: -2.5 is out of range (must be a number from 1e-06 to 1000000)");
  check({"data.class_weights=[nan]"}, weights + "[0]: nan is not finite (must be a number from 1e-06 to 1000000)");
  check({"data.class_weights=[inf]"}, weights + "[0]: inf is not finite (must be a number from 1e-06 to 1000000)");
  check({"data.class_weights=2"}, weights + ": is an integer" + wanted);
  check({"data.class_weights=[1, 1, 1, 1, 2]"},
        weights + ": weighs classes in train.loss = \"cross_entropy\", not in \"mse\" (leave it out)");
  check({"train.steps=5", "train.epochs=5"},
        "--set: train.steps: given together with train.epochs (give one of the two)");
  check({"parallel.mode=scatter", "run.replay_every=2"},
        "--set: run.replay_every: 2 does not work with parallel.mode = \"scatter\" (use \"data\", or 0)");
  check({"train.global_batch_size=21", "parallel.microbatches=2"},
        "--set: train.global_batch_size: 21 does not divide into 2 microbatches (20 or 22 do), for one replica");
}

TEST_CASE("files that cannot be read") {
  CHECK_THROWS_WITH_AS((void)read_config("no/such.toml"),
                       "no/such.toml: the config cannot be opened: No such file or directory", Error);
  CHECK_THROWS_WITH_AS((void)read_config("."), ".: is a folder (must be a config file)", Error);
}

TEST_CASE("parallel modes and what belongs to them") {
  const auto parallel = [](const std::string& keys) { return toy("[parallel]\n" + keys); };
  check_all({
      {parallel("schedule = \"gpipe\"\n"),
       "8:12: parallel.schedule: is ignored with parallel.mode = \"data\" (it belongs to pipeline)"},
      {parallel("mode = \"model\"\nmicrobatches = 2\n"),
       "9:16: parallel.microbatches: is ignored with parallel.mode = \"model\" (it belongs to data, pipeline)"},
      {parallel("mode = \"pipeline\"\nchunks = 3\n"),
       "9:10: parallel.chunks: is ignored with parallel.schedule = \"1f1b\" (it belongs to interleaved)"},
      {parallel("mode = \"model\"\npartition = \"even\"\n"),
       "9:13: parallel.partition: is \"even\" (must be \"auto\" or a list of unit names)"},
      {parallel("mode = \"model\"\npartition = 3\n"),
       "9:13: parallel.partition: is an integer (must be \"auto\" or a list of unit names)"},
      {parallel("mode = \"pipeline\"\nstages = 2\nschedule = \"interleaved\"\nmicrobatches = 5\n"),
       "11:16: parallel.microbatches: interleaved needs a multiple of the 2 stages, not 5 (4 or 6)"},
      {parallel("mode = \"pipeline\"\nstages = 2\npartition = [\"net1\", \"net2\", \"net3\"]\n"),
       "10:13: parallel.partition: names 3 units for 2 stages of 1 chunks each (name 2)"},
  });
  CHECK(refused("data = {kind = \"synthetic\", features = 10, targets = 5, drop_last = false}\nmodel.name = \"toy\"\n"
                "train = {steps = 5, global_batch_size = 20, loss = \"mse\"}\n[parallel]\nmode = \"scatter\"\n")
            .find("data.drop_last: false leaves batches that scatter mode cannot deal out") != std::string::npos);
}
