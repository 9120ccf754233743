# SPDX-License-Identifier: Apache-2.0
"""Stops outside of training steps: an evaluation that is cut short is made first after the resume, and each stands in the
metrics once, with the numbers of the undisturbed run; staging, measuring and timing end after a slice, a round, a step."""
import copy
import functools
import os
import re
import shutil
import signal
import time

import pytest

from behaviour import DIGITS, SMALL_NET, Folder, config, kill_tree, rank_processes
from stopping import STOPPED, ended, stopped

EPOCHS, STEPS = 2, 22    # 359 samples in batches of 16
BATCHES = 90             # 1,438 samples


def slow_evaluation():
    """Little to train on and much to evaluate. The checkpoint is complete before the evaluation begins."""
    net = copy.deepcopy(SMALL_NET)
    net["layers"][0]["out_channels"], net["layers"][3]["channels"] = 32, 96
    return config(net, train={"steps": None, "epochs": EPOCHS, "global_batch_size": 16}, checkpoint={"async": False},
                  data={"train": DIGITS + ":/validation", "validation": DIGITS + ":/train"})


def evaluations(folder):
    return [{key: value for key, value in event.items() if key != "seconds"} for event in folder.events("eval", str)]


@functools.lru_cache(maxsize=None)
def undisturbed(ranks):
    folder = Folder("undisturbed", slow_evaluation())
    folder.train(ranks)
    assert [event["step"] for event in folder.events("eval")] == [STEPS, 2 * STEPS]
    order = [event["event"] for event in folder.events(("eval", "end"))]
    assert order == ["eval", "eval", "end"]
    return evaluations(folder), folder.losses(str)


def interrupted_in_evaluation(ranks, epoch, kill, **train):
    """After the checkpoint of an epoch, and so within its evaluation."""
    sections = slow_evaluation()
    sections["train"].update(train)
    folder = Folder("stopped", sections)
    process = folder.start(ranks)
    checkpoint = folder.file("runs", "run", "checkpoints", f"step-{epoch * STEPS:08}.h5")
    deadline = time.time() + 60
    while not os.path.exists(checkpoint) and process.poll() is None and time.time() < deadline:
        time.sleep(0.0005)
    if kill:
        kill_tree(process)
    else:
        process.send_signal(signal.SIGUSR1)
        ended(folder, process, stopped(ranks))
    assert os.path.exists(checkpoint), "no checkpoint before the evaluation"
    steps = [event["step"] for event in folder.events("eval")]
    assert epoch * STEPS not in steps, "the evaluation was over before the signal: too short for this test"
    return folder


def goes_on(folder, ranks):
    folder.train(ranks)
    expected, losses = undisturbed(ranks)
    assert evaluations(folder) == expected
    assert folder.losses(str) == losses
    assert folder.events("end")[-1]["reason"] == "finished"
    return [event["event"] for event in folder.events(("start", "step", "eval"))]


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("epoch", (1, EPOCHS))
def test_evaluation_stops_after_the_batch_and_is_made_first_after_the_resume(ranks, epoch):
    folder = interrupted_in_evaluation(ranks, epoch, kill=False)
    told = re.search(r"stopped after step (\d+) in batch (\d+) of (\d+) of its evaluation \(signal\)", folder.stdout)
    assert told, folder.stdout[-500:]
    step, batch, batches = map(int, told.groups())
    assert step == epoch * STEPS and batches == BATCHES and 1 <= batch < BATCHES
    assert folder.events("end")[-1]["reason"] == "signal"
    events = goes_on(folder, ranks)
    second_start = len(events) - 1 - events[::-1].index("start")
    assert events[second_start + 1] == "eval", "steps came before the evaluation that was due"
    folder.train(ranks)
    assert "already finished" in folder.stdout
    assert evaluations(folder) == undisturbed(ranks)[0], "evaluated again"


def test_evaluation_that_was_killed_is_made_first():
    folder = interrupted_in_evaluation(1, 1, kill=True)
    events = goes_on(folder, 1)
    second_start = len(events) - 1 - events[::-1].index("start")
    assert events[second_start + 1] == "eval"


def test_evaluation_at_the_end_alone_comes_after_the_checkpoint():
    """eval_every_epochs = 0: killed in its only evaluation, a run resumes with it, and has nothing else to do."""
    folder = interrupted_in_evaluation(1, EPOCHS, kill=True, eval_every_epochs=0)
    folder.train(1)
    assert evaluations(folder) == undisturbed(1)[0][-1:]


def test_staging_stops_after_the_slice():
    """A copy of 1 GiB in slices of 25 ms ends with the slice: the file is not complete, and the next start copies it."""
    sections = config(train={"steps": 2, "eval_every_epochs": 0}, parallel={"timeout": 0.1},
                      data={"train": "digits.h5:/train", "validation": None, "stage_dir": "stage"})
    folder = Folder("staged", sections)
    shutil.copy(DIGITS, folder.file("digits.h5"))
    os.truncate(folder.file("digits.h5"), os.path.getsize(DIGITS) + (1 << 30))  # a hole; HDF5 does not look at it
    process = folder.start(1)
    deadline = time.time() + 60

    def copied():
        names = [os.path.join(place, name) for place, _, inside in os.walk(folder.file("stage")) for name in inside]
        return [name for name in names if os.path.exists(name) and os.path.getsize(name) > 0]

    while not copied() and process.poll() is None and time.time() < deadline:
        time.sleep(0.0005)
    process.send_signal(signal.SIGTERM)
    ended(folder, process, STOPPED)
    assert "stopped while staging the data (signal)" in folder.stdout and not folder.stderr
    assert all(os.path.getsize(path) < 1 << 30 for path in copied()), "all of it was copied"
    os.truncate(folder.file("digits.h5"), os.path.getsize(DIGITS))
    sections["parallel"]["timeout"] = 60
    folder.configure(sections)
    folder.train(1)
    shutil.rmtree(folder.file("stage"))


def catches_stop_signals(pid):
    """SIGUSR2 shows it: MPICH catches SIGUSR1 for itself until convoy does."""
    try:
        caught = re.search(r"SigCgt:\s*(\w+)", open(f"/proc/{pid}/status").read()).group(1)
    except OSError:
        return False
    return int(caught, 16) >> (signal.SIGUSR2 - 1) & 1


@pytest.mark.parametrize("ranks", (1, 2))
def test_bench_stops_after_the_step(ranks):
    folder = Folder("bench", config(SMALL_NET))
    process = folder.start(ranks, "bench", "run.toml", "--steps", "100000", "--warmup", "0")
    deadline = time.time() + 60
    while process.poll() is None and time.time() < deadline:
        pids = [process.pid] if ranks == 1 else list(rank_processes(process).values())
        if len(pids) == ranks and all(map(catches_stop_signals, pids)):
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGUSR1)
    ended(folder, process, stopped(ranks))
    assert "stopped while timing steps (signal)" in folder.stdout


def test_plan_stops_after_a_layout():
    """With 4,096 ranks there are thousands of layouts to simulate."""
    folder = Folder("plan", config(SMALL_NET, train={"global_batch_size": 4096}))
    process = folder.start(1, "plan", "run.toml", "--machine", "h200_dgx", "--ranks", ",".join(["4096"] * 200))
    deadline = time.time() + 60
    while "samples/s" not in open(folder.file("stdout.txt")).read() and process.poll() is None and time.time() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    ended(folder, process, STOPPED)
    assert "stopped while planning (signal)" in folder.stdout
