# SPDX-License-Identifier: Apache-2.0
"""The files of slurm/ as texts: bash parses them, they have the options that a job needs, and no fixed place.

Needs no Slurm. shellcheck checks them too if it is installed.
"""
import glob
import os
import re
import shutil
import subprocess

import pytest

from programs import CONVOY, ROOT

EXPECTED = {"train", "train_mpirun", "elastic", "array_sweep", "container"}
OPTIONS = ("--job-name=", "--output=", "--open-mode=append", "--requeue", "--signal=")
PATHS = sorted(glob.glob(os.path.join(ROOT, "slurm", "*.sbatch")))


@pytest.fixture(params=PATHS, ids=os.path.basename)
def path(request):
    return request.param


@pytest.fixture
def text(path):
    with open(path) as file:
        return file.read()


def test_files_are_there():
    assert {os.path.basename(path)[:-len(".sbatch")] for path in PATHS} >= EXPECTED


def test_bash_parses(path):
    result = subprocess.run(["bash", "-n", path], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("action", ("newest-checkpoint", "end"))
def test_calls_each_action_once(text, action):
    assert text.count(f" slurm-job {action} ") == 1


@pytest.mark.parametrize("option", OPTIONS)
def test_has_each_option_once(text, option):
    assert text.count("\n#SBATCH " + option) == 1


def test_no_option_below_a_command(text):
    """sbatch reads its options only before the first command."""
    assert "#SBATCH" not in re.split(r"^[^#\n]", text, maxsplit=1, flags=re.M)[1]


def active(text):
    """Without the lines that sbatch and bash pass over."""
    return re.sub(r"^(##|# module ).*$", "", text, flags=re.M)


def test_names_no_fixed_place(text):
    assert not re.search(r"--(partition|account|qos|nodelist|constraint)=|\b(eth|ib|mlx)\d", active(text))


def test_has_a_marked_place_for_the_site(text):
    place = text.split("# ---- your site: account, partition, time, memory, modules\n")[1].split("# ----\n")[0]
    for option in ("##SBATCH --account=", "##SBATCH --partition=", "##SBATCH --time=", "##SBATCH --mem-per-cpu=", "# module load "):
        assert option in place
    assert place not in active(text), "it is for the user to uncomment"


@pytest.mark.parametrize("dir_key, expected", (
    ("", []), ('dir = "/disk/checkpoints"', ["checkpoint.dir=/disk/checkpoints/run-lr-0.05"])))
def test_each_run_of_a_sweep_has_a_folder_of_checkpoints(tmp_path, dir_key, expected):
    """checkpoint.dir would be the same for all of them."""
    (tmp_path / "run.toml").write_text(
        "model.name = \"toy\"\ndata = {kind = \"synthetic\", features = 10, targets = 5}\n[train]\nsteps = 5\n"
        "global_batch_size = 20\nloss = \"mse\"\n[checkpoint]\n" + dir_key + "\n")
    result = subprocess.run([CONVOY, "slurm-job", "sweep-point", "1", "optimizer.lr=0.1,0.05", "run.toml"],
                            capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["run-lr-0.05", "optimizer.lr=0.05", *expected]


def sweep_point(folder, task, sweep):
    (folder / "run.toml").write_text("model.name = \"toy\"\ndata = {kind = \"synthetic\", features = 10, targets = 5}\n"
                                     "[train]\nsteps = 5\nglobal_batch_size = 20\nloss = \"mse\"\n")
    return subprocess.run([CONVOY, "slurm-job", "sweep-point", str(task), sweep, "run.toml"], capture_output=True,
                          text=True, timeout=60, cwd=folder)


@pytest.mark.parametrize("values", ("a/b,a_b", "a,b,'a'", "1,1"))
def test_runs_of_a_sweep_have_names_of_their_own(tmp_path, values):
    for task in (0, 1):
        result = sweep_point(tmp_path, task, f"data.train={values}")
        assert result.returncode == 2 and not result.stdout
        assert "data.train: the runs of " in result.stderr and "would have one name" in result.stderr


def test_sweep_of_keys_with_one_last_part(tmp_path):
    names = [sweep_point(tmp_path, task, "model.name=toy,mlp; optimizer.name=sgd; run.seed=7").stdout.splitlines()[0]
             for task in (0, 1)]
    assert names == [f"run-model.name-{model}-optimizer.name-sgd-seed-7" for model in ("toy", "mlp")]


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="no shellcheck")
def test_shellcheck():
    result = subprocess.run(["shellcheck", *PATHS], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout
