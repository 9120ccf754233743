# SPDX-License-Identifier: Apache-2.0
"""What the mpirun at hand does with signals and with the ends of ranks: the table of docs/mpi.md, for its MPI."""
import os
import signal
import stat
import subprocess

import pytest

from behaviour import CONVOY, ENVIRONMENT, MLP, SMALL_NET, USAGE, Folder, config, rank_processes, same_series
from programs import mpi_kind
from stopping import LONG, STOPPED, ended, wait_for_step

OPEN_MPI, MPICH = ("orte", "prrte"), ("hydra",)
PASSED_ON = {"orte": ("SIGUSR1", "SIGUSR2"), "prrte": ("SIGUSR1", "SIGUSR2"), "hydra": ("SIGUSR1", "SIGTERM", "SIGINT")}
# The end of mpirun by the signals that it does not pass on.
ENDS = {("orte", "SIGTERM"): 1, ("orte", "SIGINT"): 1, ("prrte", "SIGTERM"): 1, ("prrte", "SIGINT"): 1,
        ("hydra", "SIGUSR2"): -signal.SIGUSR2}
# Hydra may lose the exit codes of its ranks after a signal (docs/mpi.md).
STOPPED_BY_MPIRUN = {"orte": (STOPPED,), "prrte": (STOPPED,), "hydra": (STOPPED, 0)}
KILLED_RANK = {"orte": 128 + signal.SIGKILL, "prrte": 128 + signal.SIGKILL, "hydra": signal.SIGKILL}
FAKES = {"orte": "HYDRA build details:", "prrte": "HYDRA build details:", "hydra": "mpirun (Open MPI) 4.1.4"}
# What ranks find in their environment when the mpirun of another MPI has started them.
OTHER = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}


def same_as_uninterrupted(folder, steps):
    """The same command resumes the run, with the losses of one that was not stopped."""
    folder.train(2)
    whole = Folder("uninterrupted", config(SMALL_NET, train={"steps": steps}))
    whole.train(2)
    same_series("resumed", folder.losses(str), whole.losses(str))


@pytest.mark.parametrize("name", ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT"))
def test_signal_to_mpirun(name):
    """It reaches the ranks, which stop with a checkpoint, or it ends the job; no process is left."""
    folder = Folder("stopped", config(MLP, train={"steps": LONG}))
    process = folder.start(2)
    wait_for_step(folder, process, 5)
    assert len(rank_processes(process)) == 2
    process.send_signal(getattr(signal, name))
    if name in PASSED_ON[mpi_kind()]:
        ended(folder, process, STOPPED_BY_MPIRUN[mpi_kind()])
        end = folder.events("end")[-1]
        assert end["reason"] == "signal"
        assert folder.checkpoints()[-1].endswith(f"step-{end['step']:08}.h5")
    else:
        ended(folder, process, ENDS[mpi_kind(), name])


@pytest.mark.parametrize("ranks", (2, 4))
def test_control_c(ranks):
    """To the process group, as a terminal does. Open MPI 4 and MPICH leave the ranks time for a checkpoint."""
    folder = Folder("stopped", config(MLP, train={"steps": LONG}, checkpoint={"every_steps": 5}))
    process = folder.start(ranks)
    wait_for_step(folder, process, 10)
    os.killpg(process.pid, signal.SIGINT)
    ended(folder, process, STOPPED_BY_MPIRUN["hydra"] if mpi_kind() == "hydra" else 1)
    newest = folder.checkpoints()[-1]
    if mpi_kind() != "prrte":  # which kills its ranks after a quarter of a second
        end = folder.events("end")[-1]
        assert end["reason"] == "signal"
        assert newest.endswith(f"step-{end['step']:08}.h5")


def test_killed_rank():
    folder = Folder("killed", config(SMALL_NET, train={"steps": 200}, checkpoint={"every_steps": 20}))
    process = folder.start(2)
    wait_for_step(folder, process, 50)
    os.kill(rank_processes(process)[1], signal.SIGKILL)
    ended(folder, process, KILLED_RANK[mpi_kind()])
    same_as_uninterrupted(folder, 200)


def test_mpirun_of_another_mpi_is_refused_before_mpi_starts():
    folder = Folder("other", config(MLP))
    variables = OTHER[mpi_kind() in MPICH]
    result = subprocess.run([CONVOY, "train", "run.toml"], cwd=folder.path, env={**ENVIRONMENT, **variables}, check=False,
                            capture_output=True, text=True, timeout=60)
    version = subprocess.run([CONVOY, "--version"], check=True, capture_output=True, text=True).stdout
    mpi = version.split("MPI      ")[1].split("\n")[0]
    name = "OMPI_COMM_WORLD_SIZE" if mpi_kind() in MPICH else "PMI_SIZE"
    assert result.returncode == USAGE
    assert result.stderr == (
        f"convoy: error: the launcher started 2 ranks ({name}), but each is alone in its MPI world: the launcher belongs to "
        f"another MPI than the {mpi} that convoy was built with\n"
        "  start it with that MPI's own mpirun, or build convoy with the launcher's MPI\n")
    assert not os.path.exists(folder.file("runs"))


def test_launch_refuses_the_mpirun_of_another_mpi():
    """It takes the first mpirun in PATH that belongs to its MPI. Here there is none."""
    folder = Folder("other", config(MLP))
    os.mkdir(folder.file("bin"))
    path = folder.file("bin", "mpirun")
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\necho '{FAKES[mpi_kind()]}'\n")
    os.chmod(path, stat.S_IRWXU)
    os.symlink("/bin/sh", folder.file("bin", "sh"))
    result = subprocess.run([CONVOY, "launch", "--", "train", "run.toml"], cwd=folder.path, check=False, capture_output=True,
                            text=True, timeout=60, env={**ENVIRONMENT, "PATH": folder.file("bin")})
    assert result.returncode == USAGE
    assert result.stderr.startswith("convoy: error: launch: mpirun in PATH belongs to another MPI than the ")
    assert result.stderr.count("\n") == 1
    assert not folder.events(("start", "step"))
