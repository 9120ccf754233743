// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "app/commands/cli.h"
#include "layers/base/error.h"

using namespace convoy;

namespace {

std::optional<Command> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "convoy");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

std::string refused(const std::vector<const char*>& words) {
  try {
    (void)parse(words);
    return "";
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
}

}  // namespace

TEST_CASE("train") {
  const auto command = parse({"train", "--set", "a.b=[1, 2]", "c.toml", "--dry-run", "--set", "c.d=1,2"});
  const auto& train = std::get<TrainArguments>(command.value());
  CHECK(train.config == "c.toml");
  CHECK(train.overrides == std::vector<std::string>{"a.b=[1, 2]", "c.d=1,2"});
  CHECK(train.dry_run);
  CHECK(std::get<TrainArguments>(parse({"train", "c.toml", "--set=a.b=1"}).value()).overrides ==
        std::vector<std::string>{"a.b=1"});
}

TEST_CASE("eval, check, inspect, report, doctor") {
  const auto eval =
      std::get<EvalArguments>(parse({"eval", "c.toml", "--checkpoint", "x.h5", "--set", "a.b=1"}).value());
  CHECK(eval.checkpoint == "x.h5");
  CHECK(eval.overrides.size() == 1);
  const auto predict = std::get<PredictArguments>(
      parse({"predict", "c.toml", "a.jpg", "folder", "--checkpoint", "best", "--top", "3", "--out", "o.h5"}).value());
  CHECK(predict.config == "c.toml");
  CHECK(predict.inputs == std::vector<std::string>{"a.jpg", "folder"});
  CHECK(predict.checkpoint == "best");
  CHECK(predict.top == 3);
  CHECK(predict.out == "o.h5");
  CHECK(std::get<CheckArguments>(parse({"check", "c.toml"}).value()).config == "c.toml");
  CHECK(std::get<InspectArguments>(parse({"inspect", "x.h5"}).value()).file == "x.h5");
  const auto verify = std::get<VerifyArguments>(parse({"verify", "runs/a", "x.h5", "--json", "v.json"}).value());
  CHECK(verify.paths == std::vector<std::string>{"runs/a", "x.h5"});
  CHECK(verify.json == "v.json");
  const auto grid = std::get<InspectArguments>(
      parse({"inspect", "--images", "9", "c.toml", "-o", "g.png", "--set", "a.b=1"}).value());
  CHECK(grid.file == "c.toml");
  CHECK(grid.images == 9);
  CHECK(grid.output == "g.png");
  CHECK(grid.overrides == std::vector<std::string>{"a.b=1"});
  const auto report = std::get<ReportArguments>(parse({"report", "runs/a", "runs/b", "-o", "x.html"}).value());
  CHECK(report.runs == std::vector<std::string>{"runs/a", "runs/b"});
  CHECK(report.output == "x.html");
  CHECK(std::holds_alternative<DoctorArguments>(parse({"doctor"}).value()));
}

TEST_CASE("pack") {
  const auto plain = std::get<PackArguments>(parse({"pack", "in", "out.h5"}).value());
  CHECK(plain.source == "in");
  CHECK(plain.output == "out.h5");
  CHECK(plain.kind.empty());
  CHECK(!plain.shuffle);
  const auto pack =
      std::get<PackArguments>(parse({"pack", "in", "out.h5", "--kind", "idx", "--resize", "256", "--quality", "80",
                                     "--validation", "0.1", "--shuffle", "3", "--threads", "2", "--force"})
                                  .value());
  CHECK(pack.kind == "idx");
  CHECK(pack.resize == 256);
  CHECK(pack.quality == 80);
  CHECK(pack.validation == 0.1);
  CHECK(pack.shuffle == 3U);
  CHECK(pack.threads == 2);
  CHECK(pack.force);
  CHECK(refused({"pack", "in"}).find("OUT") != std::string::npos);
  CHECK(refused({"pack", "in", "out.h5", "--kind", "png"}).find("--kind") != std::string::npos);
  CHECK(refused({"pack", "in", "out.h5", "--raw", "64", "--resize", "64"}).find("--re") != std::string::npos);
}

TEST_CASE("bench") {
  const auto bench = std::get<BenchArguments>(
      parse({"bench", "c.toml", "--steps", "7", "--warmup", "0", "--repeat", "2", "--sweep",
             "parallel.microbatches=1,2", "--sweep", "model.hidden=[8,8],[16]", "--json", "o.json"})
          .value());
  CHECK(bench.steps == 7);
  CHECK(bench.warmup == 0);
  CHECK(bench.repeat == 2);
  CHECK(bench.json == "o.json");
  REQUIRE(bench.sweeps.size() == 2);
  CHECK(bench.sweeps[0].key == "parallel.microbatches");
  CHECK(bench.sweeps[0].values == std::vector<std::string>{"1", "2"});
  CHECK(bench.sweeps[1].values == std::vector<std::string>{"[8,8]", "[16]"});
}

TEST_CASE("plan: lists do not take what follows them") {
  const auto plan = std::get<PlanArguments>(
      parse({"plan", "--without", "launch,tiles", "toy", "--without", "jitter", "--ranks", "1,2"}).value());
  CHECK(plan.config == "toy");
  CHECK(plan.without == std::vector<std::string>{"launch", "tiles", "jitter"});
  CHECK(plan.ranks == std::vector<int>{1, 2});
  CHECK(std::get<PlanArguments>(parse({"plan", "--ranks", "2", "toy"}).value()).config == "toy");
}

TEST_CASE("schedule: the three numbers have a limit together") {
  const auto schedule = [](const char* name, const char* stages, const char* microbatches, const char* chunks) {
    return std::get<ScheduleArguments>(
        parse({"schedule", "--name", name, "--stages", stages, "--microbatches", microbatches, "--chunks", chunks})
            .value());
  };
  CHECK_THROWS_WITH_AS((void)schedule_command(schedule("interleaved", "1024", "1024", "3")),
                       "--stages, --microbatches, --chunks: 1024 x 1024 x 3 forwards are more than 2097152 (lower one "
                       "of the three)",
                       Error);
}

TEST_CASE("bench --model-bytes times nothing") {
  const auto bytes =
      std::get<BenchArguments>(parse({"bench", "c.toml", "--model-bytes", "--bandwidth", "4800"}).value());
  CHECK(bytes.model_bytes);
  CHECK(bytes.bandwidth == 4800);
  CHECK(refused({"bench", "c.toml", "--model-bytes", "--profile"}).find("--profile") != std::string::npos);
  CHECK(refused({"bench", "c.toml", "--bandwidth", "4800"}).find("--model-bytes") != std::string::npos);
}

TEST_CASE("bench --calibrate-cpu takes no config, and all else one") {
  const auto choices = std::get<BenchArguments>(parse({"bench", "--calibrate-cpu", "--threads", "2"}).value());
  CHECK(choices.calibrate_cpu);
  CHECK(choices.threads == 2);
  CHECK(refused({"bench", "c.toml", "--calibrate-cpu"}).find("CONFIG") != std::string::npos);
  CHECK(refused({"bench", "--calibrate-cpu", "--profile"}).find("--profile") != std::string::npos);
  CHECK(refused({"bench", "c.toml", "--threads", "2"}).find("--calibrate-cpu") != std::string::npos);
  CHECK(refused({"bench"}).find("CONFIG is required") != std::string::npos);
}

TEST_CASE("values are split at their own commas") {
  CHECK(split_values("a,b") == std::vector<std::string>{"a", "b"});
  CHECK(split_values("\"a,b\",'c,d',{x=[1,2]}") == std::vector<std::string>{"\"a,b\"", "'c,d'", "{x=[1,2]}"});
}

TEST_CASE("unexpected arguments are listed in their order, with what was meant by them") {
  CHECK(refused({"train", "net.toml", "b", "--foo", "a"}) ==
        "train: these arguments were not expected: b --foo a (see convoy train --help)");
  CHECK(refused({"doctor", "x"}) == "doctor: this argument was not expected: x (see convoy doctor --help)");
  CHECK(refused({"launch", "--nnodes", "2", "--", "train", "net.toml"}) ==
        "launch: these arguments were not expected: --nnodes 2 (--nnodes is called --nodes here)");
  CHECK(
      refused({"launch", "--nproc_per_node=4", "--", "train", "net.toml"}) ==
      "launch: this argument was not expected: --nproc_per_node=4 (--nproc_per_node is called --nproc-per-node here)");
  CHECK(refused({"launch", "--nodes", "2", "train", "net.toml"}) ==
        "launch: these arguments were not expected: train net.toml (put the command to start after `--`: convoy launch "
        "[OPTIONS] -- train CONFIG ...)");
}

TEST_CASE("an override that leaves a key out is no option") {
  const auto train = std::get<TrainArguments>(parse({"train", "net.toml", "--set", "-optimizer.momentum"}).value());
  CHECK(train.overrides == std::vector<std::string>{"-optimizer.momentum"});
}

TEST_CASE("wrong command lines") {
  CHECK(refused({}).starts_with("no command given (one of train, eval,"));
  CHECK(refused({"trian"}) == "unknown command \"trian\" (did you mean \"train\"?)");
  CHECK(refused({"fly"}).starts_with("unknown command \"fly\" (the commands: train,"));
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{{"train"},
                                                                                     {"train", "a", "b"},
                                                                                     {"train", "a", "--sets", "x.y=1"},
                                                                                     {"inspect"},
                                                                                     {"inspect", "a", "-o", "x"},
                                                                                     {"inspect", "a", "--images", "0"},
                                                                                     {"report"},
                                                                                     {"bench", "a", "--steps", "0"},
                                                                                     {"bench", "a", "--steps", "x"},
                                                                                     {"doctor", "x"},
                                                                                     {"--wat"}}) {
    CAPTURE(words.size());
    CHECK(refused(words).find("--help)") != std::string::npos);
  }
  CHECK(refused({"bench", "a", "--sweep", "x"}) == "--sweep: \"x\" is not a sweep (write section.key=value1,value2)");
  CHECK(refused({"bench", "a", "--sweep", "x.y=1,,2"}) == "--sweep: \"x.y=1,,2\" has an empty value");
}

TEST_CASE("numbers that are none, or that no option holds, are refused") {
  for (const char* share : {"nan", "inf", "-inf", "0", "1", "half"}) {
    CAPTURE(share);
    CHECK(refused({"pack", "in", "out.h5", "--validation", share}) ==
          fmt::format("--validation: {} is not a number from 1e-09 to 0.999999999 (see convoy pack --help)", share));
  }
  for (const char* bandwidth : {"nan", "inf", "0"}) {
    CAPTURE(bandwidth);
    CHECK(refused({"bench", "c.toml", "--model-bytes", "--bandwidth", bandwidth}) ==
          fmt::format("--bandwidth: {} is not a number from 1 to 1000000 (see convoy bench --help)", bandwidth));
  }
  for (const char* option : {"--seed", "--shuffle"}) {
    for (const char* number : {"-1", "99999999999999999999", "18446744073709551616", "1.5", "1e3", "010", "x"}) {
      CAPTURE(number);
      CHECK(refused({"pack", "in", "out.h5", option, number}) ==
            fmt::format("{}: {} is not an integer from 0 to 18446744073709551615 (see convoy pack --help)", option,
                        number));
    }
  }
  const auto pack = std::get<PackArguments>(
      parse({"pack", "in", "out.h5", "--seed", "18446744073709551615", "--shuffle", "0"}).value());
  CHECK(pack.seed == std::numeric_limits<std::uint64_t>::max());
  CHECK(pack.shuffle == 0U);
}

TEST_CASE("an empty value is not the same as none") {
  using Words = std::vector<const char*>;
  const std::vector<std::pair<std::string, Words>> cases{{"--json", {"eval", "c.toml", "--json", ""}},
                                                         {"--json", {"predict", "c.toml", "a.jpg", "--json", ""}},
                                                         {"--json", {"verify", "runs/a", "--json", ""}},
                                                         {"--json", {"plan", "c.toml", "--ranks", "2", "--json", ""}},
                                                         {"--json", {"bench", "c.toml", "--json", ""}},
                                                         {"--out", {"predict", "c.toml", "a.jpg", "--out", ""}},
                                                         {"--confusion", {"eval", "c.toml", "--confusion", ""}},
                                                         {"--checkpoint", {"eval", "c.toml", "--checkpoint", ""}},
                                                         {"--machine", {"plan", "c.toml", "--machine", ""}},
                                                         {"--without", {"plan", "c.toml", "--without", ""}},
                                                         {"--trace", {"plan", "c.toml", "--trace", ""}},
                                                         {"--hosts", {"launch", "--hosts", "", "--", "train", "c"}},
                                                         {"--output", {"report", "runs/a", "-o", ""}},
                                                         {"--set", {"train", "c.toml", "--set", ""}},
                                                         {"RUN", {"watch", ""}},
                                                         {"RUN", {"report", "runs/a", ""}},
                                                         {"CONFIG", {"check", ""}},
                                                         {"OUT", {"pack", "in", ""}},
                                                         {"--json", {"verify", "runs/a", "--json="}},
                                                         // The next word is not its value.
                                                         {"--json", {"predict", "c.toml", "--json=", "a.jpg"}},
                                                         {"--json", {"eval", "--json=", "--confusion", "x", "c"}}};
  for (const auto& [name, words] : cases) {
    CAPTURE(name);
    CHECK(refused(words) == fmt::format("{}: the value is empty (see convoy {} --help)", name, words.front()));
  }
  CHECK(refused({"plan", "c.toml", "--machine", "m.toml", "--fit", "f", "--write-machine", ""})
            .starts_with("--write-machine: the value is empty"));
  const auto launch =
      std::get<LaunchArguments>(parse({"launch", "--launcher-args", "", "--", "train", "c.toml"}).value());
  CHECK(launch.launcher_args.empty());
  CHECK(refused({"train", "c.toml", "--foo="}) ==
        "train: this argument was not expected: --foo= (see convoy train --help)");
  CHECK(std::get<TrainArguments>(parse({"train", "c.toml", "--set", "data.validation="}).value()).overrides ==
        std::vector<std::string>{"data.validation="});
}

TEST_CASE("launch") {
  const auto launch = std::get<LaunchArguments>(
      parse({"launch", "--nodes", "2:4", "--nproc-per-node=8", "--max-restarts", "7", "--hosts", "h.txt", "--launcher",
             "mpirun", "--launcher-args", "-x A", "--", "train", "c.toml", "--set", "a.b=1"})
          .value());
  CHECK(launch.min_nodes == 2);
  CHECK(launch.max_nodes == 4);
  CHECK(launch.per_node == 8);
  CHECK(launch.max_restarts == 7);
  CHECK(launch.hosts == "h.txt");
  CHECK(launch.launcher == "mpirun");
  CHECK(launch.launcher_args == "-x A");
  CHECK(launch.train.config == "c.toml");
  CHECK(launch.train.overrides == std::vector<std::string>{"a.b=1"});
  CHECK(launch.train_command_line == std::vector<std::string>{"train", "c.toml", "--set", "a.b=1"});
  const auto plain = std::get<LaunchArguments>(parse({"launch", "--nodes", "3", "--", "train", "c.toml"}).value());
  CHECK(plain.min_nodes == 3);
  CHECK(plain.max_nodes == 3);
  CHECK(plain.per_node == 0);
  CHECK(plain.max_restarts == 3);
}

TEST_CASE("bad launches") {
  CHECK(refused({"launch"}).starts_with("launch: there is nothing to start"));
  CHECK(refused({"launch", "--"}).starts_with("launch: there is nothing to start"));
  CHECK(refused({"launch", "train", "c.toml"}).find("train") != std::string::npos);
  CHECK(refused({"launch", "--", "tran", "c.toml"}).starts_with("unknown command \"tran\""));
  CHECK(refused({"launch", "--", "check", "c.toml"}).starts_with("launch: starts trainings only, not \"check\""));
  CHECK(refused({"launch", "--", "train", "c.toml", "--fast"}).find("--fast") != std::string::npos);
  CHECK(refused({"launch", "--", "train", "c.toml", "--dry-run"}).starts_with("launch: --dry-run"));
  for (const char* nodes : {"0", "a", "1:", ":2", "2:1", "1:2:3", "-1", "1:70000", ""}) {
    CHECK(refused({"launch", "--nodes", nodes, "--", "train", "c.toml"}).find("--nodes") != std::string::npos);
  }
  CHECK(!refused({"launch", "--nproc-per-node", "0", "--", "train", "c.toml"}).empty());
  CHECK(!refused({"launch", "--hosts", "a", "--hosts-from", "b", "--", "train", "c.toml"}).empty());
  CHECK(!refused({"launch", "--launcher", "ssh", "--", "train", "c.toml"}).empty());
}
