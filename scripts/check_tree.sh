#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Rules that no compiler checks: the modules and their order (check_modules.py), the code quoted in docs/tour.md
# (check_tour.py), one SPDX line at the top of each file, no file longer than 400 lines, no leftovers, no other folders.
# Prints every breach, then fails. --map prints the modules.
set -uo pipefail
cd "$(dirname "$0")/.."
if [[ "${1:-}" == --map ]]; then exec scripts/check_modules.py --map; fi
breaches=0

report() {  # report RULE TEXT-WITH-THE-BREACHES
  [[ -z "$2" ]] && return
  echo "check_tree: $1:"
  sed 's/^/  /' <<<"$2"
  breaches=1
}

report 'modules' "$(scripts/check_modules.py)"
report 'code quoted in docs/tour.md' "$(scripts/check_tour.py)"

mapfile -t sources < <(find app layers parallel io tests scripts slurm packaging .ci -type f \
  \( -name '*.cpp' -o -name '*.h' -o -name '*.py' -o -name '*.sh' -o -name '*.sbatch' -o -name 'CMakeLists.txt' -o -path .ci/run \) \
  -not -path '*/__pycache__/*' 2>/dev/null | sort)
code=()
for file in "${sources[@]}"; do [[ "$file" == */CMakeLists.txt ]] || code+=("$file"); done

report 'the first line (or the one after #!) is SPDX-License-Identifier: Apache-2.0' \
  "$(awk 'FNR == 1 {want = /^#!/ ? 2 : 1} FNR == want && !/SPDX-License-Identifier: Apache-2.0/ {print FILENAME}' "${code[@]}")"
report 'files longer than 400 lines' "$(awk 'FNR == 401 {print FILENAME}' "${sources[@]}")"
report 'leftovers' "$(grep -nwE 'TO[D]O|FIX[M]E|XX[X]|HAC[K]' "${sources[@]}" CMakeLists.txt ./*.md docs/*.md 2>/dev/null)"

if tracked=$(git ls-files 2>/dev/null); then
  report 'folders beside app, layers, parallel, io, scripts, slurm, tests, docs and packaging' \
    "$(sed -nE 's|^([^.][^/]*)/.*|\1|p' <<<"$tracked" | sort -u | grep -vxE 'app|layers|parallel|io|scripts|slurm|tests|docs|packaging')"
fi

((breaches)) || echo "check_tree: ${#sources[@]} files"
exit "$breaches"
