// SPDX-License-Identifier: Apache-2.0
#include "io/data/cifar10.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "io/data/in_memory_dataset.h"
#include "layers/base/file_text.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChannels = 3, kPixels = 32 * 32, kImage = kChannels * kPixels, kRecord = kCifar10RecordBytes;
static_assert(kRecord == 1 + kImage);
constexpr unsigned kClasses = 10;

// Where the batches of `source` lie, which may be the folder itself or the one around it.
fs::path batches_folder(const std::string& source) {
  std::error_code ignored;
  const fs::path unpacked = fs::path(source) / "cifar-10-batches-bin";  // as the archive has it
  return fs::exists(unpacked, ignored) ? unpacked : fs::path(source);
}

std::vector<std::string> batch_files(const std::string& source, bool training) {
  std::error_code ignored;
  if (!fs::is_directory(source, ignored)) return {source};
  const fs::path folder = batches_folder(source);
  std::vector<std::string> files;
  for (int batch = 1; training && batch <= 5; ++batch) {
    files.push_back((folder / fmt::format("data_batch_{}.bin", batch)).string());
  }
  if (!training) files.push_back((folder / "test_batch.bin").string());
  for (const std::string& file : files) {
    if (!fs::exists(file, ignored)) {
      fail_usage("{}: no {} in it (the binary version of CIFAR-10, unpacked, or name one batch file)", source,
                 fs::path(file).filename().string());
    }
  }
  return files;
}

void append_batch(const std::string& path, InMemoryDataset::Content& content) {
  const auto text = file_text(path);
  if (!text) fail_system(errno, "cannot read {}: {}", path, std::strerror(errno));
  const std::string& bytes = *text;
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    fail_usage("{}: {} bytes are not whole records of {} (the binary version of CIFAR-10 is needed)", path,
               bytes.size(), kRecord);
  }
  for (std::size_t at = 0; at < bytes.size(); at += kRecord) {
    const auto label = static_cast<unsigned char>(bytes[at]);
    if (label >= kClasses) fail_usage("{}: record {} has the label {} (0 to 9)", path, at / kRecord, int{label});
    content.labels.push_back(label);
    const char* planes = bytes.data() + at + 1;
    for (std::size_t pixel = 0; pixel < kPixels; ++pixel) {
      for (std::size_t c = 0; c < kChannels; ++c) {
        content.pixels.push_back(static_cast<std::uint8_t>(planes[c * kPixels + pixel]));
      }
    }
  }
}

fs::path names_file(const std::string& batch) { return fs::path(batch).parent_path() / "batches.meta.txt"; }

std::vector<std::string> read_class_names(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return names.size() == kClasses ? names : std::vector<std::string>();
}

}  // namespace

bool has_cifar10(const std::string& folder, bool training) {
  std::error_code ignored;
  return fs::exists(batches_folder(folder) / (training ? "data_batch_1.bin" : "test_batch.bin"), ignored);
}

std::vector<std::string> cifar10_files(const std::string& source, bool training) {
  std::vector<std::string> files = batch_files(source, training);
  const std::string names = names_file(files.front()).string();
  std::error_code ignored;
  if (fs::exists(names, ignored)) files.push_back(names);
  return files;
}

std::unique_ptr<Dataset> open_cifar10(const std::string& source, bool training) {
  InMemoryDataset::Content content;
  content.source = source;
  content.sample = {kChannels, 32, 32};
  const std::vector<std::string> files = batch_files(source, training);
  for (const std::string& file : files) append_batch(file, content);
  content.class_names = read_class_names(names_file(files.front()));
  return std::make_unique<InMemoryDataset>(std::move(content));
}

}  // namespace convoy
