// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/tensor_spool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/files/atomic_file.h"
#include "layers/base/error.h"

namespace convoy {

TensorSpool::TensorSpool(const std::string& path) {
  try {
    file_.emplace(path, kTemporarySuffix).drop_name();
  } catch (const Error& error) {
    problem_ = error.what();
  }
}

void TensorSpool::begin(const std::string& group, const std::string& name, const Shape& shape) {
  entries_.push_back({group, name, shape, bytes_});
}

void TensorSpool::append(std::span<const float> elements) {
  const bool finite = std::all_of(elements.begin(), elements.end(), [](float x) { return std::isfinite(x); });
  if (!finite && !nonfinite_) nonfinite_ = entries_.size() - 1;
  if (!problem_.empty()) return;
  const std::span<const std::byte> bytes = std::as_bytes(elements);
  if (const int reason = pwrite_all(file_->descriptor(), bytes, bytes_); reason != 0) {
    problem_ = fmt::format("cannot write {}: {}{}", file_->name(), std::strerror(reason), write_remedy(reason));
    file_.reset();  // its disk space
    return;
  }
  bytes_ += static_cast<std::int64_t>(bytes.size());
}

}  // namespace convoy
