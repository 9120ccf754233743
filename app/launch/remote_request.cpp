// SPDX-License-Identifier: Apache-2.0
#include "app/launch/remote_request.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <thread>

#include "app/launch/signal_inbox.h"
#include "io/files/atomic_file.h"
#include "io/files/process_identity.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;
constexpr std::chrono::milliseconds kLook{30};
constexpr std::chrono::seconds kAnswer{20};
constexpr int kWithdrawn = 1;

// Removes a request's files at the end, which withdraws it if it has not ended by itself.
class Request {
 public:
  Request(const std::string& folder, const std::string& command) {
    const ProcessIdentity self = this_process();
    path_ = fmt::format("{}/{}-{}-{}", folder, self.host, self.pid, self.start_time);
    const std::string text = nlohmann::json{{"command", command}}.dump() + "\n";
    write_file_atomically(path_ + ".json", std::as_bytes(std::span(text)));
  }
  ~Request() {
    std::error_code ignored;
    for (const char* end : {".json", ".running", ".err", ".exit"}) fs::remove(path_ + end, ignored);
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  [[nodiscard]] bool is_withdrawn() const {
    std::error_code ignored;
    return !fs::exists(path_ + ".json", ignored) && !fs::exists(path_ + ".running", ignored);
  }
  [[nodiscard]] bool is_waiting() const {
    std::error_code ignored;
    return fs::exists(path_ + ".json", ignored);
  }
  [[nodiscard]] std::optional<int> exit_code() const {
    std::ifstream file(path_ + ".exit");
    int code = 0;
    if (file >> code) return code;
    return std::nullopt;
  }
  // What the command has written since the last call goes to stderr.
  void pass_on() {
    const auto text = file_text(path_ + ".err");
    if (!text || text->size() <= passed_) return;
    std::cerr << std::string_view(*text).substr(passed_) << std::flush;
    passed_ = text->size();
  }

 private:
  std::string path_;
  std::size_t passed_ = 0;
};

}  // namespace

std::string request_folder(const std::string& job, const std::string& host) { return job + "/requests/" + host; }

void withdraw_all_requests(const std::string& job) {
  std::error_code ignored;
  for (fs::recursive_directory_iterator it(job + "/requests", ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    std::error_code busy;
    if (it->is_regular_file(busy)) fs::remove(it->path(), busy);
  }
}

int launch_remote_command(const std::string& host, const std::vector<std::string>& words) {
  const char* job = std::getenv(kJobFolderVariable);
  if (job == nullptr) fail_usage("launch-remote: is for mpirun below `convoy launch --job`, not for people");
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  SignalInbox signals({SIGINT, SIGTERM, SIGHUP});
  std::string command;
  for (const std::string& word : words) command += (command.empty() ? "" : " ") + word;
  const std::string folder = request_folder(job, host);
  if (!fs::is_directory(folder)) fail("launch-remote: no member of the job is on {} (there is no {})", host, folder);
  Request request(folder, command);
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (std::chrono::steady_clock::now() - start > kAnswer && request.is_waiting()) {
      fail(
          "launch-remote: the member of the job on {} does not answer (its launch has ended, or the folder {} is slow)",
          host, job);
    }
    request.pass_on();
    if (const auto code = request.exit_code()) {
      request.pass_on();
      return *code;
    }
    if (signals.first() || ::getppid() != parent || request.is_withdrawn()) return kWithdrawn;
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace convoy
