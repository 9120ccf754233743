# SPDX-License-Identifier: Apache-2.0
"""Jobs that are started, well and wrongly: the quickstart on two nodes, a sweep, GPUs, wrong launches, exit codes.

Stands on jobs.py. A wrong launch says what is wrong and how to fix it in two lines, once, and ends with exit code 2.
"""
import json
import os
import stat

import pytest

from jobs import CONVOY, MARKS, MPIRUN, ROOT, Folder, Here, Job, cluster, config, nodes  # noqa: F401

pytestmark = MARKS

NO_PMIX = ("convoy: error: srun started 4 tasks without PMIx, so they cannot find each other\n"
           "  start them with `srun --mpi=pmix ...` or, inside the allocation, with `mpirun ...`\n")
WRONG_MPI = ("convoy: error: the launcher started 2 ranks (PMI_SIZE), but each is alone in its MPI world: the launcher belongs "
             "to another MPI than the {} that convoy was built with\n"
             "  start it with that MPI's own mpirun, or build convoy with the launcher's MPI\n")


def program(folder, name, text):
    """A shell script in the folder, to be started in convoy's place."""
    path = folder.file(name)
    with open(path, "w") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, stat.S_IRWXU)
    return path


def quick(name, **sections):
    return Folder(name, config(train={"steps": 20, "global_batch_size": 32}, **sections))


# ---- jobs that end well

@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    """The folder of a job: two nodes of two ranks train the quickstart. A rank notes its host."""
    folder = Folder(tmp_path_factory.mktemp("quickstart") / "run", {})
    noted = program(folder, "noted.sh", f'[ "$1" = train ] && hostname >> {folder.file("hosts.txt")}\nexec {CONVOY} "$@"\n')
    job = Job(folder, "train.sbatch", os.path.join(ROOT, "app", "configs", "quickstart.toml"), "--set", "train.epochs=2",
              "--set", "run.name=run", options=("--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1"), CONVOY=noted)
    job.ends(restarts=0)
    return folder


def test_quickstart_has_two_ranks_on_each_host(quickstart):
    with open(quickstart.file("hosts.txt")) as file:
        assert sorted(file.read().split()) == ["n1", "n1", "n2", "n2"]


def test_quickstart_has_the_threads_of_its_tasks(quickstart):
    start = quickstart.events("start")
    assert len(start) == 1 and start[0]["ranks"] == 4 and "1 thread" in start[0]["device"]


def test_quickstart_trains(quickstart):
    steps, evaluations = quickstart.events("step"), quickstart.events("eval")
    assert [entry["step"] for entry in steps] == list(range(1, 45))
    assert steps[-1]["loss"] < 0.6 * steps[0]["loss"]
    assert len(evaluations) == 2 and evaluations[-1]["samples"] == 360
    assert [entry["reason"] for entry in quickstart.events("end")] == ["finished"]


def test_one_task():
    """Neither nodes nor tasks: one rank, on all the threads that it is given."""
    folder = quick("one_task", device={"threads": 0})
    Job(folder, "train.sbatch", "run.toml", options=("--cpus-per-task=2",)).ends(restarts=0)
    start = folder.events("start")[0]
    assert start["ranks"] == 1 and "2 threads" in start["device"]


@pytest.mark.parametrize("script", ("train.sbatch", "train_mpirun.sbatch", "elastic.sbatch"))
def test_rank_for_each_gpu(script):
    """Where nobody says how many ranks; these GPUs are numbers in Slurm's books, so the CPU computes."""
    folder = quick("gpus")
    Job(folder, script, "run.toml", options=("--nodes=2", "--gpus-per-node=2")).ends(restarts=0)
    assert [entry["ranks"] for entry in folder.events("start")] == [4]


def test_sweep():
    """Two tasks of an array are two runs with different values of one key; a task without a value says so."""
    folder = quick("sweep")
    job = Job(folder, "array_sweep.sbatch", "run.toml", "--set", "train.steps=10", KEY="optimizer.lr", VALUES="0.05 0.01",
              options=("--array=0-2", "--ntasks=2"))
    states = ("COMPLETED", "FAILED")
    job.wait("the array", lambda: all(Here.cluster.show(f"{job.id}_{task}").get("JobState") in states for task in range(3)), 90)
    seen = [Here.cluster.show(f"{job.id}_{task}") for task in range(3)]
    assert [one["ExitCode"] for one in seen] == ["0:0", "0:0", "2:0"], job.output()
    assert "the sweep has 2 points, numbered from 0: there is no point 2 (submit with --array=0-1)" in job.output()
    assert sorted(os.listdir(folder.file("runs"))) == ["run-lr-0.01", "run-lr-0.05"]
    for value in ("0.05", "0.01"):
        with open(folder.file("runs", "run-lr-" + value, "metrics.jsonl")) as file:
            rates = [entry["lr"] for entry in map(json.loads, file) if entry["event"] == "step"]
        assert rates == [float(value)] * 10


# ---- wrong launches

TRAIN = (CONVOY, "train", "run.toml")
BOTH_RANKS = "for r in 0 1; do PMI_RANK=$r PMI_SIZE=2 MPI_LOCALNRANKS=2 \"$@\" & done; wait $!; c=$?; wait; exit $c"


def refused(message, *command):
    folder = quick("wrong")
    result = Here.cluster.run(*command, cwd=folder.path)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("convoy: error:") == 1 and message in result.stderr, result.stderr
    assert not os.path.exists(folder.file("runs"))


def test_job_without_pmix():
    folder = quick("no_pmix")
    job = Job(folder, "train.sbatch", "run.toml", SLURM_MPI_TYPE="none")
    job.ends("FAILED", "2:0", restarts=0)
    assert job.output().count("convoy: error:") == 1 and NO_PMIX in job.output()
    assert not os.path.exists(folder.file("runs"))


@pytest.mark.parametrize("kind", ("none", "pmi2"))
def test_srun_without_pmix(kind):
    refused(NO_PMIX, "srun", "--mpi=" + kind, "--nodes=2", "--ntasks-per-node=2", *TRAIN)


def test_srun_of_one_task_without_pmix():
    refused("convoy: error: srun started this task without PMIx, and in a step of Slurm Open MPI cannot start "
            "without it\n  start it with `srun --mpi=pmix ...` or, inside the allocation, with `mpirun -n 1 ...`\n",
            "srun", "--mpi=none", "--ntasks=1", *TRAIN)


def test_launcher_of_another_mpi():
    """MPICH's mpiexec, or what its ranks see of it."""
    version = Here.cluster.run(CONVOY, "--version").stdout.split("MPI      ")[1].split("\n")[0]
    refused(WRONG_MPI.format(version), "sh", "-c", BOTH_RANKS, "sh", *TRAIN)


def test_launcher_of_another_mpi_in_a_step():
    version = Here.cluster.run(CONVOY, "--version").stdout.split("MPI      ")[1].split("\n")[0]
    refused(WRONG_MPI.format(version), "srun", "--mpi=none", "--ntasks=1", "sh", "-c", BOTH_RANKS, "sh", *TRAIN)


def test_more_ranks_than_slots():
    folder = quick("slots")
    many = Here.cluster.run("salloc", "--nodes=2", "--ntasks-per-node=2", MPIRUN, "-n", "8", *TRAIN, cwd=folder.path)
    assert many.returncode == 1 and "There are not enough slots available" in many.stderr, many.stderr


# ---- exit codes: what the job ends with, and that nothing but a stop with progress puts it back into the queue

SCRIPTS = pytest.mark.parametrize("script", ("train.sbatch", "train_mpirun.sbatch", "elastic.sbatch", "array_sweep.sbatch"))


def fails(script, *arguments, convoy=CONVOY, code, text=""):
    """convoy: a program, or the last line of a script that takes its place."""
    folder = quick("fails")
    if not convoy.startswith("/"):
        convoy = program(folder, "program.sh", f'[ "$1" = slurm-job ] && exec {CONVOY} "$@"\n{convoy}\n')
    options = ("--array=0-0",) if script == "array_sweep.sbatch" else ()
    job = Job(folder, script, *arguments, options=options, CONVOY=convoy)
    job.ends("FAILED", code, restarts=0)
    assert text in job.output()


@SCRIPTS
def test_no_config(script):
    fails(script, code="2:0", text="no config (usage: sbatch [options] slurm/")


@SCRIPTS
def test_no_program(script):
    fails(script, "run.toml", convoy="/no/such/convoy", code="2:0", text="there is no program /no/such/convoy on n")


@SCRIPTS
def test_bad_config(script):
    fails(script, "run.toml", "--set", "train.step=1", code="2:0", text="train.step")


@SCRIPTS
def test_training_that_fails(script):
    fails(script, "run.toml", convoy="exit 1", code="1:0")


@SCRIPTS
def test_stopped_without_progress(script):
    fails(script, "run.toml", convoy="exit 75", code="75:0", text="stopped before its first step: not requeued")
