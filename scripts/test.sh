#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds, and runs the tests without the label long: unit tests, parallel tests, and a part of
# the tests of the program, at most 10 minutes on two cores. `--all` runs every test. `--asan` does the same with
# AddressSanitizer and UBSan in a build of its own. Other arguments go to ctest and choose among all tests, e.g.
# `scripts/test.sh -R resume`. ctest prints the time of each test; its summary comes last.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

preset=release
all=0
while [[ "${1:-}" == --asan || "${1:-}" == --all ]]; do
  if [[ "$1" == --all ]]; then all=1; else preset=asan; fi
  shift
done
if [[ "$preset" == asan ]]; then
  export UBSAN_OPTIONS="print_stacktrace=1"
  # oneDNN 2.6 reads one element too many of a table while it makes a 3x3 kernel for matrix units (AMX). Elsewhere the
  # word is there and ignored; the sanitizer's memory may end before it.
  export ONEDNN_MAX_CPU_ISA="${ONEDNN_MAX_CPU_ISA:-AVX512_CORE_BF16}"
fi
if ((!all && $# == 0)); then set -- --label-exclude '^long$'; fi

scripts/install_deps.sh --tests
build "$preset"
allow_mpi_as_root
# Tests on several ranks tell ctest how many cores they take.
exec ctest --preset "$preset" --parallel "${CONVOY_TEST_JOBS:-$(nproc)}" "$@"
