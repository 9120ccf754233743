# SPDX-License-Identifier: Apache-2.0
"""What a run says about its ranks: how even they are, who holds the others up, who was started with something else."""
import os
import re
import signal
import subprocess
import time

import pytest

from behaviour import CONVOY, ENVIRONMENT, MLP, MPIRUN, SMALL_NET, USAGE, Folder, config, rank_processes, toml


def test_health_event_every_log_interval():
    """One event and one line in log.txt every log.every_steps; ordered figures; a rank and its host."""
    folder = Folder("health-events", config(SMALL_NET, train={"steps": 20}, log={"every_steps": 5}))
    folder.train(2)
    events = folder.events("health")
    assert [event["step"] for event in events] == [5, 10, 15, 20]
    for event in events:
        assert event["steps"] == 5, "means over another number of steps"
        for name in ("step_s", "busy_s", "data_wait_s", "communication_wait_s"):
            low, middle, high = event[name]
            assert 0 <= low <= middle <= high, name
        assert 0 < event["busy_s"][2] <= event["step_s"][2], "busy longer than the step"
        assert event["slowest_rank"] in (0, 1) and event["slowest_host"]
    log = open(folder.file("runs", "run", "log.txt")).read()
    assert len(re.findall(r"step \d+: busy .* slowest: rank [01] on ", log)) == 4
    assert re.search(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d info: start on 2 ranks", log), log[:100]
    assert "checkpoint written in" in log and "finished after step 20" in log
    checkpoint = folder.events("checkpoint")[-1]
    assert 0 <= checkpoint["stall_s"] and 0 < checkpoint["seconds"]


def test_one_rank_has_no_health_events():
    folder = Folder("health-alone", config(train={"steps": 4}))
    folder.train(1)
    assert not folder.events("health")


def test_straggler_is_named():
    """Rank 1 is slower than the other: here, because it is stopped two thirds of the time."""
    folder = Folder("health-straggler", config(
        {"name": "resnet18", "stem": "small"}, train={"steps": 24, "eval_every_epochs": 0},
        checkpoint={"every_epochs": 0}, log={"every_steps": 8, "progress": "lines"}))
    process = folder.start(2)
    deadline = time.time() + 120
    held = None
    while process.poll() is None and time.time() < deadline:
        if held is None:
            held = rank_processes(process).get(1)
        if held is None or not folder.events("step"):
            time.sleep(0.02)
            continue
        try:
            os.kill(held, signal.SIGSTOP)
            time.sleep(0.2)
            os.kill(held, signal.SIGCONT)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    code = process.wait(60)
    folder.read_outputs()
    assert code == 0, folder.stderr[-1000:]
    event = folder.events("health")[-1]
    assert event["slowest_rank"] == 1 and event["slowdown"] > 1.25
    assert len(re.findall("rank 1 on .* holds the others up", folder.stdout)) == 1, f"not said once:\n{folder.stdout}"


@pytest.mark.parametrize("commands, expected", (
    pytest.param([(3, ["run.toml"]), (1, ["other.toml"])],
                 ["rank 3 (", "another config", "other.toml", "not run.toml", "start every rank with the same file"], id="file"),
    pytest.param([(1, ["other.toml"]), (2, ["run.toml"])], ["rank 0 (", "other.toml"], id="rank_0"),
    pytest.param([(2, ["run.toml"]), (2, ["run.toml", "--set", "optimizer.lr=0.5"])],
                 ["ranks 2 (", "3 (", "optimizer.lr=0.5", "same command line"], id="overrides")))
def test_ranks_with_other_configs_are_named(commands, expected):
    """In two lines, by one rank."""
    folder = Folder("run", config(MLP, train={"steps": 4}))
    with open(folder.file("other.toml"), "w") as file:
        file.write(toml(config(MLP, train={"steps": 5})))
    # By the rank's number: Debian 13's mpirun (5.0.7) crashes on any command line with a colon.
    by_rank = [" ".join(arguments) for ranks, arguments in commands for _ in range(ranks)]
    cases = "".join(f"{rank}) exec {CONVOY} train {arguments} ;;\n" for rank, arguments in enumerate(by_rank))
    words = [MPIRUN, "-n", str(len(by_rank)), "sh", "-c",
             "case ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} in\n" + cases + "esac"]
    result = subprocess.run(words, cwd=folder.path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60,
                            stdin=subprocess.DEVNULL)
    lines = result.stderr.split("\n")
    ours = [i for i, line in enumerate(lines) if line.startswith("convoy: error:")]
    assert result.returncode == USAGE and len(ours) == 1, result.stderr
    message = "\n".join(lines[ours[0]:ours[0] + 2])
    for text in expected:
        assert text in message
    assert not os.path.exists(folder.file("runs")), "a run folder was made"
