// SPDX-License-Identifier: Apache-2.0
//
// Packs the samples of a source into one data file or several, with several threads: each makes a block of samples, and
// the blocks are written in their order, so that the files do not depend on the number of threads. Relies on
// data_file.h, pack_output.h and pack_journal.h. Invariant: a file is there whole or not at all, and never beside one
// of another packing; what is unfinished lies there under other names, and the next packing of the same resumes there.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "io/pack/data_file.h"
#include "io/pack/pack_image.h"
#include "io/pack/pack_journal.h"
#include "io/pack/pack_output.h"
#include "io/pack/pack_plan.h"

namespace convoy {

struct PackTask {
  PackOutput output;
  PackImageOptions image;
  std::uint64_t fingerprint = 0;  ///< of the source and all options that change the file
  int threads = 1;
};

/// Progress for the caller, in its own thread.
struct PackHooks {
  std::function<void(std::int64_t done)> progress;
  std::function<void(const std::string& text)> message;
  std::function<bool()> stop;  ///< true: end soon, with what is done kept
};

struct PackResult {
  bool finished = false;  ///< false: stopped
  std::int64_t training = 0, validation = 0, broken = 0;
  std::int64_t done = 0;                ///< samples of the source, those of earlier packings too
  std::int64_t packed_here = 0;         ///< samples of this packing alone
  std::int64_t bytes = 0;               ///< of the files
  std::vector<double> mean, deviation;  ///< of training pixels, if they were measured
};

class Packer {
 public:
  Packer(const PackSource& source, const PackPlan& plan, PackTask task, PackHooks hooks);
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  /// Throws an Error: of bad input before anything is written, else of a failure (no space, too many broken files).
  PackResult run();

 private:
  /// A block's samples: positions in the plan's order, all of one file.
  struct Span {
    int file;
    std::int64_t first, last;
  };

  [[nodiscard]] DataFileFrame frame() const;
  void find_start();
  void take_journal();
  [[nodiscard]] bool is_placed(int file) const;
  void open_part(int file, std::int64_t bytes);
  void check_room() const;
  void remove_parts();
  void work();
  [[nodiscard]] PackBlock make_block(std::int64_t number, ImagePacker& packer, std::vector<std::byte>& bytes) const;
  void commit(std::int64_t number, PackBlock block, const std::vector<std::byte>& bytes);
  void flush();
  void watch();
  void finish(PackResult& result);
  [[nodiscard]] DataFileFrame whole_frame(int file) const;
  void frame_part(int file, const DataFileFrame& whole);
  void check_broken() const;
  [[nodiscard]] std::int64_t samples_done() const;
  [[nodiscard]] PixelStatistics statistics() const;

  const PackSource& source_;
  const PackPlan& plan_;
  const PackTask task_;
  const PackHooks hooks_;
  std::vector<Span> spans_;            // of all blocks
  std::vector<std::size_t> first_of_;  // blocks, by file; and where the last file's end
  PackJournal journal_;
  std::int64_t start_ = 0;  // of the samples in each file

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<PackBlock> blocks_;   // done, in order
  std::vector<PackBlock> unnoted_;  // of those, not in the journal
  std::int64_t next_ = 0;           // block to be made
  int file_ = -1;                   // that is open
  int descriptor_ = -1;             // of its part
  std::int64_t end_ = 0;            // of the samples written to it
  std::int64_t unnoted_bytes_ = 0;
  std::vector<std::string> news_;  // messages about files
  bool alpha_told_ = false;        // that transparency is dropped
  std::int64_t broken_ = 0;
  bool stopping_ = false;
  int working_ = 0;  // threads
  std::exception_ptr failure_;
};

}  // namespace convoy
