// SPDX-License-Identifier: Apache-2.0
//
// All operations of a backend, and the interface that follows from their list. A new operation is a struct in a file
// *_operations.h, its name in `All`, and a run() in each backend; observers (layers/backend/observe) need nothing.
#pragma once

#include "layers/backend/batch_norm_operations.h"
#include "layers/backend/dense_operations.h"
#include "layers/backend/elementwise_operations.h"
#include "layers/backend/training_operations.h"

namespace convoy::ops {

template <class... Operations>
struct List {};

using All = List<NormalizeImages, Cast, Flatten, Unflatten,                                             //
                 LinearForward, LinearBackwardInput, LinearBackwardWeight,                              //
                 Conv2dForward, Conv2dBackwardInput, Conv2dBackwardInputAdd, Conv2dBackwardWeight,      //
                 BatchNormStatistics, BatchNormApply, BatchNormBackwardReduce, BatchNormBackwardApply,  //
                 BatchNormBackwardResidual,                                                             //
                 ReluForward, ReluBackward, Add, Scale, Axpy,                                           //
                 MaxPoolForward, MaxPoolBackward, GlobalAvgPoolForward, GlobalAvgPoolBackward,          //
                 SoftmaxCrossEntropy, Mse,                                                              //
                 SgdUpdate, AdamwUpdate, LarsUpdate>;

/// `virtual void run(const Operation&) = 0` for each operation of the list.
template <class Operations>
class Interface;

template <class Operation>
class Interface<List<Operation>> {
 public:
  virtual ~Interface() = default;
  virtual void run(const Operation& op) = 0;
};

template <class Operation, class... Others>
class Interface<List<Operation, Others...>> : public Interface<List<Others...>> {
 public:
  using Interface<List<Others...>>::run;
  virtual void run(const Operation& op) = 0;
};

}  // namespace convoy::ops
