// SPDX-License-Identifier: Apache-2.0
//
// Construction of the CUDA backend: whether the GPU is there and can do what is asked of it, and what runs.
#include "layers/backend/cuda/cuda_backend.h"

#include "layers/backend/cuda/cuda_check.h"
#include "layers/backend/cuda/cuda_state.h"
#include "layers/backend/cuda/plan_file.h"
#include "layers/backend/cuda/uploads.h"

namespace convoy {

namespace {

std::string gpu_name(int device) {
  cudaDeviceProp properties{};
  CONVOY_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

std::string runtime_version() {
  int version = 0;
  CONVOY_CUDA_CHECK(cudaRuntimeGetVersion(&version));
  return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}", version / 10000, version % 10000 / 100);
}

std::string cublas_version() {
  const std::size_t version = cublasLtGetVersion();
  return fmt::format("cuBLAS {}.{}", version / 10000, version % 10000 / 100);
}

// bfloat16 and TF32 are in all GPUs of compute capability 8 and newer, the rest in every GPU that CUDA still supports.
const CudaOptions& checked(const CudaOptions& options) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    fail_usage("device.kind: cuda needs a GPU, and there is none: {} (set device.kind = \"cpu\"; see convoy doctor)",
               status != cudaSuccess ? cudaGetErrorString(status) : "no CUDA device is visible");
  }
  if (options.device < 0 || options.device >= count) {
    fail_usage("device.kind: GPU {} is asked for, and {} visible to this process (start as many ranks as GPUs)",
               options.device, count == 1 ? "only GPU 0 is" : fmt::format("only GPUs 0 to {} are", count - 1));
  }
  if (options.tf32 || options.compute == DType::kBF16) {
    int major = 0, minor = 0;
    CONVOY_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, options.device));
    CONVOY_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, options.device));
    if (major < 8) {
      fail_usage(
          "train.precision: {} needs a GPU of compute capability 8.0 or more, and GPU {} ({}) has {}.{} (set "
          "train.precision = \"fp32\" or \"fp16\")",
          options.tf32 ? "tf32" : "bf16", options.device, gpu_name(options.device), major, minor);
    }
  }
  return options;
}

}  // namespace

CudaBackend::CudaBackend(const CudaOptions& options)
    : options_(checked(options)),
      rules_{options.compute, options.deterministic},
      state_(std::make_unique<CudaState>(options.device, options.compute, options.tf32, options.deterministic)) {
  state_->time_plans = options.time_plans && !options.deterministic;
  if (options.plan_folder.empty() || !state_->time_plans) return;
  const std::string name = plan_file_name(gpu_name(options.device), state_->multiprocessors, cudnnGetVersion());
  state_->plan_file = fmt::format("{}/{}", options.plan_folder, name);
}

CudaBackend::~CudaBackend() {
  try {
    state_->synchronize();  // copies may still be reading host memory that goes now
  } catch (...) {           // whoever needed the work has been told
  }
}

std::string CudaBackend::library_description() {
  return fmt::format("{}, {}, {}", runtime_version(), cudnn_version(), cublas_version());
}

std::string CudaBackend::description() const {
  return fmt::format("cuda, {} (GPU {}), {}, {}, {}{}{}", gpu_name(options_.device), options_.device, runtime_version(),
                     cudnn_version(), dtype_name(options_.compute), options_.tf32 ? " with TF32 products" : "",
                     options_.deterministic ? ", deterministic" : "");
}

}  // namespace convoy
