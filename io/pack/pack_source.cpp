// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <system_error>
#include <utility>

#include "io/data/cifar10.h"
#include "io/data/hdf5_shards.h"
#include "io/data/idx.h"
#include "io/data/image_folder.h"
#include "io/data/matched_classes.h"
#include "io/data/shards.h"
#include "io/files/crc32c.h"
#include "io/hdf5/hdf5_source.h"
#include "layers/base/file_status.h"
#include "layers/base/random.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<std::string_view, PackKind>, 4> kKinds{{{"image_folder", PackKind::kImageFolder},
                                                                       {"idx", PackKind::kIdx},
                                                                       {"cifar10", PackKind::kCifar10},
                                                                       {"hdf5", PackKind::kHdf5}}};

PackKind kind_of_folder(const std::string& path) {
  if (has_cifar10(path, true)) return PackKind::kCifar10;
  if (has_idx(path, true)) return PackKind::kIdx;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->is_directory(error)) return PackKind::kImageFolder;
  }
  if (error) fail_system(error.value(), "cannot list the folder {}: {} (see its permissions)", path, error.message());
  fail_usage(
      "{}: nothing in it that is known (a folder of images for each class, MNIST's IDX files, or CIFAR-10's batches)",
      path);
}

PackKind kind_of_file(const std::string& path, std::string_view remedy) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> head{};
  if (!file.read(head.data(), head.size())) {
    if (errno != 0) fail_system(errno, "cannot read {}: {}", path, std::strerror(errno));
    fail_usage("{}: has less than four bytes (no HDF5, IDX or CIFAR-10 file)", path);
  }
  const std::string_view start(head.data(), head.size());
  if (start == "\x89HDF") return PackKind::kHdf5;
  if (start.starts_with("\x1f\x8b") || start.starts_with(std::string_view("\0\0\x08", 3))) return PackKind::kIdx;
  std::error_code error;
  if (fs::file_size(path, error) % kCifar10RecordBytes == 0 && !error) return PackKind::kCifar10;
  fail_usage("{}: neither HDF5, nor IDX, nor a batch of CIFAR-10 ({})", path, remedy);
}

struct SplitFolders {
  std::string training, validation;  // empty: the folder holds classes
};

// A folder that holds nothing but `train` and one of `val`, `valid`, `validation` and `test`.
SplitFolders split_folders(const std::string& path) {
  SplitFolders split;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (!at->is_directory(error)) continue;
    const std::string name = at->path().filename();
    std::string* const part = name == "train" ? &split.training
                              : name == "val" || name == "valid" || name == "validation" || name == "test"
                                  ? &split.validation
                                  : nullptr;
    if (part == nullptr || !part->empty()) return {};
    *part = at->path();
  }
  return split.training.empty() || split.validation.empty() ? SplitFolders{} : split;
}

std::uint64_t stamp_of(std::uint64_t key, const std::string& path, std::int64_t* bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return key;  // reading it will say why
  *bytes += status.st_size;
  return random_key(key,
                    fmt::format("{} {} {}.{}", path, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec));
}

// Of `images` in the file; empty: it has none.
std::optional<PixelType> images_type(const std::string& path) {
  const Hdf5Source source(shard_sources(path).front());
  const hdf5::File file(source.path);
  const std::string images = source.group + "/images";
  if (!file.is_dataset(images)) return std::nullopt;
  const std::string type = file.info(images).type_name;
  return type == "uint8" ? PixelType::kUint8 : type == "uint16" ? PixelType::kUint16 : PixelType::kFloat32;
}

}  // namespace

std::optional<PackKind> pack_kind(std::string_view name) {
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

PackKind detect_pack_kind(const std::string& path, std::string_view remedy) {
  const std::string file = Hdf5Source(shard_sources(path).front()).path;
  const fs::file_status status = status_of(file);
  if (!fs::exists(status)) fail_usage("there is no file or folder {}", path);
  return fs::is_directory(status) ? kind_of_folder(file) : kind_of_file(file, remedy);
}

PackSource::PackSource(const std::string& path, PackKind kind) : path_(path) {
  const bool encoded = kind == PackKind::kImageFolder || (kind == PackKind::kHdf5 && has_hdf5_jpegs(path));
  encoded ? open_encoded(kind) : open_fixed(kind);
  take_fingerprint(kind);
}

void PackSource::open_encoded(PackKind kind) {
  const SplitFolders split = kind == PackKind::kImageFolder ? split_folders(path_) : SplitFolders{};
  if (kind == PackKind::kImageFolder) {
    images_ = std::make_unique<ImageFolder>(split.training.empty() ? path_ : split.training);
    if (!split.validation.empty()) held_out_images_ = std::make_unique<ImageFolder>(split.validation);
  } else {
    images_ = open_hdf5_jpegs(path_);
  }
  first_held_out_ = images_->size();
  classes_ = images_->classes();
  class_names_ = images_->class_names();
  labels_.resize(static_cast<std::size_t>(first_held_out_));
  for (std::size_t i = 0; i < labels_.size(); ++i) labels_[i] = images_->label(static_cast<std::int64_t>(i));
  if (!held_out_images_) return;
  const auto indices = class_indices(held_out_images_->class_names(), split.validation, class_names_);
  for (std::int64_t i = 0; i < held_out_images_->size(); ++i) {
    labels_.push_back(indices[static_cast<std::size_t>(held_out_images_->label(i))]);
  }
}

void PackSource::open_fixed(PackKind kind) {
  const bool folder = fs::is_directory(path_);
  if (kind == PackKind::kIdx) {
    data_ = open_idx(path_, true);
    if (folder && has_idx(path_, false)) held_out_ = open_idx(path_, false);
  } else if (kind == PackKind::kCifar10) {
    data_ = open_cifar10(path_, true);
    if (folder && has_cifar10(path_, false)) held_out_ = open_cifar10(path_, false);
  } else {
    data_ = open_hdf5(path_);
  }
  const Shape shape = data_->sample_shape();
  const std::optional<PixelType> type = kind == PackKind::kHdf5 ? images_type(path_) : PixelType::kUint8;
  if (!type || data_->target_size() > 0 || shape.rank() != 3) {
    fail_usage("{}: {} {} are no images with class labels (only those are packed)", path_,
               dtype_name(data_->input_dtype()), shape.str());
  }
  type_ = *type;
  if (held_out_ && held_out_->sample_shape() != shape) {
    fail_usage("{}: training images are {}, test images {}", path_, shape.str(), held_out_->sample_shape().str());
  }
  image_ = {shape[1], shape[2], shape[0]};
  class_names_ = data_->class_names();
  first_held_out_ = data_->size();
  for (const Dataset* part : {data_.get(), held_out_.get()}) {
    if (part == nullptr) continue;
    classes_ = std::max(classes_, part->classes());
    for (std::int64_t i = 0; i < part->size(); ++i) part->read(i, nullptr, &labels_.emplace_back(), nullptr);
  }
}

void PackSource::take_fingerprint(PackKind kind) {
  const auto labels =
      std::string_view(reinterpret_cast<const char*>(labels_.data()), labels_.size() * sizeof labels_[0]);
  fingerprint_ = mix64(crc32c(labels));
  for (const std::string& name : class_names_) fingerprint_ = random_key(fingerprint_, name);
  if (kind == PackKind::kHdf5) {
    for (const std::string& file : shard_sources(path_)) {
      const Hdf5Source source(file);
      fingerprint_ = stamp_of(random_key(fingerprint_, source.group), source.path, &bytes_);
      if (!source.group.empty()) bytes_ = 0;  // the group's share is not known
    }
  } else if (kind == PackKind::kImageFolder) {
    for (std::int64_t i = 0; i < size(); ++i) fingerprint_ = stamp_of(fingerprint_, name(i), &bytes_);
  } else {
    std::vector<std::byte> pixels;
    std::uint32_t sum = 0;
    for (std::int64_t i = 0; i < size(); ++i) {
      read(i, pixels);
      sum = crc32c({reinterpret_cast<const char*>(pixels.data()), pixels.size()}, sum);
    }
    fingerprint_ = mix64(fingerprint_ ^ sum);
  }
  if (!image_.empty()) bytes_ = size() * image_[0] * image_[1] * image_[2] * pixel_bytes(type_);
}

std::string PackSource::name(std::int64_t index) const {
  if (!images_) return fmt::format("{} image {}", path_, index);
  return index < first_held_out_ ? images_->name(index) : held_out_images_->name(index - first_held_out_);
}

void PackSource::read(std::int64_t index, std::vector<std::byte>& bytes) const {
  if (images_ && index < first_held_out_) return images_->read(index, bytes);
  if (images_) return held_out_images_->read(index - first_held_out_, bytes);
  const auto values = static_cast<std::size_t>(image_[0] * image_[1] * image_[2]);
  bytes.resize(values * (type_ == PixelType::kUint8 ? 1 : sizeof(float)));
  const bool held_out = index >= first_held_out_;
  const Dataset& part = held_out ? *held_out_ : *data_;
  part.read(held_out ? index - first_held_out_ : index, bytes.data(), nullptr, nullptr);
  if (type_ != PixelType::kUint16) return;
  for (std::size_t i = 0; i < values; ++i) {  // value / 65535 in float32: the value comes back
    float scaled = 0;
    std::memcpy(&scaled, bytes.data() + i * sizeof scaled, sizeof scaled);
    const auto value = static_cast<std::uint16_t>(std::lrint(scaled * 65535.0));
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
  bytes.resize(values * sizeof(std::uint16_t));
}

}  // namespace convoy
