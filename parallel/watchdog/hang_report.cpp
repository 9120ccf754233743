// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog/hang_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace convoy {

namespace {

constexpr std::size_t kMaxLines = 8;

// Why a rank does not continue, the most specific reason first: the remedy is that of the first one found.
enum class Cause { kStopped, kGone, kTraced, kSilent, kBlocked, kBusy, kWaits };

Cause cause_of(const RankStatus& rank) {
  if (!rank.heard) return Cause::kSilent;
  switch (rank.state) {
    case ProcessState::kStopped: return Cause::kStopped;
    case ProcessState::kGone: return Cause::kGone;
    case ProcessState::kTraced: return Cause::kTraced;
    default: break;
  }
  if (rank.note.state == RankState::kWaiting) return Cause::kWaits;
  return rank.state == ProcessState::kBlocked ? Cause::kBlocked : Cause::kBusy;
}

// Words about one rank, or about several in the same state.
const char* pick(bool one, const char* singular, const char* plural) { return one ? singular : plural; }

// `ago`: the age of the note, "31.2 s".
std::string last_act(const RankStatus& rank, const std::string& ago, bool one) {
  switch (rank.note.state) {
    case RankState::kNothing:
      return pick(one, "it has taken part in nothing yet", "they have taken part in nothing yet");
    case RankState::kStarted: return fmt::format("last: started {}, {} ago", rank.note.to_string(), ago);
    case RankState::kWaiting: return fmt::format("last: waiting in {}, for {}", rank.note.to_string(), ago);
    case RankState::kFinished: return fmt::format("last: finished {}, {} ago", rank.note.to_string(), ago);
    case RankState::kWorking: return fmt::format("last: {}, since {}", rank.note.to_string(), ago);
  }
  return "";
}

std::string condition(const RankStatus& rank, bool one) {
  switch (cause_of(rank)) {
    case Cause::kStopped: return pick(one, "it is stopped (SIGSTOP); ", "they are stopped (SIGSTOP); ");
    case Cause::kGone: return pick(one, "its process is gone; ", "their processes are gone; ");
    case Cause::kTraced: return pick(one, "a debugger holds it; ", "debuggers hold them; ");
    case Cause::kBlocked:
      return pick(one, "it hangs in the kernel (a disk or a network file system); ",
                  "they hang in the kernel (a disk or a network file system); ");
    case Cause::kBusy:
      return rank.state == ProcessState::kRunning    ? pick(one, "it is running; ", "they are running; ")
             : rank.state == ProcessState::kSleeping ? pick(one, "it sleeps; ", "they sleep; ")
                                                     : "";
    case Cause::kSilent:
    case Cause::kWaits: return "";
  }
  return "";
}

// `own_host`: of the rank that reports.
std::string remedy(Cause cause, const RankStatus& rank, const std::string& own_host) {
  switch (cause) {
    case Cause::kStopped:
      return fmt::format(
          "What stopped it (kill -STOP, Ctrl-Z, a debugger, a scheduler that suspends) must stop all ranks or none: "
          "`kill -CONT {}` on {} within parallel.timeout would have let the run continue. Start it again",
          rank.pid, rank.host);
    case Cause::kGone:
      return fmt::format(
          "Look for its last words in the output, and for the out-of-memory killer with `dmesg -T | grep -i kill` on "
          "{}; parallel.timeout does not matter here",
          rank.host);
    case Cause::kTraced: return "Continue in the debugger, or raise parallel.timeout while debugging";
    case Cause::kSilent:
      if (rank.host == own_host) {
        return fmt::format(
            "Ranks that only compute do not answer: if they are only slow, raise parallel.timeout; in a run with a "
            "longer one, `ps -C convoy -o pid,stat,wchan` on {} shows what they do",
            rank.host);
      }
      return fmt::format(
          "See whether {} is up and reachable (`ping {}`); ranks that only compute do not answer either: if they are "
          "only slow, raise parallel.timeout",
          rank.host, rank.host);
    case Cause::kBlocked:
      return fmt::format(
          "See what ails the storage with `dmesg -T | tail` on {}; if it is only slow, raise parallel.timeout",
          rank.host);
    case Cause::kBusy:
      return fmt::format(
          "If it is only slow, raise parallel.timeout; if it hangs, `gdb -p PID` on {} shows where, in a run with a "
          "longer timeout",
          rank.host);
    case Cause::kWaits:
      return "The ranks wait for each other. If their last operations differ, they do not run the same program or "
             "config; else a message was lost: check the network, then raise parallel.timeout";
  }
  return "";
}

// "world ranks 2, 3, 8-63 and 3 more", ascending.
std::string world_ranks(std::vector<const RankStatus*> ranks) {
  std::sort(ranks.begin(), ranks.end(),
            [](const RankStatus* a, const RankStatus* b) { return a->world_rank < b->world_rank; });
  std::vector<std::string> parts;
  std::size_t named = 0;
  while (named < ranks.size() && parts.size() < kMaxLines) {
    std::size_t end = named + 1;
    while (end < ranks.size() && ranks[end]->world_rank == ranks[end - 1]->world_rank + 1) ++end;
    if (end - named > 2) {
      parts.push_back(fmt::format("{}-{}", ranks[named]->world_rank, ranks[end - 1]->world_rank));
      named = end;
    } else {
      parts.push_back(fmt::format("{}", ranks[named++]->world_rank));
    }
  }
  std::string text = ranks.size() == 1 ? "world rank " : "world ranks ";
  text += fmt::format("{}", fmt::join(parts, ", "));
  if (named < ranks.size()) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

// "n1", "n1, n2 and n3", "n1, n2, n3 and 13 other hosts", in the order of the ranks.
std::string hosts_of(const std::vector<const RankStatus*>& ranks) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> hosts;
  for (const RankStatus* rank : ranks) {
    if (std::find(hosts.begin(), hosts.end(), rank->host) == hosts.end()) hosts.push_back(rank->host);
  }
  const auto first = [&](std::size_t count) {
    return fmt::join(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(count), ", ");
  };
  if (hosts.size() == 1) return hosts.front();
  if (hosts.size() <= kNamed) return fmt::format("{} and {}", first(hosts.size() - 1), hosts.back());
  return fmt::format("{} and {} other hosts", first(kNamed), hosts.size() - kNamed);
}

// Collects lines about ranks and the cause that the remedy is for. Ranks of a silent host are one line; so are ranks in
// the same state, when there would be many lines.
class Lines {
 public:
  explicit Lines(std::string own_host) : own_host_(std::move(own_host)) {}

  void add(const RankStatus& rank, bool missing) {
    if (!listed_.insert(rank.world_rank).second) return;
    const Cause cause = cause_of(rank);
    if (!first_ || cause < *first_) {
      first_ = cause;
      first_rank_ = rank;
    }
    if (cause == Cause::kSilent) {
      silent_[rank.host].push_back(&rank);
    } else {
      told_.push_back({&rank, missing});
    }
  }

  /// Whether one of them is the cause by itself: it does not merely wait for others.
  [[nodiscard]] bool explain() const { return first_ && *first_ != Cause::kWaits; }

  [[nodiscard]] std::string text() const {
    std::vector<std::string> all;
    for (const auto& [host, ranks] : silent_) {
      const char* down = host == own_host_ ? "" : "the host is down, or ";
      all.push_back(fmt::format("\n  {} ({}): no word from {} at all ({}its ranks are stopped, hang or compute)",
                                world_ranks(ranks), host, host == own_host_ ? "there" : host, down));
    }
    const bool many = all.size() + told_.size() > kMaxLines;
    std::map<std::string, std::size_t> places;  // of groups, by their state
    std::vector<Group> groups;
    for (const auto& [rank, missing] : told_) {
      const std::string state = fmt::format("{} {} {}", missing, condition(*rank, true), last_act(*rank, "", true));
      const auto [place, fresh] = places.try_emplace(state, groups.size());
      if (!many || fresh) {
        groups.push_back({{rank}, missing});
      } else {
        groups[place->second].ranks.push_back(rank);
      }
    }
    for (const Group& group : groups) all.push_back(group.line());
    std::string text;
    for (std::size_t i = 0; i < std::min(all.size(), kMaxLines); ++i) text += all[i];
    if (all.size() > kMaxLines) text += fmt::format("\n  and {} more", all.size() - kMaxLines);
    return text;
  }

  [[nodiscard]] std::string what_to_do() const {
    return remedy(first_.value_or(Cause::kWaits), first_rank_, own_host_);
  }

 private:
  struct Told {
    const RankStatus* rank;
    bool missing;
  };
  // Ranks in the same state.
  struct Group {
    std::vector<const RankStatus*> ranks;
    bool missing;

    [[nodiscard]] std::string line() const {
      const RankStatus& first = *ranks.front();
      const bool one = ranks.size() == 1;
      const auto [youngest, oldest] = std::minmax_element(
          ranks.begin(), ranks.end(), [](const RankStatus* a, const RankStatus* b) { return a->age < b->age; });
      const std::string least = fmt::format("{:.1f}", (*youngest)->age), most = fmt::format("{:.1f}", (*oldest)->age);
      const std::string ago = least == most ? least + " s" : fmt::format("{} to {} s", least, most);
      const std::string where =
          one ? fmt::format("{}, pid {}", first.host, first.pid)
              : fmt::format("{}; for example pid {} on {}", hosts_of(ranks), first.pid, first.host);
      return fmt::format("\n  {} ({}){} {}{}", world_ranks(ranks), where,
                         missing ? pick(one, " has not come:", " have not come:") : ":", condition(first, one),
                         last_act(first, ago, one));
    }
  };

  std::string own_host_;
  std::set<int> listed_;
  std::vector<Told> told_;
  std::map<std::string, std::vector<const RankStatus*>> silent_;
  std::optional<Cause> first_;
  RankStatus first_rank_;
};

}  // namespace

std::string hang_report(const LateOperation& operation, const std::vector<RankStatus>& ranks, int world_rank) {
  const RankStatus& own = ranks[static_cast<std::size_t>(world_rank)];
  const auto others = [&](const auto& each) {
    for (const RankStatus& rank : ranks) {
      if (rank.world_rank != world_rank) each(rank);
    }
  };

  std::vector<const RankStatus*> missing;
  std::size_t came = 0;
  for (const int member : operation.members) {
    if (member == world_rank) continue;
    const RankStatus& rank = ranks[static_cast<std::size_t>(member)];
    if (operation.collective > 0) {
      const bool here = rank.heard && rank.count >= static_cast<std::int64_t>(operation.collective);
      came += here ? 1 : 0;
      if (!here) missing.push_back(&rank);
    } else if (member == operation.peer) {
      missing.push_back(&rank);
    }
  }
  // The telling ones first, so that they are not among those that are only counted.
  std::stable_sort(missing.begin(), missing.end(),
                   [](const RankStatus* a, const RankStatus* b) { return cause_of(*a) < cause_of(*b); });

  Lines lines(own.host);
  for (const RankStatus* rank : missing) lines.add(*rank, true);
  // Those that have not come may wait for others in turn, and one that came may have been stopped since.
  others([&](const RankStatus& rank) {
    if (cause_of(rank) <= Cause::kTraced) lines.add(rank, false);
  });
  if (!lines.explain()) {
    others([&](const RankStatus& rank) {
      if (cause_of(rank) != Cause::kWaits) lines.add(rank, false);
    });
  }

  std::string text = fmt::format("{} timed out: world rank {} ({}) waited {:g} s for it", operation.label, world_rank,
                                 own.host, operation.waited);
  text += lines.text();
  if (operation.collective > 0 && missing.empty()) {
    text += "\nAll its ranks have come.";
  } else if (came > 0) {
    text += fmt::format("\n{} other {} come.", came, came == 1 ? "rank has" : "ranks have");
  }
  return text + "\n" + lines.what_to_do();
}

}  // namespace convoy
