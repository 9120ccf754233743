// SPDX-License-Identifier: Apache-2.0
//
// Folders and HDF5 files of JPEGs, good and bad, and the samples that come of them.
#include <doctest/doctest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/data/hdf5_jpegs.h"
#include "io/data/image_dataset.h"
#include "io/data/image_folder.h"
#include "io/images/resize.h"
#include "tests/io/data/pictures.h"
#include "tests/io/hdf5/raw_hdf5.h"
#include "tests/io/images/jpeg_files.h"
#include "tests/io/images/png_files.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

namespace fs = std::filesystem;

std::string folder_error(const std::string& path) {
  ExitCode code{};
  const std::string error = error_of([&] { ImageFolder{path}; }, &code);
  CHECK(code == ExitCode::kUsage);
  return error;
}

}  // namespace

TEST_CASE("a folder's order: classes, then folders, then files, byte by byte") {
  const TemporaryFolder folder, elsewhere;
  for (const char* name : {"b/10.jpg", "b/9.JPG", "B/x.jpeg", "a/z.jpg", "a/sub/1.JPeG", "a/sub-2/2.jpg",
                           "a/sub/deep/3.jpg", "a/note.txt", "a/.jpg", "readme.jpg"}) {
    put(folder / name, "not looked at yet");
  }
  put(elsewhere / "linked/far.jpg", "");
  fs::create_directory_symlink(elsewhere / "linked", folder / "a/link");
  const ImageFolder images(folder.path() + "/");
  CHECK(images.class_names() == std::vector<std::string>{"B", "a", "b"});
  std::vector<std::string> names;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < images.size(); ++i) {
    names.push_back(fs::path(images.name(i)).lexically_relative(folder.path()).string());
    labels.push_back(images.label(i));
  }
  CHECK(names == std::vector<std::string>{"B/x.jpeg", "a/.jpg", "a/z.jpg", "a/link/far.jpg", "a/sub/1.JPeG",
                                          "a/sub-2/2.jpg", "a/sub/deep/3.jpg", "b/10.jpg", "b/9.JPG"});
  CHECK(labels == std::vector<std::int64_t>{0, 1, 1, 1, 1, 1, 1, 2, 2});
  CHECK(images.classes() == 3);
  CHECK(contains(error_of([&] { images.check_labels(2); }), "3 class folders, but there are 2 classes"));
}

TEST_CASE("folders that cannot be trained on") {
  const TemporaryFolder folder;
  CHECK(contains(folder_error(folder / "gone"), "No such file"));
  CHECK(contains(folder_error(folder.path()), "one folder of images for each class"));
  put(folder / "a/1.jpg", "");
  fs::create_directories(folder / "b");
  fs::create_directories(folder / "c/d");
  CHECK(contains(folder_error(folder.path()), "no .jpg, .jpeg or .png files for the classes b, c"));
  put(folder / "b/1.TIFF", "");
  put(folder / "c/2.webp", "");
  CHECK(contains(folder_error(folder.path()),
                 "2 images in it are neither JPEG nor PNG, the first " + folder.path() + "/b/1.TIFF"));
  fs::remove_all(folder / "b");
  fs::remove_all(folder / "c");
  fs::create_directory_symlink("..", folder / "a/up");
  CHECK(contains(folder_error(folder.path()), "a/up leads back"));
}

TEST_CASE("a class that may not be read") {
  if (geteuid() == 0) {
    MESSAGE("skipped: root may read everything");
    return;
  }
  const TemporaryFolder folder;
  put(folder / "a/1.jpg", "");
  put(folder / "a/sub/1.jpg", "");
  REQUIRE(::chmod((folder / "a/sub").c_str(), 0) == 0);
  CHECK(contains(folder_error(folder.path()), "cannot list the folder " + folder.path() + "/a/sub: Permission denied"));
  REQUIRE(::chmod((folder / "a/sub").c_str(), 0700) == 0);
}

TEST_CASE("evaluation: the central part of the whole picture, resized") {
  const TemporaryFolder folder;
  fill(folder);
  const ImageDataset data = dataset(folder.path(), small_options());
  CHECK(data.size() == 24);
  CHECK(data.sample_shape() == Shape{3, 24, 24});
  Resizer resizer;
  for (const int i : {0, 3, 23}) {
    const Decoded whole = decode_whole(picture(i), 3);
    // Resize(28) of 60 x 50: int(28 * 60 / 50) = 33 x 28; CenterCrop(24) from round(4.5) = 4, 2.
    std::vector<std::uint8_t> all(33 * 28 * 3), expected;
    resizer.resize({whole.pixels.data(), 60, 50, 3, 180}, {0, 0, 60, 50}, 33, 28, false, all.data());
    for (int y = 2; y < 26; ++y) expected.insert(expected.end(), &all[(y * 33 + 4) * 3], &all[(y * 33 + 28) * 3]);
    const auto pixels = sample(data, {i, 7});
    int worst = 0;
    for (std::size_t k = 0; k < pixels.size(); ++k) worst = std::max(worst, std::abs(pixels[k] - expected[k]));
    CHECK(worst <= 1);  // the same sums, with weights rounded at another place
    std::int64_t label = -1;
    data.read(i, nullptr, &label, nullptr);
    CHECK(label == i / 8);
  }
}

TEST_CASE("training: samples are functions of seed, epoch and index, from any thread") {
  const TemporaryFolder folder;
  fill(folder);
  ImageDataset::Options options = small_options();
  options.augmentation.crop = options.augmentation.flip = options.augmentation.jitter = true;
  options.augmentation.rand = options.augmentation.hue = true;
  const ImageDataset data = dataset(folder.path(), options), again = dataset(folder.path(), options);
  std::vector<std::vector<std::uint8_t>> forwards(48), backwards(48);
  for (std::size_t i = 0; i < 48; ++i) forwards[i] = sample(data, {static_cast<std::int64_t>(i % 24), i < 24 ? 0 : 5});
  const auto read_part = [&](std::size_t first) {
    for (std::size_t i = 48; i-- > 0;) {
      if (i % 3 == first) backwards[i] = sample(again, {static_cast<std::int64_t>(i % 24), i < 24 ? 0 : 5});
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t first = 0; first < 3; ++first) threads.emplace_back(read_part, first);
  for (auto& thread : threads) thread.join();
  CHECK(forwards == backwards);
  CHECK(forwards[0] != forwards[24]);              // another epoch
  CHECK(sample(data, {0, 5, 1}) != forwards[24]);  // another time in that epoch
  CHECK(sample(data, {0, 5, 1}) == sample(again, {0, 5, 1}));
  options.seed = 10;
  CHECK(sample(dataset(folder.path(), options), 0) != forwards[0]);
}

TEST_CASE("PNGs are samples as JPEGs are, whatever the files are called") {
  const TemporaryFolder folder, renamed;
  const PngStyle with_alpha{6, 8, false};
  const auto png = [&](int number, const PngStyle& style) {
    return png_file(61, 53, style, [&](int x, int y, int c) {
      return static_cast<unsigned>(x * 3 + y * (c + 1) + 20 * number) % 256;
    });
  };
  for (int i = 0; i < 4; ++i) {
    const std::string file = i < 2 ? png(i, i == 1 ? with_alpha : PngStyle{}) : picture(i);
    put(folder / fmt::format("a/{}.{}", i, i < 2 ? "PNG" : "jpg"), file);
    put(renamed / fmt::format("a/{}.{}", i, i < 2 ? "jpeg" : "png"), file);
  }
  const ImageDataset data = dataset(folder.path(), small_options()), other = dataset(renamed.path(), small_options());
  CHECK(data.size() == 4);
  for (const std::int64_t i : {0, 1, 2, 3}) CHECK(sample(data, i) == sample(other, i));
  (void)sample(data, 1);
  const auto found = data.broken()->take();
  REQUIRE(found.size() == 1);  // once
  CHECK(found[0].index == BrokenFiles::kRemark);
  CHECK(found[0].text.starts_with(folder / "a/1.PNG: has transparency, which is dropped"));
  CHECK(data.broken()->noted() == 0);
  // The central 24 x 24 of Resize(28): 32 x 28 of 61 x 53.
  std::vector<std::uint8_t> all(61 * 53 * 3), resized(32 * 28 * 3), expected;
  for (int i = 0; i < 61 * 53; ++i) {
    for (int c = 0; c < 3; ++c)
      all[static_cast<std::size_t>(3 * i + c)] = static_cast<std::uint8_t>((i % 61 * 3 + i / 61 * (c + 1) + 20) % 256);
  }
  Resizer resizer;
  resizer.resize({all.data(), 61, 53, 3, 183}, {0, 0, 61, 53}, 32, 28, false, resized.data());
  for (int y = 2; y < 26; ++y)
    expected.insert(expected.end(), &resized[static_cast<std::size_t>((y * 32 + 4) * 3)],
                    &resized[static_cast<std::size_t>((y * 32 + 28) * 3)]);
  const auto pixels = sample(data, 1);
  int worst = 0;
  for (std::size_t k = 0; k < pixels.size(); ++k) worst = std::max(worst, std::abs(pixels[k] - expected[k]));
  CHECK(worst <= 1);  // the same sums, with weights rounded at another place
}

TEST_CASE("JPEGs in an HDF5 file are those of a folder") {
  const TemporaryFolder folder;
  fill(folder);
  std::string all = "head";
  std::vector<std::int64_t> offsets{4}, labels;
  for (int i = 0; i < 24; ++i) {
    all += picture(i);
    offsets.push_back(static_cast<std::int64_t>(all.size()));
    labels.push_back(i / 8);
  }
  const auto write = [&](const std::string& path, Storage storage) {
    RawFile raw(path);
    raw.group("jpeg");
    raw.write("jpeg/bytes", {all.size()}, H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, all.data(), storage);
    raw.labels("jpeg/offsets", offsets);
    raw.labels("labels", labels);
    raw.names("/", {"x", "y", "z"});
  };
  ImageDataset::Options options = small_options();
  options.augmentation.crop = true;
  const ImageDataset expected = dataset(folder.path(), options);
  for (const Storage storage : {Storage::kContiguous, Storage::kCompressed}) {
    const std::string path = folder / "data.h5";
    write(path, storage);
    REQUIRE(Hdf5Jpegs::are_in(path));
    const ImageDataset data(std::make_unique<Hdf5Jpegs>(path), path, options);
    CHECK(data.size() == 24);
    CHECK(data.classes() == 3);
    CHECK(data.class_names() == std::vector<std::string>{"x", "y", "z"});
    for (const std::int64_t i : {0, 7, 23}) CHECK(sample(data, {i, 2}) == sample(expected, {i, 2}));
  }
  CHECK_FALSE(Hdf5Jpegs::are_in(folder / "gone.h5"));

  const auto error = [&](std::vector<std::int64_t> changed, std::size_t kept_labels = 24) {
    std::swap(offsets, changed);
    labels.resize(kept_labels);
    write(folder / "bad.h5", Storage::kContiguous);
    std::swap(offsets, changed);
    ExitCode code{};
    const std::string text = error_of([&] { Hdf5Jpegs(folder / "bad.h5"); }, &code);
    CHECK(code == ExitCode::kUsage);
    return text;
  };
  auto bad = offsets;
  std::swap(bad[5], bad[6]);
  CHECK(contains(error(bad), "jpeg/offsets: image 5 starts at"));
  bad = offsets;
  bad.back() += 1;
  CHECK(contains(error(bad), "jpeg/bytes has"));
  bad = offsets;
  bad.front() = -1;
  CHECK(contains(error(bad), "from -1 to"));
  CHECK(contains(error({4}), "N at least 1"));
  CHECK(contains(error(offsets, 23), "23 labels for 24 samples"));
}

TEST_CASE("a size for each epoch: the samples of a data set of that size alone") {
  const TemporaryFolder folder;
  fill(folder);
  ImageDataset::Options options = small_options();
  options.augmentation.flip = true;
  options.resize = 0;  // size * 256 / 224, whatever the size
  for (const bool crop : {true, false}) {
    options.augmentation.crop = crop;
    options.size = ImageSizes({16, 40, 24}, {1, 3});
    const ImageDataset data = dataset(folder.path(), options);
    CHECK(data.sample_shape() == Shape{3, 40, 40});
    for (const std::int64_t epoch : {0, 1, 2, 3, 4}) {
      const std::int64_t size = epoch == 0 ? 16 : epoch < 3 ? 40 : 24;
      options.size = size;
      const ImageDataset alone = dataset(folder.path(), options);
      CHECK(data.sample_shape_in(epoch) == alone.sample_shape());
      for (const std::int64_t i : {0, 13}) CHECK(sample(data, {i, epoch}) == sample(alone, {i, epoch}));
    }
  }
}
