# SPDX-License-Identifier: Apache-2.0
"""What the checks of scripts/gpu_check.py share: the GPUs of this machine, a session, which knows where the program, its
tests and PyTorch are, and a check, which runs commands under a time limit, logs what they print, and keeps its figures
in a file after each. Standard library only.
"""
import ctypes
import json
import math
import os
import re
import sys
import time

from run_logged import run_logged
from torch_server import TorchServer

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(SCRIPTS, "..", "app", "configs")


class Failure(Exception):
    """One sentence: what of this check failed."""


class Skipped(Exception):
    """Why this check says nothing here."""


def say(text):
    print(text, flush=True)


def gpus():
    """The GPUs that the driver shows, as text, and why there are none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return [], "no GPU on this machine (it has no NVIDIA driver, libcuda.so.1)"
    code, count = driver.cuInit(0), ctypes.c_int()
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value == 0:
        return [], f"no GPU on this machine (the driver finds {count.value}, error {code})"
    names = []
    for index in range(count.value):
        name, size, device = ctypes.create_string_buffer(256), ctypes.c_size_t(), ctypes.c_int()
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, 256, device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
        names.append(f"{name.value.decode(errors='replace')}, {size.value / 2**30:.0f} GiB")
    return names, ""


class Session:
    """One call of the check: the program, its tests, the folder of results, PyTorch's process. `rehearse`: everything
    runs on the CPU, in small."""

    def __init__(self, program, out, work, rehearse):
        self.program, self.out, self.work = os.path.abspath(program), os.path.abspath(out), work
        self.rehearse = rehearse
        self.device = "cpu" if rehearse else "cuda"
        self.log = os.path.join(self.out, "log.txt")
        self.results = os.path.join(self.out, "results.json")
        self.plans = os.path.join(self.out, "plans")  # of convolutions: timed once for all checks
        self.server = None
        folder = os.path.dirname(self.program)
        beside = os.path.join(folder, "mpirun")
        self.mpirun = beside if os.path.exists(beside) else "mpirun"
        self.root = os.path.dirname(folder)  # of a bundle or of a build
        self.environment = dict(os.environ)
        if os.geteuid() == 0:
            self.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def tests(self):
        """The list that the build has written: name, ranks, program and arguments of each test."""
        path = os.path.join(self.root, "gpu_tests.json")
        try:
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        except OSError as error:
            raise Skipped(f"the list of tests cannot be read: {error}") from error

    def load(self):
        try:
            with open(self.results, encoding="utf-8") as file:
                return json.load(file)
        except (FileNotFoundError, ValueError):
            return {"checks": {}}

    def store(self, name, entry):
        """Sets one check in the file, which is always whole."""
        results = self.load()
        results["checks"][name] = entry
        with open(self.results + ".part", "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
            file.write("\n")
        os.replace(self.results + ".part", self.results)

    def torch(self, seconds):
        """PyTorch's side, started anew if it had to be stopped."""
        if self.server is None or self.server.process.poll() is not None:
            with open(self.log, "ab") as log:
                program = os.path.join(SCRIPTS, "gpu_bench_torch.py")
                self.server = TorchServer([sys.executable, "-u", program, "--serve"], log, seconds=seconds)
        return self.server

    def close(self):
        if self.server:
            self.server.close()


class Check:
    """One check: the time that is left for it and its figures so far."""

    def __init__(self, name, session, deadline, entry):
        self.name, self.session, self.deadline, self.entry = name, session, deadline, entry
        self.program = session.program
        self.details = entry["details"]

    def record(self, case, figures):
        """Keeps the figures of one case, whatever comes after it."""
        self.details[case] = figures
        self.session.store(self.name, self.entry)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, command, seconds=math.inf):
        """The exit code (None: it had to be stopped) and what was printed."""
        session = self.session
        with open(session.log, "a+b") as log:
            return run_logged(command, log, max(1, min(seconds, self.left() - 10)), cwd=session.work,
                              env=session.environment)

    def must(self, what, command):
        code, text = self.run(command)
        if code != 0:
            raise Failure(f"{what}: {ending(code)}: {last_line(text)}")
        return text

    def ranks(self, count):
        return [self.session.mpirun, "-n", str(count), "--oversubscribe", "--bind-to", "none"] if count > 1 else []

    def test(self, test, *arguments):
        """The command of a test of the session's list."""
        program = os.path.join(self.session.root, test["program"])
        return [*self.ranks(test["ranks"]), program, *test["arguments"], *arguments]

    def device(self):
        """Settings of a run on the device that is checked."""
        session = self.session
        if session.rehearse:
            return ["device.kind=cpu"]
        return ["device.kind=cuda", f"device.plan_cache={session.plans}"]

    def precision(self, name):
        """The CPU has bf16 in place of fp16, and float32 in place of tf32."""
        return {"fp16": "bf16", "tf32": "fp32"}.get(name, name) if self.session.rehearse else name


def ending(code):
    return "out of time" if code is None else f"exit code {code}"


def last_line(text):
    """The one that says most: of what went wrong, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["(no output)"]
    return ([line for line in lines if re.search(r"error|ERROR|differ", line)] or lines)[-1][:300]


def settings(*items):
    return [word for item in items for word in ("--set", item)]
