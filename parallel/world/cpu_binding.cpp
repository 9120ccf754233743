// SPDX-License-Identifier: Apache-2.0
#include "parallel/world/cpu_binding.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "layers/base/error.h"

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

CpuBinding share_cpus(const std::vector<CpuMask>& node_masks, int self, int node_cpus) {
  const CpuMask& mine = node_masks[static_cast<std::size_t>(self)];
  const int sharers = static_cast<int>(std::count(node_masks.begin(), node_masks.end(), mine));
  const int cpus = mine.count();
  CpuBinding binding;
  binding.threads = std::max(1, cpus / std::max(1, sharers));
  binding.report = fmt::format(
      "may use {} of {} CPUs ({}), {}: {} thread{}", cpus, node_cpus, mine.str(),
      sharers == 1 ? std::string("alone") : fmt::format("together with {} other ranks of its node", sharers - 1),
      binding.threads, binding.threads == 1 ? "" : "s");
  if (sharers > cpus) binding.report += fmt::format("; {} ranks crowd on these CPUs", sharers);
  return binding;
}

}  // namespace convoy
