// SPDX-License-Identifier: Apache-2.0
#include "app/train/broken_report.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "io/data/broken_files.h"
#include "layers/base/error.h"
#include "parallel/comm/host_exchange.h"

namespace convoy {

double broken_news(const Dataset& data) { return data.broken() != nullptr && data.broken()->has_news() ? 1.0 : 0.0; }

namespace {

using Json = nlohmann::json;

// Names of files may be anything but UTF-8.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

using Found = std::map<std::int64_t, std::string>;

// Of lists of [index, text] each index once, with the first text.
Found found_in(const std::string& list, Found found = {}) {
  for (const Json& one : Json::parse(list)) found.emplace(one[0].get<std::int64_t>(), one[1].get<std::string>());
  return found;
}

std::string merge_found(const std::string& lower, const std::string& higher) {
  return dump(Json(found_in(higher, found_in(lower))));
}

}  // namespace

std::vector<std::string> share_broken(Communicator& all, const Dataset& data) {
  Json own = Json::array();
  for (const auto& found : data.broken()->take()) own.push_back({found.index, found.text});
  const std::string all_found = reduce_texts(all, dump(own), merge_found, "broken files");
  const Found met = found_in(all.broadcast(all_found, 0, "broken files"));
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
