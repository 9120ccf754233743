// SPDX-License-Identifier: Apache-2.0
//
// Shards: names, whole and incomplete sets, sets that do not go together; and what is read through them against the
// same samples in one file.
#include <doctest/doctest.h>
#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "io/data/hdf5_dataset.h"
#include "io/data/hdf5_shards.h"
#include "io/data/shards.h"
#include "io/pack/pack_journal.h"
#include "io/pack/pack_plan.h"
#include "tests/io/hdf5/raw_hdf5.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

std::string usage_error(const std::function<void()>& body) {
  ExitCode code{};
  std::string text = error_of(body, &code);
  CHECK(code == ExitCode::kUsage);
  return text;
}

std::string open_error(const std::string& source) {
  return usage_error([&] { static_cast<void>(open_hdf5(source)); });
}

// Samples first to last of a data set in which element k of sample i is 12 i + k, labels i mod 3.
void write_images(const std::string& path, int first, int last, std::vector<const char*> names = {"a", "b", "c"}) {
  RawFile raw(path);
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  for (int i = first; i < last; ++i) {
    for (int k = 0; k < 12; ++k) pixels.push_back(static_cast<std::uint8_t>(12 * i + k));
    labels.push_back(i % 3);
  }
  raw.group("train");
  raw.write("train/images", {static_cast<hsize_t>(last - first), 2, 2, 3}, H5T_NATIVE_UINT8, H5T_NATIVE_UINT8,
            pixels.data());
  raw.labels("train/labels", labels);
  raw.names("train", names);
}

void write_jpegs(const std::string& path, const std::vector<std::string>& files) {
  RawFile raw(path);
  std::string all;
  std::vector<std::int64_t> offsets = {0}, labels;
  for (const std::string& file : files) {
    all += file;
    offsets.push_back(static_cast<std::int64_t>(all.size()));
    labels.push_back(static_cast<std::int64_t>(file.size()));
  }
  raw.group("jpeg");
  raw.write("jpeg/bytes", {all.size()}, H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, all.data());
  raw.labels("jpeg/offsets", offsets);
  raw.labels("labels", labels);
}

}  // namespace

TEST_CASE("shards are called after their data file") {
  CHECK(shard_path("a/out.h5", 2, 4) == "a/out-00002-of-00004.h5");
  CHECK(shard_path("out", 0, 12345) == "out-00000-of-12345");
  CHECK(shard_pattern("a/out.h5", 4) == "a/out-*-of-00004.h5");
}

TEST_CASE("a pattern means one whole set of shards") {
  const TemporaryFolder folder;
  const auto touch = [&](const std::string& name) { write_text(folder / name, ""); };
  const auto error = [&](const std::string& pattern) {
    return usage_error([&] { static_cast<void>(find_shards(folder / pattern)); });
  };
  CHECK(!is_shard_pattern(folder / "out.h5"));
  CHECK(contains(error("out-*.h5"), "no file matches"));
  CHECK(contains(error("gone/out-*.h5"), "no file matches"));
  for (const char* name : {"out-00001-of-00003.h5", "out-00002-of-00003.h5", "out.h5", "other-00000-of-00002.h5"}) {
    touch(name);
  }
  CHECK(contains(error("out-*.h5"), "1 of the 3 shards are missing: out-00000-of-00003.h5 ("));
  touch("out-00000-of-00003.h5");
  const std::vector<std::string> expected = {folder / "out-00000-of-00003.h5", folder / "out-00001-of-00003.h5",
                                             folder / "out-00002-of-00003.h5"};
  for (const char* pattern : {"out-*.h5", "out-*-of-00003.h5", "o*-*-*3.h5", "*-of-00003*"}) {
    CAPTURE(pattern);
    CHECK(find_shards(folder / pattern) == expected);
  }
  CHECK(shard_sources(folder / "out-*.h5:/train/").front() == expected.front() + ":/train");
  CHECK(shard_sources(folder / "out-*.h5").back() == expected.back());
  CHECK(shard_sources("any.h5:/x") == std::vector<std::string>{"any.h5:/x"});
  CHECK(contains(error("*.h5"), "other-00000-of-00002.h5 and out-00000-of-00003.h5 are of different packings"));
  CHECK(contains(error("out*.h5"), "out.h5 matches, but is no shard"));
  touch("out-00003-of-00003.h5");  // there is no fourth of three
  CHECK(contains(error("out-*.h5"), "out-00003-of-00003.h5 matches, but is no shard"));
  touch("many-00004-of-00100.h5");
  CHECK(contains(error("many-*"), "99 of the 100 shards are missing: many-00000-of-00100.h5, "));
  CHECK(contains(error("many-*"), ", many-00005-of-00100.h5, ... (copy"));
  touch("odd-*.h5");  // a file may be called so
  CHECK(!is_shard_pattern(folder / "odd-*.h5"));
}

TEST_CASE("what lies there of a packing") {
  const TemporaryFolder folder;
  for (const char* name : {"out-00001-of-00002.h5", "out-00000-of-00003.h5", "out-00000-of-00003.h5.part", "out.h5",
                           "out-2-of-3.h5", "out-x0000-of-00002.h5", "an-out-00000-of-00002.h5"}) {
    write_text(folder / name, "");
  }
  CHECK(shards_there(folder / "out.h5", "") ==
        std::vector<std::string>{folder / "out-00000-of-00003.h5", folder / "out-00001-of-00002.h5"});
  CHECK(shards_there(folder / "out.h5", ".part") == std::vector<std::string>{folder / "out-00000-of-00003.h5.part"});
}

TEST_CASE("samples of shards are those of one file") {
  const TemporaryFolder folder;
  write_images(folder / "whole.h5", 0, 10);
  write_images(folder / "a-00000-of-00003.h5", 0, 4);
  write_images(folder / "a-00001-of-00003.h5", 4, 5);
  write_images(folder / "a-00002-of-00003.h5", 5, 10);
  const Hdf5Dataset whole((folder / "whole.h5") + ":/train");
  const auto shards = open_hdf5((folder / "a-*.h5") + ":/train");
  REQUIRE(shards->size() == 10);
  CHECK(shards->sample_shape() == whole.sample_shape());
  CHECK(shards->classes() == 3);
  CHECK(shards->class_names() == whole.class_names());
  for (std::int64_t i = 9; i >= 0; --i) {
    std::vector<std::uint8_t> pixels(12), expected(12);
    std::int64_t label = -1, expected_label = -1;
    shards->read(i, pixels.data(), &label, nullptr);
    whole.read(i, expected.data(), &expected_label, nullptr);
    CHECK(pixels == expected);
    CHECK(label == expected_label);
  }
  for (const std::int64_t beyond : {-1, 10}) {
    CHECK(contains(error_of([&] { shards->read(beyond, nullptr, nullptr, nullptr); }), "of 10"));
  }
  CHECK(contains(error_of([&] { shards->check_labels(2); }), "a-00000-of-00003.h5:/train/labels: sample 2"));
  CHECK(contains(open_error(folder / "a-*.h5"), "did you mean"));

  write_images(folder / "a-00001-of-00003.h5", 4, 5, {"a", "b", "other"});
  CHECK(contains(open_error((folder / "a-*.h5") + ":/train"), "a-00001-of-00003.h5:/train: its class names differ"));
}

TEST_CASE("JPEGs of shards are those of one file, and know their shard") {
  const TemporaryFolder folder;
  write_jpegs(folder / "a-00000-of-00002.h5", {"x", "yy"});
  write_jpegs(folder / "a-00001-of-00002.h5", {"zzz"});
  REQUIRE(has_hdf5_jpegs(folder / "a-*"));
  const auto images = open_hdf5_jpegs(folder / "a-*");
  std::vector<std::byte> bytes;
  std::string all;
  for (std::int64_t i = 0; i < images->size(); ++i) {
    images->read(i, bytes);
    all += std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + ",";
    CHECK(images->label(i) == i + 1);
  }
  CHECK(all == "x,yy,zzz,");
  CHECK(images->classes() == 4);
  CHECK(images->name(2) == (folder / "a-00001-of-00002.h5") + ":/jpeg/bytes image 0");
}

TEST_CASE("shards that do not go together are named") {
  const TemporaryFolder folder;
  const std::string first = folder / "a-00000-of-00002.h5", second = folder / "a-00001-of-00002.h5",
                    all = folder / "a-*";
  {
    RawFile raw(first);
    raw.images("images", 2);
    raw.labels("labels", {0, 1});
  }
  write_jpegs(second, {"x"});
  CHECK(contains(open_error(all), "a-00001-of-00002.h5: holds encoded images, "));
  {
    const float numbers[6] = {};
    RawFile raw(second);
    raw.write("inputs", {2, 3}, H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, numbers);
    raw.labels("labels", {0, 1});
  }
  CHECK(contains(open_error(all), "a-00001-of-00002.h5: samples are float32 [3], in " + first + " uint8 [3, 4, 5]"));
  write_text(second, "no HDF5");
  CHECK(contains(open_error(all), "a-00001-of-00002.h5"));
  write_jpegs(first, {"x"});
  CHECK(contains(usage_error([&] { static_cast<void>(open_hdf5_jpegs(all)); }), "a-00001-of-00002.h5"));
}

TEST_CASE("a plan for shards has the order of the plan for one file") {
  std::vector<std::int64_t> training(10), validation(5);
  for (int i = 0; i < 10; ++i) training[static_cast<std::size_t>(i)] = 3 * i % 10;
  for (int i = 0; i < 5; ++i) validation[static_cast<std::size_t>(i)] = 14 - i;
  for (int files = 1; files <= 5; ++files) {
    PackPlan plan;
    plan.split = true;
    lay_out(plan, training, validation, files);
    REQUIRE(plan.files.size() == static_cast<std::size_t>(files));
    std::vector<std::int64_t> first, second;
    std::int64_t at = 0;
    for (const PackRange& file : plan.files) {
      CHECK(file.first == at);
      CHECK(std::abs(file.validation - file.first - 10 / files) <= 1);
      CHECK(std::abs(file.last - file.validation - 5 / files) <= 1);
      for (; at < file.last; ++at) {
        (at < file.validation ? first : second).push_back(plan.order[static_cast<std::size_t>(at)]);
      }
    }
    CHECK(first == training);
    CHECK(second == validation);
  }
  PackPlan plan;
  plan.split = true;
  const std::string error = usage_error([&] { lay_out(plan, training, validation, 6); });
  CHECK(contains(error, "--shards: 6 are more than the 5 validation samples"));
  plan.split = false;
  lay_out(plan, training, {}, 10);
  CHECK(contains(usage_error([&] { lay_out(plan, training, {}, 11); }), "11 are more than the 10 samples"));
}

TEST_CASE("a journal says that the files are placed until another packing begins") {
  const TemporaryFolder folder;
  const std::string path = folder / "journal";
  {
    PackJournal journal(path, 1);
    journal.append({{{5}, {1}, {}}});
    CHECK(!PackJournal::says_placing(path));
    journal.note_placing();
  }
  CHECK(PackJournal::says_placing(path));
  {
    PackJournal journal(path, 1);
    CHECK(journal.placing());
    CHECK(journal.blocks().size() == 1);
    journal.restart();
    CHECK(!journal.placing());
  }
  CHECK(!PackJournal::says_placing(path));
  CHECK(!PackJournal::says_placing(folder / "gone"));
}
