// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/cuda/plan_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace convoy {

namespace {

constexpr std::string_view kWord = "plan";

bool is_empty(const std::string& text) { return text.empty(); }

// The convolution and the plan of a line.
std::optional<std::pair<std::string, std::string>> entry_of(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> fields;
  for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
  const bool whole = fields.size() == 4 && fields[0] == kWord && std::none_of(fields.begin(), fields.end(), is_empty);
  return whole ? std::optional(std::pair{fields[1], fields[2]}) : std::nullopt;
}

}  // namespace

PlanFile::PlanFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // without its end: still being written
    if (auto entry = entry_of(line)) plans_[entry->first] = entry->second;
  }
}

const std::string* PlanFile::find(const std::string& convolution) const {
  const auto found = plans_.find(convolution);
  return found == plans_.end() ? nullptr : &found->second;
}

void PlanFile::add(const std::string& convolution, const std::string& plan, double milliseconds) {
  plans_[convolution] = plan;
  if (path_.empty()) return;
  const std::string line = fmt::format("{}\t{}\t{}\t{:.5f}\n", kWord, convolution, plan, milliseconds);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::exists(folder, ignored)) {
    std::filesystem::create_directories(folder, ignored);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
  }
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (file < 0) return;
  static_cast<void>(::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  ::close(file);
}

std::string plan_file_name(const std::string& gpu, int multiprocessors, std::size_t cudnn_version) {
  std::string name = gpu;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return fmt::format("cudnn-{}-{}-{}.txt", cudnn_version, name, multiprocessors);
}

}  // namespace convoy
