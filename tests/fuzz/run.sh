#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the fuzz targets (preset fuzz: clang, libFuzzer) and runs each for so many seconds (default 300), one after the
# other: tests/fuzz/run.sh [SECONDS] [NAME...]. A finding ends the run of its target and is left in
# build-fuzz/findings/NAME; whether there were any is the exit code.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-300}
shift || true
names=("$@")
if ((${#names[@]} == 0)); then
  for file in tests/fuzz/fuzz_*.cpp; do
    name=$(basename "$file" .cpp)
    names+=("${name#fuzz_}")
  done
fi
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
# A small quarantine: each child (io/files/trial.h) copies the page tables.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=4 UBSAN_OPTIONS=print_stacktrace=1
found=0
for name in "${names[@]}"; do
  findings=build-fuzz/findings/$name grown=build-fuzz/grown/$name
  mkdir -p "$findings" "$grown"
  options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -malloc_limit_mb=1000 -max_len=32768
    -artifact_prefix="$findings/" -print_final_stats=1)
  case "$name" in
    # Several children with their seconds (io/files/trial.h); what HDF5 asks malloc for, and never touches, harms nobody.
    hdf5_data | checkpoint) options+=(-timeout=300 -report_slow_units=300 -malloc_limit_mb=1000000) ;;
  esac
  if [[ -e tests/fuzz/$name.dict ]]; then options+=(-dict="tests/fuzz/$name.dict"); fi
  echo "== $name, $seconds s"
  "build-fuzz/tests/fuzz/fuzz_$name" "${options[@]}" "$grown" "tests/fuzz/corpus/$name" >"build-fuzz/$name.log" 2>&1 ||
    echo "   it ended with exit code $?: build-fuzz/$name.log"
  tail -n 3 "build-fuzz/$name.log"
  count=$(find "$findings" -type f | wc -l)
  echo "   findings: $count"
  ((count == 0)) || found=1
done
exit "$found"
