// SPDX-License-Identifier: Apache-2.0
//
// The state of a run, and its conversion to and from checkpoints. Only rank 0 reads and writes files; the stages of
// replica 0 exchange their parts with it, one at a time, and broadcast them to the other replicas. All functions are
// collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "app/build/run_record.h"
#include "io/checkpoint/checkpoint.h"

namespace convoy {

struct RunState {
  std::int64_t step = 0;          ///< optimizer updates done
  std::int64_t epoch = 0;         ///< epochs done
  std::int64_t samples_seen = 0;  ///< of this epoch
  bool evaluation_due = false;    ///< an evaluation of this step is still to be made
  bool early_stop = false;        ///< train.early_stop_epochs has ended the run
  std::string source;             ///< the checkpoint it was restored from; empty for a fresh start
  // rank 0:
  std::vector<std::string> changes;  ///< in what the config and data differ from it, "optimizer.lr 0.05 -> 0.2"
  bool in_folder = false;  ///< `source` is one of the checkpoints in the run's folder of them, or a copy of one
  std::string reason;      ///< why `source`, where that is not obvious; for people
  RunRecord record;        ///< what the run is, to be written when training begins

  /// "fresh", or where it resumes, and why; for people.
  [[nodiscard]] std::string describe_start() const;
};

/// Whether the epochs or steps that the config asks for are done.
[[nodiscard]] bool is_trained(const Config& config, const RunState& state);
/// Whether no step is left: that, or an early stop.
[[nodiscard]] bool is_finished(const Config& config, const RunState& state);

/// Whether the validation data is to be evaluated after the step that led to `state`.
[[nodiscard]] bool evaluates_now(const Run& run, const RunState& state, bool end_of_epoch);

/// The complete state of a run, copied from the devices of all stages. Complete on rank 0 only. `reuse`: an earlier
/// result whose memory is reused.
Checkpoint capture_checkpoint(Run& run, const RunState& state, Checkpoint reuse = {});

/// Chooses a checkpoint (resume_choice.h), loads it on rank 0 and distributes it. Starts from scratch when there is
/// none and never was one, with model.weights if that is set. Where a run given in epochs has another number of steps
/// an epoch than before, its learning rate and end follow the epochs done. Prints warnings about damaged files to
/// stderr (rank 0). Throws a usage Error if the checkpoint is one of another model, data set or loss; the list of
/// tensors goes to the file `log`, unless that is empty.
RunState restore_run(Run& run, const std::string& log);

/// Loads only the model's parameters and buffers of this file.
void load_model(Run& run, const std::string& file);

/// Loads the average of the weights that a checkpoint has; false, and nothing loaded, if it has none.
bool load_average(Run& run, const std::string& file);

/// Loads model.weights, if set.
void load_start_weights(Run& run);

}  // namespace convoy
