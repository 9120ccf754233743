// SPDX-License-Identifier: Apache-2.0
#include "app/launch/slurm_hosts.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "app/launch/child_process.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::chrono::seconds kLimit{10};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string output_of(const std::vector<std::string>& argv) {
  const Captured result = capture(argv, kLimit);
  if (result.timed_out || result.status.code != 0) {
    fail_usage("Slurm allocation: `{} {}` {} {}", argv[0], argv[1],
               result.timed_out ? "gave no answer" : fmt::format("ended with exit code {}", result.status.code),
               result.errors.substr(0, result.errors.find('\n')));
  }
  return result.output;
}

class SlurmHosts : public HostSource {
 public:
  explicit SlurmHosts(std::string node_list) : node_list_(std::move(node_list)) {}

  HostList read() override {
    if (nodes_.empty()) {
      std::istringstream names(output_of({"scontrol", "show", "hostnames", node_list_}));
      for (std::string name; names >> name;) nodes_.push_back(name);
    }
    const std::vector<std::string> down = down_nodes(output_of({"sinfo", "-h", "-N", "-o", "%N %T", "-n", node_list_}));
    const std::vector<int> tasks = parse_tasks_per_node(variable("SLURM_TASKS_PER_NODE"));
    // One number for all: srun distributes ranks evenly.
    const int slots = tasks.empty() ? 1 : *std::min_element(tasks.begin(), tasks.end());
    HostList hosts;
    for (const std::string& name : nodes_) {
      if (std::find(down.begin(), down.end(), name) == down.end()) hosts.push_back({name, slots});
    }
    return hosts;
  }
  [[nodiscard]] std::chrono::milliseconds interval() const override { return std::chrono::seconds(5); }
  [[nodiscard]] std::string name() const override { return "the Slurm allocation"; }

 private:
  std::string node_list_;
  std::vector<std::string> nodes_;
};

}  // namespace

std::vector<int> parse_tasks_per_node(const std::string& text) {
  std::vector<int> counts;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int count = 0, times = 1;
    char end = '\0';
    const int fields = std::sscanf(part.c_str(), "%d(x%d%c", &count, &times, &end);
    const bool good = (fields == 1 && part.find('(') == std::string::npos) || (fields == 3 && end == ')');
    if (!good || count < 1 || times < 1 || times > 65536) return {};
    counts.insert(counts.end(), static_cast<std::size_t>(times), count);
  }
  return counts;
}

std::vector<std::string> down_nodes(const std::string& sinfo_output) {
  std::vector<std::string> down;
  std::istringstream lines(sinfo_output);
  for (std::string name, state; lines >> name >> state;) {
    std::transform(state.begin(), state.end(), state.begin(), [](unsigned char c) { return std::tolower(c); });
    const bool silent = state.ends_with('*');  // the node's daemon does not answer
    const bool off = state.starts_with("down") || state.starts_with("fail") || state.starts_with("powered_down") ||
                     state.starts_with("powering_down") || state.starts_with("reboot");
    if (silent || off) down.push_back(name);
  }
  return down;
}

std::unique_ptr<HostSource> slurm_hosts() {
  const std::string nodes = variable("SLURM_JOB_NODELIST");
  if (variable("SLURM_JOB_ID").empty() || nodes.empty()) return nullptr;
  return std::make_unique<SlurmHosts>(nodes);
}

}  // namespace convoy
