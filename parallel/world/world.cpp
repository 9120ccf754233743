// SPDX-License-Identifier: Apache-2.0
#include "parallel/world/world.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "layers/base/error.h"
#include "parallel/base/mpi_check.h"
#include "parallel/base/mpi_leaks.h"
#include "parallel/base/pipe_reader.h"
#include "parallel/comm/mpi_operation.h"
#include "parallel/watchdog/call_deadline.h"
#include "parallel/watchdog/launcher_watchdog.h"
#include "parallel/watchdog/watchdog.h"

namespace convoy {

namespace {

/// Slurm answers a fence without data before all have come, unless told otherwise, so MPI_Init ends at once on the
/// first node that asks; Open MPI 4 crashes on a message that reaches a rank still inside of it.
constexpr std::chrono::milliseconds kOthersLeaveInit{200};

constexpr double kStartSeconds = 300;
constexpr double kMinEndSeconds = 20;

double start_timeout(const Environment& environment) {
  const std::string text = environment("CONVOY_START_TIMEOUT").value_or("");
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(seconds > 0)) return kStartSeconds;
  return std::min(seconds, 1e6);
}

}  // namespace

World::World(const Environment& environment) : exceptions_at_start_(std::uncaught_exceptions()) {
  const LaunchFacts facts = read_launch_facts(environment);
  const MpiLibrary mpi = mpi_library();
  check_launch_before_init(facts, mpi);
  limits_ = current_cpu_limits();
  load_at_start_ = read_cpus([this](int cpu) { return limits_.mask.has(cpu); });

  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) fail("MPI was started twice in one process: a program has one World, for its whole life");
  set_late_call_rank(facts.rank);
  const double patience = start_timeout(environment);
  std::optional<CallDeadline> deadline(std::in_place, "the start of MPI (MPI_Init)", patience);
  int level = MPI_THREAD_SINGLE;
  [[maybe_unused]] const MpiOwnMemory not_ours;
  // Open MPI 5 returns errors of MPI_Init only when its environment asks for that; else it aborts with exit code 14.
  ::setenv("OMPI_MCA_mpi_initial_errhandler", "mpi_errors_return", 0);
  CONVOY_MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
  keep_pmix_mapped();
  if (facts.slurm_step_tasks > 1 && facts.open_mpi_size == 0) std::this_thread::sleep_for(kOthersLeaveInit);
  CONVOY_MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CONVOY_MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));

  // From here on a failure must end MPI again: a constructor that throws has no destructor to do it. All
  // ranks fail alike here, so that MPI_Finalize does not wait for missing ranks.
  try {
    deadline.reset();
    deadline.emplace("the first meeting of the ranks (communicators and shared memory of a node)", patience);
    CONVOY_MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    set_late_call_rank(rank_);
    CONVOY_MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size_));
    check_launch_after_init(facts, size_, mpi);
    if (level < MPI_THREAD_SERIALIZED) {
      Error error(fmt::format("{} was built without threads, which convoy needs; use a build that has them (thread "
                              "level {}, wanted {} or more)",
                              mpi.version, level, static_cast<int>(MPI_THREAD_SERIALIZED)),
                  ExitCode::kUsage);
      error.set_collective();
      throw error;
    }
    find_node();
    const bool launched = facts.open_mpi_size > 0 || facts.pmi_size > 0 || facts.pmix || facts.slurm_step_tasks > 0;
    if (launched) launcher_watchdog_ = std::make_unique<LauncherWatchdog>(local_rank_ == 0);
  } catch (...) {
    watchdog_.reset();
    MPI_Finalize();
    throw;
  }
}

void World::find_node() {
  std::array<char, MPI_MAX_PROCESSOR_NAME + 1> name{};
  int length = 0;
  CONVOY_MPI_CHECK(MPI_Get_processor_name(name.data(), &length));
  host_.assign(name.data(), static_cast<std::size_t>(length));

  MPI_Comm node = MPI_COMM_NULL;
  CONVOY_MPI_CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node));
  CONVOY_MPI_CHECK(MPI_Comm_rank(node, &local_rank_));
  CONVOY_MPI_CHECK(MPI_Comm_size(node, &local_size_));
  const int leader = local_rank_ == 0 ? 1 : 0;
  CONVOY_MPI_CHECK(MPI_Allreduce(&leader, &node_count_, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  node_ = rank_;
  CONVOY_MPI_CHECK(MPI_Bcast(&node_, 1, MPI_INT, 0, node));

  std::vector<CpuLimitsDigest> limits(static_cast<std::size_t>(local_size_));
  limits_ = current_cpu_limits();  // MPI_Init may bind
  const CpuLimitsDigest own = digest_of(limits_);
  const int bytes = static_cast<int>(sizeof own);
  CONVOY_MPI_CHECK(MPI_Allgather(&own, bytes, MPI_BYTE, limits.data(), bytes, MPI_BYTE, node));
  binding_ = share_cpus(limits_, limits, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  watchdog_ = std::make_unique<Watchdog>(node, host_);
  CONVOY_MPI_CHECK(MPI_Comm_free(&node));
}

World::~World() {
  const bool in_order = std::uncaught_exceptions() <= exceptions_at_start_ && abandoned_operations() == 0;
  [[maybe_unused]] const MpiOwnMemory not_ours;
  const CallDeadline deadline("the end of MPI (MPI_Finalize)", std::max(end_timeout_, kMinEndSeconds));
  launcher_watchdog_.reset();  // MPI may lose its launcher in order from here on
  try {
    if (in_order) watchdog_->end();
  } catch (...) {  // MPI is broken, and ends as well as it can
  }
  watchdog_.reset();
  if (in_order || size_ == 1) MPI_Finalize();
}

void World::set_timeout(double seconds) { end_timeout_ = seconds; }

void World::abort(int code) const noexcept {
  wait_for_pipe_reader(STDERR_FILENO, std::chrono::milliseconds(500));
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

MpiLibrary World::mpi_library() {
#ifdef OPEN_MPI
  constexpr MpiFamily kFamily = MpiFamily::kOpenMpi;
#else
  constexpr MpiFamily kFamily = MpiFamily::kMpich;
#endif
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return {kFamily, "unknown MPI"};
  // "Open MPI v4.1.4, package: ..."; "MPICH Version:<tabs>4.0.2\n..."
  const std::string_view whole(text.data(), static_cast<std::size_t>(length));
  const std::string_view first = whole.substr(0, whole.find_first_of(",\n"));
  const std::size_t name = first.find(" Version:");
  const std::size_t number = name == std::string_view::npos ? name : first.find_first_not_of(" \t", name + 9);
  if (number == std::string_view::npos) return {kFamily, std::string(first)};
  return {kFamily, fmt::format("{} {}", first.substr(0, name), first.substr(number))};
}

int World::launch_rank() { return read_launch_facts(process_environment()).rank; }

}  // namespace convoy
