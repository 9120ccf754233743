#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks convoy on a machine with a GPU: one command, a short table last, 1 as exit code when a part failed, 2 without a
# GPU. In a repository it takes build-cuda, in a bundle (docs/bundle.md) what is there. The parts, each under 8 minutes:
#   doctor          what convoy finds on this machine
#   tests           every test program, those of several ranks sharing the GPU
#   compare         operation by operation against the CPU
#   quickstart      the digits on the GPU, to 97 % top-1
#   modes_data      data, hybrid and scatter mode against the same runs on the CPU; modes_pipeline, modes_resnet50 likewise
#   speed_bf16      ResNet-50 beside PyTorch, batch 64 to 512; speed_fp16; speed_compile (torch.compile); speed_seed
#                   (128x128, batch 120, float32)
#   sanitizer       test_cuda under compute-sanitizer
# A name without its ending stands for all of a kind (modes, speed).
# Usage: gpu_check.sh [--out DIR] [--only PART,...] [--convoy PROGRAM]; PYTHON names the Python that has torch.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

all=(doctor tests compare quickstart modes_data modes_pipeline modes_resnet50 speed_bf16 speed_fp16 speed_compile
     speed_seed sanitizer)
declare -A limit=([doctor]=60 [quickstart]=240 [modes_resnet50]=240 [speed_seed]=240)  # seconds; else:
usual_limit=460
without_gpu=" doctor tests "

out=gpu-check only="" program=""
usage="usage: scripts/gpu_check.sh [--out DIR] [--only PART,...] [--convoy PROGRAM]"
while (($#)); do
  case "$1" in
    -h | --help) sed -n '4,/^set -/{/^# \{0,1\}/s///p}' "$0"; exit 0 ;;
    --out | --only | --convoy)
      (($# >= 2)) || { echo "gpu_check: $1 needs a value ($usage)" >&2; exit 2; }
      case "$1" in --out) out=$2 ;; --only) only=$2 ;; --convoy) program=$2 ;; esac
      shift 2
      ;;
    *) echo "gpu_check: unknown argument '$1' ($usage)" >&2; exit 2 ;;
  esac
done

parts=()
IFS=, read -ra wanted <<<"${only:-$(IFS=,; echo "${all[*]}")}"
for want in "${wanted[@]}"; do
  before=${#parts[@]}
  for part in "${all[@]}"; do
    if [[ "$part" == "$want" || "$part" == "${want}_"* ]]; then parts+=("$part"); fi
  done
  ((${#parts[@]} > before)) || { echo "gpu_check: --only: there is no part '$want' (${all[*]})" >&2; exit 2; }
done

if [[ -z "$program" ]]; then
  for program in "$root/bin/convoy" "$root/build-cuda/app/convoy"; do
    if [[ -x "$program" ]]; then break; fi
  done
fi
[[ -x "$program" ]] || { echo "gpu_check: there is no program $program: build it (cmake --preset cuda && cmake --build --preset cuda), or name one with --convoy" >&2; exit 2; }

python=""
for candidate in "${PYTHON:-}" python3 /usr/bin/python3; do
  if [[ -n "$candidate" ]] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[[ -n "$python" ]] || { echo "gpu_check: there is no Python 3.9 or newer here (name one with PYTHON=FILE)" >&2; exit 2; }

check=("$python" "$root/scripts/gpu_check.py")
if ! gpus=$("${check[@]}" gpus); then
  for part in "${parts[@]}"; do
    [[ "$without_gpu" == *" $part "* ]] && continue
    echo "gpu_check: $gpus; without one only these parts run: --only doctor,tests" >&2
    exit 2
  done
fi

mkdir -p "$out"
echo "gpu_check: $gpus; results and log in $out"
for part in "${parts[@]}"; do
  echo "== $part"
  seconds=${limit[$part]:-$usual_limit}
  # The part itself ends its commands in time; this is for one that does not.
  timeout --kill-after=15 $((seconds + 15)) "${check[@]}" run "$part" --out "$out" --convoy "$program" \
    --seconds "$seconds" || true
done
"${check[@]}" table "${parts[@]}" --out "$out"
