// SPDX-License-Identifier: Apache-2.0
#include "app/build/data_staging.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "app/base/expand_variables.h"
#include "io/data/datasets.h"
#include "io/files/file_stage.h"
#include "layers/base/clock.h"
#include "layers/base/format_bytes.h"
#include "layers/base/system_error.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

constexpr double kSlice = 5;  // seconds: how often waiting ranks hear that the copy makes progress
constexpr const char* kWhat = "staging the data";

/// One data set on its way.
struct Staged {
  std::string source;  ///< as the config names it
  std::string* place;  ///< where it is read
  std::unique_ptr<FileStage> files;
  bool there = false;
  double seconds = 0;
};

std::string line_of(const Staged& s) {
  const std::string what =
      fmt::format("{} ({})", s.source, format_bytes(static_cast<std::uintmax_t>(s.files->bytes())));
  if (s.files->copied() == 0) return fmt::format("staged     {} is already there: {}", what, s.files->folder());
  const std::string replaced = s.files->damaged() > 0 ? ", in place of a damaged copy" : "";
  return fmt::format("staged     {} to {}: {:.1f} s{}", what, s.files->folder(), s.seconds, replaced);
}

bool all_there(const std::vector<Staged>& sets) {
  return std::all_of(sets.begin(), sets.end(), [](const Staged& set) { return set.there; });
}

// For about a slice of time.
void copy(std::vector<Staged>& sets, double slice) {
  for (Staged& set : sets) {
    if (set.there) continue;
    const auto start = std::chrono::steady_clock::now();
    set.there = set.files->advance(std::chrono::duration<double>(slice));
    set.seconds += seconds_since(start);
    return;
  }
}

}  // namespace

DataPlaces stage_data(const Config& config, const World& world, const RankGroup& ranks, Communicator& all,
                      const CheckStop& check_stop) {
  const DataOptions& d = config.data;
  DataPlaces places{d.train, d.validation, {}};
  if (d.stage_dir.empty()) return places;
  const auto node = ranks.split(world.node(), world.local_rank(), config.parallel.timeout, "node");
  const bool copies = node->rank() == 0;
  // agree() names the host of every rank but the first.
  const auto named = [&](const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      fail_as(error, fmt::format("data.stage_dir: {}{}", all.rank() == 0 ? world.host() + ": " : "", error.what()));
    }
  };
  std::vector<Staged> sets;
  const auto add = [&](const std::string& source, bool training, std::string& place) {
    if (source.empty()) return;
    const std::vector<std::string> files = dataset_files(d.kind, source, training);
    auto stage = std::make_unique<FileStage>(expand_variables(d.stage_dir, process_variable), files);
    place = moved_source(d.kind, source, files.front(), stage->folder());
    sets.push_back({source, &place, std::move(stage), false, 0});
  };
  const auto find = [&] {
    add(d.train, true, places.train);
    add(d.validation, false, places.validation);
  };
  agree(
      all,
      [&] {
        if (copies) named(find);
      },
      kWhat, copies);
  for (std::string* place : {&places.train, &places.validation}) *place = node->broadcast(*place, 0, kWhat);
  const double slice = std::min(kSlice, config.parallel.timeout / 4);
  double left = 1;
  while (left > 0) {
    agree(
        all,
        [&] {
          named([&] {
            if (copies) copy(sets, slice);
          });
          if (check_stop && copies && !all_there(sets)) check_stop(kWhat);
        },
        kWhat, copies);
    left = copies && !all_there(sets) ? 1 : 0;
    all.all_reduce(std::span(&left, 1), ReduceOp::kMax, kWhat);
  }
  if (copies) {
    for (const Staged& set : sets) places.lines.push_back(line_of(set));
  }
  return places;
}

}  // namespace convoy
