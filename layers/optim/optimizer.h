// SPDX-License-Identifier: Apache-2.0
//
// Optimizers and their options. An optimizer updates the flat buffers of the parameters that learn, with one backend
// call a step. Its state lies in slots: flat buffers of the same layout as the parameters, or as a shard of them, which
// checkpoints store under the parameters' names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "layers/base/option_choice.h"
#include "layers/parameters.h"

namespace convoy {

class Optimizer;

inline constexpr std::string_view kEpsilonHelp = "added to divisors; default 1e-8, lars 1e-9, lamb 1e-6";

/// Stochastic gradient descent with momentum (torch.optim.SGD).
struct SgdOptions {
  static constexpr std::string_view kName = "sgd";
  static constexpr double kSlots = 1;  ///< floats of state per parameter
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("momentum", o.momentum, below(0, 1), "momentum coefficient");
    v.key("nesterov", o.nesterov, anything(), "use Nesterov momentum");
    v.key("weight_decay", o.weight_decay, at_least(0), "weight decay coefficient");
  }
  [[nodiscard]] std::unique_ptr<Optimizer> make(Backend& backend, ParameterStore& store) const;
  bool operator==(const SgdOptions&) const = default;
};

/// Layer-wise adaptive rates (You et al. 2017).
struct LarsOptions {
  static constexpr std::string_view kName = "lars";
  static constexpr double kSlots = 1;
  double momentum = 0.9;
  double weight_decay = 0;
  double epsilon = 1e-9;
  double trust = 0.001;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("momentum", o.momentum, below(0, 1), "momentum coefficient");
    v.key("weight_decay", o.weight_decay, at_least(0), "weight decay coefficient");
    v.key("epsilon", o.epsilon, above(0), kEpsilonHelp);
    v.key("trust", o.trust, above(0), "a layer's step as a share of its weights' norm");
  }
  [[nodiscard]] std::unique_ptr<Optimizer> make(Backend& backend, ParameterStore& store) const;
  bool operator==(const LarsOptions&) const = default;
};

/// What AdamW and LAMB have in common. Update: the name, and the default of epsilon.
template <class Update>
struct AdamOptions {
  static constexpr std::string_view kName = Update::kName;
  static constexpr double kSlots = 2;
  double weight_decay = 0;
  std::array<double, 2> betas = {0.9, 0.999};
  double epsilon = Update::kEpsilon;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("weight_decay", o.weight_decay, at_least(0), "weight decay coefficient");
    v.key("betas", o.betas, below(0, 1), "decay of the first and second moment");
    v.key("epsilon", o.epsilon, above(0), kEpsilonHelp);
  }
  [[nodiscard]] std::unique_ptr<Optimizer> make(Backend& backend, ParameterStore& store) const;
  bool operator==(const AdamOptions&) const = default;
};

struct AdamwName {
  static constexpr std::string_view kName = "adamw";
  static constexpr double kEpsilon = 1e-8;
};
/// Adam with decoupled weight decay (torch.optim.AdamW).
using AdamwOptions = AdamOptions<AdamwName>;
template <>
std::unique_ptr<Optimizer> AdamwOptions::make(Backend& backend, ParameterStore& store) const;

struct LambName {
  static constexpr std::string_view kName = "lamb";
  static constexpr double kEpsilon = 1e-6;
};
/// Adam with layer-wise trust ratios (You et al. 2020), as Lamb of timm with always_adapt for weights,
/// and without its own clipping.
using LambOptions = AdamOptions<LambName>;
template <>
std::unique_ptr<Optimizer> LambOptions::make(Backend& backend, ParameterStore& store) const;

/// What optimizer.no_decay may name: the weights and biases of norms, and all biases.
inline constexpr auto kNoDecayNames = std::to_array<std::string_view>({"norm", "bias"});

/// The optimizers by name.
using OptimizerChoice = std::variant<SgdOptions, LarsOptions, AdamwOptions, LambOptions>;

/// [optimizer]
struct OptimizerOptions {
  double lr = 0.1;
  std::vector<std::string> no_decay;  ///< of kNoDecayNames
  double clip_norm = 0;               ///< 0: no clipping
  OptimizerChoice update;

  [[nodiscard]] std::string_view name() const { return choice_name(update); }
  /// Floats of state per parameter.
  [[nodiscard]] double slots() const {
    return std::visit([](const auto& o) { return o.kSlots; }, update);
  }
  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    visit_choice_name(v, "name", o.update, anything(), "which update");
    v.key("lr", o.lr, above(0), "learning rate, after warm-up");
    v.key("no_decay", o.no_decay, one_of(kNoDecayNames), "parameters that weight_decay leaves alone");
    v.key("clip_norm", o.clip_norm, at_least(0), "largest norm of all gradients together; 0: any");
    visit_choice_options(v, "optimizer.name", o.update);
  }
  bool operator==(const OptimizerOptions&) const = default;
};

/// Which part of the elements that learn an optimizer updates: shard `index` of `count` (ZeRO-1, Rajbhandari et al.
/// 2020).
struct OptimizerShard {
  int index = 0, count = 1;
};

class Optimizer {
 public:
  using Slots = std::vector<std::pair<std::string, Tensor>>;

  virtual ~Optimizer() = default;
  /// Allocates the state for this shard, zeros. Called once, before all else.
  void allocate(const OptimizerShard& shard);
  /// From now on weight decay leaves alone what these name: of kNoDecayNames (torchvision's set_weight_decay with
  /// norm_weight_decay and bias_weight_decay 0).
  void exclude_from_decay(const std::vector<std::string>& names);
  /// Updates the parameters of the shard from their gradients. update: how many updates came before (0 for the first).
  /// nonfinite: float64 [1], set to 1 if a parameter becomes infinite or NaN; may be empty.
  void step(double lr, std::int64_t update, const Tensor& nonfinite) {
    if (shard_end() > shard_begin()) {
      apply(lr, update, shard_begin(), of_shard(store_.learned_values()), slots_, nonfinite);
    }
  }
  /// The same update of a part in other buffers: `values` are those from element `begin` on, `slots` the state for
  /// them. The part begins and ends at bounds().
  virtual void apply(double lr, std::int64_t update, std::int64_t begin, const Tensor& values, const Slots& slots,
                     const Tensor& nonfinite) = 0;
  /// The first place from `element` on where the update may be cut: the parts have the bits of the whole. The number of
  /// elements that learn if there is none before.
  [[nodiscard]] virtual std::int64_t cut_from(std::int64_t element) const;
  /// 0, ..., the number of elements that learn: where parts of about `elements` begin and end.
  [[nodiscard]] std::vector<std::int64_t> bounds(std::int64_t elements) const;
  /// Where the shards begin, and the end of the last. Shards may be empty.
  [[nodiscard]] const std::vector<std::int64_t>& shard_bounds() const { return shard_bounds_; }
  [[nodiscard]] bool is_sharded() const { return shard_bounds_.size() > 2; }
  [[nodiscard]] std::int64_t shard_begin() const { return shard_bounds_[shard_]; }
  [[nodiscard]] std::int64_t shard_end() const { return shard_bounds_[shard_ + 1]; }
  /// The shard's part of a buffer that is as long as the elements that learn.
  [[nodiscard]] Tensor of_shard(const Tensor& flat) const {
    return flat.view(shard_begin(), {shard_end() - shard_begin()});
  }
  /// Name and buffer of each piece of state, of the shard.
  [[nodiscard]] const Slots& slots() const { return slots_; }
  /// See training_operations.h; as long as all that learns, or empty.
  [[nodiscard]] const Tensor& no_decay() const { return no_decay_; }

 protected:
  explicit Optimizer(Backend& backend, ParameterStore& store)
      : backend_(backend), store_(store), segments_(store.segments()) {}
  void add_slot(const std::string& name) { slots_.emplace_back(name, Tensor()); }
  /// cut_from() where a segment is updated as a whole.
  [[nodiscard]] std::int64_t segment_from(std::int64_t element) const;
  /// The segments between these elements, counted from the first one.
  [[nodiscard]] std::vector<Segment> segments_of(std::int64_t begin, std::int64_t end) const;
  /// The gradients of the part that begins there and is as long as `values`.
  [[nodiscard]] Tensor gradients_of(std::int64_t begin, const Tensor& values) const {
    return store_.gradients().view(begin, values.shape());
  }
  /// Those flags of that part, or none.
  [[nodiscard]] Tensor no_decay_of(std::int64_t begin, const Tensor& values) const {
    return no_decay_ ? no_decay_.view(begin / kParameterAlignment, {values.size() / kParameterAlignment}) : Tensor();
  }

  Backend& backend_;
  ParameterStore& store_;
  std::vector<std::int64_t> shard_bounds_;
  std::size_t shard_ = 0;
  std::vector<Segment> segments_;
  Slots slots_;
  Tensor no_decay_;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, Backend& backend, ParameterStore& store,
                                          const std::vector<std::string>& no_decay = {},
                                          const OptimizerShard& shard = {});

}  // namespace convoy
