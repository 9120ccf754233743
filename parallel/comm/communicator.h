// SPDX-License-Identifier: Apache-2.0
//
// A group of ranks and its asynchronous operations. Every member calls the same collectives in the same order. Every
// operation has a sequence number, a name and a timeout, after which waiting throws an Error that names the operation
// and the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layers/base/tensor.h"

namespace convoy {

enum class ReduceOp { kSum, kMax, kMin };

/// An operation in progress. Its buffers must outlive it. The destructor waits.
class PendingOperation {
 public:
  virtual ~PendingOperation() = default;
  /// Progresses the operation; true once complete. Cheap.
  virtual bool test() = 0;
  /// Blocks until complete. Throws an Error after the communicator's timeout, counted from this call. The operation is
  /// then still in progress, and wait() may be called again.
  virtual void wait() = 0;
};
using Pending = std::unique_ptr<PendingOperation>;

class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Memory for `elements` floats, zeros, on which all_reduce() is fastest; valid as long as this. Empty when all
  /// memory is equally fast. Collective; called once, with the same number.
  virtual Tensor reduction_memory(std::int64_t elements) {
    static_cast<void>(elements);
    return {};
  }
  /// In place over `buffer`. `what` names the operation in reports ("gradient bucket 3").
  virtual Pending all_reduce(const Tensor& buffer, ReduceOp op, const std::string& what) = 0;
  virtual Pending broadcast(const Tensor& buffer, int root, const std::string& what) = 0;
  /// In place on the root; what other members' buffers hold afterwards is undefined.
  virtual Pending reduce(const Tensor& buffer, ReduceOp op, int root, const std::string& what) = 0;
  /// Root's `whole` in size() equal parts along the first axis <-> each member's `part`.
  virtual Pending scatter(const Tensor& whole, const Tensor& part, int root, const std::string& what) = 0;
  virtual Pending gather(const Tensor& part, const Tensor& whole, int root, const std::string& what) = 0;
  /// The parts of all members, in rank order along the first axis, become `whole` on every member.
  virtual Pending all_gather(const Tensor& part, const Tensor& whole, const std::string& what) = 0;
  /// Each member's `part` becomes its own of size() equal parts, along the first axis, of the sum of all `whole`.
  virtual Pending reduce_scatter(const Tensor& whole, const Tensor& part, const std::string& what) = 0;
  virtual Pending send(const Tensor& buffer, int peer, int tag, const std::string& what) = 0;
  virtual Pending receive(const Tensor& buffer, int peer, int tag, const std::string& what) = 0;

  // Small host-side exchanges; blocking. A rank sends O(log size()) messages for each of them.
  virtual void all_reduce(std::span<double> values, ReduceOp op, const std::string& what) = 0;
  /// Returns the root's text, of any length, on every member.
  virtual std::string broadcast(std::string text, int root, const std::string& what) = 0;
  /// Returns the texts of all members on every member, in rank order. For a few bytes each: the whole is held size()
  /// times.
  virtual std::vector<std::string> all_gather(const std::string& text, const std::string& what) = 0;
  /// Sends any number of bytes to one member, which calls receive_bytes().
  virtual void send_bytes(std::span<const std::byte> bytes, int peer, const std::string& what) = 0;
  virtual std::vector<std::byte> receive_bytes(int peer, const std::string& what) = 0;
  virtual void barrier(const std::string& what) = 0;
};

}  // namespace convoy
