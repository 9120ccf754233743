// SPDX-License-Identifier: Apache-2.0
//
// convoy inspect CONFIG: the data sets that a run would train on, and a picture of its first samples, read as training
// reads them. Relies on build_data.h, and on the sampler for the order. Invariant: nothing is computed, no rank is
// needed.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/base/error_report.h"
#include "app/build/build_data.h"
#include "app/build/read_config.h"
#include "app/commands/commands.h"
#include "app/commands/write_result.h"
#include "app/inspect/image_grid.h"
#include "io/data/augment.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"

namespace convoy {

namespace {

constexpr std::int64_t kEpoch = 0;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 28;  // of a picture: a gigabyte of memory while it is made

/// A sample as the data set gives it.
struct Sample {
  std::vector<std::uint8_t> bytes;
  std::vector<float> floats;
  std::int64_t label = 0;
  std::vector<float> target;
};

void describe(const char* key, const std::string& source, const Dataset& data) {
  std::cout << fmt::format("{:<16} {}: {} samples {} {}", key, source.empty() ? "synthetic" : name_text(source),
                           data.size(), dtype_name(data.input_dtype()), data.sample_shape_in(kEpoch).str());
  if (data.target_size() > 0) {
    std::cout << fmt::format(", {} float targets each\n", data.target_size());
    return;
  }
  std::cout << fmt::format(", {} classes\n", data.classes());
  const std::vector<std::string> names = data.class_names();
  if (!names.empty())
    std::cout << fmt::format("{:<16} {}\n", "  class names", name_text(fmt::format("{}", fmt::join(names, ", "))));
}

void print_sizes(const DataOptions& d) {
  for (std::size_t i = 0; i < d.size_milestones.size(); ++i) {
    std::cout << fmt::format("{:<16} {}: images of {}x{}\n", i == 0 ? "  after epoch" : "", d.size_milestones[i],
                             d.train_sizes[i + 1], d.train_sizes[i + 1]);
  }
}

// The one place that reads.
Sample read_sample(const Dataset& data, const SampleId& id) {
  Sample sample;
  const auto size = static_cast<std::size_t>(data.sample_shape_in(id.epoch).size());
  const bool bytes = data.input_dtype() == DType::kU8;
  bytes ? sample.bytes.resize(size) : sample.floats.resize(size);
  sample.target.resize(static_cast<std::size_t>(data.target_size()));
  void* const input = bytes ? static_cast<void*>(sample.bytes.data()) : sample.floats.data();
  data.read(id, input, &sample.label, sample.target.data());
  return sample;
}

// As training erases it: to the mean, which is 0 when it is normalised.
void erase(const Config& config, const Dataset& data, const SampleId& id, std::vector<std::uint8_t>& pixels) {
  const Shape shape = data.sample_shape_in(id.epoch);
  SampleRandom random(config.run.seed, id, "erase");
  const PixelBox box =
      random_erasing(static_cast<int>(shape[2]), static_cast<int>(shape[1]), config.data.augmentation(), random);
  const std::vector<double>& mean = config.data.mean;
  for (std::int64_t row = box.top; row < box.top + box.height; ++row) {
    for (std::int64_t i = box.left * shape[0]; i < (box.left + box.width) * shape[0]; ++i) {
      const double level = mean[mean.size() == 1 ? 0 : static_cast<std::size_t>(i % shape[0])];
      pixels[static_cast<std::size_t>(row * shape[2] * shape[0] + i)] =
          static_cast<std::uint8_t>(std::lround(255 * std::clamp(level, 0.0, 1.0)));
    }
  }
}

// Float images go from black, the least value of all samples, to white, the largest.
void floats_to_bytes(std::vector<Sample>& samples) {
  float least = std::numeric_limits<float>::infinity(), most = -least;
  for (const Sample& sample : samples) {
    for (const float value : sample.floats) {
      if (value < least) least = value;
      if (value > most) most = value;
    }
  }
  const float scale = most > least ? 255.0F / (most - least) : 0.0F;
  for (Sample& sample : samples) {
    for (const float value : sample.floats) {
      const float level = (value - least) * scale;
      sample.bytes.push_back(level > 0 ? static_cast<std::uint8_t>(std::min(255.0F, level + 0.5F)) : std::uint8_t{0});
    }
  }
}

std::string label_of(const Sample& sample, const std::vector<std::string>& names) {
  if (!sample.target.empty()) {
    return fmt::format("{:.4g}{}", sample.target.front(), sample.target.size() > 1 ? " .." : "");
  }
  const auto label = static_cast<std::size_t>(sample.label);
  return label < names.size() ? names[label] : std::to_string(sample.label);
}

void check_drawable(const Dataset& data, std::int64_t images) {
  const Shape shape = data.sample_shape_in(kEpoch);
  if (shape.rank() != 3) {
    fail_usage("inspect --images: the samples of data.train are vectors {}, no images [C, H, W]", shape.str());
  }
  if (shape[0] != 1 && shape[0] != 3) {
    fail_usage("inspect --images: the samples of data.train have {} channels (a picture has 1 or 3)", shape[0]);
  }
  // Enlarged and with its label a sample may take some thousand pixels more.
  if (images > kMaxPixels / (shape[1] * shape[2] + 16384)) {
    fail_usage("inspect --images: {} samples of {}x{} pixels are too many for one picture (at most {})", images,
               shape[1], shape[2], kMaxPixels / (shape[1] * shape[2] + 16384));
  }
}

}  // namespace

int inspect_data_command(const InspectArguments& arguments) {
  const Config config = read_config(arguments.file, arguments.overrides);
  print_note(config.note);
  const auto train = build_dataset(config, config.data.train, "data.train");
  const auto validation =
      config.data.validation.empty() ? nullptr : build_dataset(config, config.data.validation, "data.validation");
  check_data(config, *train, validation.get());
  if (arguments.images == 0) {
    describe("data.train", config.data.train, *train);
    print_sizes(config.data);
    if (validation) describe("data.validation", config.data.validation, *validation);
    std::cout << std::flush;
    return 0;
  }
  const std::int64_t count = std::min(arguments.images, train->size());
  check_drawable(*train, count);
  const Sampler sampler = training_sampler(*train, config.data, config.run.seed);
  std::vector<Sample> samples;
  samples.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const SampleId id = sampler.sample(kEpoch, i);
    samples.push_back(read_sample(*train, id));
    if (config.data.augments("erase")) erase(config, *train, id, samples.back().bytes);
  }
  if (train->input_dtype() != DType::kU8) floats_to_bytes(samples);
  const std::vector<std::string> names = train->class_names();
  std::vector<GridTile> tiles;
  tiles.reserve(samples.size());
  for (Sample& sample : samples) tiles.push_back({std::move(sample.bytes), label_of(sample, names)});
  const std::string png = png_bytes(draw_grid(tiles, train->sample_shape_in(kEpoch)));
  const std::string output = arguments.output.empty() ? "grid.png" : arguments.output;
  try {
    write_output(output, std::as_bytes(std::span(png)));
  } catch (const Error& error) {
    fail_usage("{} (-o FILE names another place)", error.what());
  }
  std::cout << fmt::format("{}: the first {} training samples of epoch {}\n", output, count, kEpoch) << std::flush;
  return 0;
}

}  // namespace convoy
