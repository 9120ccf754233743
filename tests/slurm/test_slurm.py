# SPDX-License-Identifier: Apache-2.0
"""Jobs that are started, well and wrongly: the quickstart on two nodes, a sweep, GPUs, wrong launches, exit codes.

Stands on jobs.py. A wrong launch says what is wrong and what mends it in two lines, once, and ends with exit code 2.
"""
import json
import os
import stat

from jobs import CONVOY, MPIRUN, SOURCE, Folder, Here, Job, check, config, run_cases

NO_PMIX = ("convoy: error: srun started 4 tasks without PMIx, so they cannot find each other\n"
           "start them with `srun --mpi=pmix ...` or, inside the allocation, with `mpirun ...`\n")
WRONG_MPI = ("convoy: error: the launcher started 2 ranks (PMI_SIZE), but each is alone in its MPI world: the launcher belongs "
             "to another MPI than the {} that convoy was built with\n"
             "start it with that MPI's own mpirun, or build convoy with the launcher's MPI\n")


def program(folder, name, text):
    """A shell script in the folder, to be started in convoy's place."""
    path = folder.file(name)
    with open(path, "w") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, stat.S_IRWXU)
    return path


def quick(name, **sections):
    return Folder(name, config(train={"steps": 20, "global_batch_size": 32}, **sections))


# ---- cases


def quickstart():
    """Two nodes of two ranks train the quickstart, with threads as Slurm says; a rank notes its host."""
    folder = Folder("quickstart", {})
    noted = program(folder, "noted.sh", f'[ "$1" = train ] && hostname >> {folder.file("hosts.txt")}\nexec {CONVOY} "$@"\n')
    job = Job(folder, "train.sbatch", os.path.join(SOURCE, "app", "configs", "quickstart.toml"), "--set", "train.epochs=2",
              "--set", "run.name=run", options=("--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1"), CONVOY=noted)
    job.ends("quickstart", restarts=0)
    with open(folder.file("hosts.txt")) as file:
        check(sorted(file.read().split()) == ["n1", "n1", "n2", "n2"], "quickstart: not two ranks on each of two hosts")
    start, steps, evaluations = (folder.events(kind) for kind in ("start", "step", "eval"))
    check(len(start) == 1 and start[0]["ranks"] == 4 and "1 thread" in start[0]["device"], f"quickstart: {start}")
    check([entry["step"] for entry in steps] == list(range(1, 45)), f"quickstart: {len(steps)} steps")
    check(steps[-1]["loss"] < 0.6 * steps[0]["loss"], f"quickstart: loss {steps[0]['loss']} to {steps[-1]['loss']}")
    check(len(evaluations) == 2 and evaluations[-1]["samples"] == 360, f"quickstart: {evaluations}")
    check([entry["reason"] for entry in folder.events("end")] == ["finished"], "quickstart: did not finish")


def one_task():
    """Neither nodes nor tasks: one rank, on all the threads that it is given."""
    folder = quick("one_task", device={"threads": 0})
    Job(folder, "train.sbatch", "run.toml", options=("--cpus-per-task=2",)).ends("one_task", restarts=0)
    start = folder.events("start")[0]
    check(start["ranks"] == 1 and "2 threads" in start["device"], f"one_task: {start}")


def gpus():
    """A rank for each GPU where nobody says how many ranks; these GPUs are numbers in Slurm's books, so the CPU computes."""
    for script in ("train.sbatch", "train_mpirun.sbatch", "elastic.sbatch"):
        folder = quick("gpus-" + script)
        Job(folder, script, "run.toml", options=("--nodes=2", "--gpus-per-node=2")).ends("gpus " + script, restarts=0)
        ranks = [entry["ranks"] for entry in folder.events("start")]
        check(ranks == [4], f"gpus {script}: ranks {ranks}")


def sweep():
    """Two tasks of an array are two runs with different values of one key; a task without a value says so."""
    folder = quick("sweep")
    job = Job(folder, "array_sweep.sbatch", "run.toml", "--set", "train.steps=10", KEY="optimizer.lr", VALUES="0.05 0.01",
              options=("--array=0-2", "--ntasks=2"))
    states = ("COMPLETED", "FAILED")
    job.wait("the array", lambda: all(Here.cluster.show(f"{job.id}_{task}").get("JobState") in states for task in range(3)), 90)
    seen = [Here.cluster.show(f"{job.id}_{task}") for task in range(3)]
    check([one["ExitCode"] for one in seen] == ["0:0", "0:0", "2:0"], f"sweep: {seen}\n{job.output()}")
    check("VALUES has no value number 2, counted from 0: 0.05 0.01 (submit with --array=0-1)" in job.output(), job.output())
    check(sorted(os.listdir(folder.file("runs"))) == ["run-lr-0.01", "run-lr-0.05"], f"sweep: {os.listdir(folder.file('runs'))}")
    for value in ("0.05", "0.01"):
        with open(folder.file("runs", "run-lr-" + value, "metrics.jsonl")) as file:
            rates = [entry["lr"] for entry in map(json.loads, file) if entry["event"] == "step"]
        check(rates == [float(value)] * 10, f"sweep: run-lr-{value} has learning rates {rates}")


def wrong_launches():
    """srun without PMIx, in a job and by hand; MPICH's mpiexec, or what its ranks see of it."""
    folder = quick("wrong_launches")
    job = Job(folder, "train.sbatch", "run.toml", SLURM_MPI_TYPE="none")
    job.ends("no PMIx", "FAILED", "2:0", restarts=0)
    check(job.output().count("convoy: error:") == 1 and NO_PMIX in job.output(), f"no PMIx: {job.output()}")

    def refused(what, message, command, **variables):
        result = Here.cluster.run(*command, cwd=folder.path, **variables)
        text = result.stderr
        check(result.returncode == 2, f"{what}: exit code {result.returncode}\n{text}")
        check(text.count("convoy: error:") == 1 and message in text, f"{what}: {text}")

    train = (CONVOY, "train", "run.toml")
    for kind in ("none", "pmi2"):
        refused("srun --mpi=" + kind, NO_PMIX, ("srun", "--mpi=" + kind, "--nodes=2", "--ntasks-per-node=2", *train))
    refused("one task", "convoy: error: srun started this task without PMIx, and in a step of Slurm Open MPI cannot start "
            "without it\nstart it with `srun --mpi=pmix ...` or, inside the allocation, with `mpirun -n 1 ...`\n",
            ("srun", "--mpi=none", "--ntasks=1", *train))
    version = Here.cluster.run(CONVOY, "--version").stdout.split("MPI      ")[1].split("\n")[0]
    both = "for r in 0 1; do PMI_RANK=$r PMI_SIZE=2 MPI_LOCALNRANKS=2 \"$@\" & done; wait $!; c=$?; wait; exit $c"
    refused("another MPI", WRONG_MPI.format(version), ("sh", "-c", both, "sh", *train))
    refused("another MPI in a step", WRONG_MPI.format("one"),
            ("srun", "--mpi=none", "--ntasks=1", "sh", "-c", both, "sh", *train))
    check(not os.path.exists(folder.file("runs")), "a wrong launch made a run folder")
    many = Here.cluster.run("salloc", "--nodes=2", "--ntasks-per-node=2", MPIRUN, "-n", "8", *train, cwd=folder.path)
    check(many.returncode == 1 and "There are not enough slots available" in many.stderr, f"slots: {many.stderr}")


def exit_codes():
    """What the job ends with, and that nothing but a stop with progress puts it back into the queue."""
    folder = quick("exit_codes")
    stops = program(folder, "stops.sh", f'[ "$1" = slurm-job ] && exec {CONVOY} "$@"\nexit 75\n')
    fails = program(folder, "fails.sh", f'[ "$1" = slurm-job ] && exec {CONVOY} "$@"\nexit 1\n')
    for script in ("train.sbatch", "train_mpirun.sbatch", "elastic.sbatch", "array_sweep.sbatch"):
        options = ("--array=0-0",) if script == "array_sweep.sbatch" else ()
        for what, arguments, program_path, code, text in (
                ("no config", (), CONVOY, "2:0", "no config (usage: sbatch [options] slurm/"),
                ("no program", ("run.toml",), "/no/such/convoy", "2:0", "there is no program /no/such/convoy on n"),
                ("bad config", ("run.toml", "--set", "train.step=1"), CONVOY, "2:0", "train.step"),
                ("failed", ("run.toml",), fails, "1:0", ""),
                ("stopped without progress", ("run.toml",), stops, "75:0", "stopped before its first step: not requeued")):
            job = Job(folder, script, *arguments, options=options, CONVOY=program_path)
            job.ends(f"{script}, {what}", "FAILED", code, restarts=0)
            check(text in job.output(), f"{script}, {what}: {job.output()}")


run_cases([quickstart, one_task, gpus, sweep, wrong_launches, exit_codes])
