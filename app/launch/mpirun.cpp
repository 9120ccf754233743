// SPDX-License-Identifier: Apache-2.0
#include "app/launch/mpirun.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::chrono::seconds kVersionLimit{20};
constexpr int kNotFound = 127;  // the exit code of a child whose program is not there

bool belongs_to(MpirunKind kind, MpiFamily family) {
  return (kind == MpirunKind::kHydra) == (family == MpiFamily::kMpich);
}

}  // namespace

std::vector<std::string> Mpirun::words(const HostList& hosts, const std::string& variable) const {
  const std::string ranks = std::to_string(count_slots(hosts));
  const std::string names = join_hosts(hosts);
  if (kind == MpirunKind::kHydra) return {program, "-n", ranks, "-hosts", names};  // passes on the whole environment
  std::vector<std::string> words{program, "-n", ranks, "--host", names};
  if (!variable.empty()) words.insert(words.end(), {"-x", variable});
  return words;
}

std::vector<std::pair<std::string, std::string>> Mpirun::environment() const {
  constexpr const char* kPatience = "OMPI_MCA_odls_base_sigkill_timeout";  // seconds
  if (kind != MpirunKind::kOrte || std::getenv(kPatience) != nullptr) return {};
  return {{kPatience, "0"}};
}

bool Mpirun::passes_on(int signal) const {
  if (kind == MpirunKind::kHydra) return signal == SIGUSR1 || signal == SIGTERM || signal == SIGINT;
  return signal == SIGUSR1 || signal == SIGUSR2;
}

// Hydra's exit code is the number of the signal that killed a rank.
ExitStatus Mpirun::rank_status(const ExitStatus& status, bool reported) const {
  const bool plain = kind != MpirunKind::kHydra || status.signal != 0 || reported;
  if (plain || status.code <= 1 || status.code > SIGRTMAX) return status;
  return {128 + status.code, 0};
}

std::optional<MpirunKind> mpirun_kind(std::string_view version) {
  const auto has = [&](std::string_view words) { return version.find(words) != std::string_view::npos; };
  // "mpirun (Open MPI) 4.1.4"; "mpirun (Open MPI) 5.0.7"; PRRTE's own: "prterun (PRRTE) 3.0.8"
  constexpr std::string_view kOpenMpi = "(Open MPI) ";
  if (const auto at = version.find(kOpenMpi); at != std::string_view::npos) {
    const std::string_view number = version.substr(at + kOpenMpi.size());
    const auto digits = static_cast<std::size_t>(
        std::find_if(number.begin(), number.end(), [](char c) { return c < '0' || c > '9'; }) - number.begin());
    return digits == 1 && number.front() < '5' ? MpirunKind::kOrte : MpirunKind::kPrrte;
  }
  if (has("(PRRTE)")) return MpirunKind::kPrrte;
  if (has("HYDRA build details") || has("Intel(R) MPI Library")) return MpirunKind::kHydra;
  return std::nullopt;
}

Mpirun find_mpirun(const MpiLibrary& mpi) {
  constexpr std::array<const char*, 4> kOpenMpiNames{"mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi"};
  constexpr std::array<const char*, 4> kMpichNames{"mpirun", "mpiexec", "mpiexec.hydra", "mpirun.mpich"};
  std::vector<std::string> others;
  for (const char* name : mpi.family == MpiFamily::kOpenMpi ? kOpenMpiNames : kMpichNames) {
    const Captured version = capture({name, "--version"}, kVersionLimit);
    if (version.status.code == kNotFound) continue;
    const auto kind = mpirun_kind(version.output + version.errors);
    if (kind && belongs_to(*kind, mpi.family)) return {*kind, name};
    others.emplace_back(name);
  }
  if (others.empty()) fail_usage("launch: there is no mpirun in PATH (install it, or load its module)");
  fail_usage(
      "launch: {} in PATH belongs to another MPI than the {} that convoy was built with (put that MPI's mpirun "
      "first in PATH, or load its module)",
      fmt::join(others, ", "), mpi.version);
}

}  // namespace convoy
