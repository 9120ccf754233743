// SPDX-License-Identifier: Apache-2.0
//
// Files of results: what is no plain file stays what it is, and what a command reads is not replaced.
#include <doctest/doctest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "app/commands/write_result.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kText = "result\n";

void write(const std::string& path) { write_result("--json", path, std::as_bytes(std::span(kText))); }

}  // namespace

TEST_CASE("a link is followed, also to a file that is not there yet; a pipe is written into") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "there");
  fs::create_symlink("there/target", folder / "link");
  fs::create_symlink("link", folder / "second");
  for (int round = 0; round < 2; ++round) {
    write(folder / "second");
    CHECK(fs::is_symlink(folder / "second"));
    CHECK(fs::is_symlink(folder / "link"));
    CHECK(file_text(folder / "there/target") == kText);
  }
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  std::string received;
  std::thread reader([&] { received = file_text(folder / "pipe").value_or(""); });
  write(folder / "pipe");
  reader.join();
  CHECK(received == kText);
  CHECK(fs::is_fifo(folder / "pipe"));
  fs::create_symlink("loop", folder / "loop");
  ExitCode code{};
  CHECK(contains(error_of([&] { write(folder / "loop"); }, &code), "--json: cannot write"));
  CHECK(code == ExitCode::kUsage);
  CHECK(contains(error_of([&] { write(folder / "gone/file"); }, &code), "No such file or directory"));
  CHECK(code == ExitCode::kUsage);
}

TEST_CASE("what a command reads is not replaced, and two results are two files") {
  const TemporaryFolder folder;
  write_text(folder / "config.toml", "x");
  fs::create_directory(folder / "checkpoints");
  write_text(folder / "checkpoints/step.h5", "x");
  write_text(folder / "old.json", "x");
  fs::create_symlink("config.toml", folder / "link");
  const auto problem = [&](const std::string& json, const std::string& out) {
    ExitCode code = ExitCode::kUsage;
    const std::string text = error_of(
        [&] {
          check_results({{"--json", json}, {"--out", out}}, files_of_run(folder.path()));
        },
        &code);
    CHECK(code == ExitCode::kUsage);
    return text;
  };
  CHECK(problem(folder / "old.json", "").empty());
  CHECK(problem(folder / "old.json", folder / "new.json").empty());
  CHECK(problem("/dev/null", "/dev/null").empty());
  CHECK(problem(folder / "config.toml", "") ==
        "--json: " + folder / "config.toml is read by this command, and would be replaced (name another file)");
  CHECK(contains(problem(folder / "link", ""), "--json: "));
  CHECK(contains(problem("", folder / "checkpoints/step.h5"), "--out: "));
  CHECK(contains(problem(folder / "new", folder.path() + "/checkpoints/../new"), "--json and --out both name"));
}
