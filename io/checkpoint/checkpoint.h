// SPDX-License-Identifier: Apache-2.0
//
// The whole state of a run as one HDF5 file (docs/interface.md): written under a temporary name, checksummed, renamed.
// It does not depend on ranks, mode or device. Relies on hdf5.h and atomic_file.h. Invariant: a file that
// read_checkpoint() accepts gives back, bit for bit, what write_checkpoint() was given.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/tensor_spool.h"
#include "io/hdf5/hdf5.h"
#include "layers/base/host_tensor.h"

namespace convoy {

/// One kind of optimizer state ("momentum") and the tensors of it, under the names of their parameters.
using OptimizerSlot = std::pair<std::string, std::vector<HostTensor>>;

struct Checkpoint {
  std::vector<HostTensor> model;  ///< parameters and buffers; read back in the order of their paths
  std::vector<OptimizerSlot> optimizer;
  std::vector<HostTensor> average;           ///< of the weights (train.ema_decay), by parameter; empty: none
  std::shared_ptr<const TensorSpool> spool;  ///< further tensors of these groups, to be written; null: none
  std::int64_t step = 0;                     ///< optimizer steps done
  std::int64_t epoch = 0;                    ///< the epoch that the next sample belongs to
  std::int64_t samples_seen = 0;             ///< of this epoch
  std::int64_t lr_step = 0;
  std::uint64_t seed = 0;
  double loss_scale = 1.0;
  bool evaluation_due = false;  ///< an evaluation of this step was still to be made
  std::string config;           ///< resolved, TOML
  std::string data;  ///< what the training data was (app/build/data_fingerprint.h); empty: of an earlier version
  std::string program_version;
  std::string mode;
  std::string created;  ///< time of writing, ISO 8601; filled in by write_checkpoint() when empty
  std::string run;      ///< identity of the run that wrote it, a UUID; empty: of an earlier version
  int ranks = 1;
};

/// Names the first tensor with a value that is infinite or NaN: "fc.weight", "fc.weight (optimizer momentum)" or
/// "fc.weight (average)". Empty
/// if there is none.
[[nodiscard]] std::string first_nonfinite(const Checkpoint& checkpoint);

/// Writes the file at `path`; what was there before stays until the new file is complete and on disk. On failure (a
/// full disk) an Error is thrown, nothing of the attempt is unread, and other checkpoints are untouched. The file is
/// put together in `memory`, if given, which whoever writes many of them keeps.
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint, hdf5::FileImageBuffer* memory = nullptr);

/// Names of tensors whose values are not read: they come with their shape and without bytes. TensorRows reads them.
using UnreadTensors = std::vector<std::string>;

/// Reads and verifies format, version, completeness and every checksum. An Error says what is wrong with which file; it
/// is a usage Error unless the file cannot be read.
[[nodiscard]] Checkpoint read_checkpoint(const std::string& path, const UnreadTensors& unread = {});

/// Only the `/model` group of any HDF5 file, a checkpoint or not (config key model.weights); checksums are looked at
/// where there are any.
[[nodiscard]] std::vector<HostTensor> read_model_weights(const std::string& path, const UnreadTensors& unread = {});

/// Some rows at a time of the tensors of a file that one of the functions here has read, and so verified.
class TensorRows {
 public:
  explicit TensorRows(const std::string& path);
  /// The rows first, first + 1, ... of the tensor `name` in `group` ("/model", "/optimizer/momentum", "/ema"), float32.
  [[nodiscard]] std::vector<float> read(const std::string& group, const std::string& name, std::int64_t first,
                                        std::int64_t count) const;

 private:
  hdf5::File file_;
};

/// Whether the file says that it is a checkpoint, of this version or another one.
[[nodiscard]] bool is_checkpoint(const hdf5::File& file);

/// The `/ema` group of a checkpoint; empty where there is none.
[[nodiscard]] std::vector<HostTensor> read_average(const std::string& path, const UnreadTensors& unread = {});

/// kInvalid: what was read is damaged, incomplete, or no checkpoint that this program knows. kUnreadable: the storage
/// did not give the file (EIO, EACCES, ESTALE, a link to nowhere), so nothing is known about it.
enum class CheckpointState { kValid, kInvalid, kUnreadable };

struct CheckpointCheck {
  CheckpointState state = CheckpointState::kValid;
  std::string problem;  ///< what is wrong, in a sentence that names the file; empty when it is valid
  std::string run;      ///< Checkpoint::run, when it is valid
};

/// Reads all of it.
[[nodiscard]] CheckpointCheck examine_checkpoint(const std::string& path);

/// What is wrong with this checkpoint, in a sentence; empty when it is valid. Reads all of it.
[[nodiscard]] std::string checkpoint_problem(const std::string& path);

/// One data set of a file and whether its elements can be read with their checksums.
struct DatasetCheck {
  hdf5::DatasetInfo info;
  bool verifiable = false;  ///< carries a checksum, or the file as a whole does
  std::string problem;      ///< empty: reads well
};

/// Looks at every data set of any HDF5 file, for `convoy inspect`. Reads all of it.
[[nodiscard]] std::vector<DatasetCheck> check_datasets(const std::string& path);

}  // namespace convoy
