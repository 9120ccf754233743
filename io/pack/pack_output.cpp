// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "io/data/shards.h"
#include "layers/base/error.h"

namespace convoy {

namespace fs = std::filesystem;

std::string PackOutput::file(int index) const { return sharded() ? shard_path(output_, index, shards_) : output_; }

std::string PackOutput::name() const { return sharded() ? shard_pattern(output_, shards_) : output_; }

std::vector<std::string> PackOutput::finished() const {
  if (sharded()) return shards_there(output_, "");
  std::error_code ignored;
  return fs::exists(output_, ignored) ? std::vector{output_} : std::vector<std::string>();
}

void PackOutput::remove_finished() const {
  for (const std::string& path : finished()) {
    if (::unlink(path.c_str()) != 0) fail("cannot replace {}: {} (remove it)", path, std::strerror(errno));
  }
}

bool PackOutput::remove_parts() const {
  std::vector<std::string> parts = shards_there(output_, kPart);
  parts.push_back(output_ + kPart);
  bool any = false;
  for (const std::string& part : parts) {
    std::error_code error;
    const auto size = fs::file_size(part, error);
    any = any || (!error && size > 0);
    ::unlink(part.c_str());
  }
  return any;
}

}  // namespace convoy
