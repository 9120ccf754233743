// SPDX-License-Identifier: Apache-2.0
//
// Measured costs: what is exact in them (bytes), what must hold of times, and their text form.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/schedule/unit_costs.h"

#include <doctest/doctest.h>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/models/models.h"

namespace convoy {

namespace {

constexpr std::int64_t kBatch = 4;

std::vector<Candidate> candidates(Backend& backend) {
  const auto infos = describe_units(backend, toy_model(5), {kBatch, 10});
  std::vector<Unit> units = toy_model(5);
  std::vector<Candidate> result;
  for (std::size_t i = 0; i < units.size(); ++i) result.push_back({std::move(units[i]), infos[i], i == 0});
  return result;
}

}  // namespace

TEST_CASE("every unit gets positive times and its own bytes") {
  OnednnBackend backend(1, DType::kF32);
  const std::vector<Candidate> shapes = candidates(backend);
  const std::vector<UnitCost> costs = measure_units(backend, candidates(backend));
  REQUIRE(costs.size() == shapes.size());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    CHECK(costs[i].forward > 0);
    CHECK(costs[i].forward < 10);  // seconds: nothing was left at "never"
    CHECK(costs[i].backward_input < 10);
    CHECK(costs[i].backward_weight < 10);
    CHECK(costs[i].output_bytes == 4.0 * static_cast<double>(shapes[i].info.output.size()));
    CHECK(costs[i].parameter_bytes == 4.0 * static_cast<double>(shapes[i].info.parameters()));
    if (shapes[i].info.parameters() > 0) CHECK(costs[i].cache_bytes >= 4.0 * kBatch * 10);  // its input
  }
  CHECK(measure_units(backend, {}).empty());
}

TEST_CASE("a measurement that is told to stop ends after the round") {
  OnednnBackend backend(1, DType::kF32);
  int rounds = 0;
  const auto stop = [&] {
    if (++rounds == 2) fail("stopped");
  };
  CHECK_THROWS_WITH_AS(static_cast<void>(measure_units(backend, candidates(backend), stop)), "stopped", Error);
  CHECK(rounds == 2);
}

TEST_CASE("costs travel as text and come back the same; what is no number is refused") {
  const std::vector<UnitCost> costs{{0.1, 1.0 / 3, 2e-9, 4096, 1e10, 0}, {}};
  const std::vector<UnitCost> back = unpack_costs(pack_costs(costs));
  REQUIRE(back.size() == 2);
  CHECK(back[0].backward_input == costs[0].backward_input);
  CHECK(back[0].cache_bytes == costs[0].cache_bytes);
  CHECK(back[1].seconds() == 0);
  CHECK_THROWS_AS(static_cast<void>(unpack_costs("1 2 three 4 5 6\n")), Error);
}

}  // namespace convoy
