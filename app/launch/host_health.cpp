// SPDX-License-Identifier: Apache-2.0
#include "app/launch/host_health.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "layers/base/error.h"
#include "layers/base/host_name.h"

namespace convoy {

namespace {

constexpr std::chrono::seconds kProbeLimit{15};
constexpr int kFirstPause = 10, kLongestPause = 600;  // seconds

using Clock = std::chrono::steady_clock;

}  // namespace

bool is_this_host(const std::string& name) {
  const std::string own = host_name("");
  return name == "localhost" || name == own || name == own.substr(0, own.find('.'));
}

HostHealth::HostHealth(std::function<std::vector<std::string>(const std::string& host)> probe, const Journal& journal)
    : probe_(std::move(probe)), journal_(journal) {
  silence_ = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
}

HostHealth::~HostHealth() {
  if (silence_ >= 0) ::close(silence_);
}

HostList HostHealth::usable(const HostList& listed) {
  std::erase_if(entries_, [&](const auto& entry) {
    return std::none_of(listed.begin(), listed.end(), [&](const Host& host) { return host.name == entry.first; });
  });
  HostList good;
  for (const Host& host : listed) {
    if (is_this_host(host.name)) {
      good.push_back(host);
      continue;
    }
    Entry& entry = entries_[host.name];
    poll(host.name, entry);
    if (entry.verdict == Verdict::kGood) good.push_back(host);
  }
  return good;
}

void HostHealth::poll(const std::string& name, Entry& entry) {
  const auto now = Clock::now();
  if (entry.probe) {
    if (const auto status = entry.probe->poll()) {
      finish(name, entry, status->code == 0 ? "" : fmt::format("exit code {}", status->code));
    } else if (now > entry.deadline) {
      finish(name, entry, fmt::format("no answer within {} s", kProbeLimit.count()));
    }
    return;
  }
  const bool due = entry.verdict == Verdict::kUnknown || (entry.verdict == Verdict::kBad && now > entry.deadline);
  if (!due) return;
  entry.probe = std::make_unique<ChildProcess>(probe_(name), ChildProcess::Options{{}, silence_, silence_});
  entry.deadline = now + kProbeLimit;
}

void HostHealth::finish(const std::string& name, Entry& entry, const std::string& problem) {
  entry.probe.reset();
  if (problem.empty()) {
    if (entry.verdict == Verdict::kBad) journal_.write(fmt::format("host {} can be used again", name));
    entry = {Verdict::kGood, 0, nullptr, {}};
    return;
  }
  const int pause = std::min(kLongestPause, kFirstPause << std::min(entry.failures, 6));
  ++entry.failures;
  entry.verdict = Verdict::kBad;
  entry.deadline = Clock::now() + std::chrono::seconds(pause);
  journal_.write(fmt::format("host {}: nothing can be started there ({}); left out for {} s", name, problem, pause));
}

bool HostHealth::busy(const HostList& listed) const {
  return std::any_of(listed.begin(), listed.end(), [&](const Host& host) {
    const auto entry = entries_.find(host.name);
    return entry != entries_.end() && entry->second.verdict == Verdict::kUnknown;
  });
}

void HostHealth::doubt() {
  for (auto& [name, entry] : entries_) {
    if (entry.verdict == Verdict::kGood) entry.verdict = Verdict::kUnknown;
  }
}

}  // namespace convoy
