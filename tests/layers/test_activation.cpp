// SPDX-License-Identifier: Apache-2.0
//
// Pending normalisations and the parts of operations: a backend that gets them with the convolution trains to the bits
// of one that gets them apart, and a comparison sees what it leaves out.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "layers/backend/observe/compare_backend.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/models/models.h"
#include "tests/layers/training.h"

using namespace convoy;

namespace {

/// Takes convolutions with their parts. It runs them one after the other, all of them or all but one.
class FusingBackend final : public ObservingBackend<FusingBackend> {
 public:
  enum class Omit { kNothing, kPrologue, kEpilogue };
  explicit FusingBackend(Backend& inner, Omit omit = Omit::kNothing) : ObservingBackend(inner), omit_(omit) {}

  using ObservingBackend::fuses;
  [[nodiscard]] bool fuses(const ops::Conv2dForward& /*op*/) const override { return true; }
  using ObservingBackend::run;
  void run(const ops::Conv2dForward& op) override {
    prologues += op.prologue != nullptr ? 1 : 0;
    epilogues += op.epilogue != nullptr ? 1 : 0;
    if (op.prologue != nullptr && omit_ != Omit::kPrologue) inner().run(*op.prologue);
    inner().run(op.alone(op.x));
    if (op.epilogue != nullptr && omit_ != Omit::kEpilogue) inner().run(*op.epilogue);
  }
  template <class Operation>
  void observe(const Operation& op) {
    inner().run(op);
  }
  int prologues = 0, epilogues = 0;

 private:
  Omit omit_;
};

const Shape kInput{4, 3, 16, 16};

std::vector<Unit> blocks() {
  return sequential_model({{"conv", Conv2dOptions{.out_channels = 8, .kernel_size = 3, .padding = 1}},
                           {"basic", BasicBlockOptions{.channels = 16, .stride = 2}},
                           {"plain", BasicBlockOptions{.channels = 16, .stride = 1}},
                           {"bottleneck", BottleneckOptions{.channels = 4, .stride = 2}},
                           {"pool", GlobalAvgPoolOptions{}},
                           {"fc", LinearOptions{.out_features = 6}}});
}

std::string message_of(Backend& backend) {
  try {
    Training training(backend, blocks(), kInput);
    training.load(0);
    training.step(0.05);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a normalisation that stays pending is applied in one pass, with the same bits") {
  OnednnBackend apart(1, DType::kF32), inner(1, DType::kF32);
  FusingBackend fusing(inner);
  Training expected(apart, blocks(), kInput), actual(fusing, blocks(), kInput);
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (Training* training : {&expected, &actual}) {
      training->load(step);
      training->step(0.05);
    }
    CHECK(actual.loss() == expected.loss());
  }
  CHECK(actual.state() == expected.state());
  // Per step: a basic block has one convolution after a normalisation, a bottleneck two; every convolution of a block
  // is before one.
  CHECK(fusing.prologues == 3 * (1 + 1 + 2));
  CHECK(fusing.epilogues == 3 * ((2 + 1) + 2 + (3 + 1)));
}

TEST_CASE("the parts of an operation are compared with it") {
  OnednnBackend inner(1, DType::kF32), reference(1, DType::kF32);
  FusingBackend whole(inner);
  CompareBackend good(whole, reference);
  CHECK(message_of(good).empty());
  CHECK(whole.prologues == 4);

  FusingBackend without_prologue(inner, FusingBackend::Omit::kPrologue);
  CompareBackend first(without_prologue, reference);
  CHECK(message_of(first).find("conv2d_forward, 3x3 16 -> 16, [4, 16, 8, 8]: y differs") == 0);

  FusingBackend without_epilogue(inner, FusingBackend::Omit::kEpilogue);
  CompareBackend second(without_epilogue, reference);
  CHECK(message_of(second).find("conv2d_forward, 1x1 8 -> 16 /2, [4, 8, 16, 16]: mean differs") == 0);
}

TEST_CASE("parts that are not fused are operations of their own to an observer") {
  OnednnBackend inner(1, DType::kF32), reference(1, DType::kF32);
  CompareBackend compare(inner, reference);
  CHECK(message_of(compare).empty());
  CHECK(compare.seen().at("batch_norm_apply").calls == 9);
  CHECK(compare.seen().at("batch_norm_statistics").calls == 9);
  CHECK(compare.seen().at("conv2d_forward").calls == 10);
}
