// SPDX-License-Identifier: Apache-2.0
#include "io/data/float_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "layers/base/option_error.h"

namespace convoy {

namespace {

void check_count(const char* key, const std::vector<double>& values, const Shape& sample, const std::string& source) {
  if (values.size() == 1 || static_cast<std::int64_t>(values.size()) == sample[0]) return;
  fail_option(key, "{} values for the {} {} of {} (give one for all, or one each)", values.size(), sample[0],
              sample.rank() == 3 ? "channels" : "features", source);
}

std::vector<double> one_each(const std::vector<double>& values, std::int64_t count) {
  return values.size() == 1 ? std::vector<double>(static_cast<std::size_t>(count), values.front()) : values;
}

}  // namespace

FloatDataset::FloatDataset(std::unique_ptr<Dataset> data, Options options)
    : WrappedDataset(std::move(data)),
      options_(std::move(options)),
      float_inputs_(WrappedDataset::input_dtype() == DType::kF32),
      nonfinite_(options_.source, size(), 1, "a value that is not finite, used as it is") {
  if (!float_inputs_) return;  // the backend normalises images
  const Shape sample = sample_shape();
  check_count("data.mean", options_.mean, sample, options_.source);
  check_count("data.std", options_.std, sample, options_.source);
  const auto all = [](const std::vector<double>& values, double value) {
    return std::all_of(values.begin(), values.end(), [&](double v) { return v == value; });
  };
  if (all(options_.mean, 0) && all(options_.std, 1)) return;
  const std::vector<double> means = one_each(options_.mean, sample[0]), stds = one_each(options_.std, sample[0]);
  mean_.assign(means.begin(), means.end());
  std_.assign(stds.begin(), stds.end());
}

void FloatDataset::check(std::int64_t index, const char* what, const float* values, std::int64_t count) const {
  const float* const end = values + count;
  const float* const wrong = std::find_if(values, end, [](float value) { return !std::isfinite(value); });
  if (wrong == end) return;
  const std::string name = fmt::format("{}: sample {}", options_.source, index);
  const std::string problem = fmt::format("{} [{}] is {}", what, wrong - values,
                                          std::isnan(*wrong) ? "nan"
                                          : *wrong > 0       ? "inf"
                                                             : "-inf");
  if (!options_.allow_nonfinite) {
    fail_usage("{}: {} (repair the data, or allow it with data.allow_nonfinite = true)", name, problem);
  }
  constexpr std::size_t kReported = 20;
  if (nonfinite_.noted() < kReported) nonfinite_.note(index, name, problem);
}

void FloatDataset::read(const SampleId& sample, void* input, std::int64_t* label, float* target) const {
  data().read(sample, input, label, target);
  if (target != nullptr && target_size() > 0) check(sample.index, "targets", target, target_size());
  if (input == nullptr || !float_inputs_) return;
  auto* const values = static_cast<float*>(input);
  const std::int64_t count = sample_shape().size();
  check(sample.index, "inputs", values, count);
  if (mean_.empty()) return;
  const std::size_t channels = mean_.size();  // channels-last: the innermost axis
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(channels)) {
    for (std::size_t c = 0; c < channels; ++c) {
      float& value = values[i + static_cast<std::int64_t>(c)];
      value = (value - mean_[c]) / std_[c];
    }
  }
}

}  // namespace convoy
