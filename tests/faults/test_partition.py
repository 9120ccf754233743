# SPDX-License-Identifier: Apache-2.0
"""Two hosts lose each other: while they train, and while a training restarts. The hosts are namespaces on this machine."""
import os
import signal
import time

import pytest

from behaviour import Folder, config
from launching import Launch, kill, wait_for
from network import Network

STEPS = 4000  # a few seconds
REASON = Network.missing()
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=REASON)]
TIMEOUT = 4  # seconds that a rank waits for another
DAEMONS = ("orted", "prted", "hydra_pmi_proxy")  # of mpirun, on each host


def folder_of(name, steps=STEPS):
    return Folder(name, config({"name": "mlp", "hidden": [8]}, train={"steps": steps, "eval_every_epochs": 0},
                               parallel={"timeout": TIMEOUT}, checkpoint={"every_steps": 100, "keep": 3}))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The losses of the same training that nobody disturbed."""
    folder = folder_of(tmp_path_factory.mktemp("whole") / "run")
    folder.train(2)
    return folder.losses(str)


@pytest.fixture
def folder():
    return folder_of("run")


@pytest.fixture
def network(folder):
    with Network(folder, ("nodea", "nodeb")) as hosts:
        hosts.list("nodea slots=1\nnodeb slots=1\n")
        yield hosts


def start(folder, network):
    return Launch(folder, "--nodes", "2:2", "--hosts", "hosts.txt", "--max-restarts", "20",
                  environment=network.environment(), wrapper=network.wrapper)


def ends_well(launch, folder, network, expected):
    launch.ends_with(0, 180)
    assert folder.losses(str) == expected
    for host in ("nodea", "nodeb"):
        wait_for(f"an end of all on {host}", lambda host=host: not network.processes(host))


def test_two_hosts_train_as_one(folder, network, expected):
    with start(folder, network) as launch:
        ends_well(launch, folder, network, expected)
    assert launch.state()["restarts"] == 0


def test_partition_during_training(folder, network, expected):
    """The ranks time out; launch waits until the host answers again, and resumes."""
    with start(folder, network) as launch:
        launch.reached(300)
        network.cut("nodeb")
        time.sleep(2 * TIMEOUT)
        network.join("nodeb")
        ends_well(launch, folder, network, expected)
        assert launch.state()["restarts"] >= 1


def test_partition_during_a_restart(folder, network, expected):
    with start(folder, network) as launch:
        launch.reached(300)
        network.cut("nodeb")
        kill(launch.ranks()[0])
        time.sleep(2 * TIMEOUT)
        network.join("nodeb")
        ends_well(launch, folder, network, expected)


def test_killed_daemon(folder, network, expected):
    """kill -9 of what mpirun has started on a host."""
    with start(folder, network) as launch:
        launch.reached(300)
        daemons = [pid for pid, words in network.processes("nodeb") if os.path.basename(words[0]) in DAEMONS]
        assert daemons, network.processes("nodeb")
        for pid in daemons:
            kill(pid, signal.SIGKILL)
        ends_well(launch, folder, network, expected)
        assert launch.state()["restarts"] >= 1
