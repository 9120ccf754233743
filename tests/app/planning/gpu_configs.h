// SPDX-License-Identifier: Apache-2.0
//
// Configs that the tests of planning share.
#pragma once

#include "app/config/config.h"
#include "app/planning/count_work.h"

namespace convoy::test {

/// ResNet-50 on synthetic images of 224×224, batches of 32, on GPUs with elements of two bytes.
inline Config resnet50_on_gpus() {
  Config config;
  config.model.name = "resnet50";
  config.model.classes = 1000;
  config.data.kind = "synthetic";
  config.data.image_size = 224, config.data.channels = 3, config.data.samples = 64;
  config.train.global_batch_size = 32;
  return gpu_config(config, 2);
}

}  // namespace convoy::test
