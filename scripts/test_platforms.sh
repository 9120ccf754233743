#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs both README commands, and every test, on each system that convoy supports: Debian 12 and 13 with GCC and with clang,
# Open MPI and MPICH, each made bare in a folder by debootstrap; and the unit tests for 64-bit Arm (test_aarch64.sh). For
# before a release: half an hour or more a system on two cores. FOLDER keeps the systems and their logs (default: platforms
# in CONVOY_PLATFORMS or ~/.cache/convoy); a system that is there is used again. Needs root, debootstrap and 10 GB each.
# Usage: test_platforms.sh [--folder FOLDER] [--quick] [SYSTEM...]     --quick: without the tests of the label long
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/bare_debian.sh

systems=(debian12-gcc debian12-clang debian12-mpich debian13-gcc debian13-clang aarch64)
usage="usage: scripts/test_platforms.sh [--folder FOLDER] [--quick] [${systems[*]}]"
folder=$(platforms_folder)
tests=(scripts/test.sh --all --label-exclude '^lint$')
wanted=()
while (($#)); do
  case "$1" in
    -h | --help) echo "$usage"; exit 0 ;;
    --folder) folder=${2:?test_platforms: --folder needs a folder}; shift 2 ;;
    --quick) tests=(scripts/test.sh --label-exclude '^(lint|long)$'); shift ;;
    *)
      if [[ " ${systems[*]} " != *" $1 "* ]]; then echo "test_platforms: there is no system '$1' ($usage)" >&2; exit 2; fi
      wanted+=("$1")
      shift
      ;;
  esac
done
if ((${#wanted[@]})); then systems=("${wanted[@]}"); fi

need_debootstrap
mkdir -p "$folder"

# on_debian NAME: both README commands in a bare system; the committed tree is copied into it.
on_debian() {
  local root=$folder/$1 release=bookworm extra=git
  export CXX=g++ CONVOY_MPI=openmpi
  if [[ "$1" == debian13-* ]]; then release=trixie; fi
  case "$1" in
    debian12-clang) CXX=clang++-16 extra=git,clang-16,libomp-16-dev ;;  # its clang is 14, which has no std::source_location
    *-clang) CXX=clang++ extra=git,clang,libomp-dev ;;
    *-mpich) CONVOY_MPI=mpich ;;
  esac
  make_bare_debian "$root" "$extra" "$release" || return
  mkdir -p "$root/root/convoy"
  git archive HEAD | tar -x -C "$root/root/convoy"
  in_bare_debian "$root" scripts/quickstart.sh && in_bare_debian "$root" "${tests[@]}"
}

{  # read as a whole: the script may change while it runs
  results=() failed=0
  for system in "${systems[@]}"; do
    log=$folder/$system.log
    echo "test_platforms: $system (log: $log)"
    start=$SECONDS
    if [[ "$system" == aarch64 ]]; then
      scripts/test_aarch64.sh "$folder/arm64" >"$log" 2>&1 && code=0 || code=$?
    else
      on_debian "$system" >"$log" 2>&1 && code=0 || code=$?
    fi
    summary=$(grep -E '^[0-9]+% tests passed' "$log" | tail -n 1 || true)
    results+=("$(printf '%-16s exit code %-4s %5s s  %s' "$system" "$code" "$((SECONDS - start))" "${summary:-$(tail -n 1 "$log")}")")
    if ((code != 0)); then failed=1; fi
  done
  printf '%s\n' "${results[@]}"
  exit "$failed"
}
