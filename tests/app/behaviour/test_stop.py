# SPDX-License-Identifier: Apache-2.0
"""Runs that are told to stop: by a signal, a second one, Ctrl-C, a time limit, the end of their Slurm job."""
import functools
import os
import signal
import stat
import subprocess
import time

import pytest

from behaviour import ENVIRONMENT, MLP, SMALL_NET, Folder, config, datasets, h5py, rank_processes, same_series
from stopping import LONG, STOPPED, ended, stopped, wait_for_step

@functools.lru_cache(maxsize=None)
def uninterrupted_losses():
    folder = Folder("uninterrupted", config(SMALL_NET, train={"steps": 300}))
    folder.train(2)
    return folder.losses(str)


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("name", ("SIGUSR1", "SIGUSR2", "SIGTERM"))
def test_stop_signal_writes_a_checkpoint_and_the_run_goes_on(name, ranks):
    """A checkpoint at a step boundary, exit 75; the same command resumes, with the losses of the uninterrupted run."""
    folder = Folder("stopped", config(SMALL_NET, train={"steps": 300}))
    process = folder.start(ranks)
    wait_for_step(folder, process, 20)
    if ranks > 1 and name != "SIGUSR1":  # to one rank: only SIGUSR1 is passed on by every mpirun (test_mpirun.py)
        os.kill(rank_processes(process)[1], getattr(signal, name))
    else:
        process.send_signal(getattr(signal, name))
    ended(folder, process, stopped(ranks))
    end = folder.events("end")[-1]
    assert end["reason"] == "signal"
    assert "stopped after step" in folder.stdout
    assert folder.checkpoints(), "no checkpoint"
    if h5py is not None:
        assert datasets(folder.checkpoints()[-1])["attribute step"] == end["step"], "the checkpoint's step"
    folder.train(ranks)
    if ranks == 2:
        same_series(name, folder.losses(str), uninterrupted_losses())


def test_second_signal_ends_at_once_without_a_checkpoint():
    """A step may take longer than a user, or a scheduler, waits."""
    slow = config({"name": "resnet50", "classes": 10}, train={"steps": 2, "global_batch_size": 48},
                  data={"kind": "synthetic", "train": None, "validation": None, "samples": 96, "image_size": 224})
    folder = Folder("stopped", slow)
    process = folder.start(1)
    deadline = time.time() + 60
    while not folder.events("start") and process.poll() is None and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGUSR2)
    time.sleep(1.2)  # within a second it would be a copy of the first
    still_in_step = process.poll() is None and not folder.events("step")
    process.send_signal(signal.SIGTERM)
    ended(folder, process, -signal.SIGTERM, 2)
    assert still_in_step, "the first step is over: too short for this test"
    assert not folder.checkpoints() and not folder.events("end"), "it went on after the second signal"


def test_copies_of_a_signal_are_one():
    """Launchers forward what ranks also get directly: two in a moment are one."""
    folder = Folder("stopped", config(MLP, train={"steps": LONG}))
    process = folder.start(1)
    wait_for_step(folder, process, 5)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGUSR2)
    ended(folder, process, STOPPED)


def test_control_c_stops_with_a_checkpoint():
    """On one rank; test_mpirun.py has several."""
    folder = Folder("stopped", config(MLP, train={"steps": LONG}))
    process = folder.start(1)
    wait_for_step(folder, process, 5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    ended(folder, process, STOPPED)
    end = folder.events("end")[-1]
    assert end["reason"] == "signal"
    assert folder.checkpoints()[-1].endswith(f"step-{end['step']:08}.h5")


def test_max_time_stops_with_a_checkpoint():
    folder = Folder("limit", config(MLP, run={"max_time": "00:00:02"}, train={"steps": LONG}))
    assert folder.run(2) == STOPPED
    assert folder.events("end")[-1]["reason"] == "max_time"
    assert folder.checkpoints(), "no checkpoint at the time limit"


# ---- the Slurm job's end, less a margin, as SLURM_JOB_END_TIME or squeue tell it

@pytest.fixture
def job(monkeypatch):
    """In a Slurm job, as its environment says."""
    monkeypatch.setitem(ENVIRONMENT, "SLURM_JOB_ID", "41")
    return monkeypatch


def test_run_stops_before_the_end_of_its_job(job):
    job.setitem(ENVIRONMENT, "SLURM_JOB_END_TIME", str(int(time.time()) + 33))
    folder = Folder("job", config(MLP, train={"steps": LONG}))
    start = time.time()
    assert folder.run(1) == STOPPED
    assert folder.events("end")[-1]["reason"] == "max_time"
    assert time.time() - start < 20, "the run went on into the margin"
    assert "(the job's end)" in folder.stdout


def test_run_asks_squeue_for_the_end_of_its_job(job):
    folder = Folder("job", config(MLP, train={"steps": LONG}))
    squeue = folder.file("squeue")
    with open(squeue, "w") as file:
        file.write("#!/bin/sh\necho 0:33\n")
    os.chmod(squeue, os.stat(squeue).st_mode | stat.S_IXUSR)
    job.setitem(ENVIRONMENT, "PATH", folder.path + ":" + os.environ["PATH"])
    assert folder.run(1) == STOPPED, folder.stderr[-500:]


def test_max_time_of_the_user_goes_before_the_end_of_the_job(job):
    job.setitem(ENVIRONMENT, "SLURM_JOB_END_TIME", str(int(time.time()) - 5))
    folder = Folder("job", config(MLP, run={"max_time": "01:00:00"}, train={"steps": 20}))
    folder.train(1)
