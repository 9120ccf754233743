# SPDX-License-Identifier: Apache-2.0
"""`convoy launch` on hosts that come, go and crash. The hosts are namespaces on this machine."""
import os
import signal

import pytest

from behaviour import Folder, config
from launching import Hosts, Launch, kill, wait_for

# Without batch norm and with a small step, so that ranks change the losses by rounding only; wide, to take its time.
WIDE = {"name": "mlp", "hidden": [768, 256]}
RUN = {"train": {"global_batch_size": 64, "eval_every_epochs": 0},
       "optimizer": {"lr": 0.001, "momentum": 0.0, "weight_decay": 0.0},
       "checkpoint": {"every_steps": 100, "every_epochs": 0, "keep": 3}}
REASON = Hosts.missing()
pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(REASON), reason=REASON)]


def start(name, steps=10000000, **sections):
    folder = Folder(name, config(WIDE, **{**RUN, "train": {**RUN["train"], "steps": steps}, **sections}))
    return folder, Hosts(folder)


def ranks_by_generation(folder):
    return [event["ranks"] for event in folder.events("start")]


def sampled(folder):
    """What each step saw, by the sampler's record."""
    return {e["step"]: (e["epoch"], e["position"], e["samples"], e["samples_crc32c"]) for e in folder.events("step")}


def test_grows_and_shrinks():
    """As in the torchrun tutorial: one host, then two, then one again."""
    folder, hosts = start("elastic")
    hosts.list("nodea slots=2\n")
    with Launch(folder, "--nodes", "1:2", "--hosts", "hosts.txt", environment=hosts.environment()) as launch:
        launch.reached(100)
        hosts.list("nodea slots=2\nnodeb slots=2\n")
        launch.generation(2)
        hosts.list("nodeb slots=2  # and nodea goes\n")
        launch.generation(3)
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)
        launch.nothing_left()
        state = launch.state()
        assert state["restarts"] == 0
        assert [g["hosts"] for g in state["generations"]] == ["nodea:2", "nodea:2 nodeb:2", "nodeb:2"]
    assert ranks_by_generation(folder) == [2, 4, 2]
    assert [event["reason"] for event in folder.events("end")] == ["signal"] * 3
    starts = [event["step"] for event in folder.events("start")]
    ends = [event["step"] for event in folder.events("end")]
    assert starts[1:] == ends[:2]
    whole, _ = start("whole", ends[2])
    whole.train(2)
    assert sampled(folder) == sampled(whole)
    actual, expected = folder.losses(), whole.losses()
    assert sorted(actual) == list(range(1, ends[2] + 1))
    exact = [step for step in range(1, ends[0] + 1) if actual[step] != expected[step]]
    assert not exact
    worst = max(abs(actual[s] - expected[s]) / expected[s] for s in expected)
    assert worst < 1e-3


def test_waits_while_hosts_are_too_few():
    folder, hosts = start("few")
    hosts.list("# nobody yet\n")
    with Launch(folder, "--nodes", "2:2", "--hosts", "hosts.txt", environment=hosts.environment()) as launch:
        wait_for("it says that it waits", lambda: "waits for hosts: 0 can be used" in launch.stderr())
        hosts.list("nodea\n")
        assert not folder.events("start")
        hosts.list("nodea\nnodeb\n")
        launch.generation(1)
        hosts.list("nodea\nno good line\n")  # is not followed
        wait_for("a bad line is named", lambda: "hosts.txt:2: unknown word" in launch.stderr())
        os.remove(folder.file("hosts.txt"))
        wait_for("a missing file is named", lambda: "cannot read hosts.txt" in launch.stderr())
        assert len(folder.events("start")) == 1
        hosts.list("nodea\n")
        wait_for("it stops and waits", lambda: "waits for hosts: 1 can be used (nodea:1)" in launch.stderr())
        assert folder.events("end")[-1]["reason"] == "signal"
        assert not launch.ranks()
        hosts.list("nodea\nnodeb\n")
        launch.generation(2)
        assert launch.state()["restarts"] == 0
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)


def test_crashed_host_is_left_out():
    """A host that dies is left out, and used again when it answers."""
    folder, hosts = start("crash")
    hosts.list("nodea slots=2\nnodeb slots=2\n")
    with Launch(folder, "--nodes", "1:2", "--hosts-from", "cat hosts.txt", environment=hosts.environment()) as launch:
        launch.reached(150)
        hosts.crash("nodeb")
        launch.generation(2)
        assert ranks_by_generation(folder) == [4, 2]
        assert "host nodeb: nothing can be started there" in launch.stderr(), launch.stderr()
        state = launch.state()
        assert state["restarts"] == 1 and not state["generations"][0]["program_error"]
        hosts.repair("nodeb")
        launch.generation(3)
        assert ranks_by_generation(folder) == [4, 2, 4]
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)
        launch.nothing_left()


def test_host_whose_disk_fails_is_left_out():
    """Data cannot be staged on one of two hosts: that is no wrong config, and the other one trains."""
    folder, hosts = start("disk", data={"stage_dir": "/tmp/disk/stage"})
    os.makedirs(folder.file("hosts", "nodea", "disk"))  # its /tmp; nodeb has no such disk
    hosts.list("nodea slots=2\nnodeb slots=2\n")
    with Launch(folder, "--nodes", "1:2", "--hosts", "hosts.txt", environment=hosts.environment()) as launch:
        launch.generation(1)
        assert ranks_by_generation(folder) == [2]
        state = launch.state()
        assert "cannot create the folder /tmp/disk/stage" in state["generations"][0]["exit"]
        assert state["restarts"] == 1 and not state["generations"][0]["program_error"]
        assert state["generations"][1]["hosts"] == "nodea:2"
        assert "host nodeb: its system failed; left out for 10 s" in launch.stderr(), launch.stderr()
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)


def test_silent_host_holds_nobody_up():
    """A host that hangs while ranks are being started holds nobody up once it is taken off the list."""
    folder, hosts = start("silent")
    hosts.list("nodea slots=2\nnodeb slots=2\n")
    hosts.silence_after_next("nodeb")
    with Launch(folder, "--nodes", "1:2", "--hosts", "hosts.txt", environment=hosts.environment()) as launch:
        wait_for("mpirun starts", launch.mpirun)
        hosts.list("nodea slots=2\n")
        launch.generation(1)
        assert ranks_by_generation(folder) == [2]
        state = launch.state()
        assert len(state["generations"]) == 2 and state["restarts"] == 0
        assert "which has not begun to train" in launch.stderr(), launch.stderr()
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)
        launch.nothing_left()
        left = [words for _, words in hosts.processes("nodea") + hosts.processes("nodeb")]
        assert not left
