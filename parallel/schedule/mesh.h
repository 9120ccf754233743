// SPDX-License-Identifier: Apache-2.0
//
// The mesh of ranks: replicas × stages. Replicas hold the same layers and see other samples, stages hold
// other layers of one replica. Pure arithmetic, no MPI. Invariant: world_rank = replica * stages + stage, so the
// stages of a replica are neighbours (neighbouring ranks usually share a node, and activations travel between
// stages).
#pragma once

namespace convoy {

class Mesh {
 public:
  /// One rank.
  Mesh() = default;
  /// Throws a usage Error that names the numbers which would do, unless stages divide ranks.
  Mesh(int ranks, int stages);

  [[nodiscard]] int ranks() const { return replicas_ * stages_; }
  [[nodiscard]] int replicas() const { return replicas_; }
  [[nodiscard]] int stages() const { return stages_; }
  [[nodiscard]] int replica(int world_rank) const { return world_rank / stages_; }
  [[nodiscard]] int stage(int world_rank) const { return world_rank % stages_; }
  [[nodiscard]] int world_rank(int replica, int stage) const { return replica * stages_ + stage; }
  bool operator==(const Mesh& other) const = default;

 private:
  int replicas_ = 1;
  int stages_ = 1;
};

}  // namespace convoy
