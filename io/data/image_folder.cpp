// SPDX-License-Identifier: Apache-2.0
//
// torchvision 0.14: datasets/folder.py, find_classes and make_dataset. os.walk() there skips folders that it may not
// read, silently; here that is an error: half a class would train silently.
#include "io/data/image_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/files/packed_bytes.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kRead{".jpg", ".jpeg", ".png"};
constexpr std::array<std::string_view, 6> kOther{".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};
constexpr off_t kMaxFileBytes = off_t{1} << 30;

template <std::size_t N>
bool has_ending(const std::string& name, const std::array<std::string_view, N>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) {
    return name.size() >= ending.size() &&
           std::equal(ending.rbegin(), ending.rend(), name.rbegin(), [](char wanted, char found) {
             return std::tolower(static_cast<unsigned char>(found)) == wanted;
           });
  });
}

struct Listing {
  std::vector<std::string> folders, files;
};

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

// A file that is not there or not to be read is broken; all else is of this host.
[[noreturn]] void cannot_read(int reason) {
  if (is_input_fault(reason)) fail("{}", std::strerror(reason));
  fail_io("{}", std::strerror(reason));
}

[[noreturn]] void cannot_list(const std::string& path) {
  if (errno == ENOTDIR) {
    fail_usage(
        "{}: is a file (data.kind = \"image_folder\" reads a folder that holds a folder of images for each class)",
        path);
  }
  fail_system(errno, "cannot list the folder {}: {} (see its permissions)", path, std::strerror(errno));
}

// Links count as what they lead to; one that leads nowhere counts as a file, as in os.walk().
Listing list_folder(const std::string& path) {
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
  if (!folder) cannot_list(path);
  Listing listing;
  errno = 0;
  while (const dirent* entry = ::readdir(folder.get())) {
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) {
      struct stat status {};
      is_folder = ::fstatat(::dirfd(folder.get()), entry->d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
    }
    (is_folder ? listing.folders : listing.files).push_back(std::move(name));
    errno = 0;
  }
  if (errno != 0) cannot_list(path);
  std::sort(listing.folders.begin(), listing.folders.end());
  std::sort(listing.files.begin(), listing.files.end());
  return listing;
}

using FileId = std::pair<dev_t, ino_t>;

FileId id_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) cannot_list(path);
  return {status.st_dev, status.st_ino};
}

// What one class folder holds, below the root.
struct Walk {
  const std::string& root;
  std::vector<std::pair<std::string, std::vector<std::string>>> folders;  // path, its images
  std::int64_t others = 0;
  std::string first_other;

  // above: the folders that this one lies in, against links that lead back up.
  void visit(const std::string& path, std::vector<FileId>& above) {
    const std::string full = root + "/" + path;
    const FileId id = id_of(full);
    if (std::find(above.begin(), above.end(), id) != above.end()) {
      fail_usage("{} leads back to a folder that it lies in (remove the link)", full);
    }
    above.push_back(id);
    Listing listing = list_folder(full);
    for (const std::string& file : listing.files) {
      if (!has_ending(file, kOther)) continue;
      if (others++ == 0) first_other = fmt::format("{}/{}", full, file);
    }
    std::erase_if(listing.files, [](const std::string& file) { return !has_ending(file, kRead); });
    folders.emplace_back(path, std::move(listing.files));
    for (const std::string& folder : listing.folders) visit(fmt::format("{}/{}", path, folder), above);
    above.pop_back();
  }
};

std::string without_slashes(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

}  // namespace

ImageFolder::ImageFolder(const std::string& folder) : folder_(without_slashes(folder)) {
  class_names_ = list_folder(folder_).folders;
  if (class_names_.empty()) {
    fail_usage("{}: no folders in it (one folder of images for each class is needed)", folder_);
  }
  std::vector<std::string> empty;
  std::int64_t others = 0;
  std::string first_other;
  starts_.push_back(0);
  for (const std::string& name : class_names_) {
    Walk walk{folder_, {}, 0, {}};
    std::vector<FileId> above{id_of(folder_)};
    walk.visit(name, above);
    std::sort(walk.folders.begin(), walk.folders.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [path, files] : walk.folders) {
      for (const std::string& file : files) {
        paths_.append(path).append("/").append(file);
        starts_.push_back(paths_.size());
      }
    }
    if (others == 0) first_other = walk.first_other;
    others += walk.others;
    if (class_ends_.empty() ? size() == 0 : class_ends_.back() == size()) empty.push_back(name);
    class_ends_.push_back(size());
  }
  if (others > 0) {
    fail_usage(
        "{}: {} images in it are neither JPEG nor PNG, the first {} (.jpg, .jpeg and .png are read: convert or move "
        "the others)",
        folder_, others, first_other);
  }
  if (!empty.empty()) {
    fail_usage("{}: no .jpg, .jpeg or .png files for the class{} {} (fill or remove the folder{})", folder_,
               empty.size() > 1 ? "es" : "", fmt::join(empty, ", "), empty.size() > 1 ? "s" : "");
  }
}

ImageFolder::ImageFolder(const std::string& folder, ByteUnpacker& listed) : folder_(without_slashes(folder)) {
  class_names_ = listed.texts();
  class_ends_ = listed.counts();
  paths_ = listed.text();
  const std::vector<std::int64_t> lengths = listed.counts();
  starts_.reserve(lengths.size() + 1);
  starts_.push_back(0);
  for (const std::int64_t length : lengths) starts_.push_back(starts_.back() + static_cast<std::size_t>(length));
}

void ImageFolder::pack(BytePacker& packer) const {
  packer.texts(class_names_);
  packer.counts(class_ends_);
  packer.text(paths_);
  std::vector<std::int64_t> lengths;
  lengths.reserve(starts_.size());
  for (std::size_t i = 1; i < starts_.size(); ++i) {
    lengths.push_back(static_cast<std::int64_t>(starts_[i] - starts_[i - 1]));
  }
  packer.counts(lengths);
}

std::int64_t ImageFolder::label(std::int64_t index) const {
  return std::upper_bound(class_ends_.begin(), class_ends_.end(), index) - class_ends_.begin();
}

void ImageFolder::check_labels(std::int64_t classes) const {
  if (this->classes() <= classes) return;
  fail_usage("{}: {} class folders, but there are {} classes (model.classes)", folder_, this->classes(), classes);
}

std::string ImageFolder::name(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  return fmt::format("{}/{}", folder_, std::string_view(paths_).substr(starts_[at], starts_[at + 1] - starts_[at]));
}

void ImageFolder::read(std::int64_t index, std::vector<std::byte>& bytes) const { read_image_file(name(index), bytes); }

bool has_image_name(const std::string& path) { return has_ending(path, kRead); }

std::vector<std::string> images_below(const std::string& folder) {
  const fs::path root = folder;
  Walk walk{folder, {}, 0, {}};
  std::vector<FileId> above;
  walk.visit(".", above);
  if (walk.others > 0) {
    fail_usage("{} is neither a JPEG nor a PNG (convert it, or move it out of {})",
               fs::path(walk.first_other).lexically_normal().string(), folder);
  }
  std::vector<std::string> images;
  for (const auto& [path, files] : walk.folders) {
    for (const std::string& file : files) images.push_back((root / path / file).lexically_normal().string());
  }
  if (images.empty()) fail_usage("{}: no .jpg, .jpeg or .png files in it or below it", folder);
  std::sort(images.begin(), images.end());
  return images;
}

void read_image_file(const std::string& path, std::vector<std::byte>& bytes) {
  struct Descriptor {
    int number;
    ~Descriptor() {
      if (number >= 0) ::close(number);
    }
  };
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a pipe must not block
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0) cannot_read(errno);
  if (!S_ISREG(status.st_mode)) fail("it is no regular file");
  if (status.st_size > kMaxFileBytes) fail("{} bytes (at most {})", status.st_size, kMaxFileBytes);
  bytes.resize(static_cast<std::size_t>(status.st_size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::read(file.number, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot_read(errno);
    if (count == 0) bytes.resize(done);  // it has shrunk
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace convoy
