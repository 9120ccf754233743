// SPDX-License-Identifier: Apache-2.0
//
// The names of a packing's files, finished and unfinished: one data file, or shards. Relies on shards.h. Invariant: an
// unfinished file never has a name that a reader would take.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace convoy {

class PackOutput {
 public:
  /// shards: 0 for one file, which is called `output` itself.
  PackOutput(std::string output, int shards) : output_(std::move(output)), shards_(shards) {}

  [[nodiscard]] int files() const { return sharded() ? shards_ : 1; }
  [[nodiscard]] bool sharded() const { return shards_ > 0; }
  [[nodiscard]] std::string file(int index) const;
  [[nodiscard]] std::string part(int index) const { return file(index) + kPart; }
  [[nodiscard]] std::string journal() const { return output_ + kPart + ".json"; }
  /// All files in a word, as data.train takes it.
  [[nodiscard]] std::string name() const;

  /// Finished files of this name that are there; of shards those of whatever count.
  [[nodiscard]] std::vector<std::string> finished() const;
  void remove_finished() const;
  /// Removes unfinished files, sharded or not; returns whether there was anything in them.
  bool remove_parts() const;

 private:
  static constexpr const char* kPart = ".part";

  std::string output_;
  int shards_;
};

}  // namespace convoy
