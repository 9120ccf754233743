// SPDX-License-Identifier: Apache-2.0
//
// A folder with one folder of JPEGs and PNGs for each class, in the order of torchvision.datasets.ImageFolder: classes
// by name, then folders, then files, each compared byte by byte; sub-folders and links are followed. Relies on
// readdir's file types, so that a million files are listed without looking at each. Invariant: no class is empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/data/encoded_images.h"

namespace convoy {

/// Whether the ending of a file's name says that it is a JPEG or PNG.
[[nodiscard]] bool has_image_name(const std::string& path);

/// The JPEGs and PNGs at any depth below the folder, by the endings of their names, sorted. Throws a usage Error for
/// images of other formats, for none at all, and for links that lead back up.
[[nodiscard]] std::vector<std::string> images_below(const std::string& folder);

/// Replaces `bytes` by the content of the file, of at most 1 GiB. An Error says what is wrong without the path.
void read_image_file(const std::string& path, std::vector<std::byte>& bytes);

class ByteUnpacker;

class ImageFolder final : public EncodedImages {
 public:
  /// Throws an Error of bad input that names the place: no class folders, a class without images, a folder that cannot
  /// be read or holds itself, images of other formats (which torchvision would take and this cannot decode).
  explicit ImageFolder(const std::string& folder);
  /// The same folder as another process has listed it: pack().
  ImageFolder(const std::string& folder, ByteUnpacker& listed);

  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(starts_.size()) - 1; }
  [[nodiscard]] std::int64_t label(std::int64_t index) const override;
  [[nodiscard]] std::int64_t classes() const override { return static_cast<std::int64_t>(class_names_.size()); }
  [[nodiscard]] std::vector<std::string> class_names() const override { return class_names_; }
  void check_labels(std::int64_t classes) const override;
  /// Of a million images some 30 to 40 bytes each: paths below the folder, one byte for the length of each.
  void pack(BytePacker& packer) const override;
  /// The path: the folder as given, and what is below it.
  [[nodiscard]] std::string name(std::int64_t index) const override;
  void read(std::int64_t index, std::vector<std::byte>& bytes) const override;

 private:
  std::string folder_;
  std::vector<std::string> class_names_;
  std::vector<std::int64_t> class_ends_;  // [classes]: index behind the last image of each
  std::string paths_;                // below folder_, one behind the other: a million strings would take thrice that
  std::vector<std::size_t> starts_;  // [images + 1], in paths_
};

}  // namespace convoy
