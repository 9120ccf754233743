# SPDX-License-Identifier: Apache-2.0
"""convoy watch: of a run that has ended, one that goes on, one that was killed, and of what is no run."""
import os
import re
import subprocess
import sys
import time

import pytest

from behaviour import MLP, USAGE, Folder, config, error_lines, wait_or_kill
from programs import CONVOY


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    os.chdir(tmp_path_factory.mktemp("finished"))
    folder = Folder("finished", config(MLP, train={"steps": 20, "global_batch_size": 32, "eval_every_epochs": 0}))
    folder.train()
    return folder


def test_watch_of_a_run_that_has_ended(finished):
    assert finished.run(1, "watch", "runs/run") == 0  # no terminal: once
    lines = finished.stdout.splitlines()
    last, evaluation = finished.events("step")[-1], finished.events("eval")[-1]
    assert lines[0] == "run  ended: finished" and lines[1] == "step 20 of 20 (100.0 %), epoch 1"
    assert lines[2].startswith(f"loss {last['loss']:.4g}, learning rate 0.05, ")
    assert lines[3].startswith(f"evaluation of step 20: loss {evaluation['loss']:.4g}, top-1 {100 * evaluation['top1']:.2f} %")
    assert any("*" in line for line in lines) and lines[-1].split() == ["step", "1", "20"]
    assert all(len(line) <= 80 for line in lines)
    once = finished.stdout
    assert finished.run(1, "watch", "--once", "runs/run/metrics.jsonl") == 0 and finished.stdout == once


def test_long_names_are_cut_between_characters(finished):
    name = "a" + 60 * "ü"  # of two bytes each
    os.rename(finished.file("runs", "run"), finished.file("runs", name))
    try:
        shown = subprocess.run([CONVOY, "watch", "runs/" + name], cwd=finished.path, capture_output=True, check=True).stdout
    finally:
        os.rename(finished.file("runs", name), finished.file("runs", "run"))
    assert shown.split(b"\n")[0].decode() == "a" + 39 * "ü"


def test_watch_of_a_run_that_goes_on_and_of_one_that_was_killed():
    folder = Folder("run", config(MLP, train={"steps": 10 ** 7, "global_batch_size": 32}, checkpoint={"every_epochs": 0}, log={"every_steps": 50}))
    process = folder.start(1)
    deadline = time.time() + 60
    while not folder.events("step") and time.time() < deadline:
        time.sleep(0.05)
    view = [sys.executable, "-c", "import pty,sys; pty.spawn(sys.argv[1:])"]
    shown = subprocess.run([CONVOY, "watch", "runs/run", "--once"], cwd=folder.path, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("run  running (") and re.search(r"step \d+ of 10000000 .* left", shown)
    # On a terminal it redraws until it is ended.
    terminal = subprocess.Popen([*view, CONVOY, "watch", "runs/run"], cwd=folder.path, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                env={**os.environ, "TERM": "xterm"}, start_new_session=True)
    time.sleep(3)
    assert wait_or_kill(terminal, 0.01) is None
    drawn = terminal.stdout.read().decode()
    steps = [int(step) for step in re.findall(r"\x1b\[K\r?\nstep (\d+) of", drawn)]
    assert drawn.count("\x1b[H") >= 2 and len(steps) >= 2 and steps == sorted(steps) and steps[0] < steps[-1]
    assert wait_or_kill(process, 0.01) is None
    folder.run(1, "watch", "runs/run", "--once")
    assert folder.stdout.startswith("run  stale: no process writes it, last line ")


@pytest.mark.parametrize("name, words", (("missing", "there is no run \"missing\""), (".", "no metrics.jsonl in it"),
                                         ("text.jsonl", "is no file of metrics")))
def test_watch_of_what_is_no_run(name, words):
    folder = Folder("folder", {})
    with open(folder.file("text.jsonl"), "w") as file:
        file.write("text\n")
    assert folder.run(1, "watch", name) == USAGE
    assert len(error_lines(folder.stderr)) == 1 and words in folder.stderr
