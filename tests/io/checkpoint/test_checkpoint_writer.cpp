// SPDX-License-Identifier: Apache-2.0
//
// The background writer: results, rotation, errors that reach the caller once, full disks, and data being read
// meanwhile. A file size limit stands for a full disk: the same failing write(), without a file system of its own.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint_writer.h"
#include "io/files/atomic_file.h"
#include "io/images/row_source.h"
#include "layers/base/host_name.h"
#include "layers/base/system_error.h"
#include "tests/io/checkpoint/sample_checkpoint.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;
namespace fs = std::filesystem;

namespace {

// While it lives, no file of this process grows beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

std::size_t files_in(const std::string& dir) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("the writer writes, rotates and reports, in the background or not") {
  const TemporaryFolder folder;
  const std::string dir = folder / "new/checkpoints";
  for (const bool async : {false, true}) {
    CheckpointWriter writer(dir, 2, async);
    std::vector<CheckpointWriter::Result> results;
    for (std::int64_t step = 1; step <= 5; ++step) {
      writer.write(sample_checkpoint(step));
      for (auto& result : writer.poll()) results.push_back(std::move(result));
    }
    writer.wait();
    for (auto& result : writer.poll()) results.push_back(std::move(result));
    REQUIRE(results.size() == 5);
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(results[i].step == static_cast<std::int64_t>(i) + 1);
      CHECK(results[i].path == checkpoint_path(dir, results[i].step));
      CHECK(results[i].seconds > 0);
    }
    CHECK(writer.poll().empty());
    CHECK(files_in(dir) == 2);
    CHECK(same_checkpoint(read_checkpoint(checkpoint_path(dir, 5)), sample_checkpoint(5)));
    CHECK(same_checkpoint(read_checkpoint(checkpoint_path(dir, 4)), sample_checkpoint(4)));
  }
}

TEST_CASE("a spool that outgrows the disk fails with its checkpoint, and leaves nothing") {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 2, false);
  Checkpoint checkpoint = sample_checkpoint(1);
  const std::vector<float> elements(4096);
  const auto fill = [&] {
    const auto spool = std::make_shared<TensorSpool>(folder / "step-00000001.h5");
    spool->begin("/model", "head.weight", {4096});
    spool->append(elements);
    checkpoint.spool = spool;
    return std::weak_ptr<const TensorSpool>(spool);
  };
  {
    const FileSizeLimit limit(4096);
    const auto spool = fill();
    CHECK_THROWS_WITH_AS(writer.write(std::move(checkpoint)), doctest::Contains("File too large"), Error);
    CHECK(spool.expired());  // with its disk space
  }
  CHECK(files_in(folder.path()) == 0);
  checkpoint = sample_checkpoint(1);
  const auto spool = fill();
  writer.write(std::move(checkpoint));
  CHECK(spool.expired());
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("what was written lends its memory to the next checkpoint, and no bytes") {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 0, true);
  CHECK(writer.recycle().model.empty());
  const std::int64_t widths[] = {8, 40000, 3, 50000};  // the image grows, lies in larger memory, grows again
  for (std::int64_t step = 1; step <= 4; ++step) {
    Checkpoint sample = sample_checkpoint(step, widths[step - 1]);
    const std::byte* memory = sample.model.back().bytes.data();
    writer.write(std::move(sample), 0.25);
    writer.wait();
    const auto results = writer.poll();
    REQUIRE(results.size() == 1);
    CHECK(results[0].stall_seconds >= 0.25);
    CHECK(results[0].stall_seconds < 0.25 + results[0].seconds);  // the writing itself held nobody up
    CHECK(same_checkpoint(read_checkpoint(results[0].path), sample_checkpoint(step, widths[step - 1])));
    const Checkpoint recycled = writer.recycle();
    REQUIRE_FALSE(recycled.model.empty());
    CHECK(recycled.model.back().bytes.data() == memory);
  }
}

TEST_CASE("a full disk is an Error, once; earlier checkpoints stay and nothing else does") {
  for (const bool async : {false, true}) {
    const TemporaryFolder folder;
    CheckpointWriter writer(folder.path(), 3, async);
    writer.write(sample_checkpoint(1));
    writer.wait();
    CHECK(writer.poll().size() == 1);
    std::string error;
    {
      const FileSizeLimit full(4000);
      error = error_of([&] {
        writer.write(sample_checkpoint(2));
        writer.wait();
      });
    }
    CHECK(contains(error, "checkpoint of step 2: cannot write " + checkpoint_path(folder.path(), 2)));
    CHECK(contains(error, "free space"));
    CHECK(error_of([&] { CHECK(writer.poll().empty()); }).empty());
    CHECK(files_in(folder.path()) == 1);
    CHECK(same_checkpoint(read_checkpoint(checkpoint_path(folder.path(), 1)), sample_checkpoint(1)));
    writer.write(sample_checkpoint(3));  // there is space again
    writer.wait();
    CHECK(checkpoint_problem(checkpoint_path(folder.path(), 3)).empty());
  }
}

TEST_CASE("poll throws the error of a background write, and destruction swallows one") {
  const TemporaryFolder folder;
  const std::string dir = folder / "c";
  {
    CheckpointWriter writer(dir, 3, true);
    fs::remove(dir);
    writer.write(sample_checkpoint(1));
    std::string error;
    for (int i = 0; i < 5000 && error.empty(); ++i) {
      error = error_of([&] { (void)writer.poll(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(contains(error, "step-00000001.h5"));
    writer.write(sample_checkpoint(2));
  }
  write_text(folder / "file", "");
  ExitCode code{};
  CHECK(contains(error_of([&] { CheckpointWriter(folder / "file/c", 3, true); }, &code), "cannot create"));
  CHECK(code == ExitCode::kUsage);
}

// A folder in the place of a checkpoint: nothing but a rotation notices it, and not even root can unlink it.
TEST_CASE("old checkpoints that cannot be removed are one warning, and no error") {
  for (const bool async : {false, true}) {
    const TemporaryFolder folder;
    const std::string stuck = checkpoint_path(folder.path(), 1);
    fs::create_directories(stuck + "/x");
    fs::create_directories(checkpoint_path(folder.path(), 2) + "/x");
    CheckpointWriter writer(folder.path(), 1, async);
    std::vector<std::string> warnings;
    const auto write = [&](std::int64_t step) {
      writer.write(sample_checkpoint(step));
      writer.wait();
      CHECK(writer.poll().size() == 1);
      for (auto& warning : writer.take_warnings()) warnings.push_back(std::move(warning));
    };
    write(3);
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], "old checkpoints stay: cannot remove " + stuck + ": "));
    CHECK(contains(warnings[0], " (and 1 more); tried again"));
    write(4);  // it is tried again, silently; what can be removed is
    CHECK(warnings.size() == 1);
    CHECK_FALSE(fs::exists(checkpoint_path(folder.path(), 3)));
    fs::remove_all(stuck);
    fs::remove_all(checkpoint_path(folder.path(), 2));
    write(5);
    CHECK(warnings.size() == 1);
    CHECK(files_in(folder.path()) == 1);
    fs::create_directories(stuck + "/x");
    write(6);  // after one that succeeded the next failure is told
    CHECK(warnings.size() == 2);
  }
}

TEST_CASE("the best checkpoint stays beside the newest, and best.h5 points to it") {
  for (const bool async : {false, true}) {
    for (const bool evaluated_first : {false, true}) {
      const TemporaryFolder folder;
      const std::string& dir = folder.path();
      const auto steps = [&] {
        std::vector<std::int64_t> found;
        for (const auto& file : list_checkpoints(dir)) found.push_back(file.step);
        return found;
      };
      using Steps = std::vector<std::int64_t>;
      StepScores scores{{1, 0.99}};  // of a checkpoint that is not there
      {
        CheckpointWriter writer(dir, 2, async, scores);
        // Writes and evaluates a step, in either order; whether it is the best.
        const auto pass = [&](std::int64_t step, double score) {
          bool best = false;
          if (evaluated_first) best = writer.evaluated(step, score);
          writer.write(sample_checkpoint(step));
          if (!evaluated_first) best = writer.evaluated(step, score);  // while it is being written, or after it
          writer.wait();
          return best;
        };
        CHECK_FALSE(pass(2, NAN));
        CHECK(steps() == Steps{2});
        CHECK(linked_best_checkpoint(dir).empty());
        CHECK(pass(3, 0.5));
        CHECK(pass(4, 0.7));
        CHECK_FALSE(pass(5, 0.7));  // a tie: the earlier one stays
        CHECK_FALSE(pass(6, -INFINITY));
        CHECK_FALSE(pass(7, 0.6));
        CHECK(steps() == Steps{4, 6, 7});
        CHECK(linked_best_checkpoint(dir) == checkpoint_path(dir, 4));
        CHECK(fs::equivalent(dir + "/best.h5", checkpoint_path(dir, 4)));
        CHECK(find_newest_checkpoint(dir, [](const std::string&) {})->filename() == "step-00000007.h5");
        {
          const FileSizeLimit full(4000);  // a better one that is not written costs nothing
          CHECK(error_of([&] { pass(8, 0.8); }).size() > 0);
        }
        CHECK(steps() == Steps{4, 6, 7});
        CHECK_FALSE(pass(9, 0.65));
        CHECK(steps() == Steps{4, 7, 9});
        scores = writer.scores();
      }
      CheckpointWriter writer(dir, 2, async, scores);  // a run that resumes knows it
      writer.write(sample_checkpoint(10));
      writer.wait();
      CHECK(steps() == Steps{4, 9, 10});
      writer.write(sample_checkpoint(11));
      writer.wait();
      CHECK(writer.evaluated(11, 0.71));  // only now known: the former best goes at once
      CHECK(steps() == Steps{10, 11});
      CHECK(linked_best_checkpoint(dir) == checkpoint_path(dir, 11));
      CHECK(writer.take_warnings().empty());
      const CheckpointWriter plain(dir, 2, async);  // keep_best was switched off
      CHECK_FALSE(fs::is_symlink(fs::symlink_status(dir + "/best.h5")));
    }
  }
}

TEST_CASE("a file of the user's at the name of the link stays, with one warning") {
  const TemporaryFolder folder;
  write_text(folder / "best.h5", "mine");
  CheckpointWriter writer(folder.path(), 2, false, StepScores());
  for (std::int64_t step = 1; step <= 3; ++step) {
    writer.write(sample_checkpoint(step));
    CHECK(writer.evaluated(step, static_cast<double>(step)));
  }
  const auto warnings = writer.take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "best.h5 is no link to a checkpoint, so it stays"));
  CHECK(read_text(folder / "best.h5") == "mine");
}

TEST_CASE("what must be on disk before a checkpoint is written first, and its error is the checkpoint's") {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 3, true);
  int calls = 0;
  writer.set_before_write([&] {
    ++calls;
    CHECK(files_in(folder.path()) == 0);
  });
  writer.write(sample_checkpoint(1));
  writer.wait();
  CHECK(calls == 1);
  CHECK(files_in(folder.path()) == 1);
  writer.set_before_write([] { fail("the log is on a full disk"); });
  writer.write(sample_checkpoint(2));
  CHECK(contains(error_of([&] { writer.wait(); }), "checkpoint of step 2: the log is on a full disk"));
  CHECK(files_in(folder.path()) == 1);
  // Of the system of this host, while running, whatever errno it was.
  writer.set_before_write([] { fail_system(EACCES, "the log cannot be written"); });
  writer.write(sample_checkpoint(3));
  try {
    writer.wait();
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(host_at_fault(error) == host_name());
    CHECK(error.code() == ExitCode::kFailure);
    CHECK(std::string(error.what()) == "checkpoint of step 3: the log cannot be written");
  }
}

TEST_CASE("what a killed writer left is removed") {
  const TemporaryFolder folder;
  write_text(folder / "step-00000004.h5.tmp", "half");
  const CheckpointWriter writer(folder.path(), 3, true);
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("checkpoints are written while threads read chunked data") {
  const TemporaryFolder folder;
  const HostTensor images = random_tensor("images", {64, 8, 8, 3}, DType::kU8, 1);
  hdf5::FileImage image("data", 0);
  image.write("/images", images);
  write_file_atomically(folder / "data.h5", image.bytes());
  const hdf5::File file(folder / "data.h5");
  const RowSource rows(file, "/images", DType::kU8, 0);  // no memory: each read goes through HDF5

  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, reads{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      std::vector<std::uint8_t> row(8 * 8 * 3);
      for (std::int64_t i = 0; !stop; i = (i + 1) % 64) {
        rows.read(i, row.data());
        wrong += std::memcmp(row.data(), images.data<char>() + i * 192, 192) != 0;
        ++reads;
      }
    });
  }
  CheckpointWriter writer(folder.path(), 2, true);
  for (std::int64_t step = 1; step <= 20; ++step) writer.write(sample_checkpoint(step, 256));
  writer.wait();
  stop = true;
  for (auto& reader : readers) reader.join();
  CHECK(wrong == 0);
  CHECK(reads > 0);
  CHECK(same_checkpoint(read_checkpoint(checkpoint_path(folder.path(), 20)), sample_checkpoint(20, 256)));
}
