// SPDX-License-Identifier: Apache-2.0
//
// convoy pack: a data set as one HDF5 file, or as shards. Checks the arguments against the source, then runs the packer
// (io/pack/packer.h) and shows how it goes. Relies on stop.h for signals. Invariant: needs no MPI and no config.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/write_result.h"
#include "app/train/progress.h"
#include "app/train/stop.h"
#include "io/data/shards.h"
#include "io/hdf5/hdf5_source.h"
#include "io/pack/packer.h"
#include "io/pack/pixel_statistics.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/file_status.h"
#include "layers/base/message_text.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

ProgressMode progress_mode(const std::string& name) {
  if (name == "bar") return ProgressMode::kBar;
  if (name == "lines") return ProgressMode::kLines;
  return name == "off" ? ProgressMode::kOff : ProgressMode::kAuto;
}

void check_output(const PackArguments& arguments, const PackOutput& files) {
  std::error_code error;
  const fs::path output(arguments.output);
  const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
  if (!output.has_filename() || fs::is_directory(output, error)) {
    fail_usage("{} is a folder (name the file that is to be written)", arguments.output);
  }
  if (const fs::file_status there = status_of(output); fs::exists(there) && !fs::is_regular_file(there)) {
    fail_usage("{} is no regular file (name another)", arguments.output);
  }
  if (!fs::is_directory(status_of(folder))) {
    fail_usage("there is no folder {} for {} (make it first)", folder.string(), output.filename().string());
  }
  if (arguments.force || PackJournal::says_placing(files.journal())) return;  // the rest of a packing that was whole
  if (const auto there = files.finished(); !there.empty()) {
    fail_usage("{} is there already (--force replaces it)", there.front());
  }
}

// --force must not replace what is read. A folder may hold the output of an earlier packing.
void check_replaced(const PackArguments& arguments, const PackOutput& output) {
  if (fs::is_directory(status_of(arguments.source))) return;
  std::vector<std::string> read;
  for (const std::string& source : shard_sources(arguments.source)) read.push_back(Hdf5Source(source).path);
  for (const std::string& file : output.finished()) check_results({{"OUT", file}}, read);
}

void check_options(const PackArguments& a, const PackSource& source) {
  constexpr std::int64_t kMaxChannels = 4096;  // an attribute of HDF5 has at most 64 KiB
  if (a.statistics && !source.encoded() && source.image()[2] > kMaxChannels) {
    fail_usage("--statistics: {} has images of {} channels (at most {}: leave it out)", a.source, source.image()[2],
               kMaxChannels);
  }
  if (source.encoded()) return;
  const char* option = a.resize > 0 ? "--resize" : a.raw > 0 ? "--raw" : a.verify ? "--verify" : nullptr;
  if (option != nullptr) {
    fail_usage("{}: is ignored with {}, which holds images of one size, not encoded ones (leave it out)", option,
               a.source);
  }
}

PackTask task_of(const PackArguments& a, const PackSource& source, const PackOutput& output) {
  PackTask task{output, {a.resize, a.quality, a.raw, a.verify, a.statistics}, 0, 1};
  task.threads = a.threads > 0 ? a.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  task.fingerprint = random_key(
      source.fingerprint(), fmt::format("{} {} {} {} {} {} {} {}", a.resize, a.quality, a.raw, a.verify, a.validation,
                                        a.seed, a.shuffle ? fmt::to_string(*a.shuffle) : "-", a.shards));
  if (a.statistics) task.fingerprint = random_key(task.fingerprint, "statistics");
  return task;
}

std::string facts(const PackOutput& output, const PackResult& result, std::int64_t classes, double seconds) {
  std::string text = fmt::format("{}: {}", output.name(), counted(result.training + result.validation, "sample"));
  if (result.validation > 0) {
    text += fmt::format(" ({} in /train, {} in /validation)", result.training, result.validation);
  }
  if (result.broken > 0) text += fmt::format(", {} broken ones left out", result.broken);
  return text + fmt::format(", {}, {} bytes, {:.1f} s, {:.0f} images/s", counted(classes, "class"), result.bytes,
                            seconds, static_cast<double>(result.packed_here) / std::max(seconds, 1e-9));
}

}  // namespace

int pack_command(const PackArguments& arguments) {
  const PackOutput output(behind_links(arguments.output), arguments.shards);
  check_output(arguments, output);
  const StopRequest stop({"SIGINT", "SIGTERM", "SIGUSR2"}, std::nullopt);
  const auto kind = arguments.kind.empty() ? detect_pack_kind(arguments.source, "--kind names what it is")
                                           : *pack_kind(arguments.kind);
  const PackSource source(arguments.source, kind);
  check_options(arguments, source);
  check_replaced(arguments, output);
  const PackPlan plan = plan_packing(source, arguments.validation, arguments.seed, arguments.shuffle, output.files());

  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Progress progress(progress_mode(arguments.progress), source.size(), 1);
  std::int64_t first = -1;
  PackHooks hooks;
  hooks.progress = [&](std::int64_t done) {
    if (first < 0) {  // where it begins, or resumes
      first = done;
      return;
    }
    progress.images(done, static_cast<double>(done - first) / std::max(elapsed(), 1e-9));
  };
  hooks.message = [&](const std::string& text) { progress.message(text); };
  hooks.stop = [&] { return stop.signalled(); };
  const PackResult result = Packer(source, plan, task_of(arguments, source, output), hooks).run();
  progress.finish();
  if (!result.finished) {
    std::cout << fmt::format("stopped after {} of {} samples; the same command resumes there\n", result.done,
                             source.size())
              << std::flush;
    return static_cast<int>(ExitCode::kStopped);
  }
  std::cout << name_text(facts(output, result, source.classes(), elapsed())) << "\n";
  if (arguments.statistics) std::cout << normalisation_lines(result.mean, result.deviation);
  std::cout << std::flush;
  return 0;
}

}  // namespace convoy
