# SPDX-License-Identifier: Apache-2.0
"""scripts/bench_cpu.sh as a user runs it: the smallest network beside the system's PyTorch, what it writes, what it
says of wrong options and of a PyTorch that is not there; and the networks that both benchmarks share, by their sizes.

Skipped (exit 77) without torch. Invariant: no speed is asserted, only that the figures follow from each other.
Usage: test_bench_cpu.py CONVOY
"""
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
CONVOY = os.path.abspath(sys.argv[1])
sys.path.insert(0, SCRIPTS)
import torch_models  # noqa: E402
from torch_server import TorchError, TorchServer  # noqa: E402


def check(good, what):
    if not good:
        sys.exit(f"FAILED: {what}")


def bench(*words, convoy=CONVOY, python=sys.executable):
    command = [os.path.join(SCRIPTS, "bench_cpu.sh"), "--python", python, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL,
                          env={**os.environ, "CONVOY": convoy, "PYTHON": sys.executable})


def networks():
    """Parameters as published with torchvision; of the MLP and the toy by hand."""
    known = [(25557032, {"name": "resnet50", "classes": 1000}), (11689512, {"name": "resnet18", "classes": 1000}),
             (60192808, {"name": "resnet152", "classes": 1000}),
             (10 * 10 + 10 + 10 * 5 + 5, {"name": "toy", "classes": 5}),
             (784 * 20 + 20 + 20 * 10 + 10, {"name": "mlp", "classes": 10, "hidden": [20]})]
    for count, model in known:
        found = sum(each.numel() for each in torch_models.build(torch, **model).parameters())
        check(found == count, f"{model}: {found} parameters instead of {count}")
    small = torch_models.build(torch, "resnet18", 10, stem="small").eval()
    middle = small[:4](torch.rand(1, 3, 32, 32)).shape
    check(middle == (1, 64, 32, 32), f"the small stem keeps 32x32, not {tuple(middle)}")


def measured():
    done = bench("--quick", "--only", "toy_b20", "--threads", "1", "--precision", "fp32", "--compile-limit", "0",
                 "--repeat", "2", "--out", "out")
    check(done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    with open("out/bench_cpu.json", encoding="utf-8") as file:
        figures = json.load(file)
    check(not figures["failures"] and len(figures["results"]) == 1, "one result, no failure")
    result = figures["results"][0]
    mine, theirs = (side["images_per_second"] for side in (result["convoy"], result["torch"]["eager"]))
    check(len(mine) == len(theirs) == 2 and min(mine + theirs) > 0, f"two measurements of each: {mine}, {theirs}")
    ratios = [a / b for a, b in zip(mine, theirs)]
    check(result["ratio"]["per_repeat"] == ratios and result["ratio"]["median"] == statistics.median(ratios),
          f"ratios of the same repeat: {result['ratio']}")
    check(result["parameters"] == 165 and result["best_variant"] == "eager", "the toy, and eager PyTorch beside it")
    check(result["torch"]["compile"]["error"] == "left out", "--compile-limit 0 leaves torch.compile out")
    memory = result["torch"]["eager"]
    check(memory["peak_memory_bytes"] >= memory["memory_before_bytes"] > 2**24, f"PyTorch's memory: {memory}")
    check(figures["versions"]["pytorch"]["torch"] == torch.__version__, "PyTorch's version")
    with open("out/README.md", encoding="utf-8") as file:
        text = file.read()
    check("| toy (10-10-5), batch 20 | fp32 | 1 |" in text, "README.md has the row")
    check(os.getcwd() not in text and os.getcwd() not in json.dumps(figures["command"]), "no folder of this machine")


def scaling():
    """Two ranks beside one, and beside two processes: waiting for the slower one never makes them faster."""
    done = bench("--quick", "--scaling-only", "--only", "toy_b20", "--precision", "fp32", "--repeat", "2", "--out", "out3")
    check(done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    with open("out3/bench_cpu.json", encoding="utf-8") as file:
        figures = json.load(file)
    if len(os.sched_getaffinity(0)) < 2:
        check("without_scaling" in figures, "one core leaves nothing to compare")
        return
    result = figures["scaling"][0]
    one, two = (result["images_per_second"][ranks] for ranks in ("1", "2"))
    check(result["ratio"]["per_repeat"] == [b / a for a, b in zip(one, two)] and len(one) == 2,
          f"two ranks over one: {result}")
    free, in_step = (result[f"processes{kind}_ratio"]["per_repeat"] for kind in ("", "_in_step"))
    check(len(free) == len(in_step) == 2 and all(0 < b <= a * 1.000001 for a, b in zip(free, in_step)),  # rounding
          f"two processes: {free}, in step {in_step}")


def wrong_options():
    for words, said in ((["--only", "toy"], "there is no 'toy'"), (["--threads", "0"], "is no list of numbers"),
                        (["--threads", "9999"], "want as many cores"), (["--precision", "fp16"], "fp32 and bf16"),
                        (["--repeat", "0"], "at least 1")):
        done = bench(*words)
        check(done.returncode == 2 and said in done.stderr, f"{words}: {done.returncode}: {done.stderr}")
    done = bench("--out", "none", "--only", "toy_b20", convoy="/nowhere/convoy")
    check(done.returncode == 2 and "there is no program" in done.stderr, f"no program: {done.stderr}")
    check(not os.path.exists("none"), "nothing is written without a program")


def failures():
    """A Python without torch is named in a result that says so, and the exit code is 1."""
    with open("no_torch.sh", "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: without installed packages
    os.chmod("no_torch.sh", 0o755)
    done = bench("--quick", "--only", "toy_b20", "--threads", "1", "--precision", "fp32", "--repeat", "1", "--out",
                 "out2", python="no_torch.sh")
    check(done.returncode == 1 and "has no torch" in done.stdout, f"{done.returncode}: {done.stdout}{done.stderr}")
    with open("out2/bench_cpu.json", encoding="utf-8") as file:
        check(len(json.load(file)["failures"]) == 1, "the failure is in the file")


def server():
    """A child that does not answer is ended with all that it started."""
    with open("server.log", "wb") as log:
        try:
            TorchServer(["sh", "-c", "sleep 300 & echo $! >sleeper; wait"], log, seconds=1)
            check(False, "a server that says nothing is an error")
        except TorchError as error:
            check("took more than 1 s" in str(error), f"said: {error}")
    with open("sleeper", encoding="utf-8") as file:
        sleeper = file.read().strip()
    deadline = time.monotonic() + 20  # a killed process takes its time on a busy machine
    while running(sleeper) and time.monotonic() < deadline:
        time.sleep(0.05)
    check(not running(sleeper), "what the server started is still there")


def running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


for test in (networks, server, wrong_options, failures, measured, scaling):
    test()
    print(f"{test.__name__}: good", flush=True)
