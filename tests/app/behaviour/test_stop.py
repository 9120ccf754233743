# SPDX-License-Identifier: Apache-2.0
"""Runs that are told to stop: by a signal, a second one, Ctrl-C, a time limit, the end of their Slurm job."""
import os
import signal
import stat
import time

from behaviour import (ENVIRONMENT, MLP, SMALL_NET, Folder, check, config, datasets, h5py, kill_tree, main, processes_in,
                       same_series)

LONG = 100000  # steps: never reached


def wait_for_step(folder, process, step, seconds=60):
    deadline = time.time() + seconds
    while process.poll() is None and time.time() < deadline:
        steps = folder.events("step")
        if steps and steps[-1]["step"] >= step:
            return True
        time.sleep(0.01)
    return check(False, f"{folder.path}: step {step} was not reached")


def ended(folder, process, code, seconds=30):
    """The run ends with `code` and leaves no process."""
    try:
        found = process.wait(seconds)
    except Exception:
        kill_tree(process)
        found = None
    folder.read_outputs()
    check(found == code, f"{folder.path}: exit code {found}, not {code}\n{folder.stdout[-500:]}\n{folder.stderr[-1500:]}")
    deadline = time.time() + 5
    while processes_in(folder.path) and time.time() < deadline:
        time.sleep(0.05)
    left = processes_in(folder.path)
    check(not left, f"{folder.path}: processes {left} are still there")


def whole(model=None, steps=60, **sections):
    folder = Folder("stop-whole", config(model, train={"steps": steps}, **sections))
    folder.train(2)
    return folder.losses(str)


def each_stop_signal():
    """A checkpoint at a step boundary, exit 75; the same command goes on, with the losses of the uninterrupted run."""
    expected = whole(SMALL_NET, 300)
    for name in ("SIGUSR2", "SIGTERM"):
        for ranks in (1, 2):
            folder = Folder(f"stop-{name}-{ranks}", config(SMALL_NET, train={"steps": 300}))
            process = folder.start(ranks)
            if not wait_for_step(folder, process, 20):
                kill_tree(process)
                continue
            if ranks > 1 and name == "SIGTERM":  # to one rank, as srun would: mpirun takes its own SIGTERM for "kill them"
                ranks_there = [pid for pid in processes_in(folder.path) if pid != process.pid]
                os.kill(ranks_there[-1], signal.SIGTERM)
            else:
                process.send_signal(getattr(signal, name))
            ended(folder, process, 75)
            end = folder.events("end")[-1]
            check(end["reason"] == "signal", f"{name}: {end}")
            check("stopped after step" in folder.stdout, f"{name}: {folder.stdout[-300:]!r}")
            check(len(folder.checkpoints()) > 0, f"{name}: no checkpoint")
            if h5py is not None:
                step = datasets(folder.checkpoints()[-1])["attribute step"]
                check(step == end["step"], f"{name}: the checkpoint holds step {step}, the run ended at {end['step']}")
            folder.train(ranks)
            if ranks == 2:
                same_series(name, folder.losses(str), expected)


def second_signal():
    """At once, without a checkpoint: a step may take longer than a user, or a scheduler, waits."""
    slow = config({"name": "resnet50", "classes": 10}, train={"steps": 2, "global_batch_size": 48},
                  data={"kind": "synthetic", "train": None, "validation": None, "samples": 96, "image_size": 224})
    folder = Folder("stop-second", slow)
    process = folder.start(1)
    deadline = time.time() + 60
    while not folder.events("start") and process.poll() is None and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGUSR2)
    time.sleep(1.2)  # within a second it would be a copy of the first
    check(process.poll() is None and not folder.events("step"), "the first step is over: too short for this test")
    process.send_signal(signal.SIGTERM)
    ended(folder, process, -signal.SIGTERM, 2)
    check(not folder.checkpoints() and not folder.events("end"), "it went on after the second signal")


def copies_of_a_signal():
    """Launchers forward what ranks also get directly: two in a moment are one."""
    folder = Folder("stop-copies", config(MLP, train={"steps": LONG}))
    process = folder.start(1)
    if wait_for_step(folder, process, 5):
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGUSR2)
        ended(folder, process, 75)


def control_c():
    """Ends every rank, with no orphan."""
    for ranks in (1, 2, 4):
        folder = Folder(f"stop-ctrl-c-{ranks}", config(MLP, train={"steps": LONG}))
        process = folder.start(ranks)
        if wait_for_step(folder, process, 5):
            check(len(processes_in(folder.path)) >= ranks, "the ranks were not found")
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            ended(folder, process, -signal.SIGINT if ranks == 1 else 1)  # 1 is mpirun's


def user_limit():
    folder = Folder("stop-limit", config(MLP, run={"max_time": "00:00:02"}, train={"steps": LONG}))
    code = folder.run(2)
    end = folder.events("end")[-1]
    check(code == 75 and end["reason"] == "max_time", f"exit code {code}, {end}")
    check(len(folder.checkpoints()) > 0, "no checkpoint at the time limit")


def job_limit():
    """The Slurm job's end, less a margin, as SLURM_JOB_END_TIME or squeue tell it; run.max_time is the user's own."""
    ENVIRONMENT["SLURM_JOB_ID"] = "41"
    try:
        ENVIRONMENT["SLURM_JOB_END_TIME"] = str(int(time.time()) + 33)
        folder = Folder("stop-job", config(MLP, train={"steps": LONG}))
        start = time.time()
        code = folder.run(1)
        end = folder.events("end")[-1]
        check(code == 75 and end["reason"] == "max_time", f"exit code {code}, {end}")
        check(time.time() - start < 20, "the run went on into the margin")
        check("(the job's end)" in folder.stdout, f"it does not say so: {folder.stdout[-500:]!r}")

        del ENVIRONMENT["SLURM_JOB_END_TIME"]
        folder = Folder("stop-squeue", config(MLP, train={"steps": LONG}))
        fake = folder.file("squeue")
        with open(fake, "w") as file:
            file.write("#!/bin/sh\necho 0:33\n")
        os.chmod(fake, os.stat(fake).st_mode | stat.S_IXUSR)
        ENVIRONMENT["PATH"] = folder.path + ":" + os.environ["PATH"]
        code = folder.run(1)
        check(code == 75, f"with squeue: exit code {code}\n{folder.stderr[-500:]}")

        ENVIRONMENT["SLURM_JOB_END_TIME"] = str(int(time.time()) - 5)
        folder = Folder("stop-own", config(MLP, run={"max_time": "01:00:00"}, train={"steps": 20}))
        folder.train(1)
    finally:
        for name in ("SLURM_JOB_ID", "SLURM_JOB_END_TIME"):
            ENVIRONMENT.pop(name, None)
        ENVIRONMENT["PATH"] = os.environ["PATH"]


main([each_stop_signal, second_signal, copies_of_a_signal, control_c, user_limit, job_limit])
