// SPDX-License-Identifier: Apache-2.0
//
// Images that are broken, and images that this host cannot read.
#include <doctest/doctest.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/data/hdf5_jpegs.h"
#include "layers/base/system_error.h"
#include "tests/io/data/pictures.h"
#include "tests/io/hdf5/raw_hdf5.h"
#include "tests/io/images/png_files.h"

using namespace convoy;
using namespace convoy::test;

namespace {

namespace fs = std::filesystem;

// While it lives, no file can be opened.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit none{0, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("broken files: told once, replaced by others of the class, the same by everybody") {
  const TemporaryFolder folder;
  fill(folder);
  put(folder / "b/08.jpg", "no picture");
  put(folder / "b/09.jpg", "");
  const std::string cut = picture(10);
  put(folder / "b/10.jpg", cut.substr(0, cut.size() / 3));
  const ImageDataset data = dataset(folder.path(), small_options()), other = dataset(folder.path(), small_options());
  (void)sample(other, 11);
  for (const std::int64_t index : {8, 9, 10}) {
    const auto replaced = sample(data, {index, 4});
    CHECK(replaced == sample(other, {index, 4}));
    CHECK(replaced == sample(data, {index, 4}));
    bool of_class = false;
    for (std::int64_t i = 11; i < 16; ++i) of_class = of_class || replaced == sample(data, i);
    CHECK(of_class);
    std::int64_t label = -1;
    data.read({index, 4}, nullptr, &label, nullptr);
    CHECK(label == 1);
  }
  const auto found = data.broken()->take();
  REQUIRE(found.size() == 3);
  CHECK(std::count_if(found.begin(), found.end(), [&](const auto& one) {
          return one.index == 8 && one.text.starts_with(folder / "b/08.jpg: neither JPEG nor PNG");
        }) == 1);
  CHECK(data.broken()->take().empty());
  CHECK_FALSE(data.broken()->has_news());
}

TEST_CASE("broken PNGs are replaced as JPEGs are") {
  const TemporaryFolder folder;
  fill(folder);
  const std::string good =
      png_file(61, 53, {}, [](int x, int y, int c) { return static_cast<unsigned>(x * x + y * (c + 1) * 7) % 256; });
  put(folder / "b/08.png", good.substr(0, good.size() / 2));
  put(folder / "b/09.png", "no picture");
  const ImageDataset data = dataset(folder.path(), small_options());
  REQUIRE(data.size() == 26);
  std::vector<std::vector<std::uint8_t>> others;
  for (const std::int64_t i : {8, 10, 12, 13, 14, 15, 16, 17}) others.push_back(sample(data, i));
  CHECK(data.broken()->noted() == 0);
  for (const std::int64_t index : {9, 11})
    CHECK(std::find(others.begin(), others.end(), sample(data, index)) != others.end());
  const auto found = data.broken()->take();
  REQUIRE(found.size() == 2);
  const auto names = [&](const char* text) {
    return std::any_of(found.begin(), found.end(),
                       [&](const auto& one) { return one.text.starts_with(folder / text); });
  };
  CHECK(names("b/08.png: the PNG ends early"));
  CHECK(names("b/09.png: neither JPEG nor PNG: it starts with 0x6e 0x6f"));
}

TEST_CASE("broken files: too many end the run") {
  const TemporaryFolder folder;
  fill(folder);
  for (int i = 8; i < 13; ++i) put(folder / fmt::format("b/{:02}.jpg", i), "no picture");
  const ImageDataset data = dataset(folder.path(), small_options());  // 0.2 * 24: four may be broken
  ExitCode code{};
  const std::string error = error_of(
      [&] {
        for (std::int64_t i = 0; i < 24; ++i) (void)sample(data, i);
      },
      &code);
  CHECK(code == ExitCode::kFailure);
  CHECK(contains(error, "5 broken files are more than the 4 that data.max_broken allows"));
  for (int i = 8; i < 13; ++i) CHECK(contains(error, fmt::format("b/{:02}.jpg: neither JPEG nor PNG", i)));
  // What other ranks have met counts, too.
  const TemporaryFolder good;
  fill(good);
  const ImageDataset half = dataset(good.path(), small_options());
  std::vector<BrokenFiles::Found> others;
  for (std::int64_t i = 0; i < 4; ++i) others.push_back({i, fmt::format("file {}: bad", i)});
  half.broken()->merge(others);
  others.push_back({4, "file 4: bad"});
  CHECK(contains(error_of([&] { half.broken()->merge(others); }), "file 4: bad"));
}

TEST_CASE("a file that this host cannot read now is no broken one") {
  const TemporaryFolder folder;
  fill(folder);
  const ImageDataset data = dataset(folder.path(), small_options());
  (void)sample(data, 0);
  const auto failed = [&](const ImageDataset& from) {
    try {
      (void)sample(from, 9);
    } catch (const Error& error) {
      CHECK(is_system_fault(error));
      return std::string(error.what());
    }
    return std::string();
  };
  {
    const NoDescriptors full;
    CHECK(failed(data) == folder / "b/09.jpg: Too many open files");
  }
  const std::string path = folder / "data.h5";
  {
    RawFile raw(path);
    raw.group("jpeg");
    std::string all;
    std::vector<std::int64_t> offsets{0}, labels;
    for (int i = 0; i < 24; ++i) {
      all += picture(i);
      offsets.push_back(static_cast<std::int64_t>(all.size()));
      labels.push_back(i / 8);
    }
    raw.labels("jpeg/offsets", offsets);
    raw.labels("labels", labels);
    raw.write("jpeg/bytes", {all.size()}, H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, all.data(), Storage::kContiguous);
  }
  const ImageDataset packed(std::make_unique<Hdf5Jpegs>(path), path, small_options());
  (void)sample(packed, 0);
  fs::resize_file(path, 4000);
  const std::string error = failed(packed);
  CHECK(contains(error, path + ":/jpeg/bytes image 9: "));
  CHECK(contains(error, "the file ends early"));
  CHECK(data.broken()->noted() + packed.broken()->noted() == 0);
  // It has gone: broken, and another of its class takes its place.
  fs::remove(folder / "b/09.jpg");
  (void)sample(data, 9);
  CHECK(data.broken()->noted() == 1);
}
