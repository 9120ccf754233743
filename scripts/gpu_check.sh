#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts scripts/gpu_check.py, which checks convoy on a machine with a GPU (--help), with the Python that PYTHON names or
# the first that is new enough.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
for candidate in "${PYTHON:-}" python3 /usr/bin/python3; do
  if [[ -n "$candidate" ]] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    exec "$candidate" "$root/scripts/gpu_check.py" "$@"
  fi
done
echo "gpu_check: there is no Python 3.9 or newer here (name one with PYTHON=FILE)" >&2
exit 2
