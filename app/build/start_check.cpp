// SPDX-License-Identifier: Apache-2.0
#include "app/build/start_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "app/base/version.h"
#include "app/build/build_backend.h"
#include "io/files/crc32c.h"
#include "layers/backend/onednn/cpu_rules.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "layers/base/host_name.h"
#include "layers/base/random.h"
#include "parallel/comm/host_exchange.h"

namespace convoy {

namespace {

// One thing that must be the same everywhere.
struct Fact {
  const char* name;    // "config"
  std::string value;   // "net.toml (4a7d1ed4)"; empty: this rank cannot say
  const char* remedy;  // the second line of the message
};

// "rank 2 on n2" or "ranks 2, 3 and 14 others"
std::string name_ranks(const std::vector<int>& odd, const std::vector<std::string>& hosts) {
  const auto host = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  if (odd.size() == 1) return fmt::format("rank {} ({}) has", odd[0], host(odd[0]));
  if (odd.size() == 2) return fmt::format("ranks {} ({}) and {} ({}) have", odd[0], host(odd[0]), odd[1], host(odd[1]));
  return fmt::format("ranks {} ({}), {} ({}) and {} others have", odd[0], host(odd[0]), odd[1], host(odd[1]),
                     odd.size() - 2);
}

// Whether each fact has one value on all ranks that can say it.
bool all_alike(Communicator& communicator, const std::vector<Fact>& facts) {
  std::vector<double> digests;
  digests.reserve(facts.size());
  for (const Fact& fact : facts) {
    digests.push_back(fact.value.empty() ? kNoNumber : digest_number(random_key(0, fact.value)));
  }
  return all_equal(communicator, digests, "start-up check");
}

void check_same(Communicator& communicator, const std::vector<Fact>& facts) {
  if (communicator.size() == 1 || all_alike(communicator, facts)) return;
  const std::vector<std::string> hosts = communicator.all_gather(host_name(), "start-up check");
  for (const Fact& fact : facts) {
    std::vector<std::string> values = communicator.all_gather(fact.value, "start-up check");
    const auto known = std::find_if(values.begin(), values.end(), [](const std::string& v) { return !v.empty(); });
    if (known == values.end()) continue;
    const std::string first = *known;
    std::replace(values.begin(), values.end(), std::string(), first);
    const std::vector<int> odd = odd_ones_out(values);
    if (odd.empty()) continue;
    const auto usual = std::find_if(values.begin(), values.end(), [&](const std::string& value) {
      return value != values[static_cast<std::size_t>(odd[0])];
    });
    Error error(fmt::format("{} another {} than the rest: {}, not {}\n{}", name_ranks(odd, hosts), fact.name,
                            values[static_cast<std::size_t>(odd[0])], *usual, fact.remedy),
                ExitCode::kUsage);
    error.set_collective();
    throw error;
  }
}

// Its name and a checksum of what is in it; empty when it cannot be read.
std::string fingerprint(const std::string& path) {
  const auto text = file_text(path);
  return text ? fmt::format("{} ({:08x})", path, crc32c(*text)) : "";
}

}  // namespace

std::vector<int> odd_ones_out(const std::vector<std::string>& texts) {
  std::map<std::string, int> counts;
  for (const std::string& text : texts) ++counts[text];
  const std::string* usual = &texts.front();
  for (const auto& [text, count] : counts) {
    if (count > counts[*usual]) usual = &text;
  }
  std::vector<int> odd;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank] != *usual) odd.push_back(static_cast<int>(rank));
  }
  return odd;
}

void check_same_command(Communicator& communicator, const std::string& path,
                        const std::vector<std::string>& overrides) {
  std::string sets = "none";
  if (!overrides.empty()) sets = fmt::format("--set {}", fmt::join(overrides, " --set "));
  // By itself: of the exchanges that follow other versions may have others.
  check_same(communicator, {{"version of convoy", program_version(), "start the same program on every node"}});
  check_same(communicator, {{"config", fingerprint(path), "start every rank with the same file"},
                            {"set of overrides", sets, "start every rank with the same command line"}});
}

void check_same_run(const Run& run) {
  std::string cuts;
  for (const UnitRange& range : run.layout.partition) {
    cuts += fmt::format("{}{}", cuts.empty() ? "" : ", ",
                        run.model->units()[static_cast<std::size_t>(range.first)].input.str());
  }
  check_same(
      *run.communicator,
      {{"device", compute_library(run.device), "run on the same kind of device everywhere (device.kind says which)"},
       {"kind of CPU", std::string(run.device.on_gpu() ? "" : this_cpu().name),
        "run on CPUs of one kind: gradients lie in memory in the order that is fastest there"},
       {"model", fmt::format("{} parameters cut at {}", run.model->parameter_count(), cuts),
        "start the same program on the same data everywhere"}});
}

}  // namespace convoy
