// SPDX-License-Identifier: Apache-2.0
//
// Finds where HDF5's part of the file ends in its superblock (format 2 and 3: the signature, the version, three bytes,
// and four addresses, of which the third is the end of the file). Relies on crc32c.h. Invariant: no HDF5 call is made.
#include "io/hdf5/checksum_trailer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "io/files/atomic_file.h"
#include "io/files/crc32c.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kEndAt = 28;
constexpr std::size_t kSuperblockBytes = 48;
constexpr std::size_t kBufferBytes = 4 << 20;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
    file_.reset(descriptor < 0 ? nullptr : ::fdopen(descriptor, "rb"));
    if (!file_) fail_system(errno, "cannot read {}: {}", path_, std::strerror(errno));
    struct stat status {};
    if (::fstat(descriptor, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
      fail_usage("{}: is no regular file", path_);
    }
  }
  [[nodiscard]] std::uint64_t size() const {
    struct stat status {};
    if (::fstat(::fileno(file_.get()), &status) != 0)
      fail_system(errno, "cannot read {}: {}", path_, std::strerror(errno));
    return static_cast<std::uint64_t>(status.st_size);
  }
  // Up to `size` bytes; fewer at the end of the file.
  std::string_view read(std::size_t size) {
    buffer_.resize(size);
    const std::size_t count = std::fread(buffer_.data(), 1, size, file_.get());
    if (std::ferror(file_.get()) != 0) fail_system(errno, "cannot read {}: {}", path_, std::strerror(errno));
    return {buffer_.data(), count};
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> buffer_;
};

}  // namespace

std::string trailer_line(std::uint32_t crc, std::uint64_t bytes) {
  return fmt::format("\nconvoy-seal crc32c {:08x} bytes {:020d}\n", crc, bytes);
}

std::string trailer_for(std::span<const std::byte> file) { return trailer_line(crc32c(text_of(file)), file.size()); }

void append_trailer(int descriptor, std::uint32_t crc, std::int64_t end, const std::string& path) {
  const std::string trailer = trailer_line(crc, static_cast<std::uint64_t>(end));
  int reason = pwrite_all(descriptor, std::as_bytes(std::span(trailer)), end);
  if (reason == 0 && ::ftruncate(descriptor, end + static_cast<off_t>(trailer.size())) != 0) reason = errno;
  if (reason != 0) fail_io("cannot write {}: {}", path, std::strerror(reason));
}

TrailerCheck check_trailer(const std::string& path) {
  Reader file(path);
  const std::string_view head = file.read(kSuperblockBytes);
  if (head.size() < kSuperblockBytes || !head.starts_with(kSignature)) return {};
  if (head[kVersionAt] != 2 && head[kVersionAt] != 3) return {};
  std::uint64_t end = 0;
  std::memcpy(&end, head.data() + kEndAt, sizeof end);
  const std::uint64_t size = file.size();
  if (size == end) return {};
  if (size < end) return {Trailer::kBroken, fmt::format("truncated: {} of {} bytes are there", size, end)};
  std::uint32_t crc = crc32c(head);
  for (std::uint64_t at = kSuperblockBytes; at < end;) {
    const auto piece = file.read(static_cast<std::size_t>(std::min<std::uint64_t>(kBufferBytes, end - at)));
    if (piece.empty()) return {Trailer::kBroken, "truncated while it was being read"};
    crc = crc32c(piece, crc);
    at += piece.size();
  }
  const std::string expected = trailer_line(crc, end);
  const std::string_view found = file.read(expected.size() + 1);
  if (found == expected) return {Trailer::kHolds, ""};
  if (found.size() < expected.size()) return {Trailer::kBroken, "truncated: its last line is incomplete"};
  return {Trailer::kBroken, "damaged: the checksum over the file does not hold"};
}

std::string read_problem(const std::string& path) {
  try {
    Reader file(path);
    while (!file.read(kBufferBytes).empty()) {
    }
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace convoy
