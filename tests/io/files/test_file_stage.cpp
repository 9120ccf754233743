// SPDX-License-Identifier: Apache-2.0
//
// Staged files: whole, once, whoever else stages them at the same time; what is in the way is told, and nothing
// unfinished stays.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <ios>
#include <string>
#include <vector>

#include "io/files/file_stage.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds kLong{60}, kNone{0};

// More than is read at once, so that advance() with no time stops in the middle.
std::string large() {
  std::string text(std::size_t{20} << 20, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + (i >> 16));
  return text;
}

ino_t inode(const std::string& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_ino;
}

std::vector<std::string> parts_in(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(".convoy-part-"))
      found.push_back(entry.path().filename().string());
  }
  return found;
}

std::string stage_error_of(const std::function<void()>& body, ExitCode expected = ExitCode::kUsage) {
  ExitCode code{};
  std::string text = error_of(body, &code);
  CHECK(code == expected);
  return text;
}

std::string stage_error(const std::string& stage_dir, const std::string& file) {
  return stage_error_of([&] { FileStage(stage_dir, {file}).advance(kLong); });
}

}  // namespace

TEST_CASE("files are copied once, and anew when they have changed") {
  const TemporaryFolder folder;
  const std::string text = large(), one = folder / "one.h5", two = folder / "two.h5", stage = folder / "stage";
  write_text(one, text);
  write_text(two, "small");
  std::string place;
  {
    FileStage files(stage, {one, two});
    CHECK(files.bytes() == static_cast<std::int64_t>(text.size() + 5));
    CHECK(!fs::exists(stage));
    int slices = 1;
    while (!files.advance(kNone)) ++slices;
    CHECK(slices > 2);
    CHECK(files.copied() == files.bytes());
    place = files.folder();
  }
  CHECK(fs::path(place).parent_path() == stage);
  CHECK(read_text(place + "/one.h5") == text);
  CHECK(read_text(place + "/two.h5") == "small");
  CHECK(parts_in(stage).empty());
  CHECK((fs::status(place).permissions() & fs::perms::others_all) == fs::perms::none);

  const ino_t before = inode(place + "/one.h5");
  FileStage again(stage, {one, two});
  CHECK(again.folder() == place);
  CHECK(again.advance(kLong));
  CHECK(again.copied() == 0);
  CHECK(inode(place + "/one.h5") == before);

  write_text(place + "/two.h5", "cut");  // of another size: not what was copied
  FileStage repaired(stage, {one, two});
  CHECK(repaired.advance(kLong));
  CHECK(repaired.copied() == 5);
  CHECK(read_text(place + "/two.h5") == "small");
  CHECK(inode(place + "/one.h5") == before);

  fs::last_write_time(two, fs::last_write_time(two) + std::chrono::nanoseconds(1000));
  FileStage changed(stage, {one, two});
  CHECK(changed.folder() != place);
  CHECK(FileStage(stage, {one}).folder() != place);
}

TEST_CASE("of two that stage the same one copies and the other waits") {
  const TemporaryFolder folder;
  const std::string text = large(), file = folder / "data.h5", stage = folder / "stage";
  write_text(file, text);
  FileStage first(stage, {file}), second(stage, {file});
  CHECK(!first.advance(kNone));
  CHECK(!second.advance(kNone));
  CHECK(parts_in(stage).size() == 1);
  while (!first.advance(kNone)) CHECK(!second.advance(kNone));
  while (!second.advance(kNone)) CHECK(parts_in(stage).empty());  // it verifies what the first has copied
  CHECK(second.copied() == 0);
  CHECK(read_text(second.folder() + "/data.h5") == text);

  const std::string other = folder / "other.h5";  // one that gives up lets the other go on
  write_text(other, text);
  FileStage heir(stage, {other});
  {
    FileStage quits(stage, {other});
    CHECK(!quits.advance(kNone));
    CHECK(!heir.advance(kNone));
  }
  CHECK(parts_in(stage).empty());
  CHECK(heir.advance(kLong));
  CHECK(read_text(heir.folder() + "/other.h5") == text);
}

TEST_CASE("what a killed copy left is removed, what is being copied is not") {
  const TemporaryFolder folder;
  const std::string file = folder / "data.h5", stage = folder / "stage";
  write_text(file, "data");
  const std::string dead = stage + "/dead.h5-0123456789abcdef", alive = stage + "/alive.h5-0123456789abcdef";
  const std::string stranger = stage + "/stranger";  // no copy of this program, by its name
  for (const std::string& set : {dead, alive, stranger}) {
    fs::create_directories(set);
    write_text(set + "/.convoy-part-1", "unfinished");
    write_text(set + "/.convoy-lock", "");
  }
  const int held = ::open((alive + "/.convoy-lock").c_str(), O_RDWR);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  FileStage files(stage, {file});
  fs::create_directory(files.folder());
  write_text(files.folder() + "/.convoy-part-2", "unfinished, and longer than the file will be");
  CHECK(files.advance(kLong));
  CHECK(read_text(files.folder() + "/data.h5") == "data");
  CHECK(!fs::exists(dead + "/.convoy-part-1"));
  CHECK(!fs::exists(files.folder() + "/.convoy-part-2"));
  CHECK(fs::exists(alive + "/.convoy-part-1"));
  CHECK(fs::exists(stranger + "/.convoy-part-1"));
  ::close(held);
}

TEST_CASE("a copy is used only with its checksum, and replaced by one that has it") {
  const TemporaryFolder folder;
  const std::string text = large(), file = folder / "data.h5", other = folder / "labels.h5", stage = folder / "stage";
  write_text(file, text);
  write_text(other, "labels");
  FileStage first(stage, {file, other});
  CHECK(first.advance(kLong));
  const std::string copy = first.folder() + "/data.h5", list = first.folder() + "/.convoy-checksums";
  const std::string listed = read_text(list);

  for (const std::size_t at : {std::size_t{0}, std::size_t{9} << 20, text.size() - 1}) {
    CAPTURE(at);
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_text(copy, damaged);
    FileStage again(stage, {file, other});
    int slices = 1;
    while (!again.advance(kNone)) ++slices;
    CHECK(slices > 2);
    CHECK(again.damaged() == 1);
    CHECK(again.copied() == static_cast<std::int64_t>(text.size()));
    CHECK(read_text(copy) == text);
    CHECK(read_text(list) == listed);
  }

  for (const std::string& wrong :
       {std::string(), std::string("convoy-stage 1\n"), listed.substr(0, listed.size() - 1), "x" + listed.substr(1)}) {
    CAPTURE(wrong);
    write_text(list, wrong);  // of no use: all is copied again
    FileStage again(stage, {file, other});
    CHECK(again.advance(kLong));
    CHECK(again.copied() == again.bytes());
    CHECK(read_text(list) == listed);
  }
  fs::remove(copy);
  write_text(folder / "elsewhere", text);
  fs::create_symlink(folder / "elsewhere", copy);  // equal bytes, but not what was copied
  FileStage again(stage, {file, other});
  CHECK(again.advance(kLong));
  CHECK(again.copied() == static_cast<std::int64_t>(text.size()));
  CHECK(!fs::is_symlink(copy));
}

TEST_CASE("a source that changes while it is copied is an error") {
  const TemporaryFolder folder;
  const std::string file = folder / "data.h5", stage = folder / "stage";
  for (const char* change : {"longer", "shorter", "touched"}) {
    CAPTURE(change);
    write_text(file, large());
    {
      FileStage files(stage, {file});
      REQUIRE(!files.advance(kNone));
      if (change == std::string("longer")) std::ofstream(file, std::ios::app) << "more";
      if (change == std::string("shorter")) fs::resize_file(file, 9 << 20);
      if (change == std::string("touched")) fs::last_write_time(file, fs::file_time_type::clock::now() + kLong);
      // another start may find it finished
      CHECK(contains(stage_error_of([&] { files.advance(kLong); }, ExitCode::kFailure),
                     "has changed while it was copied"));
    }
    CHECK(parts_in(stage).empty());
  }
}

TEST_CASE("what is in the way of staging") {
  const TemporaryFolder folder;
  const std::string file = folder / "data.h5";
  write_text(file, "data");
  CHECK(contains(stage_error(folder / "stage", folder / "gone.h5"), "gone.h5: No such file"));
  CHECK(contains(stage_error(folder / "no/such", file), "no/such: No such file"));
  CHECK(contains(stage_error(file, file), "data.h5: a file is called that"));
  fs::create_directory(folder / "stage");
  fs::create_directory_symlink(folder.path(), FileStage(folder / "stage", {file}).folder());
  CHECK(contains(stage_error(folder / "stage", file), "is not a folder of this user"));
  CHECK(read_text(file) == "data");

  fs::create_directory(folder / "shared");
  const std::string set = FileStage(folder / "shared", {file}).folder();
  fs::create_directory(set);
  fs::permissions(set, fs::perms::all);  // anybody may have put something there
  CHECK(contains(stage_error(folder / "shared", file), "is not a folder of this user"));
  fs::permissions(set, fs::perms::owner_all);
  fs::permissions(folder / "shared", fs::perms::all);
  CHECK(contains(stage_error(folder / "shared", file), "every user may rename what lies in it (chmod +t"));
  CHECK(fs::is_empty(set));
  fs::permissions(folder / "shared", fs::perms::all | fs::perms::sticky_bit);
  CHECK(FileStage(folder / "shared", {file}).advance(kLong));
}
