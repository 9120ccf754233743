#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Rehearses the check of a GPU machine: packs build-cuda (scripts/bundle.sh), unpacks it in a bare Debian 13 without
# network whose only CUDA libraries are those of PyTorch's Python packages, and runs there what needs no GPU: doctor,
# cuDNN's graphs (with the toolkit's stub of the driver) and gpu_check.sh --rehearse. FOLDER keeps the system (default:
# bundle in CONVOY_PLATFORMS or ~/.cache/convoy). Needs root, debootstrap, ip, pip and 4 GB; downloads 1.3 GB once.
# Usage: test_bundle.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/bare_debian.sh

case "${1:-}" in
  -h | --help) sed -n '4,/^set -/{/^# \{0,1\}/s///p}' "$0"; exit 0 ;;
esac
root=${1:-$(platforms_folder)/bundle}
need_debootstrap
[[ -x build-cuda/app/convoy ]] || skip "there is no build-cuda/app/convoy (scripts/test_cuda.sh builds it)"

mkdir -p "$(dirname "$root")"
make_bare_debian "$root" python3 trixie
packages=$root/usr/lib/python3/dist-packages
if [[ ! -e "$packages/nvidia/cudnn" ]]; then
  python3 -m pip install --no-deps --target "$packages" nvidia-cudnn-cu13 nvidia-cublas nvidia-nccl-cu13 nvidia-cuda-nvrtc
fi

bundle=$root/root/convoy-bundle.tar.xz
scripts/bundle.sh --out "$bundle"
rm -rf "$root/root/convoy-bundle" "$root/root/stub" "$root/root/gpu-check"
tar -C "$root/root" --no-same-owner -xf "$bundle"
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
stub=$(dirname "$nvcc")/../lib64/stubs/libcuda.so
if [[ -e "$stub" ]]; then
  mkdir "$root/root/stub"
  cp "$stub" "$root/root/stub/libcuda.so.1"
fi

# No network but the loopback interface, which MPI wants.
export -f in_bare_debian
unshare --net bash -c 'ip link set lo up && in_bare_debian "$@"' bash "$root" bash -euo pipefail -c '
  cd /root/convoy-bundle
  bin/convoy doctor
  LD_LIBRARY_PATH=/root/stub tests/run/test_cuda_graphs >/root/graphs.txt || (($? == 77)) || { cat /root/graphs.txt; exit 1; }
  tail -n 3 /root/graphs.txt
  if scripts/gpu_check.sh --part 1; then exit 1; fi  # without a GPU it says so
  scripts/gpu_check.sh --rehearse --out /root/gpu-check'
echo "test_bundle: passed"
