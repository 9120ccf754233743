# SPDX-License-Identifier: Apache-2.0
"""Jobs for the tests: submitting the files of slurm/, waiting for what they do, comparing with a run that nobody stopped.

Stands on cluster.py and the harness of tests/app/behaviour. Every wait has an end, and shows the job's output when it
gets there. A test file imports `cluster` and `nodes`, which apply to all its tests.
"""
import glob
import os
import re
import sys

import pytest

from programs import CONVOY, MPIRUN, ROOT

sys.path.insert(0, os.path.join(ROOT, "tests", "app", "behaviour"))

from behaviour import SMALL_NET, Folder, close_series, config, same_series  # noqa: E402, F401
from cluster import NODES, Cluster, reason_not_here  # noqa: E402

ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL")
TWO_BY_TWO = ("--nodes=2", "--ntasks-per-node=2")
MARKS = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]


class Here:
    """The cluster of this test file, and the losses of the run that nobody stopped, by step, as text."""
    cluster = None
    losses = {}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """One for all tests of a file."""
    reason = reason_not_here()
    if reason:
        pytest.skip(reason)
    with Cluster() as Here.cluster:
        plugins = Here.cluster.run("srun", "--mpi=list")
        if "pmix" not in plugins.stdout + plugins.stderr:
            pytest.skip("this Slurm has no PMIx")
        yield Here.cluster


@pytest.fixture(autouse=True)
def nodes(cluster):
    """What a test that failed has left is repaired for the next."""
    yield
    cluster.run("scancel", "--user=root")
    for node in NODES:
        if node not in cluster.daemons:
            cluster.start_node(node)
            cluster.wait(node, lambda: cluster.node_state(node) == "idle", 60)


def long_run(name, steps, **parallel):
    """A config that trains for a while. Its learning rate is constant: the first steps do not know how many follow."""
    return Folder(name, config(SMALL_NET, train={"steps": steps, "global_batch_size": 32},
                               parallel=parallel,
                               checkpoint={"every_epochs": 0, "every_steps": 200, "keep": 3}))


def expected_losses(steps):
    """Of a run on 2x2 ranks that went through without a stop, by mpirun: the launcher must change no bit either."""
    if len(Here.losses) < steps:
        folder = long_run(f"uninterrupted-{steps}", steps)
        Job(folder, "train_mpirun.sbatch", "run.toml").ends()
        Here.losses = folder.losses(parse_float=str)
        assert sorted(Here.losses) == list(range(1, steps + 1))
        assert [entry["ranks"] for entry in folder.events("start")] == [4]
    return Here.losses


def is_uninterrupted(folder, steps):
    """The steps of a run that was stopped, all of them, are those of one that was not."""
    losses, expected = folder.losses(parse_float=str), expected_losses(steps)
    same_series("stopped", {step: losses.get(step) for step in range(1, steps + 1)},
                {step: expected.get(step) for step in range(1, steps + 1)})


class Job:
    def __init__(self, folder, script, *arguments, options=TWO_BY_TWO, **variables):
        self.folder = folder
        result = Here.cluster.run("sbatch", "--parsable", *options, os.path.join(ROOT, "slurm", script), *arguments,
                                  cwd=folder.path, **{"CONVOY": CONVOY, "MPIRUN": MPIRUN, **variables})
        self.id = result.stdout.strip()
        if not self.id.isdigit():
            raise RuntimeError(f"sbatch {script}: {result.stdout}{result.stderr}")

    def show(self):
        return Here.cluster.show(self.id)

    def output(self):
        """What all its starts and tasks have written."""
        text = ""
        for path in sorted(glob.glob(self.folder.file(f"*-{self.id}[._]*"))):
            with open(path, errors="replace") as file:
                text += file.read()
        return text

    def steps(self):
        return max((entry["step"] for entry in self.folder.events("step")), default=0)

    def rank_processes(self, number):
        """The process of the job's rank with that number, as this machine counts processes."""
        return self.processes(CONVOY + "\0train\0", f"SLURM_PROCID={number}")

    def processes(self, command_line, *variables):
        """Of the job: those whose command line, with zeros between the words, begins so."""
        wanted = {f"SLURM_CONF={Here.cluster.file('slurm.conf')}", f"SLURM_JOB_ID={self.id}", *variables}
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ") as environment, open(f"/proc/{pid}/cmdline") as command:
                    if wanted <= set(environment.read().split("\0")) and command.read().startswith(command_line):
                        found.append(int(pid))
            except OSError:
                continue
        return found

    def wait(self, what, condition, seconds):
        try:
            Here.cluster.wait(what, condition, seconds)
        except RuntimeError as error:
            output = self.output()[-4000:]
            Here.cluster.run("scancel", self.id)
            raise RuntimeError(f"{error}\n--- job {self.id}\n{output}") from None

    def wait_for_step(self, step, seconds=90):
        self.wait(f"step {step}", lambda: self.steps() >= step or self.show().get("JobState") in ENDED, seconds)
        if self.show().get("JobState") in ENDED:
            raise RuntimeError(f"job {self.id} ended too early\n{self.output()[-4000:]}")

    def wait_for_start(self, number, seconds=90):
        """Until the run has been started so many times, and made a step since."""
        self.wait(f"start {number}", lambda: len(self.folder.events("start")) >= number, seconds)

    def ends(self, state="COMPLETED", exit_code="0:0", restarts=None, seconds=120):
        """Waits for the end, which must be this one; any exit code where None is said."""
        self.wait("the end of the job", lambda: self.show().get("JobState") in ENDED, seconds)
        seen = self.show()
        assert seen["JobState"] == state, self.output()[-4000:]
        assert exit_code in (None, seen["ExitCode"]), self.output()[-4000:]
        assert restarts in (None, int(seen["Restarts"])), "requeued"
        return seen


def resumed_steps(folder):
    """The steps at which the run's starts began, 0 for a fresh one."""
    return [int(re.search(r"step-(\d+)", entry["resumed_from"] or "step-0").group(1)) for entry in folder.events("start")]
