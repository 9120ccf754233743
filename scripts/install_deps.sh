#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what convoy needs on Debian 12 and 13, and only what is missing: when all is there
# it asks dpkg once and ends. With --tests also what the tests and the lint checks need. With --cuda also the headers of
# cuDNN's frontend, which no system has; CUDA itself comes from NVIDIA and is only looked for. Other systems: install
# the packages below under their names there; nothing else here depends on apt.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build ccache git openmpi-bin libopenmpi-dev libhdf5-dev zlib1g-dev libjpeg-dev libpng-dev libdnnl-dev libfmt-dev
          nlohmann-json3-dev libtomlplusplus-dev libcli11-dev doctest-dev)
# A test that lacks one of these says so and is skipped; the rest still runs.
test_packages=(python3 python3-pip python3-pytest python3-numpy python3-h5py python3-matplotlib python3-torch python3-torchvision clang-format clang-tidy
               slurm-wlm munge)
test_packages+=(man-db zsh fish)  # man pages and completion
python_folder=build/python
# Headers alone; CMake looks for them in this folder, too.
frontend_folder=build/cudnn-frontend

# CONVOY_MPI=mpich: MPICH in place of Open MPI.
case "${CONVOY_MPI:-openmpi}" in
  openmpi) ;;
  mpich)
    packages=("${packages[@]/#openmpi-bin/mpich}")
    packages=("${packages[@]/#libopenmpi-dev/libmpich-dev}")
    ;;
  *) echo "install_deps: CONVOY_MPI is \"$CONVOY_MPI\" (openmpi or mpich)" >&2; exit 2 ;;
esac

with_tests=0 with_cuda=0
usage="usage: scripts/install_deps.sh [--tests] [--cuda]"
for argument in "$@"; do
  case "$argument" in
    --tests) with_tests=1 ;;
    --cuda) with_cuda=1 ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) echo "install_deps: unknown argument '$argument' ($usage)" >&2; exit 2 ;;
  esac
done

# missing PACKAGE...: those that dpkg does not have.
missing() {
  local have
  have=" $(dpkg-query -W -f='${Package}/${db:Status-Status} ' "$@" 2>/dev/null || true)"
  local package
  for package in "$@"; do
    [[ "$have" == *" $package/installed "* ]] || echo "$package"
  done
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  elif command -v sudo >/dev/null; then
    sudo DEBIAN_FRONTEND=noninteractive "$@"
  else
    echo "install_deps: not root and no sudo; as root, run: $*" >&2
    exit 1
  fi
}

available() { [[ -n "$(apt-cache madison "$1" 2>/dev/null)" ]]; }

apt_install() {  # apt_install required|optional PACKAGE...
  local kind=$1 package
  shift
  local found=() absent=()
  for package in "$@"; do
    if available "$package"; then found+=("$package"); else absent+=("$package"); fi
  done
  if ((${#absent[@]})); then
    echo "install_deps: apt has no package ${absent[*]} here" >&2
    if [[ "$kind" == required ]]; then
      echo "install_deps: convoy cannot be built without it" >&2
      exit 1
    fi
    echo "install_deps: the tests that need it will be skipped" >&2
  fi
  if ((${#found[@]})); then
    echo "install_deps: installing ${found[*]}"
    as_root apt-get install -y -q --no-install-recommends "${found[@]}"
  fi
}

# pip_install FILE FOLDER: wheels of scripts/requirements/FILE, whose hashes must be those in it.
pip_install() {
  /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: \
    --require-hashes --requirement "scripts/requirements/$1" --target "$2"
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_deps: this system has no apt; install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

mapfile -t need < <(missing "${packages[@]}")
need_tests=()
if ((with_tests)); then mapfile -t need_tests < <(missing "${test_packages[@]}"); fi
if ((${#need[@]} + ${#need_tests[@]})); then
  as_root apt-get update -q
  if ((${#need[@]})); then apt_install required "${need[@]}"; fi
  if ((${#need_tests[@]})); then apt_install optional "${need_tests[@]}"; fi
fi

if ((with_tests)); then
  wanted=$(cat scripts/requirements/tests.txt scripts/requirements/onnx.txt | sha256sum)
  if [[ "$(cat "$python_folder/.installed" 2>/dev/null)" != "$wanted" ]]; then
    echo "install_deps: installing scripts/requirements/tests.txt and onnx.txt into $python_folder"
    rm -rf "$python_folder"
    complete=1
    if ! pip_install tests.txt "$python_folder"; then
      complete=0
      echo "install_deps: pip could not install them; the test that reads TensorBoard files will be skipped" >&2
    fi
    if ! pip_install onnx.txt "$python_folder"; then
      complete=0
      echo "install_deps: pip could not install ONNX; the test of scripts/export_onnx.py will be skipped" >&2
    fi
    if ((complete)); then echo "$wanted" >"$python_folder/.installed"; fi
  fi
fi

if ((with_cuda)); then
  cuda=${CUDA_HOME:-/usr/local/cuda}
  if ! command -v nvcc >/dev/null && [[ ! -x "$cuda/bin/nvcc" ]]; then
    echo "install_deps: there is no CUDA toolkit here (no nvcc on PATH or in $cuda/bin): from NVIDIA's package repository" \
      "(https://developer.nvidia.com/cuda-downloads) install cuda-toolkit-13-0, libcudnn9-dev-cuda-13 and libnccl-dev;" \
      "one that lies elsewhere is named by CUDA_HOME" >&2
    exit 1
  fi
  has_frontend() {  # where CMake looks: here, beside CUDA, among the packages of a Python
    local folder python
    for folder in "$frontend_folder" "$cuda" /usr; do
      if [[ -e "$folder/include/cudnn_frontend.h" ]]; then return 0; fi
    done
    for python in python3 /usr/bin/python3; do
      "$python" -c 'import os, sys
sys.exit(not any(os.path.exists(os.path.join(path, "include", "cudnn_frontend.h")) for path in sys.path))' \
        2>/dev/null && return 0
    done
    return 1
  }
  if ! has_frontend && available libcudnn-frontend-dev; then apt_install required libcudnn-frontend-dev; fi
  if ! has_frontend; then
    echo "install_deps: installing scripts/requirements/cuda.txt into $frontend_folder"
    mapfile -t need < <(missing python3 python3-pip)
    if ((${#need[@]})); then apt_install required "${need[@]}"; fi
    if ! pip_install cuda.txt "$frontend_folder"; then
      echo "install_deps: pip could not install it: get https://github.com/NVIDIA/cudnn-frontend and name its folder" \
        "include with cmake -DCUDNN_FRONTEND_INCLUDE_DIR=DIR" >&2
      exit 1
    fi
  fi
fi
