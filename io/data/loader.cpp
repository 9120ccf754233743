// SPDX-License-Identifier: Apache-2.0
//
// Steps are numbered from 0 and live in slot number % kSlots. Threads take chunks of samples of one step after the
// other, under the lock, and read them outside it; so all threads work on the step that is needed first. Relies on
// chunks being taken in order: when reading fails, every earlier step is already in hands and will become ready.
#include "io/data/loader.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <optional>

#include "layers/base/clock.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::chrono::milliseconds kLap{250};
constexpr double kLongestLap = 1;  // seconds
constexpr int kSlots = 4;          // one in use, the others ready or being filled

// Samples of the largest step.
std::int64_t slot_capacity(const LoaderOptions& o) { return (o.global_batch + o.replicas - 1) / o.replicas; }

LoaderOptions checked(const LoaderOptions& o, const Dataset& dataset, const Sampler& sampler) {
  if (o.global_batch < 1) fail_usage("loader: a global batch of {} samples", o.global_batch);
  if (o.threads < 1) fail_usage("loader: {} threads (at least 1)", o.threads);
  if (o.microbatches < 1) fail_usage("loader: {} microbatches (at least 1)", o.microbatches);
  if (o.replica < 0 || o.replica >= o.replicas) fail_usage("loader: replica {} of {}", o.replica, o.replicas);
  if (o.epoch < 0 || o.position < 0) fail_usage("loader: a start at epoch {}, sample {}", o.epoch, o.position);
  if (sampler.size() != dataset.size()) {
    fail_usage("loader: a sampler of {} samples for a data set of {}", sampler.size(), dataset.size());
  }
  return o;
}

std::size_t bytes_of(const Dataset& dataset, const Shape& sample) {
  return static_cast<std::size_t>(sample.size()) * dtype_size(dataset.input_dtype());
}

}  // namespace

std::int64_t loader_bytes(const Shape& sample, DType dtype, std::int64_t target_size, const LoaderOptions& options) {
  const std::int64_t input = sample.size() * static_cast<std::int64_t>(dtype_size(dtype));
  const std::int64_t target = target_size > 0 ? target_size * std::int64_t{sizeof(float)} : sizeof(std::int64_t);
  const std::int64_t samples = slot_capacity(options) + (options.augmentation.mixes() ? 1 : 0);
  const std::int64_t box = options.augmentation.erase ? 4 * std::int64_t{sizeof(std::int64_t)} : 0;
  return kSlots * samples * ((options.inputs ? input : 0) + (options.targets ? target : 0) + box);
}

Loader::Slot& Loader::slot_of(std::int64_t number) { return slots_[static_cast<std::size_t>(number % kSlots)]; }

Loader::Loader(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options)
    : dataset_(dataset),
      sampler_(sampler),
      options_(checked(options, dataset, sampler)),
      plan_{dataset.size(), options.global_batch, options.drop_last && !options.evaluation},
      target_size_(dataset.target_size()),
      partners_(options.augmentation.mixes() ? 1 : 0),
      epoch_(options.epoch),
      position_(options.position) {
  if (plan_.steps_per_epoch() == 0) {
    fail_usage("a global batch of {} samples is larger than the data set of {} (a smaller batch, or drop_last = false)",
               plan_.global_batch, plan_.size);
  }
  if (plan_.batch_at(position_).count == 0) {
    ++epoch_;
    position_ = 0;
  }
  allocate_slots();
  try {
    for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    {
      const std::lock_guard guard(mutex_);
      stop_ = true;
    }
    work_ready_.notify_all();
    for (auto& thread : threads_) thread.join();
    throw;
  }
}

Loader::~Loader() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
  }
  work_ready_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Loader::allocate_slots() {
  const std::int64_t capacity = slot_capacity(options_) + partners_;
  chunk_ = std::max<std::int64_t>(1, capacity / (4 * options_.threads));
  slots_.resize(kSlots);
  for (auto& slot : slots_) {
    const std::size_t bytes =
        std::max<std::size_t>(1, static_cast<std::size_t>(capacity) * bytes_of(dataset_, dataset_.sample_shape()));
    if (options_.inputs) slot.inputs.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
    if (options_.targets && target_size_ > 0) slot.targets.resize(static_cast<std::size_t>(capacity * target_size_));
    if (options_.targets && target_size_ == 0) slot.labels.resize(static_cast<std::size_t>(capacity));
    if (options_.augmentation.erase) slot.erased.resize(static_cast<std::size_t>(4 * capacity));
    slot.step.microbatches.resize(static_cast<std::size_t>(options_.microbatches));
  }
}

// Points the microbatches of a slot at its memory. Parts of the global batch are counted over replicas and microbatches
// together, so that r replicas of m microbatches cut it where one replica of r * m does.
void Loader::lay_out(Slot& slot, const Range& global) const {
  const std::int64_t parts = std::int64_t{options_.replicas} * options_.microbatches;
  const std::int64_t first_part = std::int64_t{options_.replica} * options_.microbatches;
  slot.local = part(global.first, global.count, options_.replicas, options_.replica);
  const Shape sample = dataset_.sample_shape_in(slot.step.epoch);
  slot.sample_bytes = bytes_of(dataset_, sample);
  std::optional<Mixing> mixing;
  if (partners_ > 0) {
    mixing = random_mixing(sample[2], sample[1], options_.augmentation, options_.seed, slot.step.epoch, global.first);
  }
  for (std::int64_t m = 0; m < options_.microbatches; ++m) {
    const Range range = part(global.first, global.count, parts, first_part + m);
    const std::int64_t offset = range.first - slot.local.first;
    Batch& batch = slot.step.microbatches[static_cast<std::size_t>(m)];
    batch.samples = range.count;
    batch.first_position = range.first;
    batch.input_shape =
        sample.rank() == 3 ? Shape{range.count, sample[0], sample[1], sample[2]} : Shape{range.count, sample[0]};
    batch.input_dtype = dataset_.input_dtype();
    batch.target_size = target_size_;
    batch.inputs = slot.input_at(offset);
    batch.labels = slot.label_at(offset);
    batch.targets = slot.target_at(offset, target_size_);
    batch.erased = slot.erased.empty() ? nullptr : slot.erased.data() + 4 * offset;
    batch.mixing = mixing;
  }
}

// Lays the next step out in its slot and moves on to the position after it. Called with the lock held.
void Loader::open_step() {
  const Range global = plan_.batch_at(position_);
  Slot& slot = slot_of(filling_);
  slot.step.epoch = epoch_;
  slot.step.first_position = global.first;
  slot.step.global_samples = global.count;
  slot.done = 0;
  lay_out(slot, global);
  position_ += global.count;
  slot.step.last_of_epoch = plan_.batch_at(position_).count == 0;
  if (slot.step.last_of_epoch) {
    finished_ = options_.evaluation;
    ++epoch_;
    position_ = 0;
  }
  open_ = true;
  handed_ = 0;
}

bool Loader::can_take() const {
  if (failed_) return false;
  return open_ || (!finished_ && filling_ < released_ + kSlots);
}

void Loader::work() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    work_ready_.wait(lock, [&] { return stop_ || can_take(); });
    if (stop_) return;
    if (!open_) {
      open_step();
      work_ready_.notify_all();  // there are chunks for the others, too
    }
    Slot& slot = slot_of(filling_);
    const std::int64_t first = handed_;
    const std::int64_t count = std::min(chunk_, reads(slot) - first);
    handed_ += count;
    if (handed_ == reads(slot)) {
      open_ = false;
      ++filling_;
      work_ready_.notify_all();
    }
    lock.unlock();
    std::exception_ptr error;
    try {
      read_samples(slot, first, count);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    slot.done += count;
    if (error && !slot.error) slot.error = error;
    if (error) failed_ = true;
    if (slot.done == reads(slot) || slot.error) step_ready_.notify_one();
  }
}

// In the epoch, of what lies at `i` in the slot: the partner of a replica's first sample is the one before it in the
// global batch, that of the first of all the last.
std::int64_t Loader::position_of(const Slot& slot, std::int64_t i) const {
  const std::int64_t position = slot.local.first + i - partners_, first = slot.step.first_position;
  return position < first ? position + slot.step.global_samples : position;
}

SampleId Loader::sample_at(std::int64_t epoch, std::int64_t position) const {
  return options_.evaluation ? SampleId(position, epoch) : sampler_.sample(epoch, position);
}

// Reads the labels of all replicas, so that each finds the same scale. Called for one chunk of a step.
void Loader::weigh_classes(LoaderStep& step) const {
  double scale = 1;
  if (partners_ == 0) {
    double sum = 0;
    for (std::int64_t i = 0; i < step.global_samples; ++i) {
      std::int64_t label = 0;
      const SampleId sample = sample_at(step.epoch, step.first_position + i);
      dataset_.read(sample, nullptr, &label, nullptr);
      if (label < 0 || label >= static_cast<std::int64_t>(options_.class_weights.size())) {
        fail("sample {} has the label {}, and there are weights of {} classes", sample.index, label,
             options_.class_weights.size());
      }
      sum += options_.class_weights[static_cast<std::size_t>(label)];
    }
    scale = static_cast<double>(step.global_samples) / sum;
  }
  for (Batch& batch : step.microbatches) batch.class_weights = ClassWeights{options_.class_weights, scale};
}

void Loader::read_samples(Slot& slot, std::int64_t first, std::int64_t count) const {
  if (first == 0 && options_.targets && !options_.class_weights.empty()) weigh_classes(slot.step);
  for (std::int64_t i = first; i < first + count; ++i) {
    const SampleId sample = sample_at(slot.step.epoch, position_of(slot, i));
    dataset_.read(sample, slot.input_at(i), slot.label_at(i), slot.target_at(i, target_size_));
    if (!slot.erased.empty()) {
      const Shape shape = dataset_.sample_shape_in(sample.epoch);
      SampleRandom random(options_.seed, sample, "erase");
      const PixelBox box =
          random_erasing(static_cast<int>(shape[2]), static_cast<int>(shape[1]), options_.augmentation, random);
      std::copy_n(std::array<std::int64_t, 4>{box.left, box.top, box.width, box.height}.begin(), 4,
                  slot.erased.begin() + 4 * i);
    }
  }
}

const LoaderStep& Loader::next() {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (released_ < given_) {
    released_ = given_;
    work_ready_.notify_all();
  }
  Slot& slot = slot_of(given_);
  const auto over = [&] { return finished_ && !open_ && given_ >= filling_; };
  const auto ready = [&] { return given_ < filling_ && slot.done == reads(slot); };
  const auto settled = [&] { return slot.error || ready() || over(); };
  double waited = 0;
  for (auto before = start; !step_ready_.wait_for(lock, kLap, settled);) {
    waited += std::min(kLongestLap, seconds_since(before));  // longer: the process was stopped
    before = std::chrono::steady_clock::now();
    if (waited >= options_.timeout && options_.on_late) {
      options_.on_late(
          fmt::format("reading data did not end within {:g} s: the file server or the disk does not answer, or is too "
                      "slow (more data.loader_threads, data.stage_dir, or a longer parallel.timeout)",
                      options_.timeout));
    }
  }
  if (slot.error) std::rethrow_exception(slot.error);
  if (over()) fail("loader: the evaluation pass is over");
  ++given_;
  slot.step.wait_seconds = seconds_since(start);
  return slot.step;
}

double Loader::processor_seconds() const {
  double sum = 0;
  for (std::thread& thread : threads_) {
    clockid_t clock{};
    timespec time{};
    if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0 || clock_gettime(clock, &time) != 0) {
      fail("loader: the system does not tell the processor time of a thread");
    }
    sum += static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return sum;
}

}  // namespace convoy
