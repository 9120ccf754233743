// SPDX-License-Identifier: Apache-2.0
//
// All parameters of a model in one contiguous float32 buffer, their gradients in another at the same offsets, in the
// reverse of the order in which layers declare them: the order in which backward finishes them, so that a growing
// prefix of the gradient buffer is final while backward still runs. Batch norm's statistics of a step lie in a third.
// What is frozen lies behind what learns, so that gradients, statistics of a step and optimizers end before it.
// A parameter that is divided over replicas has only some of its rows here; it is declared after all others, so that it
// lies in front of them.
// Invariant: after finalize() and the first use of the gradients nothing here moves or is allocated again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/backend/backend.h"
#include "layers/base/host_tensor.h"
#include "layers/manifest.h"

namespace convoy {

/// How a parameter starts. Random values are a pure function of (seed, parameter name).
struct Initializer {
  enum class Kind { kConstant, kUniform, kNormal } kind = Kind::kConstant;
  float scale = 0;  ///< the constant; the bound of U(-scale, scale); the standard deviation
};

/// What a parameter is in its layer.
enum class ParameterRole { kWeight, kBias, kNormWeight, kNormBias };

struct Parameter {
  std::string name;  ///< dotted torchvision path
  std::unique_ptr<WeightLayout> layout;
  Shape file_shape;  ///< in files; as many elements as layout->shape(), which it is unless the layer says otherwise
  Initializer init;
  ParameterRole role = ParameterRole::kWeight;
  bool frozen = false;              ///< keeps its value: has no gradient and no optimizer state
  std::optional<ClassShard> shard;  ///< its rows that are here, the first of the layout; further ones are zeros
  Weight weight;
  Tensor gradient;            ///< float32 [layout->elements()], a view of the flat gradient buffer; empty if frozen
  std::int64_t offset = 0;    ///< elements from the start of both buffers
  bool has_gradient = false;  ///< set by the first backward of a step; later ones add

  [[nodiscard]] bool is_norm() const { return role == ParameterRole::kNormWeight || role == ParameterRole::kNormBias; }
  [[nodiscard]] bool is_bias() const { return role == ParameterRole::kBias || role == ParameterRole::kNormBias; }

  /// From now on its layout has the rows of this shard, of those that it has in files.
  void set_shard(const ClassShard& rows) {
    shard = rows;
    file_shape.set(0, rows.classes);
  }
  /// True for the first gradient of a step, which is set; later ones are added.
  bool take_first() {
    const bool first = !has_gradient;
    has_gradient = true;
    return first;
  }
};

/// The buffers of one batch norm.
struct RunningStatistics {
  std::string name;  ///< of the batch norm; buffers are name.running_mean, name.running_var, name.num_batches_tracked
  std::int64_t channels = 0;
  Tensor mean, variance;            ///< float32 [channels], what evaluation uses
  Tensor step_mean, step_variance;  ///< weighted sums over this step's microbatches and replicas; empty if frozen
  std::int64_t batches = 0;         ///< num_batches_tracked
  bool frozen = false;              ///< training normalises with mean and variance, too, and leaves them alone
};

class ParameterStore {
 public:
  explicit ParameterStore(Backend& backend) : backend_(backend) {}

  // ---- while layers are built
  Parameter& declare(const std::string& name, std::unique_ptr<WeightLayout> layout, Initializer init,
                     ParameterRole role);
  RunningStatistics& declare_statistics(const std::string& name, std::int64_t channels);
  /// Freezes what was declared since it had that many parameters and batch norms.
  void freeze(std::size_t first_parameter, std::size_t first_norm);
  /// Allocates the flat buffers and initialises every parameter from `seed`.
  void finalize(std::uint64_t seed);

  // ---- a step
  /// Forgets the gradients and statistics of the last step.
  void begin_step();
  /// One update of every running statistic from the step's sums (torch.nn.BatchNorm2d, momentum 0.1).
  void update_running_statistics();
  /// The same update of `running`, as long as running(), in place of them; no batch is counted.
  void average_statistics(const Tensor& running);
  /// After the optimizer: the compute-type copies of the weights that learn, or of those that begin at the elements
  /// [begin, end).
  void refresh_learned() { refresh_learned(0, learned_values_.size()); }
  void refresh_learned(std::int64_t begin, std::int64_t end);
  /// The compute-type copies of all weights.
  void refresh_compute();

  [[nodiscard]] const Tensor& values() const { return values_; }
  /// The front of values(), as long as gradients(): what optimizers update.
  [[nodiscard]] const Tensor& learned_values() const { return learned_values_; }
  /// Allocated at the first call, unless place_gradients() came before.
  [[nodiscard]] const Tensor& gradients();
  /// Puts them into `memory`, float32 [learned_values().size()], before their first use.
  void place_gradients(const Tensor& memory);
  [[nodiscard]] const Tensor& statistics() const { return statistics_; }
  /// Running means and variances, float32, flat.
  [[nodiscard]] const Tensor& running() const { return running_; }
  /// A named part of a flat buffer.
  struct Piece {
    std::string name;
    std::int64_t offset = 0, elements = 0;
  };
  /// The parameters within values(), and of those that learn within gradients(), and the statistics within running(),
  /// by offset.
  [[nodiscard]] std::vector<Piece> value_pieces() const;
  [[nodiscard]] std::vector<Piece> running_pieces() const;
  [[nodiscard]] std::vector<std::int64_t> batch_counts() const;
  void set_batch_counts(const std::vector<std::int64_t>& counts);
  /// Of the parameters that learn.
  [[nodiscard]] std::vector<Segment> segments() const;
  /// The elements at the front of all buffers that belong to parameters which are divided over replicas.
  [[nodiscard]] std::int64_t sharded_elements() const;
  /// Elements at the front of the gradient buffer that are final once `parameter`, which is not frozen, and all
  /// declared after it are.
  [[nodiscard]] static std::int64_t final_elements(const Parameter& parameter);
  [[nodiscard]] std::size_t batch_norm_count() const { return batch_norms_.size(); }
  [[nodiscard]] const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }

  // ---- files
  /// What it has in a checkpoint, in the order in which export_model() gives it; or what was declared since it had
  /// that many parameters and batch norms.
  [[nodiscard]] std::vector<TensorEntry> manifest(std::size_t first_parameter = 0, std::size_t first_norm = 0) const;
  /// Parameters and buffers in declaration order without sharded parameters, or the values of another flat buffer: as
  /// long as values(), or an optimizer slot, as long as gradients() (zeros for what is frozen; what a file has for that
  /// is left aside). An earlier result handed back as `reuse` lends its memory.
  [[nodiscard]] std::vector<HostTensor> export_model(std::vector<HostTensor> reuse = {}) const;
  /// running: as long as running(), whose means and variances follow; empty: none do.
  [[nodiscard]] std::vector<HostTensor> export_slot(const Tensor& flat, std::vector<HostTensor> reuse = {},
                                                    const Tensor& running = {}) const;
  /// Sets everything but sharded parameters from `tensors`; throws one usage Error that lists all missing, unknown and
  /// mis-shaped names. Names for which `skip` starts the name are left as they are. `source` names the file in errors.
  void import_model(const std::vector<HostTensor>& tensors, const std::string& source, const std::string& skip = "");
  void import_slot(const std::vector<HostTensor>& tensors, const Tensor& flat, const std::string& source,
                   const Tensor& running = {});
  /// The rows of a sharded parameter in a flat buffer as above, float32 [shard->count, ...].
  [[nodiscard]] std::vector<float> export_rows(const Parameter& parameter, const Tensor& flat) const;
  void import_rows(const Parameter& parameter, std::vector<float> rows, const Tensor& flat);

 private:
  void initialize(Parameter& parameter, std::uint64_t seed);
  void finalize_statistics();

  Backend& backend_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<RunningStatistics>> batch_norms_;
  Tensor values_, gradients_;    ///< float32 [total], [learned]
  Tensor learned_values_;        ///< float32 [learned], the front of values_
  Tensor mirror_;                ///< compute type [total], where the backend keeps weights so and it is not float32
  Tensor running_, statistics_;  ///< float32 [sum of 2 * channels], the latter of what is not frozen
};

}  // namespace convoy
