# SPDX-License-Identifier: Apache-2.0
"""scripts/bench_cpu.sh as a user runs it: the smallest network beside the system's PyTorch, what it writes, what it
says of wrong options and of a PyTorch that is not there; and the networks that both benchmarks share, by their sizes.

Skipped without torch. No speed is asserted, only that the figures follow from each other.
"""
import json
import os
import statistics
import subprocess
import sys
import time

import pytest

from programs import CONVOY, ROOT

torch = pytest.importorskip("torch")
SCRIPTS = os.path.join(ROOT, "scripts")
sys.path.insert(0, SCRIPTS)
import torch_models  # noqa: E402
from torch_server import TorchError, TorchServer  # noqa: E402


def bench(*words, folder=".", convoy=CONVOY, python=sys.executable):
    command = [os.path.join(SCRIPTS, "bench_cpu.sh"), "--python", python, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL,
                          env={**os.environ, "CONVOY": convoy, "PYTHON": sys.executable})


def read_figures(folder):
    with open(os.path.join(folder, "bench_cpu.json"), encoding="utf-8") as file:
        return json.load(file)


# ---- networks

@pytest.mark.parametrize("parameters, model", (
    # As published with torchvision; of the MLP and the toy by hand.
    (25557032, {"name": "resnet50", "classes": 1000}), (11689512, {"name": "resnet18", "classes": 1000}),
    (60192808, {"name": "resnet152", "classes": 1000}),
    (10 * 10 + 10 + 10 * 5 + 5, {"name": "toy", "classes": 5}),
    (784 * 20 + 20 + 20 * 10 + 10, {"name": "mlp", "classes": 10, "hidden": [20]})), ids=str)
def test_parameters(monkeypatch, parameters, model):
    for name in ("kaiming_normal_", "kaiming_uniform_", "uniform_"):  # numbers alone are counted: they need no values
        monkeypatch.setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    assert sum(each.numel() for each in torch_models.build(torch, **model).parameters()) == parameters


def test_small_stem_keeps_the_size():
    small = torch_models.build(torch, "resnet18", 10, stem="small").eval()
    assert small[:4](torch.rand(1, 3, 32, 32)).shape == (1, 64, 32, 32)


# ---- a measurement

@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a measurement that has ended well."""
    folder = tmp_path_factory.mktemp("measured")
    done = bench("--quick", "--only", "toy_b20", "--threads", "1", "--precision", "fp32", "--compile-limit", "0",
                 "--repeat", "2", "--out", "out", folder=folder)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return folder / "out"


@pytest.fixture(scope="module")
def result(measured):
    return read_figures(measured)["results"][0]


def test_one_result_and_no_failure(measured):
    figures = read_figures(measured)
    assert not figures["failures"] and len(figures["results"]) == 1


def test_two_measurements_of_each(result):
    mine, theirs = (side["images_per_second"] for side in (result["convoy"], result["torch"]["eager"]))
    assert len(mine) == len(theirs) == 2 and min(mine + theirs) > 0


def test_ratios_are_those_of_the_same_repeat(result):
    mine, theirs = (side["images_per_second"] for side in (result["convoy"], result["torch"]["eager"]))
    ratios = [a / b for a, b in zip(mine, theirs)]
    assert result["ratio"]["per_repeat"] == ratios and result["ratio"]["median"] == statistics.median(ratios)


def test_toy_beside_eager_pytorch(result):
    assert result["parameters"] == 165 and result["best_variant"] == "eager"


def test_no_compile_limit_leaves_compile_out(result):
    assert result["torch"]["compile"]["error"] == "left out"


def test_memory_of_pytorch(result):
    memory = result["torch"]["eager"]
    assert memory["peak_memory_bytes"] >= memory["memory_before_bytes"] > 2**24


def test_version_of_pytorch(measured):
    assert read_figures(measured)["versions"]["pytorch"]["torch"] == torch.__version__


def test_table_has_the_row(measured):
    assert "| toy (10-10-5), batch 20 | fp32 | 1 |" in (measured / "README.md").read_text(encoding="utf-8")


def test_no_folder_of_this_machine(measured):
    assert str(measured.parent) not in (measured / "README.md").read_text(encoding="utf-8")
    assert str(measured.parent) not in json.dumps(read_figures(measured)["command"])


def test_scaling():
    """Two ranks beside one, and beside two processes: waiting for the slower one never makes them faster."""
    done = bench("--quick", "--scaling-only", "--only", "toy_b20", "--precision", "fp32", "--repeat", "2", "--out", "out")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    figures = read_figures("out")
    if len(os.sched_getaffinity(0)) < 2:
        assert "without_scaling" in figures, "one core leaves nothing to compare"
        return
    result = figures["scaling"][0]
    one, two = (result["images_per_second"][ranks] for ranks in ("1", "2"))
    assert result["ratio"]["per_repeat"] == [b / a for a, b in zip(one, two)] and len(one) == 2
    free, in_step = (result[f"processes{kind}_ratio"]["per_repeat"] for kind in ("", "_in_step"))
    assert len(free) == len(in_step) == 2
    assert all(0 < b <= a * 1.000001 for a, b in zip(free, in_step))  # rounding


# ---- errors

@pytest.mark.parametrize("words, message", (
    (["--only", "toy"], "there is no 'toy'"), (["--threads", "0"], "is no list of numbers"),
    (["--threads", "9999"], "want as many cores"), (["--precision", "fp16"], "fp32 and bf16"),
    (["--repeat", "0"], "at least 1")), ids=str)
def test_wrong_options(words, message):
    done = bench(*words)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_no_program_writes_nothing():
    done = bench("--out", "none", "--only", "toy_b20", convoy="/nowhere/convoy")
    assert done.returncode == 2 and "there is no program" in done.stderr, done.stderr
    assert not os.path.exists("none")


def test_python_without_torch_is_a_failure():
    """It is named in a result that says so, and the exit code is 1."""
    with open("no_torch.sh", "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: without installed packages
    os.chmod("no_torch.sh", 0o755)
    done = bench("--quick", "--only", "toy_b20", "--threads", "1", "--precision", "fp32", "--repeat", "1", "--out",
                 "out", python="no_torch.sh")
    assert done.returncode == 1 and "has no torch" in done.stdout, f"{done.stdout}{done.stderr}"
    assert len(read_figures("out")["failures"]) == 1


def test_child_that_does_not_answer_is_ended():
    """With all that it started."""
    with open("server.log", "wb") as log, pytest.raises(TorchError, match="took more than 1 s"):
        TorchServer(["sh", "-c", "sleep 300 & echo $! >sleeper; wait"], log, seconds=1)
    with open("sleeper", encoding="utf-8") as file:
        sleeper = file.read().strip()
    deadline = time.monotonic() + 20  # a killed process takes its time on a busy machine
    while running(sleeper) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(sleeper)


def running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
