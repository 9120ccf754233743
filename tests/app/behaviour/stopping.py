# SPDX-License-Identifier: Apache-2.0
"""What the tests of runs that stop share: waiting for a step and for the end."""
import time

import pytest

from behaviour import kill_tree, processes_in, wait_or_kill
from programs import mpi_kind

LONG = 100000  # steps: never reached
STOPPED = 75   # exit code


def stopped(ranks):
    """The exit codes of a run that was stopped. Hydra may lose those of its ranks after a signal (docs/mpi.md)."""
    return STOPPED if ranks == 1 or mpi_kind() != "hydra" else (STOPPED, 0)


def wait_for_step(folder, process, step, seconds=60):
    deadline = time.time() + seconds
    while process.poll() is None and time.time() < deadline:
        steps = folder.events("step")
        if steps and steps[-1]["step"] >= step:
            return
        time.sleep(0.01)
    kill_tree(process)
    pytest.fail(f"step {step} was not reached")


def ended(folder, process, code, seconds=30):
    """The run ends with `code`, or one of several, and leaves no process."""
    found = wait_or_kill(process, seconds)
    folder.read_outputs()
    assert found in (code if isinstance(code, tuple) else (code,)), f"exit code {found}\n{folder.stdout[-500:]}\n{folder.stderr[-1500:]}"
    deadline = time.time() + 5
    while processes_in(folder.path) and time.time() < deadline:
        time.sleep(0.05)
    assert not processes_in(folder.path), "processes are still there"
