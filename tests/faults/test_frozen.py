# SPDX-License-Identifier: Apache-2.0
"""A supervisor that is stopped (SIGSTOP) and continued: nobody takes its place meanwhile, and the run goes on."""
import os
import signal
import subprocess
import time

import pytest

from behaviour import Folder, config, error_lines
from launching import Launch, kill, wait_for
from programs import CONVOY, MPI_ENVIRONMENT

STALE = 15  # seconds without a sign of life after which a lock of another host is stale


def folder_of(name, steps):
    return Folder(name, config({"name": "mlp", "hidden": [8]}, train={"steps": steps, "eval_every_epochs": 0},
                               checkpoint={"every_steps": 100, "keep": 3}))


def undisturbed(steps):
    folder = folder_of("whole", steps)
    folder.train(2)
    return folder.losses(str)


def test_frozen_supervisor():
    """Its ranks train on; a rank that dies is replaced when it is continued."""
    folder = folder_of("run", 4000)
    with Launch(folder, "--nproc-per-node", "2") as launch:
        launch.reached(200)
        os.kill(launch.process.pid, signal.SIGSTOP)
        before = max(folder.losses())
        wait_for("training beside a frozen launch", lambda: max(folder.losses()) > before)
        kill(launch.ranks()[0])
        time.sleep(1)
        os.kill(launch.process.pid, signal.SIGCONT)
        launch.ends_with(0)
        launch.nothing_left()
        assert launch.state()["restarts"] == 1
    assert folder.losses(str) == undisturbed(4000)


@pytest.mark.slow
def test_nobody_takes_the_place_of_a_frozen_supervisor():
    """Longer than a lock takes to be stale: the second launch is refused, the first one goes on."""
    folder = folder_of("run", 10000000)
    with Launch(folder, "--nproc-per-node", "2") as launch:
        launch.reached(200)
        os.kill(launch.process.pid, signal.SIGSTOP)
        second = subprocess.run([CONVOY, "launch", "--nproc-per-node", "1", "--", "train", "run.toml"], cwd=folder.path,
                                env={**os.environ, **MPI_ENVIRONMENT}, capture_output=True, text=True, timeout=90)
        assert second.returncode in (1, 2), second.stderr
        assert len(error_lines(second.stderr)) == 1 and str(launch.process.pid) in second.stderr, second.stderr
        time.sleep(STALE)
        os.kill(launch.process.pid, signal.SIGCONT)
        step = max(folder.losses())
        wait_for("more steps", lambda: max(folder.losses()) > step)
        os.kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)
        launch.nothing_left()
        assert launch.state()["restarts"] == 0
