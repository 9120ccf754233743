// SPDX-License-Identifier: Apache-2.0
//
// Tensors that are too large for memory, on their way into a checkpoint: their elements are appended to a file without
// a name, from which write_checkpoint() copies them. Relies on the file system of the checkpoints. Invariant: after a
// failure there is no file, nothing more is written, and write_checkpoint() throws it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/files/unnamed_file.h"
#include "layers/base/shape.h"

namespace convoy {

class TensorSpool {
 public:
  struct Entry {
    std::string group;        ///< "/model", "/optimizer/momentum", "/ema"
    std::string name;         ///< dotted torchvision path
    Shape shape;              ///< of float32
    std::int64_t offset = 0;  ///< in the file, bytes
  };

  /// For the checkpoint at `path`, in whose folder the file is made; that it cannot be is a failure as any other.
  explicit TensorSpool(const std::string& path);

  /// The next elements belong to this tensor.
  void begin(const std::string& group, const std::string& name, const Shape& shape);
  /// Appends elements, row-major.
  void append(std::span<const float> elements);

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  /// Of the file, unless there is a problem().
  [[nodiscard]] int descriptor() const { return file_->descriptor(); }
  /// Why it could not be written; empty: it was.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// The first tensor with a value that is infinite or NaN; null: none.
  [[nodiscard]] const Entry* nonfinite() const { return nonfinite_ ? &entries_[*nonfinite_] : nullptr; }

 private:
  std::optional<UnnamedFile> file_;
  std::int64_t bytes_ = 0;
  std::vector<Entry> entries_;
  std::string problem_;
  std::optional<std::size_t> nonfinite_;
};

}  // namespace convoy
