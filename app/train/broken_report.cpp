// SPDX-License-Identifier: Apache-2.0
#include "app/train/broken_report.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "io/data/broken_files.h"
#include "layers/base/error.h"

namespace convoy {

double broken_news(const Dataset& data) { return data.broken() != nullptr && data.broken()->has_news() ? 1.0 : 0.0; }

std::vector<std::string> share_broken(Communicator& all, const Dataset& data) {
  using Json = nlohmann::json;
  Json own = Json::array();
  for (const auto& found : data.broken()->take()) own.push_back({found.index, found.text});
  // Names of files may be anything but UTF-8.
  const std::string text = own.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::map<std::int64_t, std::string> met;
  for (const std::string& of_rank : all.all_gather(text, "broken files")) {
    for (const Json& found : Json::parse(of_rank))
      met.emplace(found[0].get<std::int64_t>(), found[1].get<std::string>());
  }
  std::vector<BrokenFiles::Found> merged;
  std::vector<std::string> lines;
  merged.reserve(met.size());
  lines.reserve(met.size());
  for (const auto& [index, words] : met) {
    merged.push_back({index, words});
    lines.push_back(index == BrokenFiles::kRemark ? words : fmt::format("{}: {}", data.broken()->remark(), words));
  }
  try {
    data.broken()->merge(merged);
  } catch (Error& error) {
    error.set_collective();
    throw;
  }
  return lines;
}

}  // namespace convoy
