// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/stage_link.h"

#include <cstddef>
#include <utility>

#include "layers/base/error.h"
#include "layers/base/stopwatch.h"
#include "layers/base/trace.h"

namespace convoy {

namespace {

// Messages of one kind between two ranks keep their order.
constexpr int kActivationTag = 0;
constexpr int kGradientTag = 1;

bool carries_gradient(ActionKind kind) {
  return kind == ActionKind::kSendGradient || kind == ActionKind::kReceiveGradient;
}

int tag(ActionKind kind) { return carries_gradient(kind) ? kGradientTag : kActivationTag; }

// Text for reports and traces: only those of messages that time out are read, so they are short.
std::string what(const Action& action) {
  return fmt::format("{} of microbatch {}", carries_gradient(action.kind) ? "gradient" : "activation",
                     action.microbatch);
}

}  // namespace

StageLink::StageLink(Communicator* stages, const Schedule& schedule, int stage, Model& model)
    : stages_(stages), schedule_(schedule), stage_(stage), model_(model) {
  ends_.resize(static_cast<std::size_t>(schedule.microbatches) * static_cast<std::size_t>(schedule.chunks));
}

StageLink::Ends& StageLink::ends(int microbatch, int chunk) {
  return ends_[static_cast<std::size_t>(microbatch) * static_cast<std::size_t>(schedule_.chunks) +
               static_cast<std::size_t>(chunk)];
}

void StageLink::put_output(int microbatch, int chunk, Tensor y) {
  const int next = schedule_.virtual_stage(stage_, chunk) + 1;
  if (next < schedule_.virtual_stages() && schedule_.stage_of(next) == stage_) {
    ends(microbatch, schedule_.chunk_of(next)).input = std::move(y);
  } else {
    ends(microbatch, chunk).output = std::move(y);
  }
}

void StageLink::put_input_gradient(int microbatch, int chunk, Tensor dx) {
  const int before = schedule_.virtual_stage(stage_, chunk) - 1;
  if (before < 0) return;
  if (schedule_.stage_of(before) == stage_) {
    ends(microbatch, schedule_.chunk_of(before)).doutput = std::move(dx);
  } else {
    ends(microbatch, chunk).dinput = std::move(dx);
  }
}

void StageLink::put_output_gradient(int microbatch, int chunk, Tensor dy) {
  ends(microbatch, chunk).doutput = std::move(dy);
}

Tensor StageLink::receive_buffer(const Shape& shape) const {
  Backend& backend = model_.backend();
  return backend.tensor(shape, backend.compute_type());
}

void StageLink::send(const Action& action, const Tensor& tensor, int virtual_stage) {
  sends_.push_back({stages_->send(tensor, schedule_.stage_of(virtual_stage), tag(action.kind), what(action)),
                    trace::enabled() ? action_name(action) : "", trace::now()});
}

void StageLink::receive(const Action& action, const Tensor& buffer, Message& message, int virtual_stage) {
  message = {stages_->receive(buffer, schedule_.stage_of(virtual_stage), tag(action.kind), what(action)),
             trace::enabled() ? action_name(action) : "", trace::now()};
  receives_.push_back(&ends(action.microbatch, action.chunk));
}

bool StageLink::is_needed(const Action& action) const {
  if (action.kind == ActionKind::kSendGradient) return model_.learns_before(action.chunk);
  return action.kind != ActionKind::kReceiveGradient || model_.learns_up_to(action.chunk);
}

void StageLink::make_room(std::span<const Action> actions, std::span<const Batch> batches) {
  for (const Action& action : actions) {
    if (!is_communication(action.kind)) return;
    const Batch& batch = batches[static_cast<std::size_t>(action.microbatch)];
    if (batch.samples == 0 || !is_needed(action)) continue;
    Ends& e = ends(action.microbatch, action.chunk);
    if (action.kind == ActionKind::kReceiveActivation) {
      e.input = receive_buffer(model_.chunk_input(action.chunk, batch.input_shape));
    } else if (action.kind == ActionKind::kReceiveGradient) {
      e.doutput = receive_buffer(model_.chunk_output(action.chunk, batch.input_shape));
    }
  }
}

void StageLink::start(const Action& action) {
  if (!is_needed(action)) return;
  Ends& e = ends(action.microbatch, action.chunk);
  const int here = schedule_.virtual_stage(stage_, action.chunk);
  switch (action.kind) {
    case ActionKind::kSendActivation:
      send(action, e.output, here + 1);
      e.output.reset();
      break;
    case ActionKind::kSendGradient:
      send(action, e.dinput, here - 1);
      e.dinput.reset();
      break;
    case ActionKind::kReceiveActivation: receive(action, e.input, e.input_message, here - 1); break;
    case ActionKind::kReceiveGradient: receive(action, e.doutput, e.doutput_message, here + 1); break;
    default: fail("{} is neither a send nor a receive", action_name(action));
  }
  progress();
}

Tensor StageLink::take(Tensor& tensor, Message& message) {
  if (message.pending) {
    const double start = trace::now();
    Stopwatch watch;
    message.pending->wait();
    waited_ += watch.lap();
    if (trace::enabled()) {
      trace::record(trace::Track::kWait, message.name, start, trace::now());
      trace::record(trace::Track::kReceive, message.name, message.start, trace::now());
    }
    message.pending.reset();
  }
  return std::exchange(tensor, Tensor());
}

Tensor StageLink::take_input(int microbatch, int chunk) {
  Ends& e = ends(microbatch, chunk);
  return take(e.input, e.input_message);
}

Tensor StageLink::take_output_gradient(int microbatch, int chunk) {
  Ends& e = ends(microbatch, chunk);
  return take(e.doutput, e.doutput_message);
}

void StageLink::progress() {
  std::erase_if(sends_, [](Message& message) {
    if (!message.pending->test()) return false;
    if (trace::enabled()) trace::record(trace::Track::kSend, message.name, message.start, trace::now());
    return true;
  });
  const auto arrived = [](Message& message) {
    if (!message.pending || !message.pending->test()) return !message.pending;
    if (trace::enabled()) trace::record(trace::Track::kReceive, message.name, message.start, trace::now());
    message.pending.reset();
    return true;
  };
  std::erase_if(receives_, [&](Ends* e) {
    const bool input = arrived(e->input_message);
    return arrived(e->doutput_message) && input;
  });
}

void StageLink::finish() {
  const double start = trace::now();
  Stopwatch watch;
  const bool any = !sends_.empty();
  for (Message& message : sends_) {
    message.pending->wait();
    if (trace::enabled()) trace::record(trace::Track::kSend, message.name, message.start, trace::now());
  }
  sends_.clear();
  receives_.clear();
  waited_ += watch.lap();
  if (any && trace::enabled()) trace::record(trace::Track::kWait, "sends", start, trace::now());
}

double StageLink::take_waited() { return std::exchange(waited_, 0.0); }

}  // namespace convoy
