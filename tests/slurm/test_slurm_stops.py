# SPDX-License-Identifier: Apache-2.0
"""Jobs that are stopped: by the time limit, signals, requeues, cancels and lost nodes. They go on, bit by bit the same.

Stands on jobs.py. A run that was stopped must have, at each step, the very loss (as text) of the run that was not.
Where ranks change, what is left to compare are the steps before, and the next few to rounding.
"""
import os
import time

from jobs import (TWO_BY_TWO, Here, Job, check, close_series, is_uninterrupted, long_run, resumed_steps, run_cases,
                  same_series)

STEPS = 1500
STOP_AT = 300


def stopped_once(what, folder, reasons=("signal", "finished")):
    """The run's own record: two starts, the second one from the checkpoint of the stop."""
    starts, stops = resumed_steps(folder), folder.events("end")
    check(len(starts) == 2 and starts[0] == 0 and starts[1] >= STOP_AT, f"{what}: starts at steps {starts}")
    check([entry["reason"] for entry in stops] == list(reasons), f"{what}: {stops}")
    check(len(stops) != 2 or starts[1:] == [stops[0]["step"]], f"{what}: started at {starts}, stopped at {stops}")
    check(all(entry["ranks"] == 4 for entry in folder.events("start")), f"{what}: not always 4 ranks")


def time_limit():
    """USR2 comes before the limit; the job requeues itself. Slurm looks at limits each 30 s: this takes up to 35 s."""
    folder = long_run("time_limit", 1_000_000)
    job = Job(folder, "train.sbatch", "run.toml", options=(*TWO_BY_TWO, "--time=1", "--signal=USR2@25"))
    job.wait_for_start(2, 120)
    stop = folder.events("end")[0]
    last = stop["step"] + 100
    job.wait_for_step(last)
    Here.cluster.run("scancel", job.id)
    job.ends("time_limit", "CANCELLED", None, restarts=1)
    check(stop["reason"] in ("signal", "max_time"), f"time_limit: {stop}")
    check(resumed_steps(folder)[1] == stop["step"], f"time_limit: starts at {resumed_steps(folder)}, stop {stop}")
    check("waits in the queue to go on" in job.output(), job.output())
    is_uninterrupted("time_limit", folder, last)


def signal():
    """scancel --signal=USR2: the ranks get it, write a checkpoint, and the job requeues itself."""
    folder = long_run("signal", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scancel", "--signal=USR2", job.id)
    job.ends("signal", restarts=1)
    stopped_once("signal", folder)
    is_uninterrupted("signal", folder, STEPS)


def requeue():
    """scontrol requeue: SIGTERM to all of the job, and Slurm's own requeue, which the script leaves alone."""
    folder = long_run("requeue", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scontrol", "requeue", job.id)
    job.ends("requeue", restarts=1)
    stopped_once("requeue", folder)
    is_uninterrupted("requeue", folder, STEPS)


def cancel():
    """scancel: a checkpoint, and no requeue; the same line goes on later."""
    folder = long_run("cancel", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scancel", job.id)
    job.ends("cancel", "CANCELLED", None, restarts=0)
    time.sleep(2)
    check(job.show()["JobState"] == "CANCELLED", "cancel: the job came back")
    Job(folder, "train.sbatch", "run.toml").ends("cancel, submitted again")
    stopped_once("cancel", folder)
    is_uninterrupted("cancel", folder, STEPS)


def preempted():
    """A job of a higher partition: SIGTERM to the ranks, which have the grace; the job is requeued once, not twice."""
    folder = long_run("preempted", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    urgent = Here.cluster.run("sbatch", "--parsable", "--partition=urgent", "--nodes=2", "--ntasks-per-node=2",
                              "--output=/dev/null", "--wrap", "sleep 1", cwd=folder.path).stdout.strip()
    job.ends("preempted", restarts=1)
    check(Here.cluster.show(urgent)["JobState"] == "COMPLETED", f"preempted: {Here.cluster.show(urgent)}")
    stopped_once("preempted", folder)
    is_uninterrupted("preempted", folder, STEPS)


def mpirun_signal():
    """Under mpirun the signal comes to the script, as before the time limit."""
    folder = long_run("mpirun_signal", STEPS)
    job = Job(folder, "train_mpirun.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scancel", "--batch", "--signal=USR2", job.id)
    job.ends("mpirun_signal", restarts=1)
    stopped_once("mpirun_signal", folder)
    is_uninterrupted("mpirun_signal", folder, STEPS)


def killed_rank():
    """A rank is killed: the job fails soon instead of hanging, stays out of the queue, and the same line goes on."""
    folder = long_run("killed_rank", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    ranks = job.rank_processes(3)
    check(len(ranks) == 1, f"killed_rank: processes {ranks}")
    os.kill(ranks[0], 9)
    job.ends("killed_rank", "FAILED", None, restarts=0, seconds=60)
    Job(folder, "train.sbatch", "run.toml").ends("killed_rank, submitted again")
    starts = resumed_steps(folder)
    check(len(starts) == 2 and starts[1] >= 200, f"killed_rank: starts at steps {starts}")
    is_uninterrupted("killed_rank", folder, STEPS)


def lost_node():
    """A node dies under train.sbatch: Slurm requeues the job, which waits until there are two nodes, and goes on."""
    folder = long_run("lost_node", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.kill("n2")
    job.wait("the requeue by Slurm", lambda: job.show().get("Restarts") == "1", 60)
    Here.cluster.start_node("n2")
    job.ends("lost_node", restarts=1)
    starts = resumed_steps(folder)
    check(len(starts) == 2 and starts[1] >= 200, f"lost_node: starts at steps {starts}")
    is_uninterrupted("lost_node", folder, STEPS)


def elastic():
    """A node dies under elastic.sbatch: the same job goes on with the other one, and completes."""
    folder = long_run("elastic", STEPS, sync_batch_norm=True)  # what a step computes must not depend on the ranks
    job = Job(folder, "elastic.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    before = folder.losses()
    Here.cluster.kill("n2")
    job.ends("elastic", restarts=0)
    Here.cluster.start_node("n2")
    Here.cluster.wait("n2", lambda: Here.cluster.node_state("n2") == "idle", 60)

    starts, losses = folder.events("start"), folder.losses()
    resumed = resumed_steps(folder)[-1]
    check([entry["ranks"] for entry in starts] == [4, 2] and resumed >= 200, f"elastic: {starts}")
    check(sorted(losses) == list(range(1, STEPS + 1)), f"elastic: {len(losses)} of {STEPS} steps")
    same_series("elastic, on two nodes", {step: losses[step] for step in range(1, resumed + 1)},
                {step: before[step] for step in range(1, resumed + 1)})
    close_series("elastic, the first steps on one", {step: losses[step] for step in range(resumed + 1, resumed + 11)},
                 {step: before[step] for step in range(resumed + 1, resumed + 11)}, 1e-3)


def elastic_signal():
    """Before the time limit the signal comes to the script, which tells `convoy launch`."""
    folder = long_run("elastic_signal", STEPS)
    job = Job(folder, "elastic.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scancel", "--batch", "--signal=USR2", job.id)
    job.ends("elastic_signal", restarts=1)
    stopped_once("elastic_signal", folder)
    is_uninterrupted("elastic_signal", folder, STEPS)


run_cases([time_limit, signal, requeue, cancel, preempted, mpirun_signal, killed_rank, lost_node, elastic, elastic_signal])
