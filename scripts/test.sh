#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds, runs every test. `--asan` does the same with AddressSanitizer and UBSan in a build
# of its own. Other arguments go to ctest, e.g. `scripts/test.sh -R resume`. ctest's summary comes last.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

preset=release
if [[ "${1:-}" == --asan ]]; then
  preset=asan
  shift
  export UBSAN_OPTIONS="print_stacktrace=1"
  # oneDNN 2.6 reads one element too many of a table while it makes a 3x3 kernel for matrix units (AMX). Elsewhere the
  # word is there and ignored; the sanitizer's memory may end before it.
  export ONEDNN_MAX_CPU_ISA="${ONEDNN_MAX_CPU_ISA:-AVX512_CORE_BF16}"
fi

scripts/install_deps.sh --tests
build "$preset"
allow_mpi_as_root
# Tests on several ranks tell ctest how many cores they take.
exec ctest --preset "$preset" --parallel "${CONVOY_TEST_JOBS:-$(nproc)}" "$@"
