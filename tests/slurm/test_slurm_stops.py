# SPDX-License-Identifier: Apache-2.0
"""Jobs that are stopped: by the time limit, signals, requeues, cancels and lost nodes. They resume, with the same bits.

Stands on jobs.py. A run that was stopped must have, at each step, the very loss (as text) of the run that was not.
Where ranks change, what is left to compare are the steps before, and the next few to rounding.
"""
import contextlib
import os
import subprocess
import time

from jobs import (CONVOY, MARKS, TWO_BY_TWO, Here, Job, close_series, cluster, is_uninterrupted, long_run,  # noqa: F401
                  nodes, resumed_steps, same_series)

pytestmark = MARKS

STEPS = 1500
STOP_AT = 300


def stopped_once(folder, reasons=("signal", "finished")):
    """The run's own record: two starts, the second one from the checkpoint of the stop."""
    starts, stops = resumed_steps(folder), folder.events("end")
    assert len(starts) == 2 and starts[0] == 0 and starts[1] >= STOP_AT
    assert [entry["reason"] for entry in stops] == list(reasons)
    assert len(stops) != 2 or starts[1:] == [stops[0]["step"]]
    assert all(entry["ranks"] == 4 for entry in folder.events("start"))


def kill_all(pids):
    """Also those that end with another."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def test_time_limit():
    """USR2 comes before the limit; the job requeues itself. Slurm looks at limits each 30 s: this takes up to 35 s."""
    folder = long_run("time_limit", 1_000_000)
    job = Job(folder, "train.sbatch", "run.toml", options=(*TWO_BY_TWO, "--time=1", "--signal=USR2@25"))
    job.wait_for_start(2, 120)
    stop = folder.events("end")[0]
    last = stop["step"] + 100
    job.wait_for_step(last)
    Here.cluster.run("scancel", job.id)
    job.ends("CANCELLED", None, restarts=1)
    assert stop["reason"] in ("signal", "max_time")
    assert resumed_steps(folder)[1] == stop["step"]
    assert "waits in the queue to resume" in job.output(), job.output()
    is_uninterrupted(folder, last)


def test_stop_signal():
    """scancel --signal=USR2: the ranks get it, write a checkpoint, and the job requeues itself."""
    folder = long_run("signal", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scancel", "--signal=USR2", job.id)
    job.ends(restarts=1)
    stopped_once(folder)
    is_uninterrupted(folder, STEPS)


def test_requeue():
    """scontrol requeue: SIGTERM to all of the job, and Slurm's own requeue, which the script leaves alone."""
    folder = long_run("requeue", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scontrol", "requeue", job.id)
    job.ends(restarts=1)
    stopped_once(folder)
    is_uninterrupted(folder, STEPS)


def test_cancel():
    """scancel: a checkpoint, and no requeue; the same line resumes later."""
    folder = long_run("cancel", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scancel", job.id)
    job.ends("CANCELLED", None, restarts=0)
    time.sleep(2)
    assert job.show()["JobState"] == "CANCELLED"
    Job(folder, "train.sbatch", "run.toml").ends()
    stopped_once(folder)
    is_uninterrupted(folder, STEPS)


def test_preemption():
    """A job of a higher partition: SIGTERM to the ranks, which have the grace; the job is requeued once, not twice."""
    folder = long_run("preempted", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    urgent = Here.cluster.run("sbatch", "--parsable", "--partition=urgent", "--nodes=2", "--ntasks-per-node=2",
                              "--output=/dev/null", "--wrap", "sleep 1", cwd=folder.path).stdout.strip()
    job.ends(restarts=1)
    assert Here.cluster.show(urgent)["JobState"] == "COMPLETED"
    stopped_once(folder)
    is_uninterrupted(folder, STEPS)


def test_stop_signal_under_mpirun():
    """Under mpirun the signal comes to the script, as before the time limit."""
    folder = long_run("mpirun_signal", STEPS)
    job = Job(folder, "train_mpirun.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scancel", "--batch", "--signal=USR2", job.id)
    job.ends(restarts=1)
    stopped_once(folder)
    is_uninterrupted(folder, STEPS)


def test_killed_rank():
    """A rank is killed: the job fails soon instead of hanging, stays out of the queue, and the same line resumes."""
    folder = long_run("killed_rank", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    ranks = job.rank_processes(3)
    assert len(ranks) == 1
    os.kill(ranks[0], 9)
    job.ends("FAILED", None, restarts=0, seconds=60)
    Job(folder, "train.sbatch", "run.toml").ends()
    starts = resumed_steps(folder)
    assert len(starts) == 2 and starts[1] >= 200
    is_uninterrupted(folder, STEPS)


def test_killed_srun():
    """kill -9 of srun: the job fails, its ranks end with it, and the same line resumes."""
    folder = long_run("killed_srun", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    sruns = job.processes("srun\0")
    assert sruns
    kill_all(sruns)
    job.ends("FAILED", None, restarts=0, seconds=60)
    Here.cluster.wait("an end of the ranks", lambda: not job.processes(CONVOY + "\0train\0"), 60)
    Job(folder, "train.sbatch", "run.toml").ends()
    starts = resumed_steps(folder)
    assert len(starts) == 2 and starts[1] >= 200
    is_uninterrupted(folder, STEPS)


def test_killed_srun_of_an_elastic_job():
    """The ranks outlive their srun: launch ends their step before it starts them anew in the same job."""
    steps = 10 * STEPS
    folder = long_run("killed_elastic_srun", steps)
    job = Job(folder, "elastic.sbatch", "run.toml", LAUNCHER="srun")
    job.wait_for_step(STOP_AT)
    kill_all(job.processes("srun\0"))
    job.ends(restarts=0)
    starts = resumed_steps(folder)
    assert len(starts) == 2 and starts[1] >= 200
    is_uninterrupted(folder, steps)


def test_lost_node():
    """A node dies under train.sbatch: Slurm requeues the job, which waits until there are two nodes, and resumes."""
    folder = long_run("lost_node", STEPS)
    job = Job(folder, "train.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.kill("n2")
    job.wait("the requeue by Slurm", lambda: job.show().get("Restarts") == "1", 60)
    Here.cluster.start_node("n2")
    job.ends(restarts=1)
    starts = resumed_steps(folder)
    assert len(starts) == 2 and starts[1] >= 200
    is_uninterrupted(folder, STEPS)


def test_elastic_job_loses_a_node():
    """A node dies under elastic.sbatch: the same job resumes with the other one, and completes."""
    folder = long_run("elastic", STEPS, sync_batch_norm=True)  # what a step computes must not depend on the ranks
    job = Job(folder, "elastic.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    before = folder.losses()
    Here.cluster.kill("n2")
    job.ends(restarts=0)
    Here.cluster.start_node("n2")
    Here.cluster.wait("n2", lambda: Here.cluster.node_state("n2") == "idle", 60)

    starts, losses = folder.events("start"), folder.losses()
    resumed = resumed_steps(folder)[-1]
    assert [entry["ranks"] for entry in starts] == [4, 2] and resumed >= 200
    assert sorted(losses) == list(range(1, STEPS + 1))
    same_series("elastic, on two nodes", {step: losses[step] for step in range(1, resumed + 1)},
                {step: before[step] for step in range(1, resumed + 1)})
    close_series("elastic, the first steps on one", {step: losses[step] for step in range(resumed + 1, resumed + 11)},
                 {step: before[step] for step in range(resumed + 1, resumed + 11)}, 1e-3)


def test_stop_signal_to_an_elastic_job():
    """Before the time limit the signal comes to the script, which tells `convoy launch`."""
    folder = long_run("elastic_signal", STEPS)
    job = Job(folder, "elastic.sbatch", "run.toml")
    job.wait_for_step(STOP_AT)
    Here.cluster.run("scancel", "--batch", "--signal=USR2", job.id)
    job.ends(restarts=1)
    stopped_once(folder)
    is_uninterrupted(folder, STEPS)


def test_interrupted_srun():
    """SIGINT to the ranks of a plain srun. Ctrl-C of srun itself cannot be tested: it ends them in the same instant."""
    folder = long_run("interrupted", STEPS)
    with open(folder.file("srun.txt"), "w") as out:
        srun = subprocess.Popen(["srun", "--mpi=pmix", *TWO_BY_TWO, CONVOY, "train", "run.toml"], cwd=folder.path,
                                env=Here.cluster.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        Here.cluster.wait("the step", lambda: max(folder.losses(), default=0) >= STOP_AT or srun.poll() is not None, 90)
        job = Here.cluster.run("squeue", "--noheader", "--states=running", "--format=%A").stdout.strip()
        assert job.isdigit(), job
        Here.cluster.run("scancel", "--signal=INT", job)
        assert srun.wait(60) == 75
    assert [entry["reason"] for entry in folder.events("end")] == ["signal"]
    Job(folder, "train.sbatch", "run.toml").ends()
    stopped_once(folder)
    is_uninterrupted(folder, STEPS)
