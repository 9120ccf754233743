// SPDX-License-Identifier: Apache-2.0
//
// The HDF5 layer by itself: values there and back, text of errors, silence on stderr, and what it says about data sets.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/files/atomic_file.h"
#include "io/hdf5/hdf5.h"
#include "tests/io/checkpoint/sample_checkpoint.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

TEST_CASE("attributes and tensors of every type come back as they were") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const std::vector<HostTensor> tensors = {
      random_tensor("f32", {3, 5, 2, 4}, DType::kF32, 1), random_tensor("f64", {7}, DType::kF64, 1),
      random_tensor("u8", {1, 9}, DType::kU8, 1), random_tensor("i64", {2, 2, 2}, DType::kI64, 1),
      random_tensor("scalar", Shape{}, DType::kI64, 1)};
  {
    hdf5::FileImage image("a.h5", 0);
    for (const auto& tensor : tensors) image.write("/deep/er/" + tensor.name, tensor);
    image.write_attribute("/", "int", std::int64_t{-5});
    image.write_attribute("/", "uint", std::numeric_limits<std::uint64_t>::max());
    image.write_attribute("/", "double", 0.1);
    image.write_attribute("/", "text", std::string("zwölf"));
    image.write_attribute("/", "empty", std::string());
    image.write_attribute("/", "long", std::string(200000, 'x'));
    image.write_attribute("/deep", "names", std::vector<std::string>{"cat", "dog"});
    image.write_attribute("/", "int", std::int64_t{-6});  // replaces
    write_file_atomically(path, image.bytes());
  }
  const hdf5::File file(path);
  for (const auto& tensor : tensors) {
    const HostTensor read = file.read("/deep/er/" + tensor.name, tensor.name);
    CHECK(same_tensors({tensor}, {read}));
  }
  CHECK(file.int_attribute("/", "int") == -6);
  CHECK(file.uint_attribute("/", "uint") == std::numeric_limits<std::uint64_t>::max());
  CHECK(file.double_attribute("/", "double") == 0.1);
  CHECK(file.string_attribute("/", "text") == "zwölf");
  CHECK(file.string_attribute("/", "empty") == "");
  CHECK(file.string_attribute("/", "long") == std::string(200000, 'x'));
  CHECK(file.strings_attribute("/deep", "names") == std::vector<std::string>{"cat", "dog"});
  CHECK(!file.int_attribute("/", "none"));
  CHECK(!file.int_attribute("/none", "none"));
  CHECK(contains(error_of([&] { (void)file.int_attribute("/", "text"); }), "attribute text of / is not a number"));
  CHECK(contains(error_of([&] { (void)file.string_attribute("/", "int"); }), "is not text"));
  CHECK(file.groups("/") == std::vector<std::string>{"deep"});
  CHECK(file.groups("/deep/er").empty());
  CHECK(file.has("/deep/er/u8"));
  CHECK(!file.has("/no/such/thing"));
  const auto listed = file.datasets();
  REQUIRE(listed.size() == 5);
  CHECK(listed[0].path == "/deep/er/f32");
  CHECK(listed[0].shape_text() == "[3, 5, 2, 4]");
  CHECK(listed[0].type_name == "float32");
  CHECK(!listed[0].checksummed);
  CHECK(listed[0].file_offset > 0);  // as it is in memory
  CHECK(listed[3].type_name == "int64");
  CHECK(listed[3].dims.empty());
  CHECK(listed[4].dtype == DType::kU8);
}

TEST_CASE("large data sets come back, whole and by rows") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const HostTensor tall = random_tensor("tall", {5000, 700}, DType::kF32, 1);        // 14 MB
  const HostTensor wide = random_tensor("wide", {2, 3000000}, DType::kF32, 2);       // rows of 12 MB
  const HostTensor deep = random_tensor("deep", {2, 1, 7, 500001}, DType::kF32, 3);  // four axes
  const HostTensor odd = random_tensor("odd", {3, 700001}, DType::kU8, 4);           // of an odd size
  hdf5::FileImage image("a.h5", tall.bytes.size());
  image.write("/tall", tall);
  image.write("/wide", wide);
  image.write("/deep", deep);
  image.write("/odd", odd);
  write_file_atomically(path, image.bytes());
  const std::size_t elements = tall.bytes.size() + wide.bytes.size() + deep.bytes.size() + odd.bytes.size();
  CHECK(std::filesystem::file_size(path) < elements * 101 / 100);
  const hdf5::File file(path);
  CHECK(same_tensors({tall}, {file.read("/tall", "tall")}));
  CHECK(same_tensors({wide}, {file.read("/wide", "wide")}));
  CHECK(same_tensors({deep}, {file.read("/deep", "deep")}));
  CHECK(same_tensors({odd}, {file.read("/odd", "odd")}));
  for (const auto& info : file.datasets()) file.verify(info);
  std::vector<float> rows(3 * 700);
  hdf5::RowReader(file, "/tall").read(357, 3, DType::kF32, rows.data());
  CHECK(std::memcmp(rows.data(), tall.data<float>() + 357 * 700, rows.size() * 4) == 0);
}

TEST_CASE("two images at once, and one under the name of a file that exists") {
  const TemporaryFolder folder;
  write_text(folder / "a.h5", "old");
  hdf5::FileImage first(folder / "a.h5", 0), second(folder / "a.h5", 0);
  first.write("/x", random_tensor("x", {2}, DType::kF32, 1));
  second.write("/y", random_tensor("y", {2}, DType::kF32, 1));
  CHECK(read_text(folder / "a.h5") == "old");
  write_file_atomically(folder / "b.h5", second.bytes());
  CHECK(hdf5::File(folder / "b.h5").has("/y"));
  CHECK(!hdf5::File(folder / "b.h5").has("/x"));
}

TEST_CASE("errors name the file and say why, and HDF5 itself prints nothing") {
  const TemporaryFolder folder;
  std::fflush(stderr);
  const int saved = dup(2);
  REQUIRE(std::freopen((folder / "stderr").c_str(), "w", stderr) != nullptr);
  const std::string missing = error_of([&] { hdf5::File(folder / "no.h5"); });
  write_text(folder / "text.h5", "this is no HDF5 file");
  const std::string text = error_of([&] { hdf5::File(folder / "text.h5"); });
  const std::string directory = error_of([&] { hdf5::File(folder.path()); });
  hdf5::FileImage image("a.h5", 0);
  image.write("/x", random_tensor("x", {2}, DType::kF32, 1));
  const std::string twice = error_of([&] { image.write("/x", random_tensor("x", {2}, DType::kF32, 1)); });
  const std::string below = error_of([&] { image.write("/x/y", random_tensor("y", {2}, DType::kF32, 1)); });
  const std::string none = error_of([&] { image.write("/z", random_tensor("z", {0, 2}, DType::kF32, 1)); });
  std::fflush(stderr);
  dup2(saved, 2);
  close(saved);
  CHECK(contains(missing, "no.h5: No such file or directory"));
  CHECK(contains(text, "text.h5: not a complete HDF5 file: "));
  CHECK(contains(text, "signature"));
  CHECK(contains(directory, "Is a directory"));
  CHECK(contains(twice, "a.h5:/x: "));
  CHECK(contains(below, "a.h5:/x/y: "));
  CHECK(contains(none, "no elements"));
  CHECK(read_text(folder / "stderr").empty());
}

TEST_CASE("what lies at a page's start goes past the page cache, whatever its size") {
  const TemporaryFolder folder;
  constexpr std::size_t kPage = 4096;
  std::vector<std::byte> memory(20 * 1024 * kPage + 2 * kPage);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7 + i / 251);
  void* start = memory.data();
  std::size_t room = memory.size();
  REQUIRE(std::align(kPage, memory.size() - kPage, start, room) != nullptr);
  for (const std::size_t size : {std::size_t{0}, std::size_t{17}, kPage, 3 * kPage + 5, 20 * 1024 * kPage + 1}) {
    for (const std::size_t shift : {0, 1}) {
      const std::span bytes(static_cast<const std::byte*>(start) + shift, size);
      const std::string tail = "and its end";
      write_file_atomically(folder / "file", bytes, std::as_bytes(std::span(tail)));
      CHECK_MESSAGE(read_text(folder / "file") == std::string(reinterpret_cast<const char*>(bytes.data()), size) + tail,
                    size, " bytes, shifted by ", shift);
    }
  }
}

TEST_CASE("writing atomically replaces a file, or leaves it and nothing else") {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  const std::string first = "first", second = "second";
  write_file_atomically(path, std::as_bytes(std::span(first)));
  write_file_atomically(path, std::as_bytes(std::span(second)));
  CHECK(read_text(path) == "second");
  CHECK(contains(error_of([&] { write_file_atomically(folder / "no/file", {}); }), "No such file"));
  std::filesystem::create_directory(folder / "taken");
  write_text(folder / "taken/x", "");
  CHECK(contains(error_of([&] { write_file_atomically(folder / "taken", {}); }), "taken"));
  CHECK(!std::filesystem::exists(folder / "taken.tmp"));
}
