// SPDX-License-Identifier: Apache-2.0
#include "io/files/unnamed_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/files/own_file.h"
#include "layers/base/system_error.h"

namespace convoy {

UnnamedFile::UnnamedFile(const std::string& path, const char* suffix)
    : name_(fmt::format("{}.{}{}", path, unguessable_digits(), suffix)), descriptor_(create_new_file(name_, 0600)) {
  if (descriptor_ < 0) fail_system(errno, "cannot create {}: {}", name_, std::strerror(errno));
}

UnnamedFile::~UnnamedFile() {
  drop_name();
  ::close(descriptor_);
}

void UnnamedFile::drop_name() {
  if (std::exchange(named_, false)) ::unlink(name_.c_str());
}

}  // namespace convoy
