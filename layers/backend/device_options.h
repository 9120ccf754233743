// SPDX-License-Identifier: Apache-2.0
//
// What computes, and in which precision.
#pragma once

#include <cstdint>
#include <string>

#include "layers/base/options.h"
#include "layers/cpu/wait_policy.h"

namespace convoy {

enum class DeviceKind { kAuto, kCpu, kCuda };
CONVOY_OPTION_ENUM(DeviceKind, "auto", "cpu", "cuda");

enum class Precision { kFp32, kTf32, kBf16, kFp16 };
CONVOY_OPTION_ENUM(Precision, "fp32", "tf32", "bf16", "fp16");

/// [device]
struct DeviceOptions {
  DeviceKind kind = DeviceKind::kAuto;
  std::int64_t threads = 0;  ///< 0: this rank's share of its node's cores
  WaitPolicy wait_policy = WaitPolicy::kAuto;
  bool share_gpu = false;           ///< several ranks may take turns on one GPU
  bool deterministic = false;       ///< of GPUs: equal inputs give equal bits
  bool graphs = true;               ///< of GPUs: a step is recorded once and then replayed
  std::string plan_cache = "auto";  ///< of GPUs: folder of the convolution plans that were quickest; empty: none

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& d) {
    const auto of_gpus = [&] {
      return anything().only_for("device.kind", d.kind, {DeviceKind::kAuto, DeviceKind::kCuda});
    };
    v.key("kind", d.kind, anything(), "auto: a GPU where there is one and the program was built for it, else the CPU");
    v.key("threads", d.threads, between(0, 4096), "a rank's compute threads; 0: its share of the node's cores");
    v.key("wait_policy", d.wait_policy, anything(),
          "how threads wait: active (spin), passive (block), auto (block while others want the CPUs)");
    v.key("share_gpu", d.share_gpu, of_gpus(), "several ranks may take turns on one GPU; for tests");
    v.key("deterministic", d.deterministic, of_gpus(),
          "equal inputs give equal bits on a GPU, too, perhaps more slowly; on the CPU they always do");
    v.key("graphs", d.graphs, of_gpus(), "record a step once and replay it (GPU)");
    v.key("plan_cache", d.plan_cache, of_gpus(),
          "folder that keeps which cuDNN plans were quickest (GPU); auto: ~/.cache/convoy; \"\": timed in each run");
  }
  bool operator==(const DeviceOptions&) const = default;
};

}  // namespace convoy
