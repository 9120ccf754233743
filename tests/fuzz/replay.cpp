// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target over the files of a folder, as an ordinary test: replay_NAME FOLDER. A finding ends the program,
// as it ends libFuzzer. Relies on nothing of libFuzzer. Invariant: a folder without files is a failure, not a success.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz.h"

int main(int count, char** arguments) {
  LLVMFuzzerInitialize(&count, &arguments);
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(arguments[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);  // so that the last name is that of the finding
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  if (files.empty()) std::fprintf(stderr, "%s: no files\n", arguments[1]);
  return files.empty() ? 1 : 0;
}
