// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/tensor_spool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "io/files/atomic_file.h"
#include "io/files/own_file.h"

namespace convoy {

TensorSpool::TensorSpool(const std::string& path)
    : path_(fmt::format("{}.{}{}", path, unguessable_digits(), kTemporarySuffix)),
      descriptor_(create_new_file(path_, 0600)) {
  if (descriptor_ < 0) {
    failed(errno);
  } else {
    ::unlink(path_.c_str());
  }
}

TensorSpool::~TensorSpool() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TensorSpool::failed(int reason) {
  problem_ = fmt::format("cannot write {}: {}", path_, std::strerror(reason));
  if (descriptor_ >= 0) static_cast<void>(::ftruncate(descriptor_, 0));
}

void TensorSpool::begin(const std::string& group, const std::string& name, const Shape& shape) {
  entries_.push_back({group, name, shape, bytes_});
}

void TensorSpool::append(std::span<const float> elements) {
  const bool finite = std::all_of(elements.begin(), elements.end(), [](float x) { return std::isfinite(x); });
  if (!finite && !nonfinite_) nonfinite_ = entries_.size() - 1;
  if (!problem_.empty()) return;
  const std::span<const std::byte> bytes = std::as_bytes(elements);
  if (const int reason = pwrite_all(descriptor_, bytes, bytes_); reason != 0) return failed(reason);
  bytes_ += static_cast<std::int64_t>(bytes.size());
}

}  // namespace convoy
