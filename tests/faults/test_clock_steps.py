# SPDX-License-Identifier: Apache-2.0
"""The clock of the machine is set forward and back by hours during a training: nothing times out, nothing is taken over."""
import os
import shutil
import struct
import subprocess

import pytest

from behaviour import CONVOY, ENVIRONMENT, Folder, config, error_lines
from launching import Launch, wait_for
from programs import helper_program

HOUR = 3600
STEPS = 3000


class Clock:
    """Of the processes with its environment."""

    def __init__(self, folder, name="clock"):
        self.path = folder.file(name)
        self.set(0)

    def set(self, seconds):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as file:  # in place: it is mapped
            file.write(struct.pack("q", seconds))

    def environment(self):
        return {"LD_PRELOAD": helper_program("faults", "libconvoy_faults.so"), "CONVOY_FAULT_CLOCK": self.path}


def folder_of(name, steps, **run):
    return Folder(name, config({"name": "mlp", "hidden": [8]}, run=run, parallel={"timeout": 20},
                               train={"steps": steps, "eval_every_epochs": 0}, checkpoint={"every_steps": 100, "keep": 3}))


def numbers(event):
    """All figures of a line of metrics.jsonl, those in lists too."""
    for key, value in event.items():
        yield from ((key, one) for one in (value if isinstance(value, list) else [value])
                    if isinstance(one, (int, float)) and not isinstance(one, bool))


def test_clock_steps_during_a_training():
    """Forward by more than run.max_time and the timeout, and back beyond the start."""
    folder = folder_of("run", STEPS, max_time="01:00:00")
    clock = Clock(folder)
    with Launch(folder, "--nproc-per-node", "2", environment=clock.environment()) as launch:
        for step, offset in ((200, 2 * HOUR), (800, -2 * HOUR), (1400, HOUR), (2000, 0)):
            launch.reached(step)
            clock.set(offset)
        launch.ends_with(0)
        launch.nothing_left()
        state = launch.state()
    assert state["restarts"] == 0 and len(state["generations"]) == 1
    negative = [(event["event"], key, value) for event in folder.events(("step", "eval", "checkpoint", "health"))
                for key, value in numbers(event) if value < 0]
    assert not negative
    assert all(generation["seconds_lost"] >= 0 for generation in state["generations"])
    whole = folder_of("whole", STEPS)
    whole.train(2)
    assert folder.losses(str) == whole.losses(str)


def test_the_clock_does_jump():
    """Of the program's own lines, so that the test above means something."""
    folder = folder_of("run", 1)
    clock = Clock(folder)
    clock.set(-100 * 365 * 24 * HOUR)
    process = subprocess.run([CONVOY, "train", "run.toml"], cwd=folder.path, env={**ENVIRONMENT, **clock.environment()},
                             capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    with open(folder.file("runs", "run", "log.txt")) as file:
        assert file.read().startswith("19")


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a host name of its own needs root and unshare")
@pytest.mark.parametrize("offset", (2 * HOUR, -2 * HOUR))
def test_a_host_with_another_clock_takes_no_lock(offset):
    """The lock's owner is on "another host", so that only its signs of life count; the observer's clock is wrong."""
    folder = folder_of("run", 10000000)
    clock = Clock(folder)
    clock.set(offset)
    with Launch(folder, "--nproc-per-node", "1") as launch:
        launch.reached(100)
        observer = subprocess.run(["unshare", "-u", "--", "sh", "-c", 'hostname other && exec "$@"', "sh", CONVOY, "train",
                                   "run.toml"], cwd=folder.path, env={**ENVIRONMENT, **clock.environment()},
                                  capture_output=True, text=True, timeout=90)
        assert observer.returncode in (1, 2) and len(error_lines(observer.stderr)) == 1, observer.stderr
        assert "another training" in observer.stderr
        step = max(folder.losses())
        wait_for("more steps of the owner", lambda: max(folder.losses()) > step)
