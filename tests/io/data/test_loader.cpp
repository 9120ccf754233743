// SPDX-License-Identifier: Apache-2.0
//
// The loader against the sampler: the same samples in the same places for any number of threads, replicas and
// microbatches, over epochs and from the middle of one; errors and destruction while it is busy.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "io/data/loader.h"
#include "layers/base/clock.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

// Sample i is {i, -i} with label i % 7, or with the target 2 i.
class CountingDataset : public Dataset {
 public:
  explicit CountingDataset(std::int64_t samples, std::int64_t targets = 0) : samples_(samples), targets_(targets) {}
  std::int64_t size() const override { return samples_; }
  Shape sample_shape() const override { return {2}; }
  DType input_dtype() const override { return DType::kF32; }
  std::int64_t target_size() const override { return targets_; }
  std::int64_t classes() const override { return targets_ > 0 ? 0 : 7; }
  std::vector<std::string> class_names() const override { return {}; }
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override {
    const std::int64_t index = sample.index;
    ++reads;
    if (index == bad_sample) fail("sample {} is bad", index);
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    static_cast<float*>(input)[0] = static_cast<float>(index);
    static_cast<float*>(input)[1] = -static_cast<float>(index);
    if (label != nullptr) *label = index % 7;
    if (target != nullptr) *target = 2 * static_cast<float>(index);
  }

  std::int64_t bad_sample = -1;
  std::chrono::milliseconds delay{0};
  mutable std::atomic<bool> hangs{false};
  mutable std::atomic<int> reads{0};

 private:
  std::int64_t samples_;
  std::int64_t targets_;
};

// Images of 2 x 2 pixels in epoch 0, of 3 x 3 in epoch 1, of 1 x 1 later; each byte is the sample's index.
class GrowingDataset : public CountingDataset {
 public:
  using CountingDataset::CountingDataset;
  Shape sample_shape() const override { return {1, 3, 3}; }
  Shape sample_shape_in(std::int64_t epoch) const override {
    return epoch == 0 ? Shape{1, 2, 2} : epoch == 1 ? Shape{1, 3, 3} : Shape{1, 1, 1};
  }
  DType input_dtype() const override { return DType::kU8; }
  void read(const SampleId& sample, void* input, std::int64_t* label, float* /*target*/) const override {
    const auto pixels = static_cast<std::size_t>(sample_shape_in(sample.epoch).size());
    std::fill_n(static_cast<std::uint8_t*>(input), pixels, static_cast<std::uint8_t>(sample.index));
    if (label != nullptr) *label = sample.index % 7;
  }
};

std::vector<std::int64_t> samples_of(const LoaderStep& step) {
  std::vector<std::int64_t> samples;
  for (const Batch& batch : step.microbatches) {
    CHECK(batch.input_shape == Shape{batch.samples, 2});
    const auto* inputs = static_cast<const float*>(batch.inputs);
    for (std::int64_t i = 0; i < batch.samples; ++i) {
      const auto sample = static_cast<std::int64_t>(inputs[2 * i]);
      CHECK(inputs[2 * i + 1] == -static_cast<float>(sample));
      if (batch.target_size == 0) CHECK(batch.labels[i] == sample % 7);
      if (batch.target_size == 1) CHECK(batch.targets[i] == 2 * static_cast<float>(sample));
      samples.push_back(sample);
    }
  }
  return samples;
}

}  // namespace

TEST_CASE("the loader's order is the sampler's, for any threads, replicas and microbatches") {
  const CountingDataset data(103);
  const Sampler sampler(103, 11, true);
  for (const int threads : {1, 4}) {
    for (const int replicas : {1, 2, 3}) {
      for (const int microbatches : {1, 2, 4}) {
        for (const bool drop_last : {true, false}) {
          const BatchPlan plan{103, 24, drop_last};
          for (int replica = 0; replica < replicas; ++replica) {
            LoaderOptions options;
            options.global_batch = 24;
            options.drop_last = drop_last;
            options.replica = replica;
            options.replicas = replicas;
            options.microbatches = microbatches;
            options.threads = threads;
            Loader loader(data, sampler, options);
            for (std::int64_t n = 0; n < 3 * plan.steps_per_epoch(); ++n) {
              const LoaderStep& step = loader.next();
              const std::int64_t epoch = n / plan.steps_per_epoch();
              const Range global = plan.batch_at(n % plan.steps_per_epoch() * 24);
              CHECK(step.epoch == epoch);
              CHECK(step.first_position == global.first);
              CHECK(step.global_samples == global.count);
              CHECK(step.last_of_epoch == ((n + 1) % plan.steps_per_epoch() == 0));
              REQUIRE(step.microbatches.size() == static_cast<std::size_t>(microbatches));
              std::vector<std::int64_t> expected;
              for (int m = 0; m < microbatches; ++m) {
                const Range range =
                    part(global.first, global.count, replicas * microbatches, replica * microbatches + m);
                CHECK(step.microbatches[static_cast<std::size_t>(m)].samples == range.count);
                for (std::int64_t i = 0; i < range.count; ++i) {
                  expected.push_back(sampler.index(epoch, range.first + i));
                }
              }
              CHECK(samples_of(step) == expected);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a run that resumes in the middle, on other replicas, sees what was left exactly once") {
  const CountingDataset data(100, 1);
  const Sampler sampler(100, 3, true);
  std::multiset<std::int64_t> seen;
  LoaderOptions options;
  options.global_batch = 12;
  options.drop_last = false;
  options.microbatches = 3;
  options.epoch = 4;
  std::int64_t position = 0;
  {
    Loader loader(data, sampler, options);
    for (int n = 0; n < 3; ++n) {
      const LoaderStep& step = loader.next();
      for (const auto sample : samples_of(step)) seen.insert(sample);
      position = step.first_position + step.global_samples;
    }
  }
  options.position = position;
  options.microbatches = 1;
  options.replicas = 4;
  for (options.replica = 0; options.replica < 4; ++options.replica) {
    Loader loader(data, sampler, options);
    for (bool last = false; !last;) {
      const LoaderStep& step = loader.next();
      CHECK(step.epoch == 4);
      for (const auto sample : samples_of(step)) seen.insert(sample);
      last = step.last_of_epoch;
    }
    CHECK(loader.next().epoch == 5);
  }
  CHECK(seen.size() == 100);
  CHECK(std::set<std::int64_t>(seen.begin(), seen.end()).size() == 100);
}

TEST_CASE("a start at the end of an epoch is a start of the next") {
  const CountingDataset data(10);
  LoaderOptions options;
  options.global_batch = 4;
  options.epoch = 1;
  options.position = 8;  // two samples are left, fewer than a batch
  Loader loader(data, Sampler(10, 0, true), options);
  CHECK(loader.next().epoch == 2);
}

TEST_CASE("an evaluation is one pass in order, with its last partial batch") {
  const CountingDataset data(10);
  LoaderOptions options;
  options.global_batch = 8;
  options.evaluation = true;
  options.replicas = 4;
  std::vector<std::int64_t> seen;
  for (options.replica = 0; options.replica < 4; ++options.replica) {
    Loader loader(data, Sampler(10, 0, true), options);
    CHECK(!loader.next().last_of_epoch);
    const LoaderStep& last = loader.next();
    CHECK(last.last_of_epoch);
    CHECK(last.global_samples == 2);
    // Two samples for four replicas: two of them have none.
    CHECK(last.microbatches[0].samples == part(8, 2, 4, options.replica).count);
    for (const auto sample : samples_of(last)) seen.push_back(sample);
    CHECK(contains(error_of([&] { loader.next(); }), "evaluation pass is over"));
  }
  CHECK(seen == std::vector<std::int64_t>{8, 9});
}

TEST_CASE("an error of reading comes out of the step that it belongs to, and of every later call") {
  for (const int threads : {1, 4}) {
    CountingDataset data(1000);
    data.bad_sample = 137;
    LoaderOptions options;
    options.global_batch = 10;
    options.threads = threads;
    Loader loader(data, Sampler(1000, 0, false), options);
    for (int n = 0; n < 13; ++n) CHECK(samples_of(loader.next())[0] == n * 10);
    CHECK(error_of([&] { loader.next(); }) == "sample 137 is bad");
    CHECK(error_of([&] { loader.next(); }) == "sample 137 is bad");
  }
}

TEST_CASE("destruction waits for the samples in hands, not for batches") {
  CountingDataset data(1000);
  data.delay = std::chrono::milliseconds(20);
  LoaderOptions options;
  options.global_batch = 16;
  options.threads = 4;
  const auto start = std::chrono::steady_clock::now();
  {
    Loader loader(data, Sampler(1000, 0, true), options);
    CHECK(loader.next().wait_seconds > 0.01);
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  // And at once.
  for (int i = 0; i < 50; ++i) Loader(CountingDataset(5), Sampler(5, 0, true), LoaderOptions{});
}

TEST_CASE("the loader works ahead, but no further than its slots") {
  const CountingDataset data(1000);
  LoaderOptions options;
  options.global_batch = 10;
  Loader loader(data, Sampler(1000, 0, true), options);
  for (int i = 0; i < 2000 && data.reads < 40; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(data.reads == 40);
  const LoaderStep& step = loader.next();
  const auto before = samples_of(step);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(samples_of(step) == before);  // a step in use is not written to
  CHECK(data.reads == 40);
}

TEST_CASE("samples that change their size from epoch to epoch lie without gaps in batches of their shape") {
  const GrowingDataset data(23);
  const Sampler sampler(23, 5, true);
  for (const std::int64_t position : {0, 8, 16}) {  // where a resumed run begins: in epoch 1, of the second size
    LoaderOptions options;
    options.global_batch = 8;
    options.drop_last = false;
    options.microbatches = 2;
    options.threads = 3;
    options.epoch = position == 0 ? 0 : 1;
    options.position = position;
    Loader loader(data, sampler, options);
    for (std::int64_t epoch = options.epoch; epoch < 4;) {
      const LoaderStep& step = loader.next();
      REQUIRE(step.epoch == epoch);
      std::int64_t at = step.first_position;
      for (const Batch& batch : step.microbatches) {
        const Shape sample = data.sample_shape_in(epoch);
        REQUIRE(batch.input_shape == Shape{batch.samples, sample[0], sample[1], sample[2]});
        const auto* bytes = static_cast<const std::uint8_t*>(batch.inputs);
        for (std::int64_t i = 0; i < batch.samples; ++i, ++at) {
          const std::int64_t index = sampler.index(epoch, at);
          CHECK(batch.labels[i] == index % 7);
          for (std::int64_t p = 0; p < sample.size(); ++p) CHECK(bytes[i * sample.size() + p] == index);
        }
      }
      epoch += step.last_of_epoch ? 1 : 0;
    }
  }
}

TEST_CASE("mixed batches begin with the sample before them in the global batch, however it is divided") {
  const GrowingDataset data(103);
  const Sampler sampler(103, 11, true);
  for (const int replicas : {1, 2, 3}) {
    for (const int microbatches : {1, 2, 4}) {
      for (int replica = 0; replica < replicas; ++replica) {
        LoaderOptions options;
        options.global_batch = 24;
        options.drop_last = false;
        options.replica = replica;
        options.replicas = replicas;
        options.microbatches = microbatches;
        options.threads = 3;
        options.seed = 7;
        options.augmentation.erase = options.augmentation.mixup = options.augmentation.cutmix = true;
        options.augmentation.erase_probability = 0.5;
        Loader loader(data, sampler, options);
        for (int n = 0; n < 12; ++n) {
          const LoaderStep& step = loader.next();
          const Shape sample = data.sample_shape_in(step.epoch);
          const Mixing expected =
              random_mixing(sample[2], sample[1], options.augmentation, 7, step.epoch, step.first_position);
          for (const Batch& batch : step.microbatches) {
            REQUIRE(batch.mixing);
            CHECK(batch.mixing->box == expected.box);
            CHECK(batch.mixing->pixels == expected.pixels);
            CHECK(batch.mixing->labels == expected.labels);
            CHECK(batch.input_shape[0] == batch.samples);
            CHECK(batch.raw_shape()[0] == batch.samples + 1);
            const auto* bytes = static_cast<const std::uint8_t*>(batch.inputs);
            for (std::int64_t i = 0; i <= batch.samples; ++i) {
              std::int64_t position = batch.first_position + i - 1;
              if (position < step.first_position) position += step.global_samples;
              const SampleId id{sampler.index(step.epoch, position), step.epoch};
              CHECK(bytes[i * sample.size()] == id.index);
              CHECK(batch.labels[i] == id.index % 7);
              SampleRandom random(7, id, "erase");
              const PixelBox box = random_erasing(static_cast<int>(sample[2]), static_cast<int>(sample[1]),
                                                  options.augmentation, random);
              CHECK(PixelBox{static_cast<int>(batch.erased[4 * i]), static_cast<int>(batch.erased[4 * i + 1]),
                             static_cast<int>(batch.erased[4 * i + 2]),
                             static_cast<int>(batch.erased[4 * i + 3])} == box);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("bad options are errors of input") {
  const CountingDataset data(10);
  const Sampler sampler(10, 0, true);
  const auto error = [&](auto&& change) {
    LoaderOptions options;
    change(options);
    ExitCode code{};
    const std::string text = error_of([&] { Loader(data, sampler, options); }, &code);
    CHECK(code == ExitCode::kUsage);
    return text;
  };
  CHECK(contains(error([](auto& o) { o.global_batch = 11; }), "larger than the data set of 10"));
  CHECK(contains(error([](auto& o) { o.threads = 0; }), "threads"));
  CHECK(contains(error([](auto& o) { o.replica = 1; }), "replica 1 of 1"));
  CHECK_THROWS_AS(Loader(data, Sampler(9, 0, true), LoaderOptions{}), Error);
}

TEST_CASE("data that does not come in time is told, and the loader goes on when the listener lets it") {
  CountingDataset data(8);
  LoaderOptions options;
  options.global_batch = 4;
  options.timeout = 0.3;
  std::string told;
  options.on_late = [&](const std::string& text) {
    told = text;
    data.hangs = false;
  };
  data.hangs = true;
  Loader loader(data, Sampler(8, 0, false), options);
  CHECK(samples_of(loader.next()).size() == 4);
  CHECK(contains(told, "reading data did not end within 0.3 s"));
}

TEST_CASE("the processor time of the threads is that of their work, without waits") {
  const auto read_with = [](std::chrono::milliseconds delay, double& passed) {
    CountingDataset data(64);
    data.delay = delay;
    LoaderOptions options;
    options.global_batch = 64;
    options.threads = 2;
    const auto start = std::chrono::steady_clock::now();
    Loader loader(data, Sampler(64, 1, true), options);
    loader.next();
    passed = seconds_since(start);
    return loader.processor_seconds();
  };
  double passed = 0;
  const double busy = read_with(std::chrono::milliseconds(20), passed);
  CHECK(busy > 0);
  CHECK(busy < passed / 4);  // two threads slept for most of it
}
