// SPDX-License-Identifier: Apache-2.0
//
// A file for what is on its way somewhere else. It has a name that nobody can guess (own_file.h) until drop_name(), for
// libraries that open files by name; its memory on the disk goes with this object, or with the process once the name is
// gone.
#pragma once

#include <string>

namespace convoy {

class UnnamedFile {
 public:
  /// Creates it beside `path`, in its folder, as PATH.<16 digits>SUFFIX. Throws a SystemError.
  UnnamedFile(const std::string& path, const char* suffix);
  ~UnnamedFile();
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  void drop_name();
  [[nodiscard]] int descriptor() const { return descriptor_; }  ///< open for reading and writing

 private:
  std::string name_;
  bool named_ = true;
  int descriptor_ = -1;
};

}  // namespace convoy
