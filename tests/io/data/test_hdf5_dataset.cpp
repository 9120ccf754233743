// SPDX-License-Identifier: Apache-2.0
//
// HDF5 data files good and bad. Files of other programs (contiguous, compressed, other types and byte orders) are
// written with the C API here; every way of storing the same images must give the same samples.
#include <doctest/doctest.h>
#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "io/data/hdf5_dataset.h"
#include "tests/io/checkpoint/sample_checkpoint.h"
#include "tests/io/hdf5/raw_hdf5.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

std::string open_error(const std::string& source) {
  ExitCode code{};
  const std::string error = error_of([&] { Hdf5Dataset{source}; }, &code);
  CHECK(code == ExitCode::kUsage);
  return error;
}

}  // namespace

TEST_CASE("images and labels, however they are stored") {
  const TemporaryFolder folder;
  const HostTensor images = random_tensor("images", {7, 4, 5, 3}, DType::kU8, 1);
  for (const Storage storage : {Storage::kContiguous, Storage::kChunked, Storage::kCompressed}) {
    const std::string path = folder / "a.h5";
    {
      RawFile raw(path);
      raw.images("images", 7, storage);
      raw.labels("labels", {0, 1, 2, 3, 4, 0, 2}, storage == Storage::kChunked ? H5T_STD_I16BE : H5T_STD_I64LE);
      raw.names("/", {"a", "b", "c", "d", "e"});
    }
    const Hdf5Dataset data(path);
    CHECK(data.size() == 7);
    CHECK(data.sample_shape() == Shape{3, 4, 5});
    CHECK(data.input_dtype() == DType::kU8);
    CHECK(data.target_size() == 0);
    CHECK(data.classes() == 5);
    CHECK(data.class_names() == std::vector<std::string>{"a", "b", "c", "d", "e"});
    data.check_labels(5);
    std::vector<std::uint8_t> image(60);
    std::int64_t label = -1;
    for (const std::int64_t i : {6, 0, 3, 3}) {
      data.read(i, image.data(), &label, nullptr);
      CHECK(std::memcmp(image.data(), images.data<char>() + i * 60, 60) == 0);
      CHECK(label == (std::vector<std::int64_t>{0, 1, 2, 3, 4, 0, 2}[static_cast<std::size_t>(i)]));
    }
    CHECK(contains(error_of([&] { data.read(7, image.data(), &label, nullptr); }), "sample 7 of 7"));
    const hdf5::File file(path);
    CHECK((file.info("/images").file_offset >= 0) == (storage == Storage::kContiguous));
    const RowSource slow(file, "/images", DType::kU8, 0);
    slow.read(5, image.data());
    CHECK(std::memcmp(image.data(), images.data<char>() + 5 * 60, 60) == 0);
  }
}

TEST_CASE("images of uint16 are scaled as torchvision's are, floats stay; of any number of channels, however stored") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  std::vector<std::uint16_t> values(6 * 4 * 3 * 5);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(65535 - i * 181);
  const std::vector<float> floats(values.begin(), values.end());
  for (const Storage storage : {Storage::kContiguous, Storage::kChunked, Storage::kCompressed}) {
    for (const hid_t type : {H5T_STD_U16LE, H5T_STD_U16BE, H5T_IEEE_F32LE, H5T_IEEE_F64BE}) {
      {
        RawFile raw(path);
        raw.write("images", {6, 4, 3, 5}, type, H5T_NATIVE_UINT16, values.data(), storage);
        raw.labels("labels", {0, 1, 2, 0, 1, 2});
      }
      const Hdf5Dataset data(path);
      CHECK(data.sample_shape() == Shape{5, 4, 3});
      CHECK(data.input_dtype() == DType::kF32);
      CHECK(data.classes() == 3);
      const bool scaled = H5Tget_class(type) == H5T_INTEGER;
      std::vector<float> image(60);
      for (const std::int64_t i : {5, 0, 3}) {
        data.read(i, image.data(), nullptr, nullptr);
        bool same = true;
        for (std::size_t k = 0; k < 60; ++k) {
          const float value = floats[static_cast<std::size_t>(i) * 60 + k];
          same = same && image[k] == (scaled ? value / 65535.0F : value);
        }
        CHECK(same);
      }
      const hdf5::File file(path);
      CHECK((file.info("/images").uint16_offset >= 0) ==
            (storage == Storage::kContiguous && H5Tequal(type, H5T_NATIVE_UINT16) > 0));
    }
  }
}

TEST_CASE("several labels of a sample are float targets of 0 and 1, beside images and beside inputs") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  std::vector<std::uint8_t> labels(5 * 7);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i * i % 3 == 0 ? 1 : 0;
  const std::vector<float> inputs(5 * 60, 0.5F);
  for (const Storage storage : {Storage::kContiguous, Storage::kCompressed}) {
    for (const bool images : {true, false}) {
      {
        RawFile raw(path);
        if (images) raw.images("images", 5);
        if (!images) raw.write("inputs", {5, 60}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, inputs.data());
        raw.write("targets", {5, 7}, H5T_STD_U8LE, H5T_NATIVE_UINT8, labels.data(), storage);
      }
      const Hdf5Dataset data(path);
      CHECK(data.target_size() == 7);
      CHECK(data.classes() == 0);
      CHECK(data.input_dtype() == (images ? DType::kU8 : DType::kF32));
      std::vector<float> input(60), target(7);
      for (const std::int64_t i : {4, 0, 2}) {
        data.read(i, input.data(), nullptr, target.data());
        CHECK(std::equal(target.begin(), target.end(), labels.begin() + i * 7));
      }
    }
  }
  labels[16] = 2;
  {
    RawFile raw(path);
    raw.images("images", 5);
    raw.write("targets", {5, 7}, H5T_STD_U8LE, H5T_NATIVE_UINT8, labels.data());
  }
  const Hdf5Dataset data(path);
  std::vector<float> target(7);
  data.read(1, nullptr, nullptr, target.data());
  ExitCode code{};
  CHECK(contains(error_of([&] { data.read(2, nullptr, nullptr, target.data()); }, &code),
                 "/targets: sample 2 has the value 2 for class 2"));
  CHECK(code == ExitCode::kUsage);
}

TEST_CASE("a group may be named, and names of classes may hang on the labels") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  {
    RawFile raw(path);
    raw.group("train");
    raw.images("train/images", 3);
    raw.labels("train/labels", {2, 1, 0});
    raw.names("train/labels", {"x", "y", "z"});
  }
  CHECK(Hdf5Dataset(path + ":/train").size() == 3);
  CHECK(Hdf5Dataset(path + ":/train/").class_names().size() == 3);
  CHECK(contains(open_error(path), "did you mean " + path + ":/train?"));
  CHECK(contains(open_error(path + ":/test"), "no group /test (there are: /train)"));
  CHECK(contains(open_error(path + ":/train/images"), "name the group that holds it"));
}

TEST_CASE("float inputs: vectors, images to channels-last, targets, other float types") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  std::vector<float> values(2 * 3 * 4 * 5);
  std::iota(values.begin(), values.end(), 0.0F);
  {
    RawFile raw(path);
    for (const char* group : {"v", "p", "d", "one", "labelled"}) raw.group(group);
    raw.write("v/inputs", {10, 12}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values.data());
    raw.write("v/targets", {10, 3, 4}, H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, values.data());
    raw.write("p/inputs", {2, 3, 4, 5}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values.data());
    raw.labels("p/labels", {1, 0});
    raw.write("d/inputs", {10, 3, 4}, H5T_IEEE_F64LE, H5T_NATIVE_FLOAT, values.data());
    raw.write("d/targets", {10}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values.data());
    raw.write("one/inputs", {120}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values.data());
    raw.write("one/targets", {120, 1}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values.data());
  }
  std::vector<float> input(60), target(12);
  const Hdf5Dataset vectors(path + ":/v");
  CHECK(vectors.sample_shape() == Shape{12});
  CHECK(vectors.input_dtype() == DType::kF32);
  CHECK(vectors.target_size() == 12);
  CHECK(vectors.classes() == 0);
  vectors.check_labels(1);
  vectors.read(9, input.data(), nullptr, target.data());
  CHECK(input[11] == 119);
  CHECK(target[0] == 108);

  const Hdf5Dataset planes(path + ":/p");
  CHECK(planes.sample_shape() == Shape{3, 4, 5});
  std::int64_t label = -1;
  planes.read(1, input.data(), &label, nullptr);
  CHECK(label == 0);
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 20; ++i) CHECK(input[static_cast<std::size_t>(i * 3 + c)] == 60 + c * 20 + i);
  }

  const Hdf5Dataset doubles(path + ":/d");
  CHECK(doubles.sample_shape() == Shape{12});
  CHECK(doubles.target_size() == 1);
  doubles.read(2, input.data(), nullptr, target.data());
  CHECK(input[0] == 24);
  CHECK(target[0] == 2);
  CHECK(Hdf5Dataset(path + ":/one").sample_shape() == Shape{1});
}

TEST_CASE("bad files are errors of input that say what is wrong and what is needed") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const auto check = [&](const char* expected, const std::function<void(RawFile&)>& build) {
    {
      RawFile raw(path);
      build(raw);
    }
    const std::string error = open_error(path);
    CHECK_MESSAGE(contains(error, expected), error);
    CHECK(contains(error, path));
  };
  const std::vector<float> floats(1000, 0.0F);
  check("found: no data sets; needed: images uint8", [](RawFile&) {});
  check("found: /images uint8 [3, 4, 5, 3]; needed", [](RawFile& raw) { raw.images("images", 3); });
  check("3 labels for 2 samples", [](RawFile& raw) {
    raw.images("images", 2);
    raw.labels("labels", {0, 1, 2});
  });
  check("/labels: sample 1 has the label -1", [](RawFile& raw) {
    raw.images("images", 3);
    raw.labels("labels", {0, -1, -2});
  });
  check("float32 [2], but labels are int64 [N]", [&](RawFile& raw) {
    raw.images("images", 2);
    raw.write("labels", {2}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, floats.data());
  });
  check("int16 [2, 4, 4, 3], but images are uint8, uint16 or float32 [N, H, W, C]", [&](RawFile& raw) {
    raw.write("images", {2, 4, 4, 3}, H5T_STD_I16LE, H5T_NATIVE_FLOAT, floats.data());
    raw.labels("labels", {0, 1});
  });
  check("uint16 [2, 64], but images are", [&](RawFile& raw) {
    raw.write("images", {2, 64}, H5T_STD_U16LE, H5T_NATIVE_FLOAT, floats.data());
    raw.labels("labels", {0, 1});
  });
  check("uint16 [2, 3, 16, 16], which looks like [N, C, H, W]", [&](RawFile& raw) {
    const std::vector<float> zeros(2 * 3 * 16 * 16);
    raw.write("images", {2, 3, 16, 16}, H5T_STD_U16LE, H5T_NATIVE_FLOAT, zeros.data());
    raw.labels("labels", {0, 1});
  });
  check("uint8 [2, 64], but images are", [&](RawFile& raw) {
    raw.write("images", {2, 64}, H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, floats.data());
    raw.labels("labels", {0, 1});
  });
  check("no samples", [&](RawFile& raw) {
    raw.write("images", {0, 4, 4, 3}, H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, floats.data());
    raw.labels("labels", {0, 1});
  });
  check("both labels and targets", [&](RawFile& raw) {
    raw.write("inputs", {2, 3}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, floats.data());
    raw.write("targets", {2, 3}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, floats.data());
    raw.labels("labels", {0, 1});
  });
  check("5 targets for 2 samples", [&](RawFile& raw) {
    raw.write("inputs", {2, 3}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, floats.data());
    raw.write("targets", {5, 3}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, floats.data());
  });
  check("uint8 [2], but targets are float32 [N, ...], or uint8 [N, classes]", [&](RawFile& raw) {
    raw.images("images", 2);
    raw.write("targets", {2}, H5T_STD_U8LE, H5T_NATIVE_FLOAT, floats.data());
  });
  check("int64 [2, 3], but targets are", [&](RawFile& raw) {
    raw.images("images", 2);
    raw.write("targets", {2, 3}, H5T_STD_I64LE, H5T_NATIVE_FLOAT, floats.data());
  });
  check("3 targets for 2 samples", [&](RawFile& raw) {
    raw.images("images", 2);
    raw.write("targets", {3, 2}, H5T_STD_U8LE, H5T_NATIVE_FLOAT, floats.data());
  });
  CHECK(contains(open_error(folder / "none.h5"), "No such file"));
  write_text(path, "text");
  CHECK(contains(open_error(path), "not a complete HDF5 file"));
}

TEST_CASE("labels are checked against the number of classes") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  {
    RawFile raw(path);
    raw.images("images", 4);
    raw.labels("labels", {0, 9, 11, 10});
  }
  const Hdf5Dataset data(path);
  data.check_labels(12);
  ExitCode code{};
  const std::string error = error_of([&] { data.check_labels(10); }, &code);
  CHECK(code == ExitCode::kUsage);
  CHECK(contains(error, path));
  CHECK(contains(error, "sample 2 has the label 11, but there are 10 classes"));
  CHECK(contains(error, "model.classes to 12"));
}

TEST_CASE("a file that shrinks while it is read is an error of running, with the sample") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  {
    RawFile raw(path);
    raw.images("images", 100);
    raw.labels("labels", std::vector<std::int64_t>(100, 1));
  }
  const Hdf5Dataset data(path);
  const auto offset = static_cast<std::uintmax_t>(hdf5::File(path).info("/images").file_offset);
  std::filesystem::resize_file(path, offset + 60 * 50);
  std::vector<std::uint8_t> image(60);
  std::int64_t label = 0;
  data.read(49, image.data(), &label, nullptr);
  ExitCode code{};
  const std::string error = error_of([&] { data.read(50, image.data(), &label, nullptr); }, &code);
  CHECK(contains(error, path + ":/images: cannot read row 50: the file ends early"));
  CHECK(code == ExitCode::kFailure);
}
