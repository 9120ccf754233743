// SPDX-License-Identifier: Apache-2.0
//
// Evaluation by the executor: forwards through the stages of its schedule.
#include <cstddef>
#include <span>
#include <utility>

#include "layers/base/trace.h"
#include "parallel/engine/executor.h"

namespace convoy {

void Executor::predict(std::span<const Batch> microbatches, const TakeOutputs& take) {
  const auto& actions = evaluation_.actions[static_cast<std::size_t>(coordinates_.stage)];
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    make_room(evaluation_link_, actions, i, microbatches);
    const Batch& batch = microbatches[static_cast<std::size_t>(action.microbatch)];
    if (batch.samples == 0 && coordinates_.head == nullptr) continue;
    if (is_communication(action.kind)) {
      evaluation_link_.start(action);
      continue;
    }
    const trace::Span span(trace::Track::kCompute, "evaluation");
    const Tensor x = evaluation_link_.is_first(action.chunk)
                         ? evaluation_inputs(batch)
                         : evaluation_link_.take_input(action.microbatch, action.chunk);
    Tensor y = model_.forward(x, caches_.front(), Mode::kEvaluation, action.chunk,
                              [this](std::size_t, const Tensor&) { evaluation_link_.progress(); });
    if (evaluation_link_.is_last(action.chunk)) {
      take(batch, y);
    } else {
      evaluation_link_.put_output(action.microbatch, action.chunk, std::move(y));
    }
  }
  evaluation_link_.finish();
}

// A replica without samples sends one of zeros through the network, which nobody counts: the head needs all replicas.
Tensor Executor::evaluation_inputs(const Batch& batch) {
  if (batch.samples > 0) return transfer_.inputs(batch);
  Shape shape = model_.input_shape().with_batch(1);
  if (batch.input_dtype == DType::kU8) shape.set(1, model_.input_channels());
  return backend_.zeros(shape, backend_.compute_type());
}

LossTotals Executor::evaluate(std::span<const Batch> microbatches, const TakeOutputs& take) {
  totals_.clear();
  predict(microbatches, [&](const Batch& batch, const Tensor& outputs) {
    add_loss(batch, outputs, transfer_.targets(batch, outputs.shape()), 1, Tensor(), ops::none());
    if (take) take(batch, outputs);
  });
  return totals_.read();
}

}  // namespace convoy
