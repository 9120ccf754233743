// SPDX-License-Identifier: Apache-2.0
//
// How far a packing has come, on disk, so that the next one resumes there: lines of JSON beside the unfinished file,
// the first of which says what is being packed. Relies on flock(). Invariant: a block is in the journal only when its
// samples are on the disk, and then all before it are, too; nothing comes behind the note that the files are placed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/pack/pixel_statistics.h"

namespace convoy {

/// A run of samples, one after the other in the file.
struct PackBlock {
  std::vector<std::int64_t> sizes;       ///< bytes of each; -1: broken, left out
  std::vector<std::uint32_t> checksums;  ///< CRC-32C of the bytes of each; 0 of broken ones
  std::vector<std::string> broken;       ///< what is wrong with those
  PixelStatistics statistics = {};       ///< of training samples, where they are wanted

  /// In the file.
  [[nodiscard]] std::int64_t bytes() const;
};

class PackJournal {
 public:
  /// Opens or creates it and takes its lock. What is there counts when its first line says the same `fingerprint`.
  /// Throws an Error of bad input when another process has it, or it cannot be made.
  PackJournal(std::string path, std::uint64_t fingerprint);
  ~PackJournal();
  PackJournal(const PackJournal&) = delete;
  PackJournal& operator=(const PackJournal&) = delete;

  /// What is done, from the first block on.
  [[nodiscard]] const std::vector<PackBlock>& blocks() const { return blocks_; }
  /// Whether there was one of something else.
  [[nodiscard]] bool differs() const { return differs_; }
  /// Forgets everything.
  void restart();
  /// Notes blocks whose samples are on the disk. Throws an Error when the disk is full.
  void append(const std::vector<PackBlock>& blocks);
  /// Notes that all files are whole, and that those which have their final names are of this packing.
  void note_placing();
  [[nodiscard]] bool placing() const { return placing_; }
  /// Whether the journal at `path`, of whatever packing, says that.
  [[nodiscard]] static bool says_placing(const std::string& path);
  /// Removes the file.
  void remove();

 private:
  void read();
  void put(const std::string& text);

  const std::string path_;
  const std::uint64_t fingerprint_;
  int descriptor_ = -1;
  bool differs_ = false, placing_ = false;
  std::vector<PackBlock> blocks_;
};

}  // namespace convoy
