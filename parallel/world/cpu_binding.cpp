// SPDX-License-Identifier: Apache-2.0
#include "parallel/world/cpu_binding.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

constexpr int kWordBits = 64;
constexpr int kMaxCpus = static_cast<int>(sizeof(CpuMask)) * 8;

}  // namespace

bool CpuMask::has(int cpu) const {
  return (words[static_cast<std::size_t>(cpu / kWordBits)] >> (cpu % kWordBits) & 1U) != 0;
}

void CpuMask::add(int cpu) {
  words[static_cast<std::size_t>(cpu / kWordBits)] |= std::uint64_t{1} << (cpu % kWordBits);
}

int CpuMask::count() const {
  int total = 0;
  for (const std::uint64_t word : words) total += std::popcount(word);
  return total;
}

std::string CpuMask::str() const {
  std::string text;
  for (int first = 0; first < kMaxCpus; ++first) {
    if (!has(first)) continue;
    int last = first;
    while (last + 1 < kMaxCpus && has(last + 1)) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    first = last;
  }
  return text;
}

CpuMask current_cpu_mask() {
  CpuMask mask;
  if (sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask.words.data())) != 0) {
    fail("cannot read the CPU affinity of this process: {}", std::strerror(errno));
  }
  return mask;
}

CpuLimits current_cpu_limits() { return {current_cpu_mask(), cpu_quota()}; }

CpuLimitsDigest digest_of(const CpuLimits& limits) {
  CpuLimitsDigest digest;
  for (const std::uint64_t word : limits.mask.words) digest.mask = mix64(digest.mask ^ word);
  digest.quota = mix64(mix64(std::bit_cast<std::uint64_t>(limits.quota.cpus)) ^ limits.quota.group);
  return digest;
}

CpuBinding share_cpus(const CpuLimits& own, const std::vector<CpuLimitsDigest>& node_limits, int node_cpus) {
  const CpuMask& mask = own.mask;
  const CpuQuota& quota = own.quota;
  const CpuLimitsDigest digest = digest_of(own);
  const auto ranks = [&](const auto& shares) {
    return static_cast<int>(std::count_if(node_limits.begin(), node_limits.end(), shares));
  };
  const int sharers = ranks([&](const CpuLimitsDigest& each) { return each.mask == digest.mask; });
  const int cpus = mask.count();
  CpuBinding binding;
  binding.threads = std::max(1, cpus / std::max(1, sharers));
  binding.report = fmt::format(
      "may use {} of {} CPUs ({}), {}", cpus, node_cpus, mask.str(),
      sharers == 1 ? std::string("alone") : fmt::format("together with {} other ranks of its node", sharers - 1));
  if (quota.cpus > 0) {
    const int members = ranks([&](const CpuLimitsDigest& each) { return each.quota == digest.quota; });
    const double share = quota.cpus / std::max(1, members);
    binding.threads = std::max(1, static_cast<int>(std::min(share, static_cast<double>(binding.threads))));
    binding.report += fmt::format(", the time of {:.3g} (limit of a control group{})", quota.cpus,
                                  members == 1 ? "" : fmt::format(" of {} ranks", members));
  }
  binding.report += fmt::format(": {} thread{}", binding.threads, binding.threads == 1 ? "" : "s");
  if (sharers > cpus) binding.report += fmt::format("; {} ranks crowd on these CPUs", sharers);
  return binding;
}

namespace {

// Whether a list such as "0-3,8" has a CPU of the mask.
bool list_meets(const std::string& list, const CpuMask& mask) {
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    char dash = 0;
    std::istringstream range(part);
    if (!(range >> first)) continue;
    if (!(range >> dash >> last)) last = first;
    for (int cpu = std::max(0, first); cpu <= last && cpu < kMaxCpus; ++cpu) {
      if (mask.has(cpu)) return true;
    }
  }
  return false;
}

}  // namespace

std::string describe_numa(const CpuMask& mask, const std::vector<std::string>& node_lists) {
  if (node_lists.size() < 2) return "";
  CpuMask nodes;  // a set of numbers, too
  for (std::size_t i = 0; i < node_lists.size(); ++i) {
    if (list_meets(node_lists[i], mask)) nodes.add(static_cast<int>(i));
  }
  return fmt::format("NUMA node{} {} of {}", nodes.count() == 1 ? "" : "s", nodes.str(), node_lists.size());
}

std::string describe_numa(const CpuMask& mask) {
  std::vector<std::string> lists;
  while (const auto text = file_text(fmt::format("/sys/devices/system/node/node{}/cpulist", lists.size()))) {
    lists.push_back(*text);
  }
  return describe_numa(mask, lists);
}

}  // namespace convoy
