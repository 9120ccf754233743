// SPDX-License-Identifier: Apache-2.0
//
// Finds silent data corruption: every few steps a step is computed twice from the same state, and what both passes have
// produced is compared bit for bit, by checksums (layers/backend/checksum.h): the outputs of units, the losses, the
// gradients of this rank before and after their sum over the replicas, the update. The parameters must be those that
// the last update has left, and equal on all replicas. Relies on operations that give equal bits for equal inputs.
// Invariant: a step that is computed twice leaves the state of one that is computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "layers/model.h"
#include "layers/optim/gradient_clip.h"
#include "layers/optim/optimizer.h"
#include "layers/optim/weight_average.h"
#include "parallel/comm/communicator.h"

namespace convoy {

class Replay {
 public:
  /// every: 0 is never. `all`: every rank of the run. All references must outlive this. Takes memory for another copy
  /// of the running statistics, and of a part of the parameters that learn and of their optimizer state.
  Replay(std::int64_t every, Model& model, Optimizer& optimizer, Communicator& all, int stage);

  /// Whether the step after `update` updates is computed twice: every N-th, counted from 1.
  [[nodiscard]] bool due(std::int64_t update) const { return every_ > 0 && (update + 1) % every_ == 0; }
  /// Whether such a step is under way.
  [[nodiscard]] bool active() const { return active_; }

  // ---- by the executor, on every rank
  /// Before the first and the second pass. The second begins with fresh copies of the weights in the compute type.
  void begin_pass(int pass);
  /// What this rank has computed, or received from others: the next of the pass.
  void computed(const std::string& what, const Tensor& x);
  void received(const std::string& what, const Tensor& x);
  /// The elements [begin, end) of the flat gradients are final on this rank, before their reduction.
  void gradients_final(std::int64_t begin, std::int64_t end);
  /// At the end of a pass; reduced: the gradients and statistics have been summed over replicas. losses: of the step.
  /// After the second pass: compares the parameters with those after the last update.
  void end_pass(bool reduced, const Tensor& losses);
  /// GradientClip::measure() and scale(), twice.
  const Tensor& measure(GradientClip& clip);
  void scale(GradientClip& clip);
  /// The update of the average of the weights, twice.
  void update_average(WeightAverage& average, std::int64_t update);
  /// The optimizer's update, twice, part by part: the second time a part is in the CPU's caches.
  void update(double lr, std::int64_t update, const Tensor& nonfinite);
  /// That of the running statistics, twice.
  void update_running_statistics();
  /// At the end of every step. After one that was computed twice the ranks exchange what they have found; throws a
  /// collective Error that names rank, host and tensor. Keeps checksums of the parameters if the next step is due.
  void end_step(std::int64_t update);

  /// Before a checkpoint of the state after `step` steps: compares the parameters as after a step that was computed
  /// twice. Collective; throws the same Error.
  void check_state(std::int64_t step);

 private:
  /// What is wrong on this rank; the smaller is closer to the cause.
  enum class Kind { kMemory, kComputed, kReceived, kNothing };
  struct Record {
    std::string what;
    bool received = false;
    std::uint64_t sum = 0;
  };
  using Sums = std::vector<std::uint64_t>;

  /// Of the parameters and of the running statistics.
  [[nodiscard]] Sums state_sums(const Tensor& values, const Tensor& running);
  [[nodiscard]] std::string state_name(std::size_t i) const;
  /// Adds the checksums of the elements of a flat buffer from `begin` on, which `part` holds, to those of the pieces.
  void add_sums(const std::vector<ParameterStore::Piece>& pieces, std::int64_t begin, const Tensor& part, Sums& sums);
  /// Changes a flat buffer part by part, each in a copy first, and compares. what: "average", of a piece.
  using Change = std::function<void(std::int64_t begin, const Tensor& part)>;
  void change_twice(const std::string& what, const Tensor& flat, const std::vector<ParameterStore::Piece>& pieces,
                    const Change& change);
  void note(Record record);
  void found(Kind kind, const std::string& what);
  void check_memory(const Sums& sums);
  [[nodiscard]] bool all_well(std::uint64_t digest);
  /// The ranks exchange what they have found; `sums` are those of the state now.
  void conclude(std::int64_t step, const Sums& sums);

  std::int64_t every_;
  Model& model_;
  Backend& backend_;
  Optimizer& optimizer_;
  Communicator& all_;
  int stage_;
  std::vector<ParameterStore::Piece> values_, gradients_, running_;
  std::vector<std::int64_t> bounds_;       // of the parts of the update
  Tensor second_values_, second_running_;  // for the second update; the values of the longest part
  Optimizer::Slots second_slots_;
  bool active_ = false;
  int pass_ = 0;
  std::size_t next_ = 0;         // record of the second pass
  std::vector<Record> records_;  // of the first pass
  Sums own_gradients_;           // of this pass, by piece
  Sums kept_;                    // of the parameters and running statistics after the last update; empty: not known
  Sums updated_;                 // the same as update() has seen them, in a step that is computed twice
  Kind kind_ = Kind::kNothing;
  std::string what_;
};

}  // namespace convoy
