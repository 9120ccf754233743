// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints: bit for bit there and back, and what becomes of damaged ones. Every byte of a small file is damaged in
// turn: reading must give the right state or an Error, nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/files/atomic_file.h"
#include "io/hdf5/checksum_trailer.h"
#include "tests/io/checkpoint/sample_checkpoint.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;
namespace fs = std::filesystem;

namespace {

#ifdef CONVOY_SANITIZED
constexpr std::size_t kStride = 41;  // sanitizers are slow
#else
constexpr std::size_t kStride = 5;
#endif

struct Newest {
  std::string name;
  std::vector<std::string> warnings;
};

Newest newest(const std::string& dir) {
  Newest result;
  const auto found = find_newest_checkpoint(dir, [&](const std::string& text) { result.warnings.push_back(text); });
  if (found) result.name = found->filename().string();
  return result;
}

void write_steps(const std::string& dir, std::initializer_list<std::int64_t> steps) {
  for (const auto step : steps) write_checkpoint(checkpoint_path(dir, step), sample_checkpoint(step));
}

}  // namespace

TEST_CASE("a checkpoint comes back bit for bit") {
  const TemporaryFolder folder;
  const std::string path = folder / "step-00000007.h5";
  const Checkpoint written = sample_checkpoint(7);
  write_checkpoint(path, written);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);  // no temporary file
  CHECK(same_checkpoint(read_checkpoint(path), written));
  CHECK(same_tensors(read_model_weights(path), written.model));
  CHECK(checkpoint_problem(path).empty());
  CHECK(read_average(path).empty());
  Checkpoint averaged = written;
  averaged.average = written.optimizer[1].second;
  write_checkpoint(folder / "averaged.h5", averaged);
  CHECK(same_checkpoint(read_checkpoint(folder / "averaged.h5"), averaged));
  CHECK(same_tensors(read_average(folder / "averaged.h5"), averaged.average));
  const auto checks = check_datasets(path);
  CHECK(checks.size() == 7);
  for (const auto& check : checks) {
    CHECK(check.verifiable);
    CHECK(check.problem.empty());
  }
  // Again at the same place, and without a time of its own.
  Checkpoint other = sample_checkpoint(8);
  other.created.clear();
  write_checkpoint(path, other);
  CHECK(read_checkpoint(path).step == 8);
  CHECK(read_checkpoint(path).created.size() == 20);
}

TEST_CASE("an empty model and a long config fit into a checkpoint") {
  const TemporaryFolder folder;
  Checkpoint written;
  written.config = std::string(300000, 'c');
  written.created = "now";
  write_checkpoint(folder / "a.h5", written);
  CHECK(same_checkpoint(read_checkpoint(folder / "a.h5"), written));
}

TEST_CASE("names that make no path are refused") {
  const TemporaryFolder folder;
  for (const char* name : {"", "a..b", ".a", "a.", "a/b"}) {
    Checkpoint c;
    c.model.push_back(random_tensor(name, {1}, DType::kF32, 1));
    CHECK_THROWS_AS(write_checkpoint(folder / "a.h5", c), Error);
  }
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a changed byte anywhere is noticed or harmless") {
  const TemporaryFolder folder;
  const Checkpoint written = sample_checkpoint(7);
  write_checkpoint(folder / "good.h5", written);
  const std::string good = read_text(folder / "good.h5");
  const std::string path = folder / "bad.h5";
  std::size_t noticed = 0;
  for (std::size_t at = 0; at < good.size(); at += kStride) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    write_text(path, bad);
    const bool whole = checkpoint_problem(path).empty();
    bool equal = false;
    const std::string error = error_of([&] { equal = same_checkpoint(read_checkpoint(path), written); });
    REQUIRE_MESSAGE((error.empty() ? equal : !whole), "byte " << at << ": " << error);
    if (!error.empty()) {
      ++noticed;
      REQUIRE_MESSAGE(contains(error, path), error);
    }
  }
  CHECK(noticed > 0);
}

TEST_CASE("a changed byte in the elements breaks the checksum trailer") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const Checkpoint written = sample_checkpoint(7);
  write_checkpoint(path, written);
  std::string bytes = read_text(path);
  const auto& weight = written.model[3];
  const auto at = bytes.find(std::string(weight.data<char>(), weight.bytes.size()));
  REQUIRE(at != std::string::npos);
  bytes[at + 100] = static_cast<char>(~bytes[at + 100]);
  write_text(path, bytes);
  ExitCode code{};
  const std::string error = error_of([&] { (void)read_checkpoint(path); }, &code);
  CHECK(contains(error, path + ": damaged: the checksum"));
  CHECK(code == ExitCode::kUsage);
  CHECK(checkpoint_problem(path) == error);
  for (const auto& check : check_datasets(path)) CHECK(!check.verifiable);
}

// fletcher32.h5 is a checkpoint of a version that gave each data set a Fletcher32 checksum as well: two steps of a
// linear layer from 3 to 2 features.
TEST_CASE("a checkpoint of an earlier version is read, and its Fletcher32 checksums are checked") {
  const std::string good = read_text(CONVOY_TEST_DATA "/fletcher32.h5");
  const TemporaryFolder folder;
  const std::string path = folder / "old.h5";
  write_text(path, good);
  CHECK(checkpoint_problem(path).empty());
  const Checkpoint old = read_checkpoint(path);
  CHECK(old.step == 2);
  REQUIRE(old.model.size() == 2);
  CHECK(old.model[1].name == "fc.weight");
  const float* weight = old.model[1].data<float>();
  const std::vector<float> expected{0x1.b9c604p-2F,  0x1.a6e958p-6F,  0x1.5f14c4p-2F,
                                    -0x1.102dc2p-1F, -0x1.87842cp-2F, 0x1.4d49e2p-7F};
  CHECK(std::vector<float>(weight, weight + 6) == expected);
  REQUIRE(old.optimizer.size() == 1);
  CHECK(old.optimizer[0].first == "momentum");
  CHECK(old.optimizer[0].second[0].data<float>()[0] == -0x1.6b9d42p-3F);
  for (const auto& check : check_datasets(path)) {
    CHECK(check.info.checksummed);
    CHECK(check.verifiable);
    CHECK(check.problem.empty());
  }

  std::string bad = good;
  const auto at = bad.find(std::string(old.model[1].data<char>(), 24));
  REQUIRE(at != std::string::npos);
  bad[at + 5] = static_cast<char>(~bad[at + 5]);
  write_text(path, bad);
  CHECK(contains(checkpoint_problem(path), path + ": damaged: the checksum"));
  for (const auto& check : check_datasets(path)) {
    CHECK(check.problem.empty() == (check.info.path != "/model/fc/weight"));
  }
  // Without the trailer, the checksum of the data set still shows it.
  write_text(path, bad.substr(0, bad.rfind("\nconvoy-seal")));
  CHECK(check_trailer(path).trailer == Trailer::kNone);
  CHECK(contains(error_of([&] { (void)read_checkpoint(path); }), path + ":/model/fc/weight: "));
  CHECK(contains(checkpoint_problem(path), "checksum"));
}

TEST_CASE("a truncated file of any length is refused") {
  const TemporaryFolder folder;
  write_checkpoint(folder / "good.h5", sample_checkpoint(7));
  const std::string good = read_text(folder / "good.h5");
  for (std::size_t length = 0; length < good.size(); length += 1 + kStride * 7) {
    write_text(folder / "bad.h5", good.substr(0, length));
    REQUIRE_MESSAGE(!checkpoint_problem(folder / "bad.h5").empty(), "length " << length);
    CHECK_THROWS_AS((void)read_checkpoint(folder / "bad.h5"), Error);
  }
  for (const std::size_t cut : {1, 10, 30, 70, 100}) {
    write_text(folder / "bad.h5", good.substr(0, good.size() - cut));
    CHECK(contains(checkpoint_problem(folder / "bad.h5"), "truncated"));
  }
}

TEST_CASE("each kind of damage falls back to the checkpoint before, with one warning") {
  const TemporaryFolder folder;
  const std::string& dir = folder.path();
  CHECK(newest(folder / "no-such-folder").name.empty());
  CHECK(newest(dir).name.empty());
  write_steps(dir, {5, 20, 100});
  const std::string last = checkpoint_path(dir, 100);
  const std::string good = read_text(last);
  CHECK(newest(dir).name == "step-00000100.h5");
  CHECK(newest(dir).warnings.empty());

  std::string damaged;
  SUBCASE("truncated") { damaged = good.substr(0, good.size() / 2); }
  SUBCASE("empty") { damaged = ""; }
  SUBCASE("text") { damaged = "not a checkpoint\n"; }
  SUBCASE("a changed byte") {
    damaged = good;
    const auto tensor = sample_checkpoint(100).optimizer[1].second[1];
    damaged[damaged.find(std::string(tensor.data<char>(), tensor.bytes.size()))] ^= 1;
  }
  SUBCASE("without complete") {
    hdf5::FileImage image("x", 0);
    image.create_group("/model");
    image.write_attribute("/", "format", std::string("convoy-checkpoint"));
    image.write_attribute("/", "format_version", std::int64_t{1});
    const auto bytes = image.bytes();
    damaged.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  write_text(last, damaged);
  const Newest found = newest(dir);
  CHECK(found.name == "step-00000020.h5");
  REQUIRE(found.warnings.size() == 1);
  CHECK(contains(found.warnings[0], last));
  CHECK(contains(found.warnings[0], "using " + checkpoint_path(dir, 20) + " instead"));
  CHECK(read_text(last) == damaged);  // nothing is touched

  write_text(checkpoint_path(dir, 20), "x");
  write_text(checkpoint_path(dir, 5), "x");
  CHECK(newest(dir).name.empty());
  CHECK(newest(dir).warnings.size() == 3);
  CHECK(contains(newest(dir).warnings[0], "no earlier checkpoint is valid"));
}

TEST_CASE("a checkpoint that cannot be read is not a damaged one") {
  const TemporaryFolder folder;
  const std::string& dir = folder.path();
  write_steps(dir, {5, 20, 100});
  const std::string last = checkpoint_path(dir, 100);
  CHECK(examine_checkpoint(last).state == CheckpointState::kValid);
  fs::rename(last, folder / "kept.h5");
  std::string reason;
  SUBCASE("a folder") {
    fs::create_directory(last);
    reason = "Is a directory";
  }
  SUBCASE("a file whose reading fails") {
    fs::create_symlink("/proc/self/mem", last);
    reason = "Input/output error";
  }
  SUBCASE("a link to nowhere") {
    fs::create_symlink(folder / "nowhere", last);
    reason = "No such file or directory";
  }
  SUBCASE("a link to itself") {
    fs::create_symlink(last, last);
    reason = "Too many levels of symbolic links";
  }
  const std::string problem = "cannot read " + last + ": " + reason;
  CHECK(examine_checkpoint(last).state == CheckpointState::kUnreadable);
  CHECK(examine_checkpoint(last).problem == problem);
  ExitCode code{};
  CHECK(contains(error_of([&] { (void)newest(dir); }, &code), problem));
  CHECK(code == ExitCode::kFailure);
  // Named by a user it is a wrong name, unless the disk fails.
  CHECK(error_of([&] { (void)read_checkpoint(last); }, &code) == problem);
  CHECK(code == (reason == "Input/output error" ? ExitCode::kFailure : ExitCode::kUsage));
  const CheckpointSearch search = search_checkpoints(dir);
  CHECK(!search.found);
  CHECK(search.unreadable == problem);
  REQUIRE(search.older.size() == 2);
  CHECK(search.older[0].step == 20);

  // Not so once it is known to be damaged, and one that is older than a valid one is not looked at.
  fs::remove(last);
  write_text(last, "x");
  CHECK(examine_checkpoint(last).state == CheckpointState::kInvalid);
  fs::remove(checkpoint_path(dir, 5));
  fs::create_directory(checkpoint_path(dir, 5));
  CHECK(newest(dir).name == "step-00000020.h5");
  CHECK(search_checkpoints(dir).invalid.size() == 1);
}

TEST_CASE("a checkpoint carries the identity of its run") {
  const TemporaryFolder folder;
  Checkpoint written = sample_checkpoint(7);
  written.run = "0b2f9c1e-5d4a-4c3b-9f8e-7a6b5c4d3e2f";
  write_checkpoint(checkpoint_path(folder.path(), 7), written);
  CHECK(read_checkpoint(checkpoint_path(folder.path(), 7)).run == written.run);
  CHECK(search_checkpoints(folder.path()).run == written.run);
  write_text(folder / "old.h5", read_text(CONVOY_TEST_DATA "/fletcher32.h5"));
  CHECK(read_checkpoint(folder / "old.h5").run.empty());
}

TEST_CASE("other files and temporary ones are no checkpoints") {
  const TemporaryFolder folder;
  const std::string& dir = folder.path();
  write_steps(dir, {3, 123456789});
  const std::string temporary = "step-00000009.h5.0123456789abcdef.tmp";
  write_text(folder / temporary, "x");
  for (const char* name : {"step-00000009.h5.tmp", "step-9.h5", "step-0000000x.h5", "step--0000001.h5", "notes.txt",
                           "last.h5", "step-00000009.h5.superseded", "notes.tmp"}) {
    write_text(folder / name, "x");
  }
  CHECK(list_checkpoints(dir).size() == 2);
  CHECK(newest(dir).name == "step-123456789.h5");
  CHECK(newest(dir).warnings.empty());
  remove_stale_temporaries(dir);
  CHECK(!fs::exists(folder / "step-00000009.h5.tmp"));
  CHECK(!fs::exists(folder / temporary));
  CHECK(fs::exists(folder / "notes.tmp"));
}

TEST_CASE("a value that is not finite is named, of weights, buffers and the optimizer's state") {
  Checkpoint checkpoint = sample_checkpoint(1);
  for (auto* tensors : {&checkpoint.model, &checkpoint.optimizer[1].second}) {
    for (HostTensor& tensor : *tensors) {
      if (tensor.dtype == DType::kF32) std::fill_n(tensor.data<float>(), tensor.shape.size(), 3e38F);
    }
  }
  CHECK(first_nonfinite(checkpoint).empty());
  const auto named = [&](HostTensor& tensor, float value) {
    const float before = std::exchange(tensor.data<float>()[tensor.shape.size() - 1], value);
    const std::string name = first_nonfinite(checkpoint);
    tensor.data<float>()[tensor.shape.size() - 1] = before;
    return name;
  };
  CHECK(named(checkpoint.model[1], INFINITY) == "bn1.running_mean");
  CHECK(named(checkpoint.model[4], NAN) == "layer1.0.conv1.weight");
  CHECK(named(checkpoint.optimizer[1].second[0], -INFINITY) == "fc.weight (optimizer momentum)");
  checkpoint.average = checkpoint.optimizer[1].second;
  CHECK(named(checkpoint.average[0], NAN) == "fc.weight (average)");
}

TEST_CASE("rotation keeps the newest") {
  const TemporaryFolder folder;
  const std::string& dir = folder.path();
  write_steps(dir, {1, 2, 3, 4, 50});
  CHECK(rotate_checkpoints(dir, 0).empty());
  CHECK(list_checkpoints(dir).size() == 5);
  CHECK(rotate_checkpoints(dir, 2, 4).empty());  // 50 belongs to another course of the run
  REQUIRE(list_checkpoints(dir).size() == 3);
  CHECK(list_checkpoints(dir)[0].step == 3);
  CHECK(rotate_checkpoints(dir, 1).empty());
  REQUIRE(list_checkpoints(dir).size() == 1);
  CHECK(list_checkpoints(dir)[0].step == 50);
}

TEST_CASE("checkpoints of an abandoned course are set aside") {
  const TemporaryFolder folder;
  const std::string& dir = folder.path();
  write_steps(dir, {10, 20, 30});
  CHECK(set_aside_checkpoints_after(dir, 10).size() == 2);
  CHECK(newest(dir).name == "step-00000010.h5");
  CHECK(fs::exists(folder / "step-00000030.h5.superseded"));
  write_text(checkpoint_path(dir, 30), "the second");
  CHECK(set_aside_checkpoints_after(dir, 10) == std::vector<std::string>{folder / "step-00000030.h5.superseded-2"});
  CHECK(read_text(folder / "step-00000030.h5.superseded") != "the second");
}

TEST_CASE("a checkpoint that fails is set aside under a name of its own each time") {
  const TemporaryFolder folder;
  const std::string& dir = folder.path();
  for (const char* suffix : {".failed", ".failed-2"}) {
    write_steps(dir, {10, 20, 30});
    const auto names = set_aside_failed_checkpoints(dir, 20);
    CHECK(names == std::vector<std::string>{checkpoint_path(dir, 20) + suffix, checkpoint_path(dir, 30) + suffix});
    CHECK(newest(dir).name == "step-00000010.h5");
    CHECK(checkpoint_problem(names[1]).empty());
  }
  CHECK(fs::exists(folder / "step-00000020.h5.failed"));
}

TEST_CASE("what is no checkpoint is said to be none") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  hdf5::FileImage image("a", 0);
  image.write("/images", random_tensor("images", {2, 2, 2, 1}, DType::kU8, 1));
  write_file_atomically(path, image.bytes());
  CHECK(contains(error_of([&] { (void)read_checkpoint(path); }), "not a checkpoint"));
  CHECK(contains(error_of([&] { (void)read_model_weights(path); }), "no group /model"));
  image.write_attribute("/", "format", std::string("convoy-checkpoint"));
  image.write_attribute("/", "format_version", std::int64_t{99});
  write_file_atomically(path, image.bytes());
  CHECK(contains(error_of([&] { (void)read_checkpoint(path); }), "format_version 99"));
}
