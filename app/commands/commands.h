// SPDX-License-Identifier: Apache-2.0
//
// The commands as functions: what each is given, already taken apart by cli.cpp, and the exit code that it
// returns. A command throws Error for everything that goes wrong. Those that take a World run on every
// rank; the others run without MPI.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/bench_points.h"

namespace convoy {

class World;

/// convoy train CONFIG [--set KEY=VALUE]... [--dry-run]
struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;  ///< "section.key=value", in the order given
  bool dry_run = false;
};

/// convoy eval CONFIG --checkpoint FILE [--confusion FILE.csv] [--json FILE] [--set KEY=VALUE]...
struct EvalArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string checkpoint;
  std::string confusion = {};  ///< the confusion matrix goes to this CSV file; empty: none
  std::string json = {};       ///< empty: no file
};

/// convoy predict CONFIG --checkpoint FILE INPUT... [--top K] [--json FILE] [--out FILE.h5] [--set KEY=VALUE]...
struct PredictArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string checkpoint;
  std::vector<std::string> inputs;  ///< images, folders of images, HDF5 files
  std::int64_t top = 5;
  std::string json;  ///< empty: no file
  std::string out;   ///< all outputs go to this HDF5 file; empty: none
};

/// convoy bench CONFIG [--steps N] [--warmup N] [--repeat R] [--case "ranks=N KEY=VALUE ..."]...
/// [--sweep KEY=V1,V2,...]... [--profile | --data] [--json FILE] [--set KEY=VALUE]...
/// convoy bench CONFIG --model-bytes [--bandwidth GB/S] [--json FILE] [--set KEY=VALUE]...
/// convoy bench --calibrate-cpu [--threads N] [--json FILE]
struct BenchArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::int64_t steps = 20;
  std::int64_t warmup = 5;
  std::int64_t repeat = 1;
  std::vector<std::string> cases;  ///< KEY=VALUE, and ranks=N or processes=N
  std::vector<Sweep> sweeps;       ///< every combination is timed
  bool profile = false;            ///< time every operation, too
  bool data = false;               ///< time reading the data alone
  bool model_bytes = false;        ///< count what a step moves on a GPU; nothing is timed
  bool calibrate_cpu = false;      ///< time the choices of algorithms on this CPU; there is no config
  int threads = 1;                 ///< for that
  double bandwidth = 0;            ///< GB/s for the bound that this sets; 0: none
  std::string json;                ///< empty: no file
};

/// convoy check CONFIG [--set KEY=VALUE]...
struct CheckArguments {
  std::string config;
  std::vector<std::string> overrides;
};

/// convoy inspect FILE.h5, or convoy inspect CONFIG [--images N] [-o FILE.png] [--set KEY=VALUE]...
struct InspectArguments {
  std::string file;
  std::vector<std::string> overrides = {};  ///< of a config
  std::int64_t images = 0;                  ///< so many training samples as a picture; 0: no picture
  std::string output = {};                  ///< empty: grid.png
};

/// convoy pack SOURCE OUT.h5 [--kind KIND] [--resize SHORT [--quality Q] | --raw SIZE] [--verify] [--validation SHARE]
/// [--seed N] [--shuffle SEED] [--threads N] [--progress MODE] [--force]
struct PackArguments {
  std::string source, output;
  std::string kind;  ///< empty: told by content
  int resize = 0;    ///< 0: images stay as they are
  int quality = 90;
  int raw = 0;  ///< 0: no pixels
  bool verify = false;
  bool statistics = false;  ///< mean and deviation of the training pixels
  double validation = 0;    ///< share of each class
  std::uint64_t seed = 0;   ///< of the split
  std::optional<std::uint64_t> shuffle;
  int shards = 0;   ///< 0: one file, called `output` itself
  int threads = 0;  ///< 0: all cores
  std::string progress = "auto";
  bool force = false;
};

/// convoy report RUN... [-o FILE.html]
struct ReportArguments {
  std::vector<std::string> runs;  ///< folders, or files of metrics
  std::string output;             ///< empty: report.html in the first run's folder
};

/// convoy watch RUN [--once]
struct WatchArguments {
  std::string run;    ///< a folder, or a file of metrics
  bool once = false;  ///< print it and end
};

/// convoy verify RUN|FILE... [--json FILE]
struct VerifyArguments {
  std::vector<std::string> paths;  ///< folders of runs, or files
  std::string json;                ///< empty: no file
};

/// convoy schedule --name NAME --stages P --microbatches M [--chunks C]
struct ScheduleArguments {
  std::string name;
  int stages = 0, microbatches = 0;
  int chunks = 0;  ///< 0: as many as the schedule has by default
};

/// convoy plan CONFIG --ranks N,... [--samples-per-rank N] [--calibrate] [--costs FILE] [--machine FILE] [--without
/// TERM,...] [--epochs N | --recipe NAME] [--top N] [--trace FILE] [--json FILE] [--set KEY=VALUE]...
/// convoy plan CONFIG --machine FILE --fit ROWS.csv [--write-machine FILE] [--ranks N,... ...]
struct PlanArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::vector<int> ranks;
  std::int64_t samples_per_rank = 0;  ///< 0: train.global_batch_size is for all ranks together
  bool calibrate = false;
  std::string costs;                 ///< measured by --calibrate; empty: costs.json in the run's folder
  std::string machine;               ///< stated figures of a machine, TOML; empty: what was measured
  std::string fit;                   ///< measured rows, CSV, to which these figures are fitted; empty: none
  std::string write_machine;         ///< the fitted figures go here; empty: nowhere
  std::vector<std::string> without;  ///< terms of the cost model that are left out
  std::int64_t epochs = 0;           ///< of a training; 0: train.epochs
  std::string recipe;                ///< says how many epochs a global batch needs; empty: none
  int top = 5;
  std::string trace;  ///< the simulated step of the config's own layout goes here; empty: nowhere
  std::string json;
};

/// convoy launch [--nodes MIN:MAX] [--nproc-per-node N] [--max-restarts R] [--hosts FILE | --hosts-from COMMAND]
/// [--launcher auto|mpirun|srun] [--launcher-args "..."] -- train CONFIG ...
struct LaunchArguments {
  int min_nodes = 1, max_nodes = 1;
  int per_node = 0;  ///< 0: the slots that the hosts say
  int max_restarts = 3;
  std::string hosts;       ///< a file; empty: none
  std::string hosts_from;  ///< a shell command; empty: none
  std::string launcher = "auto";
  std::string launcher_args;
  TrainArguments train;
  std::vector<std::string> train_command_line;  ///< "train" and what follows, as given
};

/// convoy slurm-job newest-checkpoint CONFIG ... convoy slurm-job end EXIT_CODE CHECKPOINT_BEFORE CONFIG ...
/// convoy slurm-job sweep-point TASK SWEEP CONFIG ...
/// The arguments from CONFIG on are those of train. For slurm/*.sbatch.
enum class SlurmJobAction {
  kNewestCheckpoint,  ///< prints the path of the newest checkpoint, an empty line if there is none
  kSweepPoint,        ///< prints run.name of the point, and its overrides, one a line
  kEnd,               ///< prints the shell commands that requeue the job, if it is to be requeued
};
struct SlurmJobArguments {
  SlurmJobAction action = SlurmJobAction::kNewestCheckpoint;
  int exit_code = 0;              ///< of the training
  std::string checkpoint_before;  ///< the newest checkpoint before the training
  std::int64_t task = 0;          ///< number of the point in the sweep, from 0
  std::vector<Sweep> sweeps;      ///< every combination is a point; the last one changes fastest
  TrainArguments train;
};

int train_command(World& world, const TrainArguments& arguments);
int eval_command(World& world, const EvalArguments& arguments);
int predict_command(World& world, const PredictArguments& arguments);
int bench_command(World& world, const BenchArguments& arguments);
int schedule_command(const ScheduleArguments& arguments);
int plan_command(World& world, const PlanArguments& arguments);
int check_command(const CheckArguments& arguments);
int inspect_command(const InspectArguments& arguments);
int inspect_data_command(const InspectArguments& arguments);  ///< of a config
int pack_command(const PackArguments& arguments);
int report_command(const ReportArguments& arguments);
int watch_command(const WatchArguments& arguments);
int verify_command(const VerifyArguments& arguments);
int doctor_command();
int launch_command(const LaunchArguments& arguments);
int slurm_job_command(const SlurmJobArguments& arguments);

}  // namespace convoy
