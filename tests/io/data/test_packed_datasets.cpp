// SPDX-License-Identifier: Apache-2.0
//
// Data sets that another process has looked at: what it packs gives the same samples here, from files whose metadata
// nobody can read, and in another folder. Blocks that are cut short are errors.
#include <doctest/doctest.h>
#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/data/datasets.h"
#include "io/data/hdf5_dataset.h"
#include "io/data/hdf5_shards.h"
#include "io/data/image_folder.h"
#include "io/data/in_memory_dataset.h"
#include "io/files/packed_bytes.h"
#include "io/images/row_source.h"
#include "layers/base/system_error.h"
#include "tests/io/hdf5/raw_hdf5.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

namespace fs = std::filesystem;

template <class Source>
std::string packed(const Source& source) {
  BytePacker packer;
  source.pack(packer);
  return packer.take();
}

// HDF5 opens no file without its first bytes; the samples are elsewhere.
void damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.write("damaged!", 8);
}

std::vector<double> sample_of(const Dataset& data, std::int64_t index) {
  const auto count = static_cast<std::size_t>(data.sample_shape().size());
  std::vector<std::uint8_t> bytes(count);
  std::vector<float> floats(count), target(static_cast<std::size_t>(data.target_size()));
  std::int64_t label = -1;
  const bool images = data.input_dtype() == DType::kU8;
  data.read(index, images ? static_cast<void*>(bytes.data()) : floats.data(), &label, target.data());
  std::vector<double> all(bytes.begin(), bytes.end());
  if (!images) all.assign(floats.begin(), floats.end());
  all.insert(all.end(), target.begin(), target.end());
  all.push_back(static_cast<double>(label));
  return all;
}

void check_same(const Dataset& data, const Dataset& expected) {
  REQUIRE(data.size() == expected.size());
  CHECK(data.sample_shape() == expected.sample_shape());
  CHECK(data.input_dtype() == expected.input_dtype());
  CHECK(data.target_size() == expected.target_size());
  CHECK(data.classes() == expected.classes());
  CHECK(data.class_names() == expected.class_names());
  for (std::int64_t i = 0; i < data.size(); ++i) CHECK(sample_of(data, i) == sample_of(expected, i));
}

// Every shorter block is an Error.
void check_prefixes(const std::string& block, const std::function<void(ByteUnpacker&)>& unpack) {
  for (std::size_t size = 0; size < block.size(); ++size) {
    ByteUnpacker prefix(std::string_view(block).substr(0, size));
    CHECK(contains(error_of([&] { unpack(prefix); }), "ends early"));
  }
}

void write_shard(const std::string& path, int first, int last, Storage storage) {
  RawFile raw(path);
  std::vector<std::uint16_t> pixels;
  std::vector<std::int64_t> labels;
  for (int i = first; i < last; ++i) {
    for (int k = 0; k < 12; ++k) pixels.push_back(static_cast<std::uint16_t>(300 * i + k));
    labels.push_back(i * 100);  // of one and of two bytes
  }
  raw.group("train");
  raw.write("train/images", {static_cast<hsize_t>(last - first), 2, 2, 3}, H5T_NATIVE_UINT16, H5T_NATIVE_UINT16,
            pixels.data(), storage);
  raw.labels("train/labels", labels);
  raw.names("train", {"a", "b"});
}

}  // namespace

TEST_CASE("shards that another process has opened, in another folder and damaged here") {
  for (const Storage storage : {Storage::kContiguous, Storage::kCompressed}) {
    const TemporaryFolder there, here;
    write_shard(there / "a-00000-of-00002.h5", 0, 3, storage);
    write_shard(there / "a-00001-of-00002.h5", 3, 7, storage);
    const auto expected = open_hdf5((there / "a-*.h5") + ":/train");
    const std::string block = packed(*expected);
    for (const char* name : {"a-00000-of-00002.h5", "a-00001-of-00002.h5"}) {
      fs::copy(there / name, here / name);
      damage(here / name);
    }
    const std::string source = (here / "a-*.h5") + ":/train";
    ByteUnpacker unpacker(block);
    check_same(*unpack_hdf5(source, unpacker), *expected);
    check_prefixes(block, [&](ByteUnpacker& prefix) { static_cast<void>(unpack_hdf5(source, prefix)); });
    if (storage != Storage::kContiguous) continue;  // small and compressed: its samples travel in the block

    fs::resize_file(here / "a-00001-of-00002.h5", 100);
    fs::remove(here / "a-00000-of-00002.h5");
    ByteUnpacker again(block);
    const auto data = unpack_hdf5(source, again);
    std::vector<float> pixels(12);
    ExitCode code{};
    const auto read_error = [&](std::int64_t index) {
      return error_of([&] { data->read(index, pixels.data(), nullptr, nullptr); }, &code);
    };
    CHECK(contains(read_error(0), "cannot read " + (here / "a-00000-of-00002.h5") + ": No such file"));
    CHECK(code == ExitCode::kFailure);  // rank 0 has read it: it is this node that lacks it
    CHECK(contains(read_error(5), (here / "a-00001-of-00002.h5") + ": 100 bytes on "));
    CHECK(contains(read_error(5), "every node needs the same file"));
    std::int64_t label = -1;
    data->read(5, nullptr, &label, nullptr);  // needs no file
    CHECK(label == 500);
  }
}

TEST_CASE("float inputs and targets, and rows that only HDF5 can read") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  std::vector<float> values(5 * 2 * 3 * 3), targets(5 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 7;
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = -static_cast<float>(i);
  {
    RawFile raw(path);
    raw.images("images", 5, Storage::kChunked);
  }
  const hdf5::File file(path);
  const RowSource rows(file, "/images", DType::kU8, 0);
  const std::string of_rows = packed(rows);
  ByteUnpacker rows_unpacker(of_rows);
  const RowSource others(path, rows_unpacker);
  std::vector<std::uint8_t> row(60), expected_row(60);
  for (const std::int64_t i : {4, 0}) {
    others.read(i, row.data());
    rows.read(i, expected_row.data());
    CHECK(row == expected_row);
  }
  const std::string floats = folder / "floats.h5";
  {
    RawFile raw(floats);
    raw.write("inputs", {5, 2, 3, 3}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values.data());
    raw.write("targets", {5, 4}, H5T_IEEE_F64LE, H5T_NATIVE_FLOAT, targets.data());
  }
  const Hdf5Dataset expected(floats);
  const std::string block = packed(expected);
  ByteUnpacker unpacker(block);
  check_same(Hdf5Dataset(floats, unpacker), expected);
}

TEST_CASE("encoded images, a folder of them, and images in memory") {
  const TemporaryFolder folder;
  const std::string path = folder / "jpegs.h5";
  {
    RawFile raw(path);
    raw.group("jpeg");
    raw.write("jpeg/bytes", {6}, H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, "xyyzzz");
    raw.labels("jpeg/offsets", {0, 1, 3, 6});
    raw.labels("labels", {2, 0, 300});
  }
  const auto expected = open_hdf5_jpegs(path);
  const std::string block = packed(*expected);
  damage(path);
  ByteUnpacker unpacker(block);
  const auto images = unpack_hdf5_jpegs(path, unpacker);
  REQUIRE(images->size() == 3);
  CHECK(images->classes() == 301);
  std::vector<std::byte> bytes, expected_bytes;
  for (const std::int64_t i : {2, 0, 1}) {
    images->read(i, bytes);
    expected->read(i, expected_bytes);
    CHECK(bytes == expected_bytes);
    CHECK(images->label(i) == expected->label(i));
    CHECK(images->name(i) == expected->name(i));
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('?');
  }
  ByteUnpacker again(block);
  // An error of this host, so that no reader takes it for a broken image.
  CHECK_THROWS_WITH_AS(unpack_hdf5_jpegs(path, again)->read(0, bytes),
                       doctest::Contains("is not the one that rank 0 reads"), SystemError);

  const TemporaryFolder there;
  for (const char* name : {"b/1.jpg", "a/deep/2.png", "a/3.jpg"}) {
    fs::create_directories(fs::path(there / name).parent_path());
    write_text(there / name, name);
  }
  const ImageFolder listed(there.path());
  const std::string list = packed(listed);
  ByteUnpacker of_list(list);
  const ImageFolder told("elsewhere/", of_list);  // which need not be there
  REQUIRE(told.size() == 3);
  CHECK(told.class_names() == listed.class_names());
  for (std::int64_t i = 0; i < 3; ++i) {
    CHECK(told.label(i) == listed.label(i));
    CHECK(told.name(i) == "elsewhere" + listed.name(i).substr(there.path().size()));
  }
  check_prefixes(list, [](ByteUnpacker& prefix) { ImageFolder("elsewhere", prefix); });

  const InMemoryDataset small({"digits", {1, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 0}, {"no", "yes"}});
  const std::string of_small = packed(small);
  ByteUnpacker small_unpacker(of_small);
  check_same(InMemoryDataset(small_unpacker), small);
}

TEST_CASE("counts take as few bytes as the largest needs") {
  for (const auto& [largest, bytes] : {std::pair{255L, 1U}, {256L, 2U}, {65536L, 4U}, {1L << 40U, 8U}}) {
    const std::vector<std::int64_t> counts{0, 7, largest, 1};
    BytePacker packer;
    packer.counts(counts);
    const std::string block = packer.take();
    CHECK(block.size() == 16 + 4 * bytes);
    ByteUnpacker unpacker(block);
    CHECK(unpacker.counts() == counts);
  }
}
