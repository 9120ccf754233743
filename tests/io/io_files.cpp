// SPDX-License-Identifier: Apache-2.0
//
// Writes the files that the Python tests of this folder open with other people's readers (io_files checkpoint FILE,
// io_files events FOLDER), and says what is wrong with a checkpoint that they have changed (io_files check FILE; an
// empty line: nothing). Relies on the library only. Invariant: values are simple enough to be known on both sides.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "io/checkpoint/checkpoint.h"
#include "io/log/tensorboard.h"
#include "layers/base/error.h"

namespace {

using namespace convoy;

HostTensor counting(const std::string& name, const Shape& shape, DType dtype) {
  HostTensor tensor(name, shape, dtype);
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    if (dtype == DType::kF32) tensor.data<float>()[i] = static_cast<float>(i) / 4;
    if (dtype == DType::kI64) tensor.data<std::int64_t>()[i] = 1000 + i;
  }
  return tensor;
}

void write_sample(const std::string& path) {
  Checkpoint c;
  c.model = {counting("conv1.weight", {64, 3, 7, 7}, DType::kF32), counting("bn1.running_mean", {64}, DType::kF32),
             counting("bn1.num_batches_tracked", Shape{}, DType::kI64),
             counting("layer1.0.conv1.weight", {64, 64, 3, 3}, DType::kF32),
             counting("fc.weight", {1000, 2048}, DType::kF32)};  // 8 MB: several chunks
  c.optimizer = {{"momentum", {counting("fc.weight", {1000, 2048}, DType::kF32)}}};
  c.step = 120;
  c.epoch = 2;
  c.samples_seen = 640;
  c.seed = 42;
  c.lr_step = 121;
  c.loss_scale = 1024;
  c.config = "[run]\nname = \"über\"\n";
  c.program_version = "0.1.0";
  c.mode = "data";
  c.ranks = 2;
  write_checkpoint(path, c);
}

// A run that reaches step 200 after step 150 was saved, and one that resumes from there to step 180.
void write_events(const std::string& dir) {
  {
    TensorboardWriter interrupted(dir);
    for (std::int64_t step = 1; step <= 200; ++step) {
      interrupted.scalar("train/loss", step, 1.0 / static_cast<double>(step));
    }
  }
  TensorboardWriter resumed(dir, 150);
  for (std::int64_t step = 151; step <= 180; ++step) {
    resumed.scalar("train/loss", step, 1.0 / static_cast<double>(step));
  }
  resumed.scalar("eval/top1", 180, 0.75);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string what = argc == 3 ? argv[1] : "";
    if (what == "checkpoint") {
      write_sample(argv[2]);
    } else if (what == "check") {
      std::puts(checkpoint_problem(argv[2]).c_str());
    } else if (what == "events") {
      write_events(argv[2]);
    } else {
      fail_usage("io_files checkpoint FILE | io_files check FILE | io_files events FOLDER");
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "io_files: %s\n", error.what());
    return 1;
  }
}
