// SPDX-License-Identifier: Apache-2.0
#include "app/base/memory_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>

#include "layers/base/file_text.h"

namespace convoy {

namespace {

constexpr double kUnlimited = 1e18;  // version 1 writes the largest number of pages for none

std::string text_of(const std::string& path) { return file_text(path).value_or(""); }

// The number that a file holds; nothing for "max", and where there is none.
std::optional<double> number_in(const std::string& path) {
  const std::string text = text_of(path);
  std::int64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
  return static_cast<double>(value);
}

const char* limit_file(const Cgroup& group) { return group.v2 ? "/memory.max" : "/memory.limit_in_bytes"; }

std::optional<double> free_in(const Cgroup& group) {
  const auto limit = number_in(group.folder + limit_file(group));
  if (!limit || *limit >= kUnlimited) return std::nullopt;
  const double used = number_in(group.folder + (group.v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  const std::string stat = text_of(group.folder + "/memory.stat");
  double cache = 0;
  for (const char* key : {"inactive_file", "active_file"}) {
    cache += std::max(0.0, keyed_number(stat, group.v2 ? std::string(key) : std::string("total_") + key));
  }
  return *limit - std::max(0.0, used - cache);
}

std::optional<double> resource_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

double keyed_number(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.starts_with(':')) line.remove_prefix(1);
    if (line.empty() || (line.front() != ' ' && line.front() != '\t')) continue;
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    std::int64_t value = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), value).ec != std::errc()) return -1;
    return static_cast<double>(value) * (line.ends_with("kB") ? 1024 : 1);
  }
  return -1;
}

ProcessMemory process_memory(const std::string& root) {
  const std::string status = text_of(root + "/proc/self/status");
  const auto bytes = [&](const char* key) { return std::max(0.0, keyed_number(status, key)); };
  return {bytes("VmRSS"), bytes("VmSize"), bytes("VmData")};
}

std::vector<Cgroup> memory_cgroups(const std::string& root) {
  std::vector<Cgroup> groups =
      cgroups_of("memory", [&root](const std::string& path) { return file_text(root + path); });
  for (Cgroup& group : groups) group.folder = root + group.folder;
  std::erase_if(groups, [](const Cgroup& group) { return !file_text(group.folder + limit_file(group)); });
  return groups;
}

std::vector<HostMemoryLimit> memory_limits(const std::string& root) {
  std::vector<HostMemoryLimit> limits;
  for (const Cgroup& group : memory_cgroups(root)) {
    if (const auto free = free_in(group)) {
      limits.push_back({fmt::format("the memory limit of cgroup {}", group.path), "cgroup " + group.path, *free});
    }
  }
  const double available = keyed_number(text_of(root + "/proc/meminfo"), "MemAvailable");
  if (available >= 0) limits.push_back({"the available memory of the node", "node", available});
  const ProcessMemory own = process_memory(root);
  if (const auto limit = resource_limit(RLIMIT_AS)) {
    limits.push_back({"the limit of address space (ulimit -v)", "", *limit - own.virtual_size});
  }
  if (const auto limit = resource_limit(RLIMIT_DATA)) {
    limits.push_back({"the limit of private memory (ulimit -d)", "", *limit - own.data});
  }
  return limits;
}

std::int64_t oom_kills(const Cgroup& group) {
  const std::string text = text_of(group.folder + (group.v2 ? "/memory.events" : "/memory.oom_control"));
  return static_cast<std::int64_t>(keyed_number(text, "oom_kill"));
}

std::int64_t oom_kills(const std::string& root) {
  const std::vector<Cgroup> groups = memory_cgroups(root);
  return groups.empty() ? -1 : oom_kills(groups.front());
}

}  // namespace convoy
