// SPDX-License-Identifier: Apache-2.0
#include "app/launch/host_list.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <numeric>
#include <sstream>
#include <system_error>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr int kMaxSlots = 65536;

int parse_count(const std::string& text, const std::string& place, const std::string& key) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 1 || value > kMaxSlots) {
    fail_usage("{}: {}={} is no number of slots (a whole number from 1 to {})", place, key, text, kMaxSlots);
  }
  return value;
}

bool is_host_name(const std::string& name) {
  const auto good = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_'; };
  return !name.empty() && name.size() < 256 && name.front() != '-' && std::all_of(name.begin(), name.end(), good);
}

// mpirun allows blanks around "=".
std::vector<std::string> words_of(std::string line) {
  line.erase(std::find(line.begin(), line.end(), '#'), line.end());
  std::string joined;
  for (const char c : line) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (blank && (joined.empty() || joined.back() == ' ' || joined.back() == '=')) continue;
    if (c == '=' && !joined.empty() && joined.back() == ' ') joined.pop_back();
    joined += blank ? ' ' : c;
  }
  std::istringstream stream(joined);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Host parse_line(const std::vector<std::string>& words, const std::string& place) {
  Host host{words.front(), 0};
  if (!is_host_name(host.name)) {
    fail_usage("{}: \"{}\" is no host name (write lines like `node1 slots=4`)", place, host.name);
  }
  int most = kMaxSlots;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string key = words[i].substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : words[i].substr(equals + 1);
    if (key == "slots") {
      host.slots = parse_count(value, place, key);
    } else if (key == "max_slots" || key == "max-slots") {
      most = parse_count(value, place, key);
    } else {
      fail_usage("{}: unknown word \"{}\" (write lines like `node1 slots=4`)", place, words[i]);
    }
  }
  if (host.slots > most) fail_usage("{}: {} slots, but max_slots={} (make them agree)", place, host.slots, most);
  if (host.slots == 0) host.slots = 1;
  return host;
}

}  // namespace

HostList parse_hosts(std::string_view text, const std::string& place) {
  HostList hosts;
  std::istringstream stream{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    const Host host = parse_line(words, fmt::format("{}:{}", place, number));
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.name == host.name; });
    if (known == hosts.end()) {
      hosts.push_back(host);
    } else {
      known->slots = std::min(known->slots + host.slots, kMaxSlots);
    }
  }
  return hosts;
}

std::string join_hosts(const HostList& hosts) {
  std::string words;
  for (const Host& host : hosts) words += fmt::format("{}{}:{}", words.empty() ? "" : ",", host.name, host.slots);
  return words;
}

namespace {

// "n007.cluster" is "n", "007" and ".cluster"; without a number all of it is the first.
struct NumberedName {
  std::string stem, digits, rest;

  explicit NumberedName(const std::string& name) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    std::size_t begin = dot;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0 && dot - begin < 9) --begin;
    stem = name.substr(0, begin);
    digits = name.substr(begin, dot - begin);
    rest = name.substr(dot);
  }
  // Whether `next` has the number after this one, written alike.
  [[nodiscard]] bool precedes(const NumberedName& next) const {
    if (digits.empty() || next.digits.empty() || stem != next.stem || rest != next.rest) return false;
    return fmt::format("{:0{}}", std::stol(digits) + 1, digits.front() == '0' ? digits.size() : 1) == next.digits;
  }
};

}  // namespace

std::string describe_hosts(const HostList& hosts) {
  constexpr std::size_t kMinRun = 3;
  std::string words;
  for (std::size_t first = 0; first < hosts.size();) {
    const NumberedName name(hosts[first].name);
    NumberedName last = name;
    std::size_t end = first + 1;
    for (; end < hosts.size() && hosts[end].slots == hosts[first].slots; ++end) {
      const NumberedName next(hosts[end].name);
      if (!last.precedes(next)) break;
      last = next;
    }
    const bool run = end - first >= kMinRun;
    if (!words.empty()) words += ' ';
    words += run ? fmt::format("{}[{}-{}]{}", name.stem, name.digits, last.digits, name.rest) : hosts[first].name;
    if (hosts[first].slots > 0) words += fmt::format(":{}", hosts[first].slots);
    first = run ? end : first + 1;
  }
  return words.empty() ? "none" : words;
}

int count_slots(const HostList& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const Host& host) { return sum + host.slots; });
}

}  // namespace convoy
