// SPDX-License-Identifier: Apache-2.0
#include "app/launch/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace convoy {

namespace {

constexpr std::chrono::milliseconds kGrace{250};  // between being told and being killed
constexpr int kRounds = 10;                       // the death of one makes orphans of others

using Parents = std::map<pid_t, pid_t>;

Parents all_parents() {
  Parents parents;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(it->path() / "stat");
    std::string line;
    std::getline(file, line);
    const std::size_t name_end = line.rfind(')');
    if (name_end == std::string::npos || name_end + 4 >= line.size()) continue;
    parents[static_cast<pid_t>(std::atoi(name.c_str()))] = static_cast<pid_t>(std::atoi(line.c_str() + name_end + 4));
  }
  return parents;
}

// The process and all its descendants.
std::vector<pid_t> tree_of(pid_t root, const Parents& parents) {
  std::vector<pid_t> tree{root};
  for (std::size_t i = 0; i < tree.size(); ++i) {
    for (const auto& [pid, parent] : parents) {
      if (parent == tree[i]) tree.push_back(pid);
    }
  }
  return tree;
}

void kill_tree(pid_t root, const Parents& parents) {
  for (const pid_t pid : tree_of(root, parents)) ::kill(pid, SIGKILL);
}

// Children of this process that it has not started, and all parents at that moment. Under the mutex, so that a child
// which is being started or waited for is never among them.
std::vector<pid_t> find_orphans(Parents& parents) {
  std::vector<pid_t> orphans;
  StartedChildren& started = started_children();
  const std::lock_guard<std::mutex> guard(started.mutex);
  parents = all_parents();
  for (const auto& [pid, parent] : parents) {
    if (parent == ::getpid() && !started.pids.contains(pid)) orphans.push_back(pid);
  }
  return orphans;
}

}  // namespace

StartedChildren& started_children() {
  static StartedChildren children;
  return children;
}

WaitSystem WaitSystem::real() {
  return {[](pid_t pid, int* status) { return ::waitpid(pid, status, WNOHANG); }, &std::chrono::steady_clock::now,
          [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }};
}

bool wait_for_child(pid_t pid, std::chrono::steady_clock::time_point deadline, const WaitSystem& system) {
  for (;;) {
    const pid_t result = system.try_wait(pid, nullptr);
    if (result == pid || (result < 0 && errno != EINTR)) return true;
    if (system.now() >= deadline) return false;
    system.pause(std::chrono::milliseconds(2));
  }
}

std::vector<pid_t> descendants_of(pid_t root) {
  std::vector<pid_t> tree = tree_of(root, all_parents());
  tree.erase(tree.begin());
  return tree;
}

void kill_tree(pid_t root) { kill_tree(root, all_parents()); }

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

void kill_orphans() {
  Parents parents;
  const std::vector<pid_t> told = find_orphans(parents);
  for (const pid_t pid : told) ::kill(pid, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  for (const pid_t pid : told) wait_for_child(pid, deadline);
  const auto last = std::chrono::steady_clock::now() + kKillLimit;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<pid_t> orphans = find_orphans(parents);
    if (orphans.empty()) return;
    for (const pid_t pid : orphans) kill_tree(pid, parents);
    for (const pid_t pid : orphans) wait_for_child(pid, last);
    if (std::chrono::steady_clock::now() >= last) return;
  }
}

}  // namespace convoy
