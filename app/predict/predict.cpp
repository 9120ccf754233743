// SPDX-License-Identifier: Apache-2.0
#include "app/predict/predict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "io/data/loader.h"
#include "layers/base/error.h"
#include "layers/cpu/openmp_waits.h"
#include "parallel/comm/host_exchange.h"

namespace convoy {

namespace {

/// Rows on their way to rank 0: for each microbatch the first sample and the number of samples as int64, then the rows.
class PackedRows {
 public:
  void add(std::int64_t first, std::span<const float> rows, std::int64_t outputs) {
    const std::int64_t count = static_cast<std::int64_t>(rows.size()) / outputs;
    append(&first, sizeof first);
    append(&count, sizeof count);
    append(rows.data(), rows.size_bytes());
  }
  /// All of them; then there are none.
  [[nodiscard]] std::string take() { return std::exchange(bytes_, {}); }

  static void unpack(std::string_view bytes, std::int64_t outputs, const TakeRows& take) {
    std::vector<float> rows;
    while (!bytes.empty()) {
      std::int64_t first = 0, count = 0;
      std::memcpy(&first, bytes.data(), sizeof first);
      std::memcpy(&count, bytes.data() + sizeof first, sizeof count);
      bytes.remove_prefix(sizeof first + sizeof count);
      rows.resize(static_cast<std::size_t>(count * outputs));
      std::memcpy(rows.data(), bytes.data(), rows.size() * sizeof(float));
      bytes.remove_prefix(rows.size() * sizeof(float));
      take(first, rows);
    }
  }

 private:
  void append(const void* data, std::size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  std::string bytes_;
};

}  // namespace

void predict(Run& run, const Dataset& inputs, std::int64_t outputs, const TakeRows& take,
             const AfterBatch& after_batch) {
  LoaderOptions options = evaluation_loader(run);
  options.targets = false;
  run.runner->share_state();
  const Sampler order(inputs.size(), run.config.run.seed, false);
  Loader loader(inputs, order, options);
  const std::int64_t steps = BatchPlan{inputs.size(), options.global_batch, false}.steps_per_epoch();
  Communicator& all = *run.communicator;
  PackedRows packed;
  for (std::int64_t i = 0; i < steps; ++i) {
    follow_openmp_waits();
    run.runner->predict(loader.next().microbatches, [&](const Batch& batch, const Tensor& values) {
      const std::vector<float> rows = host_floats(*run.backend, values);
      if (all.rank() == 0) {
        take(batch.first_position, rows);
      } else {
        packed.add(batch.first_position, rows, outputs);
      }
    });
    PackedRows::unpack(join_texts(all, packed.take(), "outputs"), outputs, take);
    static_cast<void>(after_batch(i + 1, steps));
  }
}

ScoreKind score_kind(const Loss& loss) {
  return loss.kind == Loss::Kind::kCrossEntropy ? ScoreKind::kProbability : ScoreKind::kOutput;
}

std::vector<ScoredClass> top_classes(std::span<const float> outputs, std::int64_t count, ScoreKind kind) {
  std::vector<std::int64_t> order(outputs.size());
  std::iota(order.begin(), order.end(), 0);
  const auto output = [&](std::int64_t k) { return outputs[static_cast<std::size_t>(k)]; };
  const auto end =
      order.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(static_cast<std::size_t>(count), order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](std::int64_t a, std::int64_t b) {
    if (std::isnan(output(a)) || std::isnan(output(b)))
      return !std::isnan(output(a)) || (std::isnan(output(b)) && a < b);
    return output(a) != output(b) ? output(a) > output(b) : a < b;
  });
  double top = 0, sum = 1;
  if (kind == ScoreKind::kProbability) {
    top = *std::max_element(outputs.begin(), outputs.end());
    sum = 0;
    for (const float value : outputs) sum += std::exp(static_cast<double>(value) - top);
  }
  std::vector<ScoredClass> classes;
  for (auto at = order.begin(); at != end; ++at) {
    const double value = output(*at);
    classes.push_back({*at, kind == ScoreKind::kProbability ? std::exp(value - top) / sum : value});
  }
  return classes;
}

}  // namespace convoy
