// SPDX-License-Identifier: Apache-2.0
//
// Messages between the stages of one replica: activations forward, gradients backward, asynchronous and of known
// shapes. Between two chunks of one rank, tensors are passed in memory. Relies on the schedule: messages between two
// ranks are received in the order in which they are sent (check_schedule()), so two tags are enough. Invariant: a
// tensor lives until its send is complete.
#pragma once

#include <string>
#include <vector>

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
  /// Starts a send or a receive. input: the shape of the network's input in that microbatch.
  void start(const Action& action, const Shape& input);
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
