// SPDX-License-Identifier: Apache-2.0
//
// Prefetches the batches of one replica with threads of its own, so that the training thread finds them ready. It knows
// its share of a global batch as numbers, not as ranks. Relies on Dataset::read() being safe from several threads.
// Invariants: the batches are those that sampler and options say, whatever the number of threads; after the constructor
// nothing is allocated here: host memory is a ring of kSlots steps.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "io/data/augment.h"
#include "io/data/dataset.h"
#include "io/data/sampler.h"
#include "layers/base/batch.h"

namespace convoy {

struct LoaderOptions {
  std::int64_t global_batch = 1;  ///< samples of a step over all replicas and microbatches
  bool drop_last = true;          ///< training only: an evaluation covers every sample
  int replica = 0;
  int replicas = 1;
  int microbatches = 1;
  int threads = 1;
  std::int64_t epoch = 0;                           ///< where to start: the epoch,
  std::int64_t position = 0;                        ///< and how many samples of it have been seen
  bool inputs = true;                               ///< whether inputs,
  bool targets = true;                              ///< and labels or targets are wanted: a stage may need none
  Augmentation augmentation{};                      ///< of batches: erase, mixup, cutmix; data sets do the rest
  std::uint64_t seed = 0;                           ///< of that
  std::vector<double> class_weights;                ///< one of each class; empty: none
  double timeout = 600;                             ///< seconds that next() waits for data
  std::function<void(const std::string&)> on_late;  ///< see next()
  bool evaluation = false;  ///< one pass in the data set's own order, the last partial batch included
};

/// One replica's share of one global batch.
struct LoaderStep {
  std::int64_t epoch = 0;
  std::int64_t first_position = 0;  ///< of the global batch in the epoch
  std::int64_t global_samples = 0;  ///< of all replicas together
  bool last_of_epoch = false;
  std::vector<Batch> microbatches;  ///< memory of the loader, valid until the next call of next()
  double wait_seconds = 0;          ///< that next() had to wait for the data
};

/// Bytes of the buffers of a Loader with these options.
[[nodiscard]] std::int64_t loader_bytes(const Shape& sample, DType dtype, std::int64_t target_size,
                                        const LoaderOptions& options);

class Loader {
 public:
  /// `dataset` must outlive the loader.
  Loader(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options);
  /// Stops the threads after the samples that they are reading.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next step. Training continues over the epochs without end; an evaluation ends with the step that has
  /// last_of_epoch, and another call is an Error. Throws what reading a sample of this step threw.
  /// When the data does not come in time, the threads hang in the system and the loader cannot end any more: it calls
  /// on_late, if there is one, which should end the process, and goes on waiting.
  const LoaderStep& next();

  /// Processor time that its threads have taken.
  [[nodiscard]] double processor_seconds() const;

 private:
  struct FreeAligned {
    void operator()(std::byte* memory) const noexcept { ::operator delete (memory, std::align_val_t{64}); }
  };
  struct Slot {
    LoaderStep step;
    Range local;            // positions of this replica
    std::int64_t done = 0;  // samples read, partners included
    std::size_t sample_bytes = 0;
    std::exception_ptr error;
    std::unique_ptr<std::byte, FreeAligned> inputs;  // this and the next two are empty where they are not wanted
    std::vector<std::int64_t> labels;
    std::vector<float> targets;
    std::vector<std::int64_t> erased;

    std::byte* input_at(std::int64_t i) const {
      return inputs ? inputs.get() + static_cast<std::size_t>(i) * sample_bytes : nullptr;
    }
    std::int64_t* label_at(std::int64_t i) { return labels.empty() ? nullptr : labels.data() + i; }
    float* target_at(std::int64_t i, std::int64_t size) {
      return targets.empty() ? nullptr : targets.data() + i * size;
    }
  };

  Slot& slot_of(std::int64_t number);
  void allocate_slots();
  [[nodiscard]] bool can_take() const;
  void open_step();
  void lay_out(Slot& slot, const Range& global) const;
  void work() noexcept;
  [[nodiscard]] std::int64_t reads(const Slot& slot) const { return slot.local.count + partners_; }
  [[nodiscard]] std::int64_t position_of(const Slot& slot, std::int64_t i) const;
  [[nodiscard]] SampleId sample_at(std::int64_t epoch, std::int64_t position) const;
  void read_samples(Slot& slot, std::int64_t first, std::int64_t count) const;
  void weigh_classes(LoaderStep& step) const;

  const Dataset& dataset_;
  const Sampler sampler_;
  const LoaderOptions options_;
  const BatchPlan plan_;
  const std::int64_t target_size_;
  const std::int64_t partners_;  // samples in front of a replica's own: 1 where batches are mixed
  std::int64_t chunk_ = 1;       // samples that a thread takes at once

  std::mutex mutex_;  // guards what follows, but not the samples in the slots
  std::condition_variable work_ready_;
  std::condition_variable step_ready_;
  std::vector<Slot> slots_;
  std::int64_t epoch_;         // of the step that is opened next
  std::int64_t position_;      // of that step
  std::int64_t filling_ = 0;   // number of the step whose samples are being given to threads
  bool open_ = false;          // that step has been laid out in its slot
  std::int64_t handed_ = 0;    // samples of it given to threads
  std::int64_t released_ = 0;  // steps that the caller is done with
  std::int64_t given_ = 0;     // steps that next() has returned
  bool finished_ = false;      // an evaluation has opened its last step
  bool failed_ = false;
  bool stop_ = false;
  mutable std::vector<std::thread> threads_;  // mutable: native_handle() is not const
};

}  // namespace convoy
