// SPDX-License-Identifier: Apache-2.0
//
// Messages between the stages of one replica: activations forward, gradients backward, asynchronous and of known
// shapes. Between two chunks of one rank, tensors are passed in memory. Relies on the schedule: messages between two
// ranks are received in the order in which they are sent (check_schedule()), so two tags are enough. Invariant: a
// tensor lives until its send is complete.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "layers/base/batch.h"
#include "layers/model.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/schedule.h"

namespace convoy {

class StageLink {
 public:
  /// `stages`: the stages of this replica, by rank; may be null for one stage. `schedule` gives numbers and placement
  /// only. All must outlive this.
  StageLink(Communicator* stages, const Schedule& schedule, int stage, Model& model);

  [[nodiscard]] bool is_first(int chunk) const { return schedule_.virtual_stage(stage_, chunk) == 0; }
  [[nodiscard]] bool is_last(int chunk) const {
    return schedule_.virtual_stage(stage_, chunk) + 1 == schedule_.virtual_stages();
  }

  /// Sets the output of a chunk, the input of the next one. kSendActivation sends it, if that chunk is on another rank.
  void put_output(int microbatch, int chunk, Tensor y);
  /// Sets the gradient of a chunk's input, for the previous chunk.
  void put_input_gradient(int microbatch, int chunk, Tensor dx);
  /// Sets the gradient of a chunk's output, computed by the loss.
  void put_output_gradient(int microbatch, int chunk, Tensor dy);
  /// Takes memory for what the first of these actions receive, up to one that computes. To be called before the first
  /// of them starts: where new memory waits for all that a GPU does, it would wait for a message whose other end may be
  /// waiting just so for a receive behind it.
  void make_room(std::span<const Action> actions, std::span<const Batch> batches);
  /// Starts a send or a receive, for which there is room.
  void start(const Action& action);
  /// Waits for the input of a chunk, or for the gradient of its output, and returns it.
  Tensor take_input(int microbatch, int chunk);
  Tensor take_output_gradient(int microbatch, int chunk);
  /// Progresses messages. Cheap.
  void progress();
  /// Waits until all sends are complete.
  void finish();
  /// Seconds spent waiting since the last call.
  double take_waited();

 private:
  struct Message {
    Pending pending;
    std::string name;  // for the trace
    double start = 0;
  };
  /// Input and output of one chunk in one microbatch.
  struct Ends {
    Tensor input, output, doutput, dinput;
    Message input_message, doutput_message;
  };
  Ends& ends(int microbatch, int chunk);
  // A gradient that is not needed is neither sent nor received, at both ends.
  [[nodiscard]] bool is_needed(const Action& action) const;
  Tensor receive_buffer(const Shape& shape) const;
  void send(const Action& action, const Tensor& tensor, int virtual_stage);
  void receive(const Action& action, const Tensor& buffer, Message& message, int virtual_stage);
  Tensor take(Tensor& tensor, Message& message);

  Communicator* stages_;
  const Schedule& schedule_;
  int stage_;
  Model& model_;
  std::vector<Ends> ends_;       // [microbatch * chunks + chunk]
  std::vector<Message> sends_;   // under way, oldest first
  std::vector<Ends*> receives_;  // with messages under way
  double waited_ = 0;
};

}  // namespace convoy
