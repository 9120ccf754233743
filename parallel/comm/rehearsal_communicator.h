// SPDX-License-Identifier: Apache-2.0
//
// A communicator of a rehearsal (layers/base/rehearsal.h): one rank of a group whose other members do not run. Every
// operation is complete at once and carries nothing; buffers are as they were. Sums of numbers are those of ranks that
// are all alike.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

namespace convoy {

class RehearsalCommunicator final : public Communicator {
 public:
  RehearsalCommunicator(int rank, int size) : rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  Pending all_reduce(const Tensor& buffer, ReduceOp /*op*/, const std::string& /*what*/) override {
    return done(buffer);
  }
  Pending broadcast(const Tensor& buffer, int /*root*/, const std::string& /*what*/) override { return done(buffer); }
  Pending reduce(const Tensor& buffer, ReduceOp /*op*/, int /*root*/, const std::string& /*what*/) override {
    return done(buffer);
  }
  Pending scatter(const Tensor& whole, const Tensor& /*part*/, int /*root*/, const std::string& /*what*/) override {
    return done(whole);
  }
  Pending gather(const Tensor& /*part*/, const Tensor& whole, int /*root*/, const std::string& /*what*/) override {
    return done(whole);
  }
  Pending all_gather(const Tensor& /*part*/, const Tensor& whole, const std::string& /*what*/) override {
    return done(whole);
  }
  Pending reduce_scatter(const Tensor& whole, const Tensor& /*part*/, const std::string& /*what*/) override {
    return done(whole);
  }
  Pending send(const Tensor& buffer, int /*peer*/, int /*tag*/, const std::string& /*what*/) override {
    return std::make_unique<Sent>(buffer);
  }
  Pending receive(const Tensor& buffer, int /*peer*/, int /*tag*/, const std::string& /*what*/) override {
    return done(buffer);
  }
  void all_reduce(std::span<double> values, ReduceOp op, const std::string& /*what*/) override {
    if (op != ReduceOp::kSum) return;
    for (double& value : values) value *= size_;
  }
  std::string broadcast(std::string text, int /*root*/, const std::string& /*what*/) override { return text; }
  std::vector<std::string> all_gather(const std::string& text, const std::string& /*what*/) override {
    return std::vector<std::string>(static_cast<std::size_t>(size_), text);
  }
  void send_bytes(std::span<const std::byte> /*bytes*/, int /*peer*/, const std::string& /*what*/) override {}
  std::vector<std::byte> receive_bytes(int /*peer*/, const std::string& /*what*/) override { return {}; }
  void barrier(const std::string& /*what*/) override {}

 private:
  class Done final : public PendingOperation {
   public:
    explicit Done(Tensor buffer) : buffer_(std::move(buffer)) {}
    bool test() override { return true; }
    void wait() override {}

   private:
    Tensor buffer_;
  };
  // Its receiver is busy with the microbatch before: the buffer is held over several tests.
  class Sent final : public PendingOperation {
   public:
    explicit Sent(Tensor buffer) : buffer_(std::move(buffer)) {}
    bool test() override { return ++tests_ > kTests; }
    void wait() override {}

   private:
    static constexpr int kTests = 8;
    Tensor buffer_;
    int tests_ = 0;
  };
  static Pending done(const Tensor& buffer) { return std::make_unique<Done>(buffer); }

  int rank_, size_;
};

}  // namespace convoy
