// SPDX-License-Identifier: Apache-2.0
//
// A record is: length (8 bytes), masked CRC-32C of the length (4), data, masked CRC-32C of the data (4), little-endian.
// Field numbers are those of TensorFlow's event.proto and summary.proto. Relies on a little-endian machine, which is
// checked at compile time. Invariant: one record is one write().
#include "io/log/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

#include "io/files/atomic_file.h"
#include "io/files/crc32c.h"
#include "layers/base/host_name.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

// Wire types of protocol buffers.
enum class Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>((value & 127) | 128);
  return bytes + static_cast<char>(value);
}

std::string key(std::uint64_t field, Wire wire) { return varint(field << 3 | static_cast<std::uint64_t>(wire)); }

std::string bytes_field(std::uint64_t field, std::string_view bytes) {
  return key(field, Wire::kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TensorboardWriter::TensorboardWriter(const std::string& dir, std::int64_t resumed_step)
    : path_(fmt::format("{}/events.out.tfevents.{}.{}.{}", dir, static_cast<std::int64_t>(wall_time()),
                        host_name("localhost"), getpid())) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_system(errno, "cannot open {} for writing: {}", path_, std::strerror(errno));
  try {
    write_event(0, bytes_field(3, "brain.Event:2"));  // Event.file_version
    if (resumed_step > 0) {
      // Event.session_log with status START: events of this step and later in earlier files are void.
      write_event(resumed_step + 1, bytes_field(7, key(1, Wire::kVarint) + varint(1)));
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TensorboardWriter::~TensorboardWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TensorboardWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  // Event.summary { Summary.value { tag, simple_value } }
  const std::string entry = bytes_field(1, tag) + key(2, Wire::kFixed32) + raw(static_cast<float>(value));
  write_event(step, bytes_field(5, bytes_field(1, entry)));
}

void TensorboardWriter::write_event(std::int64_t step, std::string_view what) {
  std::string event = key(1, Wire::kFixed64) + raw(wall_time());
  event += key(2, Wire::kVarint) + varint(static_cast<std::uint64_t>(step));
  event += what;
  const std::string length = raw(static_cast<std::uint64_t>(event.size()));
  const std::string record = length + raw(masked_crc(length)) + event + raw(masked_crc(event));
  write_all(descriptor_, std::as_bytes(std::span(record)), path_);
}

}  // namespace convoy
