// SPDX-License-Identifier: Apache-2.0
//
// What convoy bench does beside timing steps: it counts bytes (--model-bytes) and times choices of algorithms
// (--calibrate-cpu).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/commands/commands.h"
#include "io/data/data_options.h"

namespace convoy {

/// --model-bytes. Throws a usage Error unless there is one rank.
int count_bytes(const World& world, const BenchArguments& arguments);

/// --calibrate-cpu. Throws a usage Error unless there is one rank.
int calibrate(const World& world, const BenchArguments& arguments);

/// Steps that are timed or counted are of one size of images, the largest.
void keep_largest_size(DataOptions& data);

/// --json FILE.
void write_bench_json(const std::string& path, const nlohmann::ordered_json& document);

}  // namespace convoy
