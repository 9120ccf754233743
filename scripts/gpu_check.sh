#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts scripts/gpu_check.py, which checks convoy on a machine with a GPU (--help), with the Python that PYTHON names, or
# one that has torch, or the first that is new enough.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
for wanted in 'find_spec("torch")' True; do
  for python in "${PYTHON:-}" python3 /usr/bin/python3; do
    if [[ -n "$python" ]] && "$python" -c "import sys; from importlib.util import find_spec
sys.exit(sys.version_info < (3, 9) or not $wanted)" 2>/dev/null; then
      exec "$python" "$root/scripts/gpu_check.py" "$@"
    fi
  done
done
echo "gpu_check: there is no Python 3.9 or newer here (name one with PYTHON=FILE)" >&2
exit 2
