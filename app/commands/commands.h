// SPDX-License-Identifier: Apache-2.0
//
// The commands as functions: what each is given, already taken apart by cli.cpp, and the exit code that it
// returns. A command throws Error for everything that goes wrong. Those that take a World run on every
// rank; the others run without MPI.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convoy {

class World;

/// convoy train CONFIG [--set KEY=VALUE]... [--dry-run]
struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;  ///< "section.key=value", in the order given
  bool dry_run = false;
};

/// convoy eval CONFIG --checkpoint FILE [--set KEY=VALUE]...
struct EvalArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string checkpoint;
};

/// One --sweep KEY=V1,V2,...: the values as written, each to be joined to "KEY=VALUE" as an override.
struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

/// convoy bench CONFIG [--steps N] [--warmup N] [--repeat R] [--sweep KEY=V1,V2,...]... [--json FILE] [--set ...]
struct BenchArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::int64_t steps = 20;
  std::int64_t warmup = 5;
  std::int64_t repeat = 1;
  std::vector<Sweep> sweeps;  ///< every combination is timed
  std::string json;           ///< empty: no file
};

/// convoy check CONFIG [--set KEY=VALUE]...
struct CheckArguments {
  std::string config;
  std::vector<std::string> overrides;
};

int train_command(World& world, const TrainArguments& arguments);
int eval_command(World& world, const EvalArguments& arguments);
int bench_command(World& world, const BenchArguments& arguments);
int check_command(const CheckArguments& arguments);
int inspect_command(const std::string& file);
int doctor_command();

}  // namespace convoy
