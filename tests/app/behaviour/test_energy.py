# SPDX-License-Identifier: Apache-2.0
"""The energy of a run and of bench, from a powercap folder that the test makes."""
import json
import os
import signal
import time

import pytest

from behaviour import MLP, Folder, config, wait_or_kill


def powercap(folder, energy, range_uj=262143328850):
    """One package with a core domain in it, as Linux shows it."""
    for name, kind in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core")):
        domain = folder.file("powercap", name)
        os.makedirs(domain, exist_ok=True)
        for file, value in (("name", kind), ("energy_uj", energy), ("max_energy_range_uj", range_uj)):
            with open(os.path.join(domain, file), "w") as out:
                out.write(f"{value}\n")


def metered(folder, root="powercap"):
    return ("env", "CONVOY_POWERCAP=" + folder.file(root))


@pytest.mark.parametrize("ranks", (1, 2))
def test_energy_of_a_run(ranks):
    """The counter wraps around once while the run goes on: 328,850 + 5,000,000 microjoules, and two ranks of a node count them once."""
    folder = Folder("run", config(MLP, train={"steps": 10 ** 7, "global_batch_size": 32}, checkpoint={"every_epochs": 0}, log={"every_steps": 10}))
    powercap(folder, 262143000000)
    process = folder.start(ranks, wrapper=metered(folder))
    deadline = time.time() + 60
    while not folder.events("step") and time.time() < deadline:
        time.sleep(0.05)
    with open(folder.file("powercap", "intel-rapl:0", "energy_uj"), "r+") as file:
        file.write("000005000000")  # as long as before: a reader never finds half of it
    while not any("energy_j" in event for event in folder.events("step")) and time.time() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)  # which every mpirun passes on
    assert wait_or_kill(process, 60) == 75
    folder.read_outputs()
    assert [event["energy_j"] for event in folder.events("step") if "energy_j" in event] == [5.32885]
    assert folder.events("end")[-1]["energy_j"] == 5.32885
    with open(folder.file("runs", "run", "log.txt")) as file:
        assert "energy is not" not in file.read()
    assert folder.run(1, "report", "runs/run") == 0
    with open(folder.file("runs", "run", "report.html")) as file:
        assert "<h2>Energy</h2>" in file.read()


def test_energy_that_cannot_be_read_is_said_once():
    folder = Folder("run", config(MLP, train={"steps": 5, "global_batch_size": 32}))
    assert folder.run(1, "train", "run.toml", wrapper=metered(folder, "nothing")) == 0
    with open(folder.file("runs", "run", "log.txt")) as file:
        assert file.read().count("energy is not readable (") == 1
    assert "energy" not in folder.stdout + folder.stderr
    assert not any("energy_j" in event for event in folder.events(("step", "end")))


def test_energy_of_bench():
    folder = Folder("run", config(MLP))
    powercap(folder, 1000000)
    assert folder.run(1, "bench", "run.toml", "--steps", "3", "--warmup", "1", "--json", "b.json", wrapper=metered(folder)) == 0
    with open(folder.file("b.json")) as file:
        assert json.load(file)["results"][0]["energy_j"] == 0  # of a counter that stands still
    assert "energy: 0 J a step" in folder.stdout
