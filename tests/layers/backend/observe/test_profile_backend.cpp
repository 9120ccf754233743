// SPDX-License-Identifier: Apache-2.0
//
// The profile passes every operation on unchanged (CompareBackend holds it against a plain backend), counts calls and
// costs as closed forms say, and measures bounds that are numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "layers/backend/observe/bounds.h"
#include "layers/backend/observe/compare_backend.h"
#include "layers/backend/observe/profile_backend.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/profile_range.h"
#include "tests/layers/backend/every_operation.h"

using namespace convoy;

TEST_CASE("a profiled backend computes what the backend computes, and times every operation") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    OnednnBackend inner(1, dtype), reference(1, DType::kF32);
    ProfileBackend profile(inner);
    CompareBackend compare(profile, reference);
    call_every_operation(compare, 2, 5);
    std::set<std::string> timed;
    for (const auto& [key, entry] : profile.entries()) {
      timed.insert(key.operation);
      CHECK(entry.calls > 0);
      CHECK(entry.seconds >= 0);
      CHECK(entry.cost.bytes > 0);
    }
    for (const auto& [operation, seen] : compare.seen()) {
      // What only passes through host memory is no operation of a step.
      if (operation == "import_weight" || operation == "export_weight" || operation == "all_finite") continue;
      CHECK_MESSAGE(timed.count(operation) == 1, operation);
    }
  }
}

TEST_CASE("costs of products and their units") {
  OnednnBackend inner(1, DType::kF32);
  ProfileBackend profile(inner);
  const Conv2dSpec spec{4, 6, 3, 2, 1};
  {
    const ProfileRange phase("forward"), unit("layer1.0");
    call_conv2d(profile, spec, {2, 4, 8, 8}, true);
  }
  CHECK(std::string(ProfileRange::innermost()).empty());
  const double flops = 2.0 * (2 * 6 * 4 * 4) * (4 * 3 * 3);  // output elements times multiply-adds of each
  const auto& entries = profile.entries();
  const std::string detail = "3x3 4 -> 6 /2, [2, 4, 8, 8]";
  const ProfileEntry& forward = entries.at({"conv2d_forward", "layer1.0", detail});
  CHECK(forward.calls == 1);
  CHECK(forward.cost.flops == flops);
  CHECK(forward.cost.bytes >= 4.0 * (2 * 4 * 8 * 8 + 6 * 4 * 9 + 2 * 6 * 4 * 4));
  const ProfileEntry& weights = entries.at({"conv2d_backward_weight", "layer1.0", detail});
  CHECK(weights.calls == 2);  // set, then added
  CHECK(weights.cost.flops == 2 * flops);
  const ProfileEntry& inputs = entries.at({"conv2d_backward_input", "layer1.0", detail});
  CHECK(inputs.calls == 3);  // alone, added in place, and beside a residual
  CHECK(inputs.cost.flops == 3 * flops);
  CHECK(profile.convolutions().size() == 3);

  call_linear(profile, 3, 5, 7, false);
  const ProfileEntry& linear = profile.entries().at({"linear_backward_input", "", "5 -> 7, batch 3"});
  CHECK(linear.cost.flops == 2.0 * 3 * 5 * 7);

  profile.restart();
  CHECK(profile.entries().empty());
  CHECK(profile.convolutions().empty());
}

TEST_CASE("convolutions alone and the device's bounds") {
  OnednnBackend backend(1, DType::kBF16);
  std::map<ConvolutionCall, std::int64_t> calls;
  for (const auto direction : {ConvolutionCall::Direction::kForward, ConvolutionCall::Direction::kBackwardInput,
                               ConvolutionCall::Direction::kBackwardWeight}) {
    calls[{direction, {8, 16, 3, 1, 1}, {2, 8, 8, 8}, false}] = 2;
    calls[{direction, {8, 16, 3, 1, 1}, {2, 8, 8, 8}, true}] = 1;
  }
  const auto alone = time_alone(backend, calls);
  CHECK(alone.size() == 6);
  for (const auto& [call, seconds] : alone) CHECK(seconds > 0);
  const DeviceBounds bounds = measure_bounds(backend);
  CHECK(std::isfinite(bounds.flops_per_second));
  CHECK(bounds.flops_per_second > 1e8);  // slower machines than that train nothing
  CHECK(std::isfinite(bounds.bytes_per_second));
  CHECK(bounds.bytes_per_second > 1e7);
}

TEST_CASE("marks of a backend on the host are its clock") {
  OnednnBackend backend(1, DType::kF32);
  const auto first = backend.mark();
  const auto second = backend.mark();
  CHECK(second->seconds_since(*first) >= 0);
  CHECK(first->seconds_since(*second) <= 0);
}
