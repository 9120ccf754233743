#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails when clang-format would change a C++ source. `--fix` changes them instead. Another version than 14 formats
# differently, so it only skips (exit 77).
set -euo pipefail
cd "$(dirname "$0")/.."

formatter=""
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q 'version 14\.'; then
    formatter=$candidate
    break
  fi
done
if [[ -z "$formatter" ]]; then
  echo "check_format: skipped: no clang-format 14 here (Debian 12: apt install clang-format)"
  exit 77
fi

mapfile -t sources < <(find app layers parallel io tests \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) | sort)
if [[ "${1:-}" == --fix ]]; then
  "$formatter" -i "${sources[@]}"
else
  "$formatter" --dry-run --Werror "${sources[@]}"
fi
echo "check_format: ${#sources[@]} files"
