// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints whose large tensors come by way of a file.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/tensor_spool.h"
#include "tests/io/checkpoint/sample_checkpoint.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;
namespace fs = std::filesystem;

// Weight [3, 4] and bias [3] of a head, in the model and in one slot, row by row.
TEST_CASE("tensors of a spool are as any others") {
  const TemporaryFolder folder;
  Checkpoint written = sample_checkpoint(7), whole = written;
  const auto spool = std::make_shared<TensorSpool>(folder / "spooled.h5");
  const std::string slot = written.optimizer.front().first;
  for (const auto& [group, tensors] : {std::pair(std::string("/model"), &whole.model),
                                       std::pair("/optimizer/" + slot, &whole.optimizer.front().second)}) {
    for (const auto& [name, shape] : {std::pair("head.weight", Shape{3, 4}), std::pair("head.bias", Shape{3})}) {
      HostTensor& tensor = tensors->emplace_back(name, shape, DType::kF32);
      const auto row = static_cast<std::size_t>(shape.size() / 3);
      for (std::size_t i = 0; i < 3 * row; ++i) tensor.data<float>()[i] = static_cast<float>(10 * row + i);
      spool->begin(group, name, shape);
      for (std::size_t i = 0; i < 3; ++i) spool->append({tensor.data<float>() + i * row, row});
    }
  }
  CHECK(spool->problem().empty());
  CHECK(spool->nonfinite() == nullptr);
  written.spool = spool;
  const std::string path = folder / "spooled.h5";
  write_checkpoint(path, written);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
  CHECK(checkpoint_problem(path).empty());
  write_checkpoint(folder / "whole.h5", whole);
  CHECK(same_checkpoint(read_checkpoint(path), read_checkpoint(folder / "whole.h5")));

  const TensorRows rows(path);
  CHECK(rows.read("/model", "head.weight", 1, 2) == std::vector<float>{44, 45, 46, 47, 48, 49, 50, 51});
  CHECK(rows.read("/optimizer/" + slot, "head.bias", 2, 1) == std::vector<float>{12});
  CHECK(rows.read("/model", "head.bias", 3, 0).empty());
  const Checkpoint left = read_checkpoint(path, {"head.weight", "head.bias"});
  for (const HostTensor& tensor : left.model) {
    CHECK(tensor.bytes.empty() == (tensor.name == "head.weight" || tensor.name == "head.bias"));
    if (tensor.name == "head.weight") CHECK(tensor.shape == Shape{3, 4});
  }

  for (const auto& [group, name] : {std::pair("/model", "head.bias"), std::pair("/ema", "head.bias (average)"),
                                    std::pair("/optimizer/momentum", "head.bias (optimizer momentum)")}) {
    const auto infinite = std::make_shared<TensorSpool>(folder / "infinite.h5");
    infinite->begin(group, "head.bias", {1});
    infinite->append(std::vector<float>{INFINITY});
    Checkpoint checkpoint;
    checkpoint.spool = infinite;
    CHECK(first_nonfinite(checkpoint) == name);
  }
  CHECK(TensorSpool(folder / "none/step.h5").problem().find("No such file") != std::string::npos);
}
