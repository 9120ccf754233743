// SPDX-License-Identifier: Apache-2.0
#include "app/build/build_backend.h"

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"

#ifdef CONVOY_CUDA
#include "layers/backend/cuda/cuda_backend.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#endif

namespace convoy {

DType compute_type(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
    case Precision::kTf32: return DType::kF32;
    case Precision::kBf16: return DType::kBF16;
    case Precision::kFp16: return DType::kF16;
  }
  fail("train.precision: unknown");
}

std::string plan_folder(const std::string& plan_cache, const VariableLookup& value) {
  if (plan_cache != "auto") return expand_variables(plan_cache, value);
  const auto set = [&](const char* name) { return value(name).value_or(""); };
  if (const std::string cache = set("XDG_CACHE_HOME"); !cache.empty()) return cache + "/convoy";
  const std::string home = set("HOME");
  return home.empty() ? "" : home + "/.cache/convoy";
}

std::unique_ptr<Backend> rehearsal_backend(const Config& config, const DeviceChoice& device) {
  const DType compute = compute_type(config.train.precision);
  // A GPU has no copies of weights for the algorithms of this CPU.
  return std::make_unique<OnednnBackend>(device.threads, compute == DType::kF16 ? DType::kBF16 : compute,
                                         device.on_gpu() ? direct_rules() : this_cpu().rules);
}

#ifdef CONVOY_CUDA

std::unique_ptr<Backend> build_backend(const Config& config, const DeviceChoice& device) {
  const Precision precision = config.train.precision;
  const DType compute = compute_type(precision);
  if (!device.on_gpu()) return std::make_unique<OnednnBackend>(device.threads, compute);
  return std::make_unique<CudaBackend>(CudaOptions{device.gpu, compute, precision == Precision::kTf32,
                                                   config.device.deterministic,
                                                   plan_folder(config.device.plan_cache, process_variable)});
}

std::string compute_library(const DeviceChoice& device) {
  if (!device.on_gpu()) return OnednnBackend::library_description();
  return fmt::format("{}, {}", CudaBackend::library_description(), device.gpu_name);
}

// Host tensors stay with MPI and never meet NCCL; tensors of a GPU never meet MPI, which could not read them.
std::unique_ptr<Communicator> device_communicator(std::unique_ptr<Communicator> host, Backend& backend,
                                                  const Config& config, Traffic traffic, const std::string& name) {
  auto* cuda = dynamic_cast<CudaBackend*>(&backend);
  if (cuda == nullptr) return host;
  NcclOptions options;
  options.name = name;
  options.timeout = config.parallel.timeout;
  options.share_gpu = config.device.share_gpu;
  options.deterministic = config.device.deterministic;
  options.collectives = traffic != Traffic::kMessages;
  options.messages = traffic != Traffic::kCollectives;
  options.high_priority = options.collectives;  // reductions run beside backward and should not wait for its kernels
  return make_nccl_communicator(std::move(host), *cuda, options);
}

std::vector<LibraryVersion> gpu_libraries() {
  std::vector<LibraryVersion> libraries = cuda_libraries();
  libraries.push_back({"NCCL", nccl_built_version(), nccl_version()});
  return libraries;
}

#else

std::unique_ptr<Backend> build_backend(const Config& config, const DeviceChoice& device) {
  return std::make_unique<OnednnBackend>(device.threads, compute_type(config.train.precision));
}

std::string compute_library(const DeviceChoice& /*device*/) { return OnednnBackend::library_description(); }

std::unique_ptr<Communicator> device_communicator(std::unique_ptr<Communicator> host, Backend& /*backend*/,
                                                  const Config& /*config*/, Traffic /*traffic*/,
                                                  const std::string& /*name*/) {
  return host;
}

std::vector<LibraryVersion> gpu_libraries() { return {}; }

#endif

}  // namespace convoy
