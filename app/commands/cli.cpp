// SPDX-License-Identifier: Apache-2.0
//
// CLI11 parses the arguments; its errors become usage Errors, so that they look like all others.
#include "app/commands/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "app/base/examples.h"
#include "app/base/option_checks.h"
#include "app/commands/launch_options.h"
#include "app/commands/model_options.h"
#include "app/commands/plan_options.h"
#include "app/commands/version_text.h"
#include "app/config/config_keys.h"
#include "app/reference/generate.h"
#include "io/data/shards.h"
#include "layers/base/did_you_mean.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr auto kCommands =
    std::to_array<std::string_view>({"train", "eval", "predict", "bench", "plan", "launch", "schedule", "report",
                                     "watch", "check", "inspect", "verify", "pack", "doctor"});

std::vector<Sweep> parse_sweeps(const std::vector<std::string>& texts) {
  std::vector<Sweep> sweeps;
  for (const std::string& given : texts) {
    const std::string text = given.substr(std::min(given.find_first_not_of(" \n"), given.size()));
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      fail_usage("--sweep: \"{}\" is not a sweep (write section.key=value1,value2)", text);
    }
    sweeps.push_back({text.substr(0, equals), split_values(text.substr(equals + 1))});
    for (const std::string& value : sweeps.back().values) {
      if (value.empty()) fail_usage("--sweep: \"{}\" has an empty value", text);
    }
  }
  return sweeps;
}

void refuse_unknown_command(std::string_view word) {
  if (word.empty() || word.front() == '-') return;
  if (std::find(kCommands.begin(), kCommands.end(), word) != kCommands.end()) return;
  const std::string near = did_you_mean(word, kCommands);
  fail_usage("unknown command \"{}\" ({})", word,
             near.empty() ? "the commands: " + join(kCommands) : fmt::format("did you mean \"{}\"?", near));
}

CLI::App* add_pack_command(CLI::App& app, PackArguments& pack) {
  CLI::App* command =
      app.add_subcommand("pack", "put a data set into one HDF5 file, or shards of one, which is read faster");
  command
      ->add_option("SOURCE", pack.source, "a folder of JPEGs and PNGs by class, IDX or CIFAR-10 files, or an HDF5 file")
      ->required();
  command->add_option("OUT", pack.output, "the data file, for data.kind = \"hdf5\"")->required();
  command->add_option("--kind", pack.kind, "what SOURCE is, as data.kind; default: by its content")
      ->check(CLI::IsMember({"image_folder", "idx", "cifar10", "hdf5"}));
  const CLI::Range side(1, 65500);
  CLI::Option* resize =
      command->add_option("--resize", pack.resize, "images with a longer short side get this one, and become JPEGs")
          ->check(side)
          ->type_name("SHORT");
  command->add_option("--quality", pack.quality, "of that encoding")
      ->check(CLI::Range(1, 100))
      ->type_name("Q")
      ->needs(resize)
      ->capture_default_str();
  command->add_option("--raw", pack.raw, "decode images to pixels, as evaluation with this data.image_size sees them")
      ->check(CLI::Range(1, 4096))
      ->type_name("SIZE")
      ->excludes(resize);
  command->add_flag("--verify", pack.verify, "decode images that are kept as they are, and leave out broken ones");
  command->add_flag("--statistics", pack.statistics,
                    "measure mean and deviation of each channel of training pixels: printed, and written to OUT");
  command
      ->add_option("--validation", pack.validation, "hold out this share of each class, in groups /train, /validation")
      ->check(number_between(1e-9, 1 - 1e-9, "between 0 and 1"))
      ->type_name("SHARE");
  command->add_option("--seed", pack.seed, "of the split")
      ->check(unsigned_number())
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--shuffle", pack.shuffle, "write samples in a random order of this seed")
      ->check(unsigned_number())
      ->type_name("SEED");
  command->add_option("--shards", pack.shards, "write this many files, OUT-00000-of-0000N.h5 ..., instead of one")
      ->check(CLI::Range(1, kMaxShards))
      ->type_name("N");
  command->add_option("--threads", pack.threads, "default: all cores")->check(CLI::Range(1, 1024))->type_name("N");
  command->add_option("--progress", pack.progress, "as log.progress")
      ->check(CLI::IsMember({"auto", "bar", "lines", "off"}))
      ->capture_default_str();
  command->add_flag("--force", pack.force, "replace OUT, or its shards, when it is there");
  return command;
}

// "--set -KEY" as "--set=-KEY": alone it would look like an option.
std::vector<std::string> joined_overrides(std::vector<std::string> words) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& next = words[i + 1];
    if (words[i] != "--set" || !next.starts_with('-') || next.find('.') == std::string::npos) continue;
    words[i] += "=" + next;
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  return words;
}

// Throws the usage Error about arguments that the command has not, in the order of the command line.
[[noreturn]] void refuse_extras(const CLI::App& command, const std::vector<std::string>& words) {
  const std::vector<std::string> extras = command.remaining(true);
  std::vector<std::string> ordered;
  for (const std::string& word : words) {
    if (std::find(extras.begin(), extras.end(), word) != extras.end()) ordered.push_back(word);
  }
  const std::string name = command.get_parent() == nullptr ? "" : command.get_name();
  const std::string hint = name == "launch" ? launch_hint(ordered) : "";
  fail_usage("{}{} not expected: {} ({})", name.empty() ? "" : name + ": ",
             ordered.size() == 1 ? "this argument was" : "these arguments were", fmt::join(ordered, " "),
             hint.empty() ? fmt::format("see convoy {}--help", name.empty() ? "" : name + " ") : hint);
}

// The command behind "--" of launch: a training. The arguments after "slurm-job".
SlurmJobArguments parse_slurm_job(std::vector<std::string> words, const char* program) {
  SlurmJobArguments job;
  const std::string action = words.empty() ? "" : words.front();
  if (action == "newest-checkpoint") {
    job.action = SlurmJobAction::kNewestCheckpoint;
  } else if (action == "end" && words.size() >= 3) {
    job.action = SlurmJobAction::kEnd;
    job.exit_code = std::atoi(words[1].c_str());
    job.checkpoint_before = words[2];
    words.erase(words.begin() + 1, words.begin() + 3);
  } else if (action == "sweep-point" && words.size() > 2) {
    job.action = SlurmJobAction::kSweepPoint;
    job.task = std::atoll(words[1].c_str());
    job.sweeps = parse_sweeps(split_values(words[2], ';'));
    words.erase(words.begin() + 1, words.begin() + 3);
  } else {
    fail_usage(
        "slurm-job: is for the scripts in slurm/ (newest-checkpoint, sweep-point TASK SWEEP, or end EXIT_CODE "
        "CHECKPOINT)");
  }
  if (words.size() < 2) {
    fail_usage("no config (usage: sbatch [options] slurm/NAME.sbatch CONFIG [arguments of train])");
  }
  std::vector<const char*> arguments{program, "train"};
  for (std::size_t i = 1; i < words.size(); ++i) arguments.push_back(words[i].c_str());
  const auto command = parse_command_line(static_cast<int>(arguments.size()), arguments.data());
  if (command) job.train = std::get<TrainArguments>(*command);
  return job;
}

std::optional<Command> parse_launched(const LaunchOptions& options, const std::vector<std::string>& words,
                                      const char* program) {
  if (words.empty()) fail_usage("launch: there is nothing to start (convoy launch [OPTIONS] -- train CONFIG ...)");
  std::vector<const char*> arguments{program};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  const auto command = parse_command_line(static_cast<int>(arguments.size()), arguments.data());
  if (!command) return std::nullopt;
  const auto* train = std::get_if<TrainArguments>(&*command);
  if (train == nullptr) fail_usage("launch: starts trainings only, not \"{}\" (-- train CONFIG ...)", words.front());
  return finish_launch(options, words, *train);
}

}  // namespace

std::vector<std::string> split_values(const std::string& text, char separator) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = '\0';
  for (const char c : text) {
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == separator && depth <= 0) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
  }
  return values;
}

std::optional<Command> parse_command_line(int argc, const char* const* argv) {
  CLI::App app{"convoy trains neural networks on one machine or many: start it plainly, with mpirun or with srun.",
               "convoy"};
  app.set_help_flag("-h,--help", "show this and end");
  bool show_version = false;
  app.add_flag("--version", show_version, "show the versions of the program and its libraries, and end");
  app.require_subcommand(0, 1);

  TrainArguments train;
  CLI::App* train_app = app.add_subcommand("train", "train a network");
  add_config(train_app, train.config, train.overrides);
  train_app->add_flag("--dry-run", train.dry_run, "build everything, say what would be trained, and end");

  LaunchOptions launch;
  CLI::App* launch_app = add_launch_command(app, launch);

  EvalArguments eval;
  CLI::App* eval_app = add_eval_command(app, eval);

  PredictArguments predict;
  CLI::App* predict_app = add_predict_command(app, predict);

  BenchArguments bench;
  std::vector<std::string> sweeps;
  CLI::App* bench_app = app.add_subcommand("bench", "time training steps");
  add_config(bench_app, bench.config, bench.overrides);
  const CLI::Range many(std::int64_t{1}, std::int64_t{1000000000}), some(std::int64_t{0}, std::int64_t{1000000000});
  bench_app->add_option("--steps", bench.steps, "steps to time")->check(many)->type_name("N")->capture_default_str();
  bench_app->add_option("--warmup", bench.warmup, "steps before those")
      ->check(some)
      ->type_name("N")
      ->capture_default_str();
  bench_app->add_option("--repeat", bench.repeat, "times to do it")->check(many)->type_name("R")->capture_default_str();
  bench_app
      ->add_option(
          "--case", bench.cases,
          "time this: words KEY=VALUE, and ranks=N for the first N ranks, or processes=N for N that each train alone "
          "at the same time; may be repeated")
      ->allow_extra_args(false)
      ->type_name("WORDS");
  bench_app->add_option("--sweep", sweeps, "time each of these values; may be repeated, for every combination")
      ->allow_extra_args(false)
      ->type_name("KEY=V1,V2,...");
  bench_app->add_flag("--profile", bench.profile,
                      "then time every operation: by kind and by layer, with the peak rates of the device");
  bench_app->add_flag("--data", bench.data, "time reading the batches and bringing them to the device, not the steps")
      ->excludes("--profile");
  CLI::Option* model_bytes = bench_app->add_flag(
      "--model-bytes", bench.model_bytes,
      "time nothing: count the bytes and graph nodes of a step on a GPU, by unit and by kind of operation");
  for (const char* other : {"--steps", "--warmup", "--repeat", "--case", "--sweep", "--profile", "--data"}) {
    model_bytes->excludes(other);
  }
  bench_app->add_option("--bandwidth", bench.bandwidth, "GB/s of a memory: say how many images/s the bytes allow")
      ->needs(model_bytes)
      ->check(number_between(1, 1e6, "between 1 and 1000000"))
      ->type_name("GB/S");
  CLI::Option* calibrate_cpu = bench_app->add_flag(
      "--calibrate-cpu", bench.calibrate_cpu,
      "time the algorithms that convolutions choose from by kind of CPU, without CONFIG, and say where a choice loses");
  for (const char* other : {"CONFIG", "--set", "--steps", "--warmup", "--repeat", "--case", "--sweep", "--profile",
                            "--data", "--model-bytes"}) {
    calibrate_cpu->excludes(other);
  }
  bench_app->get_option("CONFIG")->required(false);
  bench_app->callback([&bench] {
    if (bench.config.empty() && !bench.calibrate_cpu) throw CLI::RequiredError("CONFIG");
  });
  bench_app->add_option("--threads", bench.threads, "CPU threads for --calibrate-cpu")
      ->needs(calibrate_cpu)
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  bench_app->add_option("--json", bench.json, "write the results to this file too")->type_name("FILE");

  PlanArguments plan;
  CLI::App* plan_app = add_plan_command(app, plan);

  ScheduleArguments schedule;
  CLI::App* schedule_app = app.add_subcommand("schedule", "show a pipeline schedule as a grid");
  schedule_app->add_option("--name", schedule.name, "gpipe, 1f1b, interleaved, zero_bubble, zb_v, model or one_stage")
      ->required()
      ->type_name("NAME");
  const CLI::Range drawable(1, 1024);
  schedule_app->add_option("--stages", schedule.stages, "ranks of the pipeline")->required()->check(drawable);
  schedule_app->add_option("--microbatches", schedule.microbatches, "parts of the batch")->required()->check(drawable);
  schedule_app->add_option("--chunks", schedule.chunks, "model chunks per rank; default 2 where there are several")
      ->check(drawable);

  CheckArguments check;
  CLI::App* check_app = app.add_subcommand("check", "validate a config and print it with the origin of each value");
  add_config(check_app, check.config, check.overrides);
  check_app->footer([] { return config_key_list(); });

  InspectArguments inspect;
  CLI::App* inspect_app =
      app.add_subcommand("inspect", "show what a checkpoint or data file holds, or what data a config trains on");
  inspect_app
      ->add_option("FILE", inspect.file,
                   "an HDF5 file, a run's folder (or RUN/newest, RUN/best), a run's TOML file, or an example")
      ->required();
  inspect_app
      ->add_option("--images", inspect.images, "of a config: draw the first N training samples as they are trained on")
      ->check(many)
      ->type_name("N");
  inspect_app->add_option("-o,--output", inspect.output, "where to draw them; default: grid.png")
      ->needs("--images")
      ->type_name("FILE");
  inspect_app
      ->add_option("--set", inspect.overrides, "of a config: SECTION.KEY=VALUE, wins over the file's; may be repeated")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");

  PackArguments pack;
  CLI::App* pack_app = add_pack_command(app, pack);

  ReportArguments report;
  CLI::App* report_app = app.add_subcommand("report", "draw the curves of one run or several into one HTML page");
  report_app->add_option("RUN", report.runs, "folders of runs (runs/NAME), or their metrics.jsonl")->required();
  report_app->add_option("-o,--output", report.output, "the page; default: report.html in the first run's folder")
      ->type_name("FILE");

  WatchArguments watch;
  CLI::App* watch_app = add_watch_command(app, watch);

  VerifyArguments verify;
  CLI::App* verify_app =
      app.add_subcommand("verify", "read checkpoints, data and logs back, and say which are damaged");
  verify_app
      ->add_option("PATH", verify.paths,
                   "folders of runs (runs/NAME), or files: checkpoints, data, shards, metrics.jsonl")
      ->required()
      ->type_name("RUN|FILE");
  verify_app->add_option("--json", verify.json, "write the results to this file too")->type_name("FILE");

  CLI::App* doctor_app = app.add_subcommand("doctor", "look at this machine: what works, what does not, what to do");

  if (argc > 1 && std::string_view(argv[1]) == "slurm-job") return parse_slurm_job({argv + 2, argv + argc}, argv[0]);
  if (argc == 3 && std::string_view(argv[1]) == "generate") {  // by the build, not in --help
    reference::generate(app, examples_folder(), argv[2]);
    return std::nullopt;
  }
  if (argc > 1) refuse_unknown_command(argv[1]);
  refuse_empty_values(app);
  // What launch starts stands behind "--", for the program's own parser.
  const bool launches = argc > 1 && std::string_view(argv[1]) == "launch";
  const char* const* const end = argv + argc;
  const char* const* const dashes =
      launches ? std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; }) : end;
  const std::vector<std::string> launched(dashes == end ? end : dashes + 1, end);
  try {
    std::vector<std::string> words = joined_overrides({argv, dashes});
    if (argc > 1 && argv[1][0] != '-') words = with_empty_values(*app.get_subcommand(argv[1]), words);
    std::vector<const char*> pointers;
    pointers.reserve(words.size());
    for (const std::string& word : words) pointers.push_back(word.c_str());
    app.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return std::nullopt;
  } catch (const CLI::ExtrasError&) {
    const auto used = app.get_subcommands();
    refuse_extras(used.empty() ? app : *used.front(), {argv, argv + argc});
  } catch (const CLI::ParseError& error) {
    const auto used = app.get_subcommands();
    fail_usage("{} (see convoy {}--help)", error.what(), used.empty() ? "" : used.front()->get_name() + " ");
  }
  if (show_version) {
    std::cout << version_text() << std::flush;
    return std::nullopt;
  }
  bench.sweeps = parse_sweeps(sweeps);
  if (train_app->parsed()) return train;
  if (launch_app->parsed()) return parse_launched(launch, launched, argv[0]);
  if (eval_app->parsed()) return eval;
  if (predict_app->parsed()) return predict;
  if (bench_app->parsed()) return bench;
  if (plan_app->parsed()) return finish_plan(std::move(plan));
  if (schedule_app->parsed()) return schedule;
  if (check_app->parsed()) return check;
  if (inspect_app->parsed()) return inspect;
  if (pack_app->parsed()) return pack;
  if (report_app->parsed()) return report;
  if (watch_app->parsed()) return watch;
  if (verify_app->parsed()) return verify;
  if (doctor_app->parsed()) return DoctorArguments{};
  fail_usage("no command given (one of {}; see convoy --help)", join(kCommands));
}

}  // namespace convoy
