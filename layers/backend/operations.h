// SPDX-License-Identifier: Apache-2.0
//
// All operations of a backend, and the interface that follows from their list. A new operation is a struct in a file
// *_operations.h, its name in the list at the end of that file, and a definition of run() in each backend. Observers
// (layers/backend/observe) follow from the list.
#pragma once

#include "layers/backend/activation_operations.h"
#include "layers/backend/dense_operations.h"
#include "layers/backend/elementwise_operations.h"
#include "layers/backend/normalization_operations.h"
#include "layers/backend/training_operations.h"

/// X(Operation) for each operation.
#define CONVOY_OPERATIONS(X)         \
  CONVOY_ELEMENTWISE_OPERATIONS(X)   \
  CONVOY_ACTIVATION_OPERATIONS(X)    \
  CONVOY_DENSE_OPERATIONS(X)         \
  CONVOY_NORMALIZATION_OPERATIONS(X) \
  CONVOY_TRAINING_OPERATIONS(X)

/// Declares a backend's run() of one operation: CONVOY_OPERATIONS(CONVOY_DECLARE_RUN).
#define CONVOY_DECLARE_RUN(Operation) void run(const ops::Operation& op) override;

namespace convoy::ops {

class Interface {
 public:
  virtual ~Interface() = default;

#define CONVOY_RUN(Operation) virtual void run(const Operation& op) = 0;
  CONVOY_OPERATIONS(CONVOY_RUN)
#undef CONVOY_RUN
};

}  // namespace convoy::ops
