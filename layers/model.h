// SPDX-License-Identifier: Apache-2.0
//
// A network as a list of units, between which it can be split, and the contiguous ranges of units (chunks) that this
// process holds. Every process knows the shapes and names of all units; only units held here have memory. Owns its
// layers and their parameters; the caller owns the caches of microbatches in flight.
//
// Recomputation (activation checkpointing; Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): of a
// block of units only the input of the first one is kept in forward. Just before the backward of its last unit the
// block runs forward again, with the statistics of the first time. So all results have the bits that they have without,
// unless the backend fuses batch norms with convolutions: then they are equal to rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/base/error.h"
#include "layers/head_exchange.h"
#include "layers/layer.h"

namespace convoy {

struct Unit {
  std::string name;  ///< for messages: "stem", "layer1.0"
  std::string path;  ///< prefix of its parameters' names; may be empty
  std::unique_ptr<Layer> layer;
  bool frozen = false;  ///< its parameters and running statistics stay as they are
  int block = 0;        ///< neighbours of the same number are recomputed together, unless composite; 0: none
};

/// The units first, first + 1, ... up to, not including, end.
struct UnitRange {
  int first = 0, end = 0;
  bool operator==(const UnitRange& other) const = default;
};

/// Metadata of a unit, whether held here or not.
struct UnitInfo {
  std::string name;
  Shape input, output;                ///< of one microbatch
  std::vector<TensorEntry> manifest;  ///< what it has in files
  double flops = 0;                   ///< of one microbatch's forward: products and sums of matrices only
  bool frozen = false;
  int block = 0;  ///< see Unit

  /// Elements of its parameters.
  [[nodiscard]] std::int64_t parameters() const;
};

/// The lowest unit with parameters that are not frozen: no gradient goes further back. Throws a usage Error when there
/// is none.
[[nodiscard]] int lowest_learning(const std::vector<UnitInfo>& units);

/// A usage error about one unit: its layer cannot take its input.
class LayerError : public Error {
 public:
  /// what() is "UNIT: TEXT".
  LayerError(const std::string& unit, const std::string& text)
      : Error(unit + ": " + text, ExitCode::kUsage), unit_(unit), text_(text) {}
  [[nodiscard]] const std::string& unit() const noexcept { return unit_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string unit_, text_;
};

/// Declares one unit in the context's store, frozen if it is. Throws a LayerError.
[[nodiscard]] UnitInfo build_unit(BuildContext& context, Unit& unit, const Shape& input);

/// Builds every unit without memory for its parameters, to learn shapes and names. Uses up `units`: layers are built
/// once.
[[nodiscard]] std::vector<UnitInfo> describe_units(Backend& backend, std::vector<Unit> units, const Shape& input);

class Model {
 public:
  /// Called between units: progresses communication.
  using Progress = std::function<void()>;
  /// The same in a forward, with the unit and its output.
  using UnitOutput = std::function<void(std::size_t unit, const Tensor& y)>;
  /// Called between units of a weight gradient: of the flat gradient buffer, this chunk's range up to element n will
  /// not change any more in this microbatch, once Backend::finish_gradients() has been called.
  using UnitDone = std::function<void(std::int64_t n)>;

  /// input: the shape of one microbatch, [n, C, H, W] or [n, F]. chunks: the ranges held here, in rising order;
  /// empty: one chunk of all units. With a reducer, batch norm normalises over all replicas. With a head exchange the
  /// last layer, which is linear, is divided over them. Throws a usage Error when the layers do not fit, or none
  /// learns. Initial values do not depend on what is held.
  Model(Backend& backend, std::vector<Unit> units, const Shape& input, std::uint64_t seed,
        StatisticsReducer* reducer = nullptr, std::vector<UnitRange> chunks = {}, HeadExchange* head = nullptr);

  [[nodiscard]] Cache make_cache() const { return convoy::make_cache(backend_, layers_, needs_position_); }
  /// Before the forward of a microbatch in training: the updates before this step, and the position in the epoch of the
  /// first sample. Copies from the host, so not within what is recorded.
  void set_position(Cache& cache, std::int64_t update, std::int64_t first_sample);
  /// x: the chunk's input in compute type, any batch and image size. Evaluation leaves the cache empty and uses the
  /// running statistics.
  Tensor forward(const Tensor& x, Cache& cache, Mode mode, int chunk = 0, const UnitOutput& unit_output = {});
  /// Both backwards, unit by unit from the last down to the lowest that learns, and unit_done() after each. Returns the
  /// gradient of the chunk's input, empty unless a unit before it learns.
  Tensor backward(const Tensor& dy, Cache& cache, const UnitDone& unit_done, int chunk = 0);
  /// The first half of backward(): only the gradient of the input.
  Tensor backward_input(const Tensor& dy, Cache& cache, int chunk = 0, const Progress& progress = {});
  /// The second half, after the first on the same cache.
  void backward_weight(Cache& cache, const UnitDone& unit_done, int chunk = 0);

  /// Of the whole network, for one microbatch as it was built for.
  [[nodiscard]] const Shape& input_shape() const { return infos_.front().input; }
  [[nodiscard]] const Shape& output_shape() const { return infos_.back().output; }
  /// Of images: as the first layer reads them best; see Backend::input_channels().
  [[nodiscard]] std::int64_t input_channels() const { return units_.front().layer->input_channels(input_shape()[1]); }
  [[nodiscard]] const std::vector<UnitInfo>& units() const { return infos_; }
  /// Elements of the whole network's parameters, and their names and shapes beside those of the buffers.
  [[nodiscard]] std::int64_t parameter_count() const;
  [[nodiscard]] std::vector<TensorEntry> manifest() const;

  [[nodiscard]] const std::vector<UnitRange>& chunks() const { return chunks_; }
  /// Whether the gradient of the chunk's input is needed (a unit before it is trained), or that of its output (a unit
  /// up to the end of the chunk is trained).
  [[nodiscard]] bool learns_before(int chunk) const { return static_cast<int>(first_unit(chunk)) > lowest_; }
  [[nodiscard]] bool learns_up_to(int chunk) const { return static_cast<int>(last_unit(chunk)) >= lowest_; }
  /// What goes into the chunk and comes out of it when `input` goes into the network: any batch, any image size that
  /// the units take.
  [[nodiscard]] Shape chunk_input(int chunk, const Shape& input) const;
  [[nodiscard]] Shape chunk_output(int chunk, const Shape& input) const;
  /// Elements of the flat gradient buffer before the chunk's range, and up to its end. The range of the
  /// last chunk comes first.
  [[nodiscard]] std::int64_t chunk_begin(int chunk) const;
  [[nodiscard]] std::int64_t chunk_end(int chunk) const { return final_elements_[first_unit(chunk)]; }
  /// The first element of the parameters of a unit of that chunk which learn: they, and those of the units of the chunk
  /// before it, lie from there on.
  [[nodiscard]] std::int64_t unit_begin(std::size_t unit, int chunk) const {
    return unit < last_unit(chunk) ? final_elements_[unit + 1] : chunk_begin(chunk);
  }
  Backend& backend() { return backend_; }
  ParameterStore& parameters() { return store_; }

 private:
  [[nodiscard]] std::size_t first_unit(int chunk) const;
  [[nodiscard]] std::size_t last_unit(int chunk) const;
  /// The first unit of the chunk that takes part in the backward.
  [[nodiscard]] std::size_t lowest_unit(int chunk) const;
  [[nodiscard]] Shape shape_before(std::size_t unit, const Shape& input) const;
  void find_blocks();
  [[nodiscard]] bool is_recomputed(std::size_t unit) const { return block_begin_[unit] >= 0; }
  [[nodiscard]] Tensor& block_input(Cache& cache, std::size_t first) const { return cache[first_layer_[first]][0]; }
  /// Before the backward of unit `last`: forward once more through the block that ends with it, if there is one.
  void recompute_up_to(std::size_t last, Cache& cache);
  void refuse_double_names() const;

  Backend& backend_;
  ParameterStore store_;
  ParameterStore elsewhere_;  // what is not held here is declared in it: it never gets memory
  std::vector<Unit> units_;
  std::vector<UnitInfo> infos_;
  std::vector<UnitRange> chunks_;
  std::vector<std::int64_t> final_elements_;  // per held unit: the end of its range, and of those of units after it
  std::vector<int> first_layer_;  // per unit: its first cache entry; of a recomputed one that is for the input
  std::vector<int> block_begin_;  // per unit: the first one of its block in its chunk; -1: it is not recomputed
  int layers_ = 0;
  bool needs_position_ = false;
  int lowest_ = 0;  // unit that learns, of the whole network
};

}  // namespace convoy
