// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/nccl/nccl_setup.h"

#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "layers/base/host_name.h"
#include "parallel/comm/nccl/nccl_check.h"

namespace convoy {

namespace {

std::string version_text(int code) { return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100); }

}  // namespace

void prepare_nccl(const NcclOptions& options) {
  static std::once_flag once;
  std::call_once(once, [&] {
    // NCCL refuses two ranks on one GPU of one host. Each of them reports another host to it.
    if (options.share_gpu) {
      setenv("NCCL_HOSTID", fmt::format("{}-{}", host_name("host"), getpid()).c_str(), 1);
    }
    if (options.deterministic) setenv("NCCL_NVLS_ENABLE", "0", 0);
  });
}

std::string new_nccl_id() {
  ncclUniqueId id;
  CONVOY_NCCL_CHECK(ncclGetUniqueId(&id));
  return {id.internal, sizeof id.internal};
}

std::string nccl_version() {
  int version = 0;
  CONVOY_NCCL_CHECK(ncclGetVersion(&version));
  return version_text(version);
}

std::string nccl_built_version() { return version_text(NCCL_VERSION_CODE); }

}  // namespace convoy
