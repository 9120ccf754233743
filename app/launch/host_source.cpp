// SPDX-License-Identifier: Apache-2.0
#include "app/launch/host_source.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "app/launch/child_process.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FileHosts : public HostSource {
 public:
  explicit FileHosts(std::string path) : path_(std::move(path)) {}
  HostList read() override {
    const auto text = file_text(path_);
    if (!text) {
      fail_system(errno, "--hosts: cannot read {}: {} (a file with lines like `node1 slots=4`)", path_,
                  std::strerror(errno));
    }
    return parse_hosts(*text, path_);
  }
  [[nodiscard]] milliseconds interval() const override { return seconds(1); }
  [[nodiscard]] std::string name() const override { return path_; }

 private:
  std::string path_;
};

class CommandHosts : public HostSource {
 public:
  explicit CommandHosts(std::string command) : command_(std::move(command)) {}
  HostList read() override {
    const Captured result = capture({"/bin/sh", "-c", command_}, kLimit);
    if (result.timed_out) {
      fail_usage("--hosts-from: the command did not end within {} s: {} (it must print the hosts and end)",
                 kLimit.count(), command_);
    }
    if (result.status.code != 0) {
      const std::string said = result.errors.substr(0, result.errors.find('\n'));
      fail_usage("--hosts-from: the command ended with exit code {}: {}{}{}", result.status.code, command_,
                 said.empty() ? "" : ": ", said);
    }
    return parse_hosts(result.output, "--hosts-from: output of " + command_);
  }
  [[nodiscard]] milliseconds interval() const override { return seconds(10); }
  [[nodiscard]] std::string name() const override { return "--hosts-from"; }

 private:
  static constexpr seconds kLimit{10};
  std::string command_;
};

class LocalHost : public HostSource {
 public:
  HostList read() override { return {{"localhost", 1}}; }
  [[nodiscard]] milliseconds interval() const override { return seconds(3600); }
  [[nodiscard]] std::string name() const override { return "this machine"; }
};

}  // namespace

std::unique_ptr<HostSource> hosts_from_file(const std::string& path) { return std::make_unique<FileHosts>(path); }

std::unique_ptr<HostSource> hosts_from_command(const std::string& command) {
  return std::make_unique<CommandHosts>(command);
}

std::unique_ptr<HostSource> local_host() { return std::make_unique<LocalHost>(); }

}  // namespace convoy
