// SPDX-License-Identifier: Apache-2.0
#include "io/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "io/data/in_memory_dataset.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr int kUnsignedBytes = 0x08;
constexpr std::size_t kLargest = std::size_t{1} << 36U;  // elements: beyond that the header is no header
constexpr std::size_t kLargestGzipped = std::size_t{1} << 32U;
constexpr std::size_t kMostDeflated = 1032;  // deflate compresses at most so many to 1
constexpr unsigned kPiece = 1U << 24U;       // bytes read at once

// A plain or gzipped file, from its beginning.
class Input {
 public:
  explicit Input(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr)
      fail_system(errno != 0 ? errno : ENOMEM, "cannot read {}: {}", path,
                  errno != 0 ? std::strerror(errno) : "out of memory");
  }
  ~Input() { gzclose(file_); }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  [[nodiscard]] bool gzipped() const { return gzdirect(file_) == 0; }
  /// As many of `size` bytes as there are.
  std::size_t read(std::uint8_t* out, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      const int count = gzread(file_, out + done, static_cast<unsigned>(std::min<std::size_t>(kPiece, size - done)));
      if (count < 0) {
        const int reason = errno;
        int code = 0;
        const char* text = gzerror(file_, &code);
        if (code == Z_ERRNO) fail_system(reason, "cannot read {}: {}", path_, text);
        fail_usage("{}: damaged: {}", path_, text);
      }
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }

 private:
  std::string path_;
  gzFile file_;
};

struct IdxFile {
  std::vector<std::int64_t> extents;
  std::vector<std::uint8_t> elements;
};

// Refuses a number of elements that the file cannot hold, before memory is asked for.
void refuse_implausible(const std::string& path, std::size_t size, std::size_t head, bool gzipped) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) return;  // a device or a pipe: memory is asked for as bytes come
  if (!gzipped) {
    if (bytes < head + size) {
      fail_usage("{}: truncated: {} of {} elements are there", path, bytes - std::min<std::uintmax_t>(bytes, head),
                 size);
    }
    if (bytes > head + size) fail_usage("{}: longer than its header says ({} elements)", path, size);
    return;
  }
  if (size > kLargestGzipped) {
    fail_usage("{}: {} elements are more than are read from a gzipped file, {} (gunzip it)", path, size,
               kLargestGzipped);
  }
  if (size / kMostDeflated > bytes) {
    fail_usage("{}: damaged: {} elements cannot be in a gzipped file of {} bytes", path, size, bytes);
  }
}

// The extents, and the elements that follow if `accept` takes the extents.
template <class Accept>
IdxFile read_idx(const std::string& path, Accept&& accept) {
  Input input(path);
  std::uint8_t head[4] = {};
  if (input.read(head, 4) != 4 || head[0] != 0 || head[1] != 0) {
    fail_usage("{}: no IDX file (it must begin with 00 00, a type and a number of axes)", path);
  }
  if (head[2] != kUnsignedBytes) {
    fail_usage("{}: elements of type {:#04x}; only unsigned bytes ({:#04x}) are read", path, head[2], kUnsignedBytes);
  }
  IdxFile file;
  std::size_t size = 1;
  for (int axis = 0; axis < head[3]; ++axis) {
    std::uint8_t word[4] = {};
    if (input.read(word, 4) != 4) fail_usage("{}: truncated in its header", path);
    const std::int64_t extent = std::int64_t{word[0]} << 24 | word[1] << 16 | word[2] << 8 | word[3];
    file.extents.push_back(extent);
    if (extent < 1 || size > kLargest / static_cast<std::size_t>(extent)) {
      fail_usage("{}: axis {} of {} has {} elements: no such file is read", path, axis, int{head[3]}, extent);
    }
    size *= static_cast<std::size_t>(extent);
  }
  refuse_implausible(path, size, 4 + 4 * std::size_t{head[3]}, input.gzipped());
  accept(file.extents);
  // Piece by piece: a gzipped file may hold less than its header says.
  while (file.elements.size() < size) {
    const std::size_t before = file.elements.size(), more = std::min<std::size_t>(kPiece, size - before);
    file.elements.resize(before + more);
    const std::size_t got = input.read(file.elements.data() + before, more);
    if (got < more) fail_usage("{}: truncated: {} of {} elements are there", path, before + got, size);
  }
  std::uint8_t beyond = 0;
  if (input.read(&beyond, 1) != 0) fail_usage("{}: longer than its header says ({} elements)", path, size);
  return file;
}

// The file of that name, or its gzipped form, or the plain form of a gzipped one; empty if there is none.
std::string present(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path.string();
  const fs::path gzipped = path.string() + ".gz";
  if (fs::exists(gzipped, ignored)) return gzipped.string();
  fs::path plain = path;
  if (plain.extension() == ".gz" && fs::exists(plain.replace_extension(), ignored)) return plain.string();
  return "";
}

const char* images_name(bool training) { return training ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte"; }

// Empty if there are none.
std::string images_in(const std::string& folder, bool training) {
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "raw"}) {
    if (std::string found = present(place / images_name(training)); !found.empty()) return found;
  }
  return "";
}

std::string images_of(const std::string& source, bool training) {
  std::error_code ignored;
  if (!fs::is_directory(source, ignored)) return source;
  if (std::string found = images_in(source, training); !found.empty()) return found;
  fail_usage("{}: no {} in it, plain or with .gz (or name the file of images itself)", source, images_name(training));
}

std::string labels_of(const std::string& images) {
  const fs::path path(images);
  std::string name = path.filename().string();
  const auto replace = [&](const std::string& from, const std::string& to) {
    const auto at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
    return at != std::string::npos;
  };
  if (!replace("images", "labels")) {
    fail_usage(
        "{}: its name must have \"images\" in it, so that the labels are found under the same name with "
        "\"labels\"",
        images);
  }
  if (!replace("idx3", "idx1")) replace("idx4", "idx1");
  std::string found = present(path.parent_path() / name);
  if (found.empty())
    fail_usage("{}: there are no labels next to it ({})", images, (path.parent_path() / name).string());
  return found;
}

}  // namespace

bool has_idx(const std::string& folder, bool training) { return !images_in(folder, training).empty(); }

std::vector<std::string> idx_files(const std::string& source, bool training) {
  const std::string images = images_of(source, training);
  return {images, labels_of(images)};
}

std::unique_ptr<Dataset> open_idx(const std::string& source, bool training) {
  const std::vector<std::string> files = idx_files(source, training);
  const std::string &images_path = files.front(), &labels_path = files.back();
  std::vector<std::int64_t> extents;
  // The headers of both files are read before the elements of one.
  IdxFile labels;
  IdxFile images = read_idx(images_path, [&](const std::vector<std::int64_t>& found) {
    extents = found;
    if (extents.size() != 3 && extents.size() != 4) {
      fail_usage("{}: {} axes; images have 3 (number, height, width) or 4 (and channels)", images_path, extents.size());
    }
    labels = read_idx(labels_path, [&](const std::vector<std::int64_t>& counts) {
      if (counts.size() == 1 && counts[0] == extents[0]) return;
      const std::size_t axes = counts.size();
      fail_usage("{}: {} labels with {} axes for the {} images of {}", labels_path, axes > 0 ? counts[0] : 0, axes,
                 extents[0], images_path);
    });
  });
  InMemoryDataset::Content content;
  content.source = images_path;
  content.sample = {extents.size() == 4 ? extents[3] : 1, extents[1], extents[2]};
  content.pixels = std::move(images.elements);
  content.labels.assign(labels.elements.begin(), labels.elements.end());
  return std::make_unique<InMemoryDataset>(std::move(content));
}

}  // namespace convoy
