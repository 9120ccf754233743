// SPDX-License-Identifier: Apache-2.0
//
// What the tests of NCCL share: the GPU of this rank, NCCL communicators over the ranks of the program, tensors on the
// GPU. Every rank runs every test case in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/backend/cuda/cuda_backend.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "tests/layers/backend/cuda/gpu.h"
#include "tests/parallel/mpi_fixture.h"

namespace convoy {

/// Of this rank, in bfloat16; defined by the main program.
CudaBackend& test_backend();
/// The GPU of this rank.
int test_device();

/// On the backend's GPU, whatever other ranks are on it, over the ranks of `host`.
inline std::unique_ptr<Communicator> nccl_communicator(std::unique_ptr<Communicator> host, CudaBackend& backend,
                                                       const std::string& name, double timeout = kTestTimeout) {
  NcclOptions options;
  options.name = name;
  options.timeout = timeout;
  options.share_gpu = true;
  return make_nccl_communicator(std::move(host), backend, options);
}

/// Over all ranks, on test_backend().
inline std::unique_ptr<Communicator> nccl_communicator(const char* name, double timeout = kTestTimeout) {
  return nccl_communicator(test_world().ranks().communicator(timeout, name), test_backend(), name, timeout);
}

template <class T>
Tensor on_gpu(const std::vector<T>& values, DType dtype) {
  Tensor tensor = test_backend().tensor({static_cast<std::int64_t>(values.size())}, dtype);
  test_backend().copy_from_host(values.data(), tensor);
  return tensor;
}

template <class T>
std::vector<T> from_gpu(const Tensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.size()));
  test_backend().copy_to_host(tensor, values.data());
  return values;
}

}  // namespace convoy
