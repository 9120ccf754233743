// SPDX-License-Identifier: Apache-2.0
#include "app/commands/launch_options.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr int kMaxNodes = 65536;

int parse_nodes(std::string_view text, const std::string& whole) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 1 || value > kMaxNodes) {
    fail_usage("--nodes: \"{}\" is no number of nodes (write N, or MIN:MAX, from 1 to {})", whole, kMaxNodes);
  }
  return value;
}

}  // namespace

std::string launch_hint(const std::vector<std::string>& words) {
  using Pair = std::pair<std::string_view, std::string_view>;
  constexpr auto kSpellings = std::to_array<Pair>({{"--nnodes", "--nodes"},
                                                   {"--nproc_per_node", "--nproc-per-node"},
                                                   {"--max_restarts", "--max-restarts"},
                                                   {"-n", "--nproc-per-node"},
                                                   {"-np", "--nproc-per-node"},
                                                   {"--hostfile", "--hosts"},
                                                   {"--rdzv-endpoint", "--hosts"},
                                                   {"--rdzv_endpoint", "--hosts"}});
  for (const std::string& word : words) {
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    for (const auto& [theirs, ours] : kSpellings) {
      if (name == theirs) return fmt::format("{} is called {} here", theirs, ours);
    }
  }
  for (const std::string& word : words) {
    if (word == "train" || word.ends_with(".toml")) {
      return "put the command to start after `--`: convoy launch [OPTIONS] -- train CONFIG ...";
    }
  }
  return "";
}

CLI::App* add_launch_command(CLI::App& app, LaunchOptions& options) {
  LaunchArguments& a = options.arguments;
  CLI::App* launch = app.add_subcommand("launch", "start a training's ranks, and restart or resize them as needed");
  launch->footer("Put the command to start after `--`: convoy launch --nodes 1:4 -- train CONFIG [--set KEY=VALUE]...");
  launch->add_option("--nodes", options.nodes, "how many hosts to use: as many as there are from MIN to MAX, or N")
      ->type_name("MIN:MAX")
      ->capture_default_str();
  launch
      ->add_option("--nproc-per-node", a.per_node, "ranks on each host; default: the slots that the hosts say, else 1")
      ->check(CLI::Range(1, 65536))
      ->type_name("N");
  launch->add_option("--max-restarts", a.max_restarts, "failures after which to give up")
      ->check(CLI::Range(0, 1000000000))
      ->type_name("R")
      ->capture_default_str();
  CLI::Option* file =
      launch->add_option("--hosts", a.hosts, "hosts, with mpirun's hostfile syntax; may be changed during the run")
          ->type_name("FILE");
  launch->add_option("--hosts-from", a.hosts_from, "shell command that prints the hosts; run every 10 s")
      ->excludes(file)
      ->type_name("COMMAND");
  launch
      ->add_option("--launcher", a.launcher,
                   "what starts ranks; auto: srun in a Slurm allocation with PMIx, else mpirun")
      ->check(CLI::IsMember({"auto", "mpirun", "srun"}))
      ->capture_default_str();
  launch->add_option("--launcher-args", a.launcher_args, "more arguments for mpirun or srun, in one word")
      ->type_name("\"...\"");
  return launch;
}

LaunchArguments finish_launch(const LaunchOptions& options, std::vector<std::string> words,
                              const TrainArguments& train) {
  LaunchArguments a = options.arguments;
  const std::string& nodes = options.nodes;
  const std::size_t colon = nodes.find(':');
  a.min_nodes = parse_nodes(std::string_view(nodes).substr(0, colon), nodes);
  a.max_nodes =
      colon == std::string::npos ? a.min_nodes : parse_nodes(std::string_view(nodes).substr(colon + 1), nodes);
  if (a.min_nodes > a.max_nodes) fail_usage("--nodes: {} is more than {} (write MIN:MAX)", a.min_nodes, a.max_nodes);
  if (train.dry_run) fail_usage("launch: --dry-run trains nothing (convoy train CONFIG --dry-run shows the plan)");
  a.train = train;
  a.train_command_line = std::move(words);
  return a;
}

}  // namespace convoy
