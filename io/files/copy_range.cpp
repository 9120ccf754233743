// SPDX-License-Identifier: Apache-2.0
#include "io/files/copy_range.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "io/files/atomic_file.h"
#include "io/files/crc32c.h"
#include "layers/base/system_error.h"

namespace convoy {

std::uint32_t copy_range(int from, std::int64_t first, std::int64_t last, int to, std::int64_t at,
                         const std::string& path, std::uint32_t before) {
  std::uint32_t checksum = before;
  std::vector<std::byte> buffer(1 << 20);
  while (first < last) {
    const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(last - first, 1 << 20));
    const ssize_t count = ::pread(from, buffer.data(), wanted, first);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_io("cannot write {}: what it is copied from ends early", path);
    const std::span<const std::byte> piece(buffer.data(), static_cast<std::size_t>(count));
    if (const int reason = pwrite_all(to, piece, at); reason != 0) {
      fail_io("cannot write {}: {}", path, std::strerror(reason));
    }
    checksum = crc32c({reinterpret_cast<const char*>(piece.data()), piece.size()}, checksum);
    first += count;
    at += count;
  }
  return checksum;
}

}  // namespace convoy
