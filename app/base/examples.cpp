// SPDX-License-Identifier: Apache-2.0
#include "app/base/examples.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "layers/base/did_you_mean.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMachines = "machines";
constexpr std::string_view kSuffix = ".toml";

}  // namespace

std::string examples_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  // CONVOY_DATA_FROM_BIN: from the folder of programs to that of data, as installed ("../share/convoy").
  for (const fs::path& folder :
       {program.parent_path() / "configs", program.parent_path() / CONVOY_DATA_FROM_BIN / "configs"}) {
    if (fs::is_directory(folder, error)) return folder.lexically_normal().string();
  }
  return "";
}

std::vector<std::string> example_names(const std::string& folder, ExampleKind kind) {
  std::vector<std::string> names;
  const fs::path root = kind == ExampleKind::kMachine ? fs::path(folder) / kMachines : fs::path(folder);
  std::error_code error;
  for (fs::recursive_directory_iterator at(root, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error)) {
    const fs::path path = at->path().lexically_relative(root);
    if (path.extension() != kSuffix || (kind == ExampleKind::kConfig && *path.begin() == kMachines)) continue;
    names.push_back(fs::path(path).replace_extension().generic_string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string find_example(const std::string& named, ExampleKind kind, const std::string& folder) {
  std::error_code ignored;
  const bool path = named.empty() || named.front() == '/' || named.find('.') != std::string::npos;
  if (path || fs::exists(named, ignored)) return named;
  const std::vector<std::string> names = folder.empty() ? std::vector<std::string>() : example_names(folder, kind);
  if (std::find(names.begin(), names.end(), named) != names.end()) {
    const fs::path root = kind == ExampleKind::kMachine ? fs::path(folder) / kMachines : fs::path(folder);
    return (root / (named + std::string(kSuffix))).string();
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = did_you_mean(named, views);
  const std::string remedy = !near.empty()   ? fmt::format("did you mean \"{}\"?", near)
                             : names.empty() ? "name a TOML file"
                                             : "the examples: " + join(views);
  fail_usage("{}: there is no such file, and no example {} of that name ({})", named,
             kind == ExampleKind::kMachine ? "machine" : "config", remedy);
}

}  // namespace convoy
