// SPDX-License-Identifier: Apache-2.0
//
// Second copies: equal bytes, what is copied and kept, folders that fail and come back, and which file a run resumes
// from when checkpoints of the first folder are damaged or gone.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_copies.h"
#include "tests/io/checkpoint/sample_checkpoint.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;
namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds kLong{60};

struct Folders {
  TemporaryFolder parent;
  std::string first = parent / "first", copies = parent / "copies";
  Folders() {
    fs::create_directory(first);
    fs::create_directory(copies);
  }
  void write(std::int64_t step) const { write_checkpoint(checkpoint_path(first, step), sample_checkpoint(step)); }
};

std::vector<std::int64_t> steps_of(const std::string& dir) {
  std::vector<std::int64_t> steps;
  for (const auto& file : list_checkpoints(dir)) steps.push_back(file.step);
  return steps;
}

std::size_t files_of(const std::string& dir) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a copy has the bytes of the first file") {
  const Folders f;
  f.write(3);
  const std::string from = checkpoint_path(f.first, 3), to = checkpoint_path(f.copies, 3);
  copy_checkpoint(from, to);
  CHECK(read_text(to) == read_text(from));
  CHECK(same_checkpoint(read_checkpoint(to), sample_checkpoint(3)));
  CHECK(files_of(f.copies) == 1);

  std::string damaged = read_text(from);
  damaged[damaged.size() / 2] ^= 1;
  write_text(from, damaged);
  CHECK(contains(error_of([&] { copy_checkpoint(from, checkpoint_path(f.copies, 4)); }),
                 from + ": damaged: the checksum over the file does not hold, so it is not copied"));
  CHECK(files_of(f.copies) == 1);
  fs::remove_all(f.copies);
  const std::string error = error_of([&] { copy_checkpoint(from, to); });
  CHECK(contains(error, "cannot create " + to + "."));
  CHECK(contains(error, ".tmp: No such file"));
}

TEST_CASE("the folder of copies belongs to one run") {
  const TemporaryFolder folder;
  const std::string copies = folder / "made/run-1";
  prepare_copy_folder(copies, "/a/run");
  prepare_copy_folder(copies, "/a/run");
  CHECK(read_text(copies + "/run.txt") == "/a/run\n");
  ExitCode code{};
  CHECK(contains(error_of([&] { prepare_copy_folder(copies, "/b/run"); }, &code), "are of another run: /a/run ("));
  CHECK(code == ExitCode::kUsage);
  CHECK(contains(error_of([&] { prepare_copy_folder(folder / "no/parent/run", "/a/run"); }), "cannot make "));
  CHECK_FALSE(fs::exists(folder / "no"));
  write_text(folder / "file", "");
  CHECK(contains(error_of([&] { prepare_copy_folder(folder / "file/run", "/a/run"); }), "cannot make "));
}

TEST_CASE("the newest and the best are copied, and rotated likewise") {
  const Folders f;
  f.write(1);
  f.write(2);
  const StepScores scores{{1, 0.9}, {2, 0.5}, {5, 0.1}};
  CheckpointCopier copier(f.first, f.copies, 2);
  CHECK(copier.finish(kLong));  // nothing was asked for
  copier.wake(scores);
  REQUIRE(copier.finish(kLong));
  CHECK(steps_of(f.copies) == std::vector<std::int64_t>{1, 2});
  for (std::int64_t step = 3; step <= 5; ++step) {
    f.write(step);
    copier.wake(scores);
    REQUIRE(copier.finish(kLong));
  }
  CHECK(steps_of(f.copies) == std::vector<std::int64_t>{1, 4, 5});
  const auto results = copier.take();
  REQUIRE(results.size() == 5);
  CHECK(results[0].step == 2);  // the newest first
  CHECK(results[1].step == 1);
  CHECK(results[4].path == checkpoint_path(f.copies, 5));
  CHECK(results[4].problem.empty());
  CHECK(results[4].seconds > 0);
  CHECK(copier.take().empty());
  CHECK(read_text(checkpoint_path(f.copies, 4)) == read_text(checkpoint_path(f.first, 4)));
}

TEST_CASE("a copy that fails is told, and the next is tried") {
  const Folders f;
  CheckpointCopier copier(f.first, f.copies, 3);
  const auto pass = [&](std::int64_t step) {
    f.write(step);
    copier.wake({});
    REQUIRE(copier.finish(kLong));
    const auto results = copier.take();
    REQUIRE(results.size() == 1);
    CHECK(results[0].step == step);
    return results[0].problem;
  };
  CHECK(pass(1).empty());
  fs::rename(f.copies, f.copies + ".away");
  write_text(f.copies, "a file");
  const std::string problem = pass(2);
  CHECK(contains(problem, "cannot create " + checkpoint_path(f.copies, 2) + "."));
  CHECK(contains(problem, ".tmp: Not a directory"));
  CHECK(pass(3).size() > 0);
  fs::remove(f.copies);
  fs::rename(f.copies + ".away", f.copies);
  CHECK(pass(4).empty());
  CHECK(steps_of(f.copies) == std::vector<std::int64_t>{1, 4});
}

TEST_CASE("a copier that is destroyed leaves whole copies only") {
  const Folders f;
  for (std::int64_t step = 1; step <= 10; ++step) {
    write_checkpoint(checkpoint_path(f.first, step), sample_checkpoint(step, 50000));
    CheckpointCopier copier(f.first, f.copies, 0);
    copier.wake({});
  }
  for (const auto& file : list_checkpoints(f.copies)) CHECK(checkpoint_problem(file.path).empty());
  CHECK(files_of(f.copies) == list_checkpoints(f.copies).size());
}

TEST_CASE("which file a run resumes from when there are copies") {
  const Folders f;
  std::vector<std::string> warnings;
  const auto found = [&] {
    warnings.clear();
    const auto path = find_checkpoint_or_copy(f.first, f.copies, [&](const auto& text) { warnings.push_back(text); });
    return path ? path->string() : "";
  };
  CHECK(found().empty());
  for (const std::int64_t step : {10, 20, 30}) {
    f.write(step);
    copy_checkpoint(checkpoint_path(f.first, step), checkpoint_path(f.copies, step));
  }
  CHECK(found() == checkpoint_path(f.first, 30));
  CHECK(warnings.empty());

  write_text(checkpoint_path(f.first, 30), "x");
  CHECK(found() == checkpoint_path(f.copies, 30));
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], checkpoint_path(f.first, 30)));
  CHECK(contains(warnings[0], "using " + checkpoint_path(f.copies, 30) + " instead"));

  write_text(checkpoint_path(f.copies, 30), "x");
  CHECK(found() == checkpoint_path(f.first, 20));
  CHECK(warnings.size() == 2);

  fs::remove(checkpoint_path(f.first, 30));  // by the user, to go back: the copies do not contradict
  CHECK(found() == checkpoint_path(f.first, 20));
  CHECK(warnings.empty());

  fs::remove_all(f.first);
  CHECK(found() == checkpoint_path(f.copies, 20));
  CHECK(contains(warnings.back(), f.first + " holds no checkpoint to resume from: using the copy "));
  fs::remove_all(f.copies);
  CHECK(found().empty());
}
