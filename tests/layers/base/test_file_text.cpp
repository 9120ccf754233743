// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>

#include "layers/base/file_text.h"
#include "layers/base/process_state.h"

using namespace convoy;

TEST_CASE("a file's text, or why there is none") {
  std::string path = (std::filesystem::temp_directory_path() / "convoy-text-XXXXXX").string();
  close(mkstemp(path.data()));
  for (const std::size_t size : {0, 1, 65535, 65536, 65537, 300000}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(i);
    std::ofstream(path, std::ios::binary) << text;
    CHECK(file_text(path) == text);
  }
  std::filesystem::remove(path);
  CHECK(!file_text(path));
  CHECK(errno == ENOENT);
  CHECK(!file_text("/proc"));
  CHECK(errno == EISDIR);
  CHECK(file_text("/proc/self/stat").value_or("").find(')') != std::string::npos);  // of no size, says stat()
}

TEST_CASE("a process that ends while it is being looked at is gone, never an exception") {
  const std::uint64_t space = own_process().namespace_;
  for (int i = 0; i < 300; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    ProcessState state = ProcessState::kRunning;
    const std::uint64_t start =
        parse_process_stat(file_text("/proc/" + std::to_string(child) + "/stat").value_or("")).start;
    while (start != 0 && state != ProcessState::kGone) state = process_state({child, start, space});
    waitpid(child, nullptr, 0);
    CHECK(process_state({child, start == 0 ? 1 : start, space}) == ProcessState::kGone);
  }
}
