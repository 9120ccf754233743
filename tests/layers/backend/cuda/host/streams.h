// SPDX-License-Identifier: Apache-2.0
//
// Work on a stream of the imitated device. It is done at once.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace convoy::on_host {

inline void enqueue(cudaStream_t /*stream*/, const std::function<void()>& work) { work(); }

}  // namespace convoy::on_host
