// SPDX-License-Identifier: Apache-2.0
#include "app/launch/members.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <thread>

#include "layers/base/error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

std::string members_folder(const std::string& job) { return job + "/members"; }

class MemberHosts : public HostSource {
 public:
  explicit MemberHosts(std::string folder) : folder_(std::move(folder)) {}

  HostList read() override {
    HostList hosts;
    std::error_code error;
    for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() != ".lock" || it->path().filename().string().front() == '.') continue;
      LockAttempt& member = seen_.try_emplace(it->path().string(), it->path().string()).first->second;
      const auto owner = member.look();
      if (!owner || owner->token.empty()) continue;
      const HostList one = parse_hosts(owner->note, it->path().string());
      if (one.size() == 1) hosts.push_back(one.front());
    }
    if (error) fail_usage("--job: cannot list {}: {}", folder_, error.message());
    std::sort(hosts.begin(), hosts.end(), [](const Host& a, const Host& b) { return a.name < b.name; });
    return hosts;
  }
  [[nodiscard]] std::chrono::milliseconds interval() const override { return std::chrono::milliseconds(500); }
  [[nodiscard]] std::string name() const override { return "the members of the job"; }

 private:
  std::string folder_;
  std::map<std::string, LockAttempt> seen_;
};

}  // namespace

std::unique_ptr<LockFile> take_lock(LockAttempt& attempt, const LockFile::OnLost& on_lost) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (auto lock = attempt.poll(on_lost)) return lock;
    const bool runs = liveness(attempt.holder().process) == Liveness::kRuns;
    const auto waited = std::chrono::steady_clock::now() - start;
    if (runs || waited > LockAttempt::kStaleSeconds + std::chrono::seconds(2)) return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

std::unique_ptr<LockFile> join_job(const std::string& job, const std::string& host, int slots,
                                   const LockFile::OnLost& on_lost) {
  std::error_code error;
  fs::create_directories(members_folder(job), error);
  if (error) fail_usage("--job: cannot make the folder {}: {}", members_folder(job), error.message());
  LockAttempt attempt(fmt::format("{}/{}.lock", members_folder(job), host), fmt::format("{} slots={}", host, slots));
  auto lock = take_lock(attempt, on_lost);
  if (!lock) {
    fail_usage(
        "--job: a launch of this host has joined the job already: {} (stop that one first, or leave it to do the work)",
        attempt.holder().to_string());
  }
  return lock;
}

std::unique_ptr<HostSource> member_hosts(const std::string& job) {
  return std::make_unique<MemberHosts>(members_folder(job));
}

}  // namespace convoy
