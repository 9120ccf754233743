// SPDX-License-Identifier: Apache-2.0
//
// The plans that were quickest, by name, in a file that later processes read: timing them again takes seconds for each
// image size and batch. One line for each: "plan", the convolution, the name that cuDNN gives the plan, its
// milliseconds, separated by tabs; the last line of a convolution counts. Needs no GPU. Private to layers/backend/cuda.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace convoy {

class PlanFile {
 public:
  /// Reads the file if there is one; what is no entry is passed over. An empty path: nothing is read or kept.
  explicit PlanFile(std::string path);

  /// The plan of that convolution, or null.
  [[nodiscard]] const std::string* find(const std::string& convolution) const;
  /// Keeps it, by one write at the end of the file, so that processes can share it. Creates the folder, for this user
  /// only. A file that cannot be written is no error: the next process times the plans again.
  void add(const std::string& convolution, const std::string& plan, double milliseconds);

 private:
  std::string path_;
  std::map<std::string, std::string> plans_;
};

/// "cudnn-91900-NVIDIA_H100_80GB_HBM3-132.txt": plans of another GPU or cuDNN are in another file.
[[nodiscard]] std::string plan_file_name(const std::string& gpu, int multiprocessors, std::size_t cudnn_version);

}  // namespace convoy
