// SPDX-License-Identifier: Apache-2.0
#include "app/launch/host_health.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "layers/base/host_name.h"

namespace convoy {

namespace {

constexpr std::chrono::seconds kProbeLimit{15};
constexpr std::chrono::seconds kTogether{1};          // news of hosts is told together
constexpr int kFirstPause = 10, kLongestPause = 600;  // seconds
constexpr int kHopelessFailures = 3;                  // of a host that never worked
constexpr std::size_t kReasonLength = 300;

using Clock = std::chrono::steady_clock;

// The first line with words in it of what a launcher wrote; the lines of its messages are framed and wrapped.
std::string reason_in(int descriptor) {
  if (descriptor < 0) return "";
  std::string text(4096, '\0');
  const ssize_t count = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  std::string reason;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool words = std::any_of(line.begin(), line.end(), [](unsigned char c) { return std::isalpha(c); });
    if (words) reason += (reason.empty() ? "" : " ") + line;
    if (!reason.empty() && (!words || reason.size() > kReasonLength)) break;
  }
  return reason.size() > kReasonLength ? reason.substr(0, kReasonLength) + " ..." : reason;
}

}  // namespace

HostHealth::Entry::~Entry() {
  probe.reset();
  if (errors >= 0) ::close(errors);
}

bool is_this_host(const std::string& name) {
  const std::string own = host_name("");
  return name == "localhost" || name == own || name == own.substr(0, own.find('.'));
}

HostHealth::HostHealth(std::function<std::vector<std::string>(const std::string& host)> probe, const Journal& journal,
                       int at_once)
    : probe_(std::move(probe)), journal_(journal), at_once_(at_once) {
  silence_ = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
}

HostHealth::~HostHealth() {
  if (silence_ >= 0) ::close(silence_);
}

HostList HostHealth::usable(const HostList& listed) {
  std::set<std::string_view> names;
  for (const Host& host : listed) names.insert(host.name);
  std::erase_if(entries_, [&](const auto& entry) { return !names.contains(entry.first); });
  running_ = probes();
  has_queue_ = queueing(listed);
  HostList good;
  for (const Host& host : listed) {
    if (is_this_host(host.name)) {
      const auto blamed = entries_.find(host.name);
      if (blamed == entries_.end() || Clock::now() > blamed->second.deadline) good.push_back(host);
      continue;
    }
    Entry& entry = entries_[host.name];
    poll(host.name, entry);
    if (entry.verdict == Verdict::kGood) good.push_back(host);
  }
  tell(listed);
  return good;
}

// "host n2: nothing can be started there ...", "hosts n[001-064]: ...": when no probe runs, or after a second.
void HostHealth::tell(const HostList& listed) {
  const auto now = Clock::now();
  if (news_.empty()) {
    told_ = now;
    return;
  }
  if (running_ > 0 && now - told_ < kTogether) return;
  for (const auto& [text, names] : news_) {
    HostList hosts;
    std::copy_if(listed.begin(), listed.end(), std::back_inserter(hosts),
                 [&](const Host& host) { return names.contains(host.name); });
    if (hosts.empty()) continue;  // they have left the list
    for (Host& host : hosts) host.slots = 0;
    journal_.write(fmt::format("host{} {}{}", names.size() == 1 ? "" : "s", describe_hosts(hosts), text));
  }
  news_.clear();
}

void HostHealth::poll(const std::string& name, Entry& entry) {
  const auto now = Clock::now();
  if (entry.probe) {
    if (const auto status = entry.probe->poll()) {
      const std::string reason = reason_in(entry.errors);
      const std::string code = fmt::format("exit code {}", status->code);
      finish(name, entry, status->code == 0 ? "" : reason.empty() ? code : reason);
    } else if (now > entry.deadline) {
      finish(name, entry, fmt::format("no answer within {} s", kProbeLimit.count()));
    }
    return;
  }
  const bool due =
      entry.verdict == Verdict::kUnknown || (entry.verdict == Verdict::kBad && now > entry.deadline && !has_queue_);
  if (!due || running_ >= at_once_) return;
  ++running_;
  if (entry.errors >= 0) ::close(entry.errors);
  entry.errors = ::memfd_create("convoy-probe", MFD_CLOEXEC);
  const int errors = entry.errors >= 0 ? entry.errors : silence_;
  entry.probe = std::make_unique<ChildProcess>(probe_(name), ChildProcess::Options{{}, silence_, errors});
  entry.deadline = now + kProbeLimit;
}

int HostHealth::probes() const {
  return static_cast<int>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) { return entry.second.probe != nullptr; }));
}

void HostHealth::finish(const std::string& name, Entry& entry, const std::string& problem) {
  entry.probe.reset();
  --running_;
  if (problem.empty()) {
    if (entry.verdict == Verdict::kBad) news_[" can be used again"].insert(name);
    entry.verdict = Verdict::kGood;
    entry.failures = 0;
    entry.has_worked = true;
    return;
  }
  const int pause = leave_out(entry, entry.failures++);
  entry.problem = problem;
  news_[fmt::format(": nothing can be started there ({}); left out for {} s", problem, pause)].insert(name);
}

int HostHealth::leave_out(Entry& entry, int times) {
  const int pause = std::min(kLongestPause, kFirstPause << std::min(times, 6));
  entry.verdict = Verdict::kBad;
  entry.deadline = Clock::now() + std::chrono::seconds(pause);
  return pause;
}

void HostHealth::blame(const std::string& host, const HostList& listed, bool trained) {
  const auto is_named = [&](const Host& h) {
    return h.name == host || host.starts_with(h.name + ".") || h.name.starts_with(host + ".") ||
           (is_this_host(h.name) && is_this_host(host));
  };
  const auto named = std::find_if(listed.begin(), listed.end(), is_named);
  if (named == listed.end() || std::all_of(listed.begin(), listed.end(), is_named)) return;
  Entry& entry = entries_[named->name];
  if (trained) entry.faults = 0;
  const int pause = leave_out(entry, entry.faults++);
  journal_.write(fmt::format("host {}: its system failed; left out for {} s", named->name, pause));
}

std::string HostHealth::hopeless(const HostList& listed) const {
  std::string first;
  for (const Host& host : listed) {
    const auto found = entries_.find(host.name);
    if (found == entries_.end() || found->second.has_worked || found->second.failures < kHopelessFailures) return "";
    if (first.empty()) first = fmt::format("{}: {}", host.name, found->second.problem);
  }
  return first;
}

bool HostHealth::busy(const HostList& listed) const {
  return std::any_of(listed.begin(), listed.end(), [&](const Host& host) {
    const auto entry = entries_.find(host.name);
    return entry != entries_.end() && entry->second.verdict == Verdict::kUnknown;
  });
}

bool HostHealth::queueing(const HostList& listed) const {
  return std::any_of(listed.begin(), listed.end(), [&](const Host& host) {
    const auto entry = entries_.find(host.name);
    return entry != entries_.end() && entry->second.verdict == Verdict::kUnknown && entry->second.probe == nullptr;
  });
}

void HostHealth::doubt() {
  for (auto& [name, entry] : entries_) {
    if (entry.verdict == Verdict::kGood) entry.verdict = Verdict::kUnknown;
  }
}

}  // namespace convoy
