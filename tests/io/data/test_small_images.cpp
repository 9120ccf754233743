// SPDX-License-Identifier: Apache-2.0
//
// MNIST's and CIFAR-10's files: made by the test, read back sample by sample; damaged, truncated, misnamed.
#include <doctest/doctest.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "io/data/cifar10.h"
#include "io/data/idx.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

std::string idx_file(std::initializer_list<std::uint32_t> extents, const std::string& elements, char type = 8) {
  std::string bytes{'\0', '\0', type, static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift & 0xFFU);
  }
  return bytes + elements;
}

std::string pattern(std::size_t size, unsigned start = 0) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((start + i * 7) % 256);
  return bytes;
}

void write_gzipped(const std::string& path, const std::string& bytes) {
  const gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size()));
  gzclose(file);
}

// Sample `index` as bytes, and its label.
std::pair<std::string, std::int64_t> sample(const Dataset& data, std::int64_t index) {
  std::string pixels(static_cast<std::size_t>(data.sample_shape().size()), '\0');
  std::int64_t label = -1;
  data.read(index, pixels.data(), &label, nullptr);
  return {pixels, label};
}

std::string usage_error(const std::function<void()>& body) {
  ExitCode code = ExitCode::kDone;
  const std::string text = error_of(body, &code);
  CHECK(code == ExitCode::kUsage);
  return text;
}

}  // namespace

TEST_CASE("IDX images with their labels, plain and gzipped, by file and by folder") {
  const TemporaryFolder folder;
  const std::string pixels = pattern(5 * 4 * 3), labels{3, 0, 9, 1, 2};
  write_text(folder / "train-images-idx3-ubyte", idx_file({5, 4, 3}, pixels));
  write_gzipped(folder / "train-labels-idx1-ubyte.gz", idx_file({5}, labels));
  write_gzipped(folder / "t10k-images-idx3-ubyte.gz", idx_file({2, 4, 3}, pattern(24, 100)));
  write_text(folder / "t10k-labels-idx1-ubyte", idx_file({2}, std::string{7, 8}));
  const auto data = open_idx(folder.path(), true);
  CHECK(data->size() == 5);
  CHECK(data->sample_shape() == Shape{1, 4, 3});
  CHECK(data->input_dtype() == DType::kU8);
  CHECK(data->classes() == 10);
  CHECK(data->target_size() == 0);
  for (std::int64_t i = 0; i < 5; ++i) {
    const auto [image, label] = sample(*data, i);
    CHECK(image == pixels.substr(static_cast<std::size_t>(i) * 12, 12));
    CHECK(label == labels[static_cast<std::size_t>(i)]);
  }
  CHECK(contains(usage_error([&] { data->check_labels(9); }), "sample 2 has the label 9, but there are 9 classes"));
  data->check_labels(10);
  const auto test = open_idx(folder.path(), false);
  CHECK(test->size() == 2);
  CHECK(sample(*test, 1) == std::pair{pattern(24, 100).substr(12), std::int64_t{8}});
  CHECK(open_idx(folder / "t10k-images-idx3-ubyte.gz", true)->size() == 2);
  data->read(0, nullptr, nullptr, nullptr);  // nothing wanted
}

TEST_CASE("IDX with channels") {
  const TemporaryFolder folder;
  write_text(folder / "my-images-idx4-ubyte", idx_file({2, 2, 2, 3}, pattern(24)));
  write_text(folder / "my-labels-idx1-ubyte", idx_file({2}, std::string{1, 0}));
  const auto data = open_idx(folder / "my-images-idx4-ubyte", true);
  CHECK(data->sample_shape() == Shape{3, 2, 2});
  CHECK(sample(*data, 1).first == pattern(24).substr(12));
}

TEST_CASE("bad IDX files are named, with what is wrong") {
  const TemporaryFolder folder;
  const std::string images = folder / "train-images-idx3-ubyte", labels = folder / "train-labels-idx1-ubyte";
  const auto error = [&](const std::string& image_bytes, const std::string& label_bytes) {
    write_text(images, image_bytes);
    write_text(labels, label_bytes);
    const std::string text = usage_error([&] { static_cast<void>(open_idx(folder.path(), true)); });
    CHECK(contains(text, folder.path()));
    return text;
  };
  const std::string good = idx_file({2, 2, 2}, pattern(8)), two = idx_file({2}, std::string{0, 1});
  CHECK(contains(error("no IDX at all", two), "no IDX file"));
  CHECK(contains(error("", two), "no IDX file"));
  CHECK(contains(error(idx_file({2, 2, 2}, pattern(32), 0x0D), two), "only unsigned bytes"));
  CHECK(contains(error(good.substr(0, 10), two), "truncated in its header"));
  CHECK(contains(error(good.substr(0, good.size() - 3), two), "truncated: 5 of 8 elements are there"));
  CHECK(contains(error(good + "x", two), "longer than its header says (8 elements)"));
  CHECK(contains(error(idx_file({2, 0, 2}, ""), two), "axis 1 of 3 has 0 elements"));
  CHECK(contains(error(idx_file({0xFFFFFFFFU, 0xFFFFFFFFU, 2}, ""), two), "no such file is read"));
  CHECK(contains(error(idx_file({60000, 28, 28}, "few"), two), "truncated: 3 of 47040000"));
  CHECK(contains(error(idx_file({8}, pattern(8)), two), "1 axes; images have 3"));
  CHECK(contains(error(good, idx_file({3}, std::string{0, 1, 2})), "3 labels"));
  CHECK(contains(error(good, idx_file({2, 1}, std::string{0, 1})), "with 2 axes"));
  CHECK(contains(error(good, idx_file({}, std::string{0})), "with 0 axes"));
  write_gzipped(images + ".gz", good);
  std::filesystem::remove(images);
  const std::string gzipped = read_text(images + ".gz");
  write_text(images + ".gz", gzipped.substr(0, gzipped.size() / 2));
  write_text(labels, two);
  CHECK(!usage_error([&] { static_cast<void>(open_idx(folder.path(), true)); }).empty());
  std::filesystem::remove(labels);
  CHECK(contains(usage_error([&] { static_cast<void>(open_idx(images + ".gz", true)); }), "no labels next to it"));
  CHECK(contains(usage_error([&] { static_cast<void>(open_idx(folder / "digits.bin", true)); }), "\"images\" in it"));
  CHECK(contains(usage_error([&] { static_cast<void>(open_idx(folder.path(), false)); }), "no t10k-images-idx3-ubyte"));
}

TEST_CASE("CIFAR-10 batches: planes become pixels, batches follow each other") {
  const TemporaryFolder folder;
  const std::string inner = folder / "cifar-10-batches-bin";
  std::filesystem::create_directory(inner);
  for (int batch = 1; batch <= 5; ++batch) {
    std::string bytes;
    for (int record = 0; record < 2; ++record) {
      bytes += static_cast<char>(batch + record);
      bytes += pattern(3072, static_cast<unsigned>(10 * batch + record));
    }
    write_text(inner + fmt::format("/data_batch_{}.bin", batch), bytes);
  }
  write_text(inner + "/test_batch.bin", fmt::format("\x09{}", pattern(3072)));
  const auto data = open_cifar10(folder.path(), true);
  CHECK(data->size() == 10);
  CHECK(data->sample_shape() == Shape{3, 32, 32});
  CHECK(data->classes() == 7);
  CHECK(data->class_names().empty());
  const auto [image, label] = sample(*data, 5);  // the third batch's second
  CHECK(label == 4);
  const std::string planes = pattern(3072, 31);
  for (std::size_t pixel : {0U, 1U, 500U, 1023U}) {
    for (std::size_t c = 0; c < 3; ++c) CHECK(image[pixel * 3 + c] == planes[c * 1024 + pixel]);
  }
  CHECK(open_cifar10(inner, false)->size() == 1);
  CHECK(open_cifar10(inner + "/data_batch_2.bin", false)->size() == 2);
  write_text(inner + "/batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
  CHECK(open_cifar10(inner, true)->class_names().at(9) == "truck");
}

TEST_CASE("bad CIFAR-10 files are named, with what is wrong") {
  const TemporaryFolder folder;
  const auto error = [&] { return usage_error([&] { static_cast<void>(open_cifar10(folder.path(), false)); }); };
  CHECK(contains(error(), "no test_batch.bin in it"));
  write_text(folder / "test_batch.bin", "");
  CHECK(contains(error(), "0 bytes are not whole records of 3073"));
  write_text(folder / "test_batch.bin", pattern(3072));
  CHECK(contains(error(), "3072 bytes are not whole records"));
  write_text(folder / "test_batch.bin", fmt::format("\x01{}\x0A{}", pattern(3072), pattern(3072)));
  CHECK(contains(error(), "record 1 has the label 10 (0 to 9)"));
}
