// SPDX-License-Identifier: Apache-2.0
//
// Runs the command of a command line and reports its errors. The World lives outside of the try block, so that the
// failure of one rank can end all ranks while it is being reported. A collective Error is one that all ranks have: rank
// 0 reports it, and all end in order.
#include <chrono>
#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <variant>

#include "app/base/error_report.h"
#include "app/commands/cli.h"
#include "layers/base/system_error.h"
#include "parallel/world/world.h"

namespace convoy {

namespace {

/// Launchers end all ranks as soon as the first one fails: those with nothing to say let rank 0 finish its sentence.
constexpr std::chrono::milliseconds kTimeToSpeak{500};

std::string where(const World& world) {
  return world.size() == 1 ? "" : fmt::format(" (rank {} on {})", world.rank(), world.host());
}

/// `code` of a failed rank: alone it ends by itself, else it ends the job.
int end_job(const World& world, int code) {
  std::cout << std::flush;
  if (world.size() > 1) world.abort(code);
  return code;
}

template <class Body>
int run_with_world(Body&& body) {
  World world;
  try {
    const int code = body(world);
    std::cout << std::flush;  // launchers may kill this rank as soon as another one has ended with a code other than 0
    return code;
  } catch (const Error& error) {
    const int code = static_cast<int>(error.code());
    if (error.collective()) {
      if (world.rank() == 0 && error.code() == ExitCode::kStopped) std::cout << error.what() << "\n" << std::flush;
      if (world.rank() == 0 && error.code() != ExitCode::kStopped) report_error(error.what(), host_at_fault(error));
      return code;
    }
    report_error(error.what() + where(world), host_at_fault(error));
    return end_job(world, code);
  } catch (const std::bad_alloc&) {
    report_error("out of memory" + where(world));
  } catch (const std::exception& error) {
    report_error(error.what() + where(world));
  }
  return end_job(world, static_cast<int>(ExitCode::kFailure));
}

int run(const Command& command) {
  return std::visit(
      [](const auto& arguments) -> int {
        using T = std::decay_t<decltype(arguments)>;
        if constexpr (std::is_same_v<T, TrainArguments>) {
          return run_with_world([&](World& world) { return train_command(world, arguments); });
        } else if constexpr (std::is_same_v<T, EvalArguments>) {
          return run_with_world([&](World& world) { return eval_command(world, arguments); });
        } else if constexpr (std::is_same_v<T, PredictArguments>) {
          return run_with_world([&](World& world) { return predict_command(world, arguments); });
        } else if constexpr (std::is_same_v<T, BenchArguments>) {
          return run_with_world([&](World& world) { return bench_command(world, arguments); });
        } else if constexpr (std::is_same_v<T, PlanArguments>) {
          return run_with_world([&](World& world) { return plan_command(world, arguments); });
        } else if constexpr (std::is_same_v<T, ScheduleArguments>) {
          return schedule_command(arguments);
        } else if constexpr (std::is_same_v<T, CheckArguments>) {
          return check_command(arguments);
        } else if constexpr (std::is_same_v<T, InspectArguments>) {
          return inspect_command(arguments);
        } else if constexpr (std::is_same_v<T, PackArguments>) {
          return pack_command(arguments);
        } else if constexpr (std::is_same_v<T, ReportArguments>) {
          return report_command(arguments);
        } else if constexpr (std::is_same_v<T, WatchArguments>) {
          return watch_command(arguments);
        } else if constexpr (std::is_same_v<T, VerifyArguments>) {
          return verify_command(arguments);
        } else if constexpr (std::is_same_v<T, LaunchArguments>) {
          return launch_command(arguments);
        } else if constexpr (std::is_same_v<T, SlurmJobArguments>) {
          return slurm_job_command(arguments);
        } else {
          return doctor_command();
        }
      },
      command);
}

}  // namespace

int run_cli(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that reaches `ulimit -f` gives an error with its name
  // Outside of a World every rank of a launch comes here with the same arguments: the first one reports.
  const bool speaks = World::launch_rank() == 0;
  try {
    const std::optional<Command> command = parse_command_line(argc, argv);
    // A training goes on without a reader of what it prints; a result that nobody got is an error.
    const bool trains = command && std::holds_alternative<TrainArguments>(*command);
    if (trains) std::signal(SIGPIPE, SIG_IGN);
    const int code = command ? run(*command) : 0;
    const bool prints_results = !trains && !(command && std::holds_alternative<LaunchArguments>(*command));
    if (code == 0 && prints_results && !std::cout.flush()) fail("standard output cannot be written (a full disk?)");
    return code;
  } catch (const Error& error) {
    if (speaks) {
      report_error(error.what(), host_at_fault(error));
    } else {
      std::this_thread::sleep_for(kTimeToSpeak);
    }
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    report_error(error.what());
    return static_cast<int>(ExitCode::kFailure);
  }
}

}  // namespace convoy
