// SPDX-License-Identifier: Apache-2.0
//
// The table that convoy bench prints, a row for each measurement of a point.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace convoy {

struct BenchPoint;
struct Run;
class World;

/// Its columns; data: those of --data. device_varies: the points have options of [device], so that a description of one
/// is none of the others.
void print_head(const World& world, const Run& run, bool data, bool device_varies);

/// Of timed steps.
void print_row(const BenchPoint& point, std::int64_t repeat, const nlohmann::ordered_json& result);

/// Of --data.
void print_data_row(const BenchPoint& point, std::int64_t repeat, const nlohmann::ordered_json& result);

/// Below a row, how fast gradients are summed.
void print_reduction(const nlohmann::ordered_json& speed);

}  // namespace convoy
