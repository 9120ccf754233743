// SPDX-License-Identifier: Apache-2.0
//
// The compare backend, between CPU backends: it passes what is right, and finds and names what is wrong.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "layers/backend/observe/compare_backend.h"
#include "layers/backend/observe/float16.h"
#include "layers/backend/observe/observing_backend.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/models/models.h"
#include "tests/layers/backend/every_operation.h"
#include "tests/layers/backend/spoiled_backend.h"
#include "tests/layers/training.h"

using namespace convoy;

namespace {

using Damage = SpoiledBackend::Damage;

/// The last output of each operation that passes by, by the operation's name.
class LastOutputs final : public ObservingBackend<LastOutputs> {
 public:
  using ObservingBackend::ObservingBackend;
  template <class Operation>
  void observe(const Operation& op) {
    Visitor visitor;
    static_cast<void>(op.visit(visitor));
    outputs[Operation::kName] = visitor.last;
    inner().run(op);
  }
  std::map<std::string, std::string> outputs;

 private:
  struct Visitor : OperandVisitor {
    std::string last;
    const Tensor& take(const char* name, const Tensor& y) {
      if (y) last = name;
      return y;
    }
    const Tensor& out(const char* name, const Tensor& y) { return take(name, y); }
    const Tensor& in_out(const char* name, const Tensor& y) { return take(name, y); }
    const Tensor& gradient(const char* name, const Tensor& dw, const Weight& /*w*/, bool /*accumulate*/) {
      return take(name, dw);
    }
    const Tensor& gradient(const char* name, const Tensor& dbias, bool /*accumulate*/) { return take(name, dbias); }
  };
};

/// Every operation that is declared, with one of its outputs.
std::map<std::string, std::string> all_outputs() {
  OnednnBackend inner(1, DType::kF32);
  LastOutputs backend(inner);
  call_every_operation(backend, 2, 5);
#define CONVOY_CHECK_CALLED(Operation) CHECK(backend.outputs.count(ops::Operation::kName) == 1);
  CONVOY_OPERATIONS(CONVOY_CHECK_CALLED)
#undef CONVOY_CHECK_CALLED
  backend.outputs["zero"] = "x";
  return backend.outputs;
}

std::set<std::string> all_operations() {
  std::set<std::string> names{"copy_from_host", "import_weight", "all_finite"};
  for (const auto& [operation, output] : all_outputs()) names.insert(operation);
  return names;
}

std::set<std::string> names_seen(const CompareBackend& backend) {
  std::set<std::string> names;
  for (const auto& [name, seen] : backend.seen()) names.insert(name);
  return names;
}

/// What the compare backend says about everything; empty when it finds nothing.
std::string verdict(Backend& subject, Backend& reference) {
  CompareBackend compare(subject, reference);
  try {
    call_every_operation(compare, 2, 5);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a backend agrees with another of its kind in every operation") {
  OnednnBackend subject(1, DType::kF32), reference(1, DType::kF32);
  CompareBackend compare(subject, reference);
  CHECK(compare.compute_type() == DType::kF32);
  CHECK(compare.description().find("tolerance 1e-05") != std::string::npos);
  call_every_operation(compare, 1, 3);
  call_every_operation(compare, 2, 65);
  call_every_operation(compare, 9, 7);
  CHECK(names_seen(compare) == all_operations());
  for (const auto& entry : compare.seen()) {
    CHECK_MESSAGE(entry.second.calls >= 3, entry.first);
    CHECK_MESSAGE(entry.second.largest_difference <= 1e-5, entry.first);
  }
  CHECK(compare.seen().at("conv2d_forward").calls == 3 * 15);
  CHECK(compare.seen().at("conv2d_backward_weight").calls == 3 * 30);
}

TEST_CASE("tensors without elements and of one element are compared") {
  OnednnBackend subject(1, DType::kF32), reference(1, DType::kF32);
  CompareBackend compare(subject, reference);
  for (const std::int64_t count : {0, 1}) {
    call_elementwise(compare, count);
    call_updates(compare, count);
  }
  CHECK(compare.seen().at("axpy").calls == 4);
}

TEST_CASE("bfloat16 agrees with float32 to its rounding") {
  OnednnBackend subject(1, DType::kBF16), reference(1, DType::kF32);
  CompareBackend compare(subject, reference);
  call_every_operation(compare, 2, 5);
  call_every_operation(compare, 9, 64);
  CHECK(names_seen(compare) == all_operations());
  CHECK(compare.seen().at("conv2d_forward").largest_difference > 1e-4);  // it is not float32 after all
  CHECK(compare.seen().at("relu_forward").largest_difference == 0.0);    // exact on the same rounded inputs
  CHECK_THROWS_WITH_AS(CompareBackend(reference, subject), doctest::Contains("computes in bfloat16"), Error);
  CompareBackend strict(subject, reference, 1e-5);
  CHECK_THROWS_WITH_AS(call_every_operation(strict, 2, 5), doctest::Contains("(tolerance 1e-05)"), Error);
}

TEST_CASE("a wrong operation is found and named, with its output") {
  OnednnBackend good(1, DType::kF32), reference(1, DType::kF32);
  SpoiledBackend subject(good);
  CHECK(verdict(subject, reference).empty());
  for (const auto& [operation, output] : all_outputs()) {
    for (const Damage damage : {Damage::kValue, Damage::kNan, Damage::kUnwritten}) {
      subject.spoil(operation, damage, 0, output);
      const std::string text = verdict(subject, reference);
      CAPTURE(text);
      CHECK(text.starts_with(operation + ", "));
      CHECK(text.find(": " + output + " differs from the cpu backend's by ") != std::string::npos);
      CHECK(text.find("first beyond at element [0") != std::string::npos);
    }
  }
  for (const std::string operation : {"copy_from_host", "import_weight", "all_finite"}) {
    subject.spoil(operation, Damage::kValue);
    const std::string text = verdict(subject, reference);
    CAPTURE(text);
    CHECK(text.starts_with(operation + ", "));
    CHECK(text.find("spoiled backend") != std::string::npos);
  }
}

TEST_CASE("the message has the operation, its shapes, the difference and the first place") {
  OnednnBackend good(1, DType::kF32), reference(1, DType::kF32);
  SpoiledBackend subject(good);
  subject.spoil("add", Damage::kUnwritten);
  CompareBackend compare(subject, reference);
  const std::vector<float> ones(32, 1.0F);
  const Tensor x = compare.tensor({1, 2, 4, 4}, DType::kF32), y = compare.tensor({1, 2, 4, 4}, DType::kF32);
  compare.copy_from_host(ones.data(), x);
  compare.copy_from_host(ones.data(), y);
  // One element of 32 is 1 and not 2: a norm of 1 against one of 2 * sqrt(32).
  CHECK_THROWS_WITH_AS(compare.run(ops::Add{x, y}),
                       "add, float32 [1, 2, 4, 4]: y differs from the cpu backend's by 8.8e-02 relative (tolerance "
                       "1e-05), first beyond at element [0, 0, 0, 0]: 1 against 2",
                       Error);
  CHECK(compare.seen().at("add").largest_difference == doctest::Approx(1 / (2 * std::sqrt(32.0))));
  subject.spoil("zero", Damage::kValue);
  CHECK_THROWS_WITH_AS(compare.zero(x), doctest::Contains("by 1.0e+00 absolute"), Error);
}

TEST_CASE("a place is named in the order N, C, H, W, and what is infinite on both sides is equal") {
  OnednnBackend good(1, DType::kF32), reference(1, DType::kF32);
  SpoiledBackend subject(good);
  CompareBackend compare(subject, reference);
  const Shape shape{1, 2, 3, 4};
  std::vector<float> values(24, 1.0F);
  values[7] = INFINITY;
  values[8] = NAN;
  const Tensor x = compare.tensor(shape, DType::kF32), y = compare.tensor(shape, DType::kF32);
  compare.copy_from_host(values.data(), x);
  CHECK_NOTHROW(compare.run(ops::ReluForward{x, y}));
  const std::int64_t place = (1 * 4 + 3) * 2 + 1;  // channels-last: h = 1, w = 3, c = 1
  subject.spoil("relu_forward", Damage::kValue, place);
  CHECK_THROWS_WITH_AS(compare.run(ops::ReluForward{x, y}), doctest::Contains("element [0, 1, 1, 3]: 2 against 1"),
                       Error);
  subject.spoil("relu_forward", Damage::kNan, place);
  CHECK_THROWS_WITH_AS(compare.run(ops::ReluForward{x, y}), doctest::Contains("by inf relative"), Error);
  subject.spoil("relu_forward", Damage::kNan, 7);  // where the other is infinite
  CHECK_THROWS_WITH_AS(compare.run(ops::ReluForward{x, y}), doctest::Contains("element [0, 1, 0, 3]: nan against inf"),
                       Error);
}

TEST_CASE("residual blocks train through the compare backend as without it") {
  const Shape input{4, 3, 16, 16};
  const auto units = [] {
    return sequential_model({{"conv", Conv2dOptions{.out_channels = 8, .kernel_size = 3, .padding = 1}},
                             {"relu", ReluOptions{}},
                             {"pool", MaxPool2dOptions{.kernel_size = 3, .stride = 2, .padding = 1}},
                             {"strided", BasicBlockOptions{.channels = 16, .stride = 2}},
                             {"plain", BasicBlockOptions{.channels = 16, .stride = 1}},
                             {"flatten", FlattenOptions{}},
                             {"fc1", LinearOptions{.out_features = 20}},
                             {"fc1_relu", ReluOptions{}},
                             {"fc2", LinearOptions{.out_features = 6}}});
  };
  OnednnBackend subject(1, DType::kF32), reference(1, DType::kF32), alone(1, DType::kF32);
  CompareBackend compare(subject, reference);
  Training compared(compare, units(), input), plain(alone, units(), input);
  for (std::uint64_t step = 0; step < 2; ++step) {
    for (Training* training : {&compared, &plain}) {
      training->load(step);
      training->step(0.05);
    }
    CHECK(compared.loss() == plain.loss());
  }
  CHECK(compared.state() == plain.state());
  const std::set<std::string> expected{"copy_from_host",
                                       "import_weight",
                                       "zero",
                                       "flatten",
                                       "unflatten",
                                       "linear_forward",
                                       "linear_backward_input",
                                       "linear_backward_weight",
                                       "conv2d_forward",
                                       "conv2d_backward_input",
                                       "conv2d_backward_weight",
                                       "batch_norm_statistics",
                                       "batch_norm_apply",
                                       "batch_norm_backward_reduce",
                                       "batch_norm_backward_apply",
                                       "batch_norm_backward_residual",
                                       "relu_forward",
                                       "relu_backward",
                                       "axpy",
                                       "max_pool_forward",
                                       "max_pool_backward",
                                       "softmax_cross_entropy",
                                       "sgd_update"};
  CHECK(names_seen(compare) == expected);
  for (const auto& entry : compare.seen()) CHECK_MESSAGE(entry.second.calls >= 2, entry.first);
}

TEST_CASE("weights of other backends are refused") {
  OnednnBackend subject(1, DType::kF32), reference(1, DType::kF32);
  CompareBackend compare(subject, reference);
  RandomData data(subject);
  const TestWeight w = data.weight(subject.linear_layout(3, 4, 2));
  CHECK_THROWS_WITH_AS(compare.run(ops::LinearBackwardInput{data.activations({2, 4}), w.weight, data.output({2, 3})}),
                       doctest::Contains("that it did not make"), Error);
}

TEST_CASE("float16 rounds to nearest even, keeps NaN and infinities, and has subnormal numbers") {
  const auto round = [](float value) { return static_cast<float>(Float16(value)); };
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(half);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(round(value)));
    } else {
      REQUIRE(Float16(value).bits == bits);  // each of them is its own rounding
    }
  }
  CHECK(round(1.0F) == 1.0F);
  CHECK(round(1.0F + 0x1p-11F) == 1.0F);                // a tie goes to the even mantissa
  CHECK(round(1.0F + 3 * 0x1p-11F) == 1.0F + 0x1p-9F);  // and this one up
  CHECK(round(1.0F + 0x1p-11F + 0x1p-20F) == 1.0F + 0x1p-10F);
  CHECK(round(65504.0F) == 65504.0F);  // the largest
  CHECK(round(65519.0F) == 65504.0F);
  CHECK(round(65520.0F) == INFINITY);
  CHECK(round(1e10F) == INFINITY);
  CHECK(round(0x1p-24F) == 0x1p-24F);  // the smallest
  CHECK(round(0x1p-25F) == 0.0F);
  CHECK(round(0x1.8p-25F) == 0x1p-24F);
  CHECK(std::signbit(round(-0.0F)));
}
