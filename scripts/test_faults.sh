#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Injects faults and checks what convoy makes of them (docs/reliability.md). Parts, all by default:
#
#   calls   every system call of train, pack and launch on their files fails once
#   power   the power is cut after every write, sync and rename
#   hosts   partitions, frozen supervisors, clock steps, killed daemons (partly as root)
#   kills   kill -9 of ranks, mpirun and launch at random moments; KILLS=N (50), SEED=S (1)
#   tsan    ThreadSanitizer over the tests of io and parallel, in a build of its own
#
#   scripts/test_faults.sh [PART]...
#
# Ends with exit code 0 when every part has passed; the lines of each part come as it runs. JOBS=N cases at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

python=/usr/bin/python3
jobs=${JOBS:-$(nproc)}
folder=${FAULTS_FOLDER:-build/faults}
parts=("$@")
if ((${#parts[@]} == 0)); then parts=(calls power hosts kills tsan); fi

calls() { "$python" tests/faults/io_faults.py --jobs "$jobs" --folder "$folder/calls"; }

power() { "$python" tests/faults/power_loss.py --jobs "$jobs" --folder "$folder/power"; }

hosts() {
  local tests=(tests/faults/test_partition.py tests/faults/test_frozen.py tests/faults/test_clock_steps.py)
  "$python" -m pytest -c tests/pytest.ini "${tests[@]}" -v --basetemp="$folder/hosts"
}

kills() { "$python" scripts/soak.py --kills "${KILLS:-50}" --seed "${SEED:-1}" --folder "$folder/kills"; }

tsan() {
  cmake --preset tsan
  cmake --build --preset tsan --parallel "$(build_jobs)" --target test_io test_parallel test_parallel_mpi
  TSAN_OPTIONS="suppressions=$PWD/tests/faults/tsan.supp" OMP_NUM_THREADS=2 \
    ctest --preset tsan -R '^(test_io|test_parallel|parallel_mpi_[12])$'
}

for part in "${parts[@]}"; do
  case "$part" in
    calls | power | hosts | kills | tsan) ;;
    *)
      echo "test_faults.sh: $part: no such part (calls, power, hosts, kills, tsan)" >&2
      exit 2
      ;;
  esac
done
mkdir -p "$folder"
if [[ " ${parts[*]} " != " tsan " ]]; then build release; fi
allow_mpi_as_root
failed=()
for part in "${parts[@]}"; do
  start=$SECONDS
  "$part" || failed+=("$part")
  echo "test_faults: $part: $((SECONDS - start)) s"
done
if ((${#failed[@]} > 0)); then
  echo "test_faults: failed: ${failed[*]}"
  exit 1
fi
echo "test_faults: all passed: ${parts[*]}"
