# SPDX-License-Identifier: Apache-2.0
"""The files of slurm/ as texts: bash parses them, they have the options that a job needs, and no fixed place.

Needs no Slurm. shellcheck checks them too if it is installed.
Usage: test_slurm_scripts.py FOLDER
"""
import glob
import os
import re
import shutil
import subprocess
import sys

EXPECTED = {"train", "train_mpirun", "elastic", "array_sweep", "container"}
OPTIONS = ("--job-name=", "--output=", "--open-mode=append", "--requeue", "--signal=")

failures = []


def check(holds, text):
    if not holds:
        failures.append(text)
        print("FAILED: " + text)


paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.sbatch")))
check({os.path.basename(path)[:-len(".sbatch")] for path in paths} >= EXPECTED, f"files: {paths}")
for path in paths:
    with open(path) as file:
        text = file.read()
    result = subprocess.run(["bash", "-n", path], capture_output=True, text=True, timeout=60)
    check(result.returncode == 0, result.stderr)
    for action in ("newest-checkpoint", "end"):
        check(text.count(f" slurm-job {action} ") == 1, f"{path}: not one call of slurm-job {action}")
    for option in OPTIONS:
        check(text.count("\n#SBATCH " + option) == 1, f"{path}: not one #SBATCH {option}")
    # sbatch reads its options only before the first command.
    check("#SBATCH" not in re.split(r"^[^#\n]", text, maxsplit=1, flags=re.M)[1], f"{path}: an option below a command")
    check(not re.search(r"--(partition|account|qos|nodelist|constraint)=|\b(eth|ib|mlx)\d", text), f"{path}: a fixed place")

if shutil.which("shellcheck"):
    result = subprocess.run(["shellcheck", *paths], capture_output=True, text=True, timeout=120)
    check(result.returncode == 0, result.stdout)
else:
    print("no shellcheck here: left out")
print(f"{len(paths)} files")
sys.exit(1 if failures else 0)
