#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Times training steps of convoy and of PyTorch on the CPU, in turn, on the same cores; scripts/bench_cpu.py does it and
# `--help` lists its options. Without --python PYTHON this makes a virtual environment in build/torch-venv with the
# newest PyTorch that pip gives (several GB; PIP_INDEX_URL and pip's other settings count; remove the folder to renew
# it); where pip gives none it takes the system's. With --busy as the first option it is scripts/bench_busy.py: both
# beside other programs that want the same cores.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

driver=""
for candidate in "${PYTHON:-}" /usr/bin/python3 python3; do
  if [[ -n "$candidate" ]] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    driver=$candidate
    break
  fi
done
[[ -n "$driver" ]] || { echo "bench_cpu: there is no Python 3.9 or newer here (apt-get install python3 python3-matplotlib)" >&2; exit 2; }

has_torch() { [[ -x "$1" ]] && "$1" -c 'import torch' 2>/dev/null; }

# Prints the Python that has torch; makes the environment if need be.
torch_python() {
  local folder=$root/build/torch-venv system
  if has_torch "$folder/bin/python"; then
    echo "$folder/bin/python"
    return
  fi
  echo "bench_cpu: installing PyTorch into build/torch-venv" >&2
  if "$driver" -m venv "$folder" >&2 && "$folder/bin/python" -m pip install --disable-pip-version-check -q torch numpy >&2 &&
    has_torch "$folder/bin/python"; then
    echo "$folder/bin/python"
    return
  fi
  for system in "$driver" /usr/bin/python3; do
    system=$(command -v "$system" || true)
    if has_torch "$system"; then
      echo "bench_cpu: pip gives no PyTorch here: taking the one of $system" >&2
      echo "$system"
      return
    fi
  done
  echo "bench_cpu: there is no PyTorch: pip gives none (Debian: apt-get install python3-venv), and the system has none (python3-torch)" >&2
  return 1
}

script=bench_cpu.py
if [[ "${1:-}" == --busy ]]; then
  script=bench_busy.py
  shift
fi
arguments=("$@")
named=0
for argument in "$@"; do
  case "$argument" in
    -h | --help | --python | --python=*) named=1 ;;
  esac
done
if ((!named)); then
  # Wrong arguments are told before anything is installed.
  "$driver" "$root/scripts/$script" --check --python - "$@"
  python=$(torch_python) || exit 2
  arguments+=(--python "$python")
fi
exec "$driver" "$root/scripts/$script" "${arguments[@]}"
