// SPDX-License-Identifier: Apache-2.0
#include "app/launch/member_service.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "app/launch/process_tree.h"
#include "io/files/atomic_file.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;
constexpr std::chrono::milliseconds kLook{30};

void write_exit(const std::string& path, int code) {
  const std::string text = fmt::format("{}\n", code);
  write_file_atomically(path + ".exit", std::as_bytes(std::span(text)));
}

std::string command_in(const std::string& file) {
  const auto json = nlohmann::json::parse(file_text(file).value_or(""), nullptr, false);
  return json.is_object() ? json.value("command", "") : "";
}

}  // namespace

MemberService::MemberService(std::string folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) fail_usage("--job: cannot make the folder {}: {}", folder_, error.message());
  thread_ = std::thread([this] { work(); });
}

MemberService::~MemberService() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void MemberService::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, kLook, [this] { return stop_; })) {
    try {
      take_up_requests();
      look_at_commands();
      running_ = commands_.size();
    } catch (const std::exception&) {
      // The shared folder may be away for a while; requests are looked at again, and mpirun has limits of its own.
    }
  }
  commands_.clear();
}

void MemberService::take_up_requests() {
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".json") start((it->path().parent_path() / it->path().stem()).string());
  }
}

void MemberService::start(const std::string& path) {
  const std::string running = path + ".running";
  std::error_code gone;
  fs::rename(path + ".json", running, gone);
  if (gone) return;  // withdrawn just now
  const std::string command = command_in(running);
  const int errors = ::open((path + ".err").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  try {
    commands_[path] = std::make_unique<ChildProcess>(std::vector<std::string>{"/bin/sh", "-c", "cd /; " + command},
                                                     ChildProcess::Options{{}, errors, errors});
  } catch (const Error&) {
    commands_.erase(path);
    write_exit(path, 1);
  }
  if (errors >= 0) ::close(errors);
}

void MemberService::look_at_commands() {
  for (auto it = commands_.begin(); it != commands_.end();) {
    const std::string path = it->first;
    ChildProcess& child = *it->second;
    std::error_code error;
    const bool withdrawn = !fs::exists(path + ".running", error) && !error;
    const auto status = child.poll();
    if (withdrawn || status) {
      if (!withdrawn) write_exit(path, status->code);
      const bool unread = !fs::exists(path + ".running", error) && !error;  // who asked has gone, before or just now
      it = commands_.erase(it);                                             // kills what still runs
      kill_orphans();                                                       // ranks of an orted that was killed
      if (unread) {
        for (const char* end : {".err", ".exit"}) fs::remove(path + end, error);
      }
    } else {
      ++it;
    }
  }
}

}  // namespace convoy
