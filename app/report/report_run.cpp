// SPDX-License-Identifier: Apache-2.0
#include "app/report/report_run.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>

#include "app/config/config_source.h"
#include "app/config/toml_text.h"
#include "io/files/lock_file.h"
#include "layers/base/error.h"
#include "layers/base/file_status.h"
#include "layers/base/file_text.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr const char* kMetrics = "metrics.jsonl";

void flatten(const toml::node& node, const std::string& key, std::map<std::string, std::string>& values) {
  if (const auto* table = node.as_table()) {
    for (const auto& [name, value] : *table) {
      flatten(value, key.empty() ? std::string(name.str()) : fmt::format("{}.{}", key, name.str()), values);
    }
  } else if (const auto* array = node.as_array(); array != nullptr && array->is_array_of_tables()) {
    for (std::size_t i = 0; i < array->size(); ++i) flatten((*array)[i], fmt::format("{}[{}]", key, i), values);
  } else if (const auto* number = node.as_floating_point()) {
    values[key] = toml_text(number->get());  // as config.toml has it
  } else if (const auto* text = node.as_string()) {
    values[key] = toml_text(text->get());
  } else {
    values[key] = value_text(node);
  }
}

void read_config_of(ReportRun& run) {
  const std::string path = (fs::path(run.folder) / "config.toml").string();
  const auto text = file_text(path);
  if (!text) {
    run.config_problem = fmt::format("{}: {}", path, std::strerror(errno));
    return;
  }
  run.config = *text;
  try {
    run.values = flat_config(*text, path);
  } catch (const Error& error) {
    run.config_problem = error.what();
  }
}

// The last `parts` parts of a path.
std::string end_of(const fs::path& path, std::ptrdiff_t parts) {
  const auto size = std::distance(path.begin(), path.end());
  fs::path result;
  for (auto part = std::next(path.begin(), std::max<std::ptrdiff_t>(0, size - parts)); part != path.end(); ++part) {
    result /= *part;
  }
  return result.string();
}

}  // namespace

std::string metrics_path(const std::string& path) {
  const fs::file_status status = status_of(path);
  if (!fs::exists(status)) fail_usage("there is no run \"{}\" (name a run's folder, such as runs/NAME)", path);
  if (fs::is_regular_file(status)) return path;
  if (!fs::is_directory(status)) fail_usage("{} is neither a run's folder nor a file", path);
  if (fs::is_regular_file(status_in(path, kMetrics))) return (fs::path(path) / kMetrics).string();
  fail_usage("{}: no {} in it (name a run's folder, such as runs/NAME)", path, kMetrics);
}

std::map<std::string, std::string> flat_config(const std::string& text, const std::string& path) {
  const ConfigSource source(text, path, {});
  std::map<std::string, std::string> values;
  flatten(source.root(), "", values);
  return values;
}

ReportRun read_run(const std::string& path) {
  const fs::path metrics = metrics_path(path);
  const auto text = file_text(metrics.string());
  if (!text) fail_system(errno, "cannot read {}: {}", metrics.string(), std::strerror(errno));
  ReportRun run;
  run.metrics = parse_metrics(*text, metrics.string());
  std::error_code ignored;
  fs::path folder = fs::weakly_canonical(metrics, ignored).parent_path();
  run.name = folder.filename().string();
  run.folder = metrics.parent_path().empty() ? "." : metrics.parent_path().string();
  read_config_of(run);
  if (const auto csv = file_text((fs::path(run.folder) / "confusion.csv").string())) {
    try {
      run.confusion = parse_confusion(*csv);
    } catch (const Error&) {  // convoy verify says what is wrong
    }
  }
  const std::string lock = (fs::path(run.folder) / "run.lock").string();
  if (fs::exists(lock, ignored)) {
    if (const auto owner = LockAttempt(lock).look()) run.holder = owner->to_string();
  }
  return run;
}

void tell_apart(std::vector<ReportRun>& runs) {
  constexpr std::ptrdiff_t kMaxParts = 64;
  for (std::ptrdiff_t parts = 1; parts < kMaxParts; ++parts) {
    std::map<std::string, int> uses;
    for (const ReportRun& run : runs) ++uses[run.name];
    if (uses.size() == runs.size()) return;
    for (ReportRun& run : runs) {
      std::error_code ignored;
      if (uses[run.name] > 1) run.name = end_of(fs::weakly_canonical(run.folder, ignored), parts + 1);
    }
  }
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].name += fmt::format(" ({})", i + 1);  // one run, twice
}

std::vector<std::string> differing_keys(const std::vector<ReportRun>& runs) {
  std::set<std::string> keys;
  for (const ReportRun& run : runs) {
    if (!run.config_problem.empty()) continue;
    for (const auto& [key, value] : run.values) keys.insert(key);
  }
  const auto value_in = [](const ReportRun& run, const std::string& key) {
    const auto found = run.values.find(key);
    return found == run.values.end() ? std::string() : found->second;
  };
  std::vector<std::string> result;
  for (const std::string& key : keys) {
    std::set<std::string> values;
    for (const ReportRun& run : runs) {
      if (run.config_problem.empty()) values.insert(value_in(run, key));
    }
    if (values.size() > 1 && key != "run.name") result.push_back(key);
  }
  return result;
}

}  // namespace convoy
