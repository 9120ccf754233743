// SPDX-License-Identifier: Apache-2.0
#include "io/data/shards.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "io/hdf5/hdf5_source.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";
constexpr std::size_t kListed = 5;

/// STEM-iiiii-of-NNNNN.EXTENSION taken apart.
struct ShardName {
  std::string stem, extension;
  int index = 0, count = 0;
};

std::optional<int> number_at(std::string_view text, std::size_t at) {
  const std::string_view digits = text.substr(std::min(at, text.size()), kDigits);
  const bool plain = std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (digits.size() != kDigits || !plain) return {};
  int value = 0;
  std::from_chars(digits.data(), digits.data() + kDigits, value);
  return value;
}

std::optional<ShardName> parse_shard(const std::string& name) {
  const std::size_t of = name.rfind(kOf);
  if (of == std::string::npos || of < kDigits + 1 || name[of - kDigits - 1] != '-') return {};
  const auto index = number_at(name, of - kDigits), count = number_at(name, of + kOf.size());
  const std::size_t end = of + kOf.size() + kDigits;
  if (!index || !count || *index >= *count || (end < name.size() && name[end] != '.')) return {};
  return ShardName{name.substr(0, of - kDigits - 1), name.substr(end), *index, *count};
}

// '*' is any number of characters.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, star = std::string_view::npos, retry = 0, i = 0;
  while (i < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      retry = i;
    } else if (at < pattern.size() && pattern[at] == name[i]) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

/// Names in the folder of `path`, sorted; none when it cannot be listed.
std::vector<std::string> neighbours(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string beside(const std::string& path, const std::string& name) {
  return (fs::path(path).parent_path() / name).string();
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

std::string shard_name(const ShardName& shard) {
  return fmt::format("{}-{:05}-of-{:05}{}", shard.stem, shard.index, shard.count, shard.extension);
}

// Every one is of the same packing as the first.
void check_alike(const std::string& pattern, const std::vector<std::string>& paths) {
  const auto first = parse_shard(file_name(paths.front()));
  for (const std::string& path : paths) {
    const std::string name = file_name(path);
    const auto shard = parse_shard(name);
    if (!shard) {
      fail_usage("{}: {} matches, but is no shard (their names end like -00000-of-00004.h5; move it away)", pattern,
                 name);
    }
    if (first->stem != shard->stem || first->extension != shard->extension || first->count != shard->count) {
      fail_usage("{}: {} and {} are of different packings (name one: {})", pattern, file_name(paths.front()), name,
                 fmt::format("{}-*-of-{:05}{}", shard->stem, shard->count, shard->extension));
    }
  }
}

}  // namespace

std::string shard_path(const std::string& output, int index, int count) {
  const fs::path path(output);
  return beside(output, shard_name({path.stem().string(), path.extension().string(), index, count}));
}

std::string shard_pattern(const std::string& output, int count) {
  const fs::path path(output);
  return beside(output, fmt::format("{}-*-of-{:05}{}", path.stem().string(), count, path.extension().string()));
}

std::vector<std::string> shards_there(const std::string& output, const std::string& ending) {
  const fs::path path(output);
  std::vector<std::string> found;
  for (const std::string& name : neighbours(output)) {
    const auto shard = parse_shard(name);
    const bool own = shard && shard->stem == path.stem() && shard->extension == path.extension().string() + ending;
    if (own) found.push_back(beside(output, name));
  }
  return found;
}

bool is_shard_pattern(const std::string& path) {
  std::error_code ignored;
  return file_name(path).find('*') != std::string::npos && !fs::exists(path, ignored);
}

std::vector<std::string> matching_shards(const std::string& pattern) {
  std::vector<std::string> paths;
  if (!is_shard_pattern(pattern)) return paths;
  for (const std::string& name : neighbours(pattern)) {
    if (matches(file_name(pattern), name)) paths.push_back(beside(pattern, name));
  }
  return paths;
}

std::vector<std::string> find_shards(const std::string& pattern) {
  std::vector<std::string> paths = matching_shards(pattern);
  if (paths.empty()) fail_usage("{}: no file matches", pattern);
  check_alike(pattern, paths);
  ShardName shard = *parse_shard(file_name(paths.front()));
  const std::size_t lacking = static_cast<std::size_t>(shard.count) - paths.size();
  if (lacking == 0) return paths;
  std::vector<std::string> missing;
  for (shard.index = 0; shard.index < shard.count && missing.size() < kListed; ++shard.index) {
    const std::string name = shard_name(shard);
    if (!std::binary_search(paths.begin(), paths.end(), beside(pattern, name))) missing.push_back(name);
  }
  fail_usage("{}: {} of the {} shards are missing: {}{} (copy the whole set, or pack it again)", pattern, lacking,
             shard.count, fmt::join(missing, ", "), lacking > missing.size() ? ", ..." : "");
}

std::vector<std::string> shard_sources(const std::string& source) {
  const Hdf5Source place(source);
  if (!is_shard_pattern(place.path)) return {source};
  std::vector<std::string> sources = find_shards(place.path);
  for (std::string& path : sources) {
    if (!place.group.empty()) path += ":" + place.group;
  }
  return sources;
}

}  // namespace convoy
