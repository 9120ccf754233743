#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles and links the CUDA backend for one GPU architecture (CONVOY_CUDA_ARCH, 90) and runs its tests: cuDNN's graphs,
# and what the program says without a GPU; those that want one skip. Other arguments go to ctest. On a machine without
# the CUDA toolkit it says so and ends well.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
if [[ ! -x "$nvcc" ]]; then
  echo "test_cuda: skipped, there is no CUDA toolkit (nvcc) on this machine"
  exit 0
fi
scripts/install_deps.sh --cuda
cmake --preset cuda -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES="${CONVOY_CUDA_ARCH:-90}"
cmake --build --preset cuda --parallel "$(build_jobs)" --target convoy test_cuda test_cuda_graphs test_nccl
allow_mpi_as_root
exec ctest --preset cuda -L gpu "$@"
