// SPDX-License-Identifier: Apache-2.0
//
// Temporary files in a folder where somebody has put links under the names that are known before: none is followed, and
// what killed writers left is removed.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <span>
#include <string>

#include "io/files/atomic_file.h"
#include "io/files/own_file.h"
#include "io/pack/pack_journal.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

namespace fs = std::filesystem;

void write_atomically(const std::string& path, const std::string& text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

std::set<std::string> names_of(const TemporaryFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.insert(entry.path().filename().string());
  return names;
}

// errno of open_own_file(), 0 if it opens.
int reason_not_to_open(const std::string& path) {
  const int descriptor = open_own_file(path, O_RDONLY);
  if (descriptor < 0) return errno;
  ::close(descriptor);
  return 0;
}

}  // namespace

TEST_CASE("a file is written past links that lie under its name and that of a temporary file") {
  const TemporaryFolder folder;
  const std::string path = folder / "state.json", victim = folder / "victim";
  write_text(victim, "precious");
  fs::create_symlink(victim, path + ".tmp");
  fs::create_symlink(victim, path);
  write_atomically(path, "new");
  CHECK(read_text(victim) == "precious");
  CHECK(read_text(path) == "new");
  CHECK(!fs::is_symlink(path));
  CHECK(names_of(folder) == std::set<std::string>{"state.json", "state.json.tmp", "victim"});
}

TEST_CASE("temporary files of killed writers are removed, those of writers that run are not") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5", dead = path + ".0123456789abcdef.tmp",
                    alive = path + ".fedcba9876543210.tmp";
  const std::string other = folder / "b.h5.0123456789abcdef.tmp";  // of another file: its writer removes it
  for (const std::string& name : {dead, alive, other, folder / "a.h5.notes.tmp"}) write_text(name, "half");
  const int held = ::open(alive.c_str(), O_RDWR);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  write_atomically(path, "whole");
  CHECK(!fs::exists(dead));
  for (const std::string& name : {alive, other, folder / "a.h5.notes.tmp"}) CHECK(fs::exists(name));
  ::close(held);
  write_atomically(path, "whole again");
  CHECK(!fs::exists(alive));
  CHECK(read_text(path) == "whole again");
  CHECK(is_temporary_of("a.h5.0123456789abcdef.tmp", "a.h5"));
  for (const char* name : {"a.h5.tmp", "a.h5", "a.h5.0123456789abcdeg.tmp", "a.h50123456789abcdef1.tmp", ""}) {
    CHECK(!is_temporary_of(name, "a.h5"));
  }
  CHECK(unguessable_digits() != unguessable_digits());
}

TEST_CASE("only a regular file of this user with one name is opened") {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  write_text(path, "text");
  CHECK(reason_not_to_open(path) == 0);
  fs::create_hard_link(path, folder / "second");
  CHECK(reason_not_to_open(path) == EPERM);
  fs::remove(folder / "second");
  fs::create_symlink(path, folder / "link");
  CHECK(reason_not_to_open(folder / "link") == ELOOP);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(reason_not_to_open(folder / "pipe") == EPERM);
  CHECK(reason_not_to_open(folder / "gone") == ENOENT);
  if (::geteuid() == 0) {  // another user's file
    REQUIRE(::chown(path.c_str(), 12345, 12345) == 0);
    CHECK(reason_not_to_open(path) == EPERM);
  }
  CHECK(create_new_file(path, 0600) == -1);
  CHECK(create_new_file(folder / "link", 0600) == -1);
}

TEST_CASE("a packing is not continued in a file that a link leads to") {
  const TemporaryFolder folder;
  const std::string victim = folder / "victim", journal = folder / "out.h5.part.json", part = folder / "out.h5.part";
  write_text(victim, "precious");
  fs::create_symlink(victim, journal);
  ExitCode code{};
  CHECK(contains(error_of([&] { const PackJournal opened(journal, 1); }, &code), "out.h5.part.json"));
  CHECK(code == ExitCode::kUsage);
  fs::create_symlink(victim, part);
  CHECK(contains(error_of([&] { finish_file(part, folder / "out.h5"); }), "out.h5.part"));
  CHECK(!fs::exists(folder / "out.h5"));
  CHECK(read_text(victim) == "precious");
}
