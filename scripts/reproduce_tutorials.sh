#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the experiments of PyTorch's tutorials on data, model and pipeline parallelism with convoy, and draws them into
# docs/results/tutorials. Finds a Python, then leaves the rest to scripts/tutorials.py (`--help` lists the options).
set -euo pipefail
cd "$(dirname "$0")/.."

for python in "${PYTHON:-}" /usr/bin/python3 python3; do
  if [[ -n "$python" ]] && command -v "$python" >/dev/null; then
    exec "$python" scripts/tutorials.py "$@"
  fi
done
echo "reproduce_tutorials: there is no Python 3 (apt-get install python3 python3-matplotlib)" >&2
exit 1
