// SPDX-License-Identifier: Apache-2.0
//
// What launch waits for has an end, what it leaves out comes back, and what a killed MPI leaves is removed.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/launch/host_health.h"
#include "app/launch/mpi_leftovers.h"
#include "app/launch/mpirun.h"
#include "app/launch/process_tree.h"
#include "io/files/process_identity.h"
#include "layers/base/host_name.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;
using namespace std::chrono_literals;

namespace {

// A process that has ended and been waited for.
pid_t ended_process() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  return pid;
}

std::string record_of_this_machine(const std::string& lines) {
  const ProcessIdentity own = this_process();
  return fmt::format("{} {}\n{}", own.boot_id, own.pid_namespace, lines);
}

}  // namespace

TEST_CASE("the wait for a killed child that hangs in the kernel ends") {
  std::chrono::steady_clock::time_point now{1h};
  int tries = 0;
  pid_t answer = 0;
  const WaitSystem system{[&](pid_t, int*) {
                            ++tries;
                            return answer;
                          },
                          [&] { return now; }, [&](std::chrono::milliseconds time) { now += time; }};
  CHECK(!wait_for_child(77, now + 10s, system));
  CHECK(tries == 5001);
  answer = 77;
  CHECK(wait_for_child(77, now, system));
  answer = -1;
  errno = ECHILD;
  CHECK(wait_for_child(77, now, system));
  CHECK(wait_for_child(::getpid(), now));  // not a child: nothing to wait for
}

TEST_CASE("a host whose system failed is left out while there are others") {
  const TemporaryFolder folder;
  const Journal journal(folder / "launch.log");
  HostHealth health([](const std::string&) { return std::vector<std::string>{"false"}; }, journal);
  const std::string own = host_name();
  const HostList both{{own, 2}, {"elsewhere.invalid", 2}}, alone{{own, 2}};
  CHECK(health.usable(alone) == alone);
  health.blame(own, alone, false);
  CHECK(health.usable(alone) == alone);
  health.blame("(none)", both, false);
  CHECK(health.usable(alone) == alone);
  health.blame(own, both, false);
  CHECK(health.usable(both).empty());  // the other one has not been tried yet
  CHECK(contains(read_text(folder / "launch.log"), "its system failed; left out for 10 s"));
  health.blame(own, both, false);
  CHECK(contains(read_text(folder / "launch.log"), "its system failed; left out for 20 s"));
  health.blame(own, both, true);
  health.blame(own, both, false);
  const std::string log = read_text(folder / "launch.log");
  CHECK(log.rfind("for 20 s") > log.rfind("for 10 s"));
  CHECK(!contains(log, "for 40 s"));
}

TEST_CASE("64 hosts are probed together, not one after the other, and not all at once") {
  const TemporaryFolder folder;
  const Journal journal(folder / "launch.log");
  HostList hosts;
  for (int i = 0; i < 64; ++i) hosts.push_back({fmt::format("n{}.invalid", i), 4});
  const std::string begun = folder / "begun", go = folder / "go";
  // A probe ends when there is a file, which comes only when as many as may run at once have begun.
  const std::string wait = fmt::format("echo >> {}; while [ ! -e {} ]; do sleep 0.05; done", begun, go);
  std::string fails = "; echo >&2 no route; exit 1";
  HostHealth health(
      [&](const std::string&) {
        return std::vector<std::string>{"sh", "-c", wait + fails};
      },
      journal, 16);
  const auto count = [&] {
    const std::string text = read_text(begun);
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto deadline = std::chrono::steady_clock::now() + 14s;  // before probes count as silent
  const auto look = [&] {
    std::this_thread::sleep_for(5ms);
    return health.usable(hosts);
  };
  while (count() < 16 && std::chrono::steady_clock::now() < deadline) REQUIRE(look().empty());
  CHECK(count() == 16);
  CHECK(health.busy(hosts));
  fails = "";  // of the probes to come
  write_text(go, "");
  HostList usable;
  while (usable.size() < 48 && std::chrono::steady_clock::now() < deadline) usable = look();
  CHECK(usable == HostList(hosts.begin() + 16, hosts.end()));
  CHECK_FALSE(health.busy(hosts));
  look();
  CHECK(contains(read_text(folder / "launch.log"),
                 "hosts n[0-15].invalid: nothing can be started there (no route); left out for 10 s"));
}

TEST_CASE("names that a killed MPI has left are removed, if they are of that job and nobody uses them") {
  const TemporaryFolder folder;
  const std::string shared = folder / "shm", record = folder / "mpi_files", tmp = folder / "ompi.host.0";
  std::filesystem::create_directories(shared);
  for (const char* name : {"vader_segment.host.0.5610001.0", "vader_segment.host.0.5610001.1", "osc_sm.host.5610001",
                           "vader_segment.host.0.5610002.0", "vader_segment.host.0.15610001.0", "mpich_abc",
                           "nccl-used", "data.h5.5610001.0"}) {
    write_text(shared + "/" + name, "x");
  }
  const int file = ::open((shared + "/nccl-used").c_str(), O_RDWR | O_CLOEXEC);
  void* memory = ::mmap(nullptr, 1, PROT_READ, MAP_SHARED, file, 0);
  REQUIRE(memory != MAP_FAILED);
  const std::string dead = fmt::format("{}/pid.{}", tmp, ended_process());
  const std::string alive = fmt::format("{}/pid.{}", tmp, ::getpid()), other = folder / "precious";
  for (const std::string& path : {dead, alive, other}) {
    std::filesystem::create_directories(path);
    write_text(path + "/file", "x");
    write_text(path + "/smseg-90243075-0", "x");  // of job 5610003
  }
  write_text(shared + "/sm_segment.host.0.5610003.1", "x");
  write_text(record,
             record_of_this_machine(fmt::format("job 5610001\nname mpich_abc\nname nccl-used\nname "
                                                "data.h5.5610001.0\nname ../precious/file\nsession {}\nsession {}\n"
                                                "session {}\nnonsense\n",
                                                dead, alive, other)));
  const MpiLeftovers leftovers(record, shared);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(shared)) left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  CHECK(fmt::format("{}", fmt::join(left, " ")) ==
        "data.h5.5610001.0 nccl-used vader_segment.host.0.15610001.0 vader_segment.host.0.5610002.0");
  CHECK(!std::filesystem::exists(dead));
  CHECK(std::filesystem::exists(alive + "/file"));
  CHECK(std::filesystem::exists(other + "/file"));
  const std::string kept = read_text(record);  // for the next sweep
  CHECK(contains(kept, alive));
  CHECK(!contains(kept, dead));
  ::munmap(memory, 1);
  ::close(file);
}

TEST_CASE("a record of another machine or another boot is not followed") {
  const TemporaryFolder folder;
  const std::string shared = folder / "shm", record = folder / "mpi_files";
  std::filesystem::create_directories(shared);
  write_text(shared + "/mpich_abc", "x");
  write_text(record, "another-boot 1\nname mpich_abc\n");
  const MpiLeftovers leftovers(record, shared);
  CHECK(std::filesystem::exists(shared + "/mpich_abc"));
}

TEST_CASE("Open MPI 4's mpirun does not wait before it kills, unless the user wants it to") {
  const char* name = "OMPI_MCA_odls_base_sigkill_timeout";
  ::unsetenv(name);
  CHECK(Mpirun{MpirunKind::kOrte, "mpirun"}.environment() ==
        std::vector<std::pair<std::string, std::string>>{{name, "0"}});
  CHECK(Mpirun{MpirunKind::kHydra, "mpirun"}.environment().empty());
  ::setenv(name, "3", 1);
  CHECK(Mpirun{MpirunKind::kOrte, "mpirun"}.environment().empty());
  ::unsetenv(name);
}
