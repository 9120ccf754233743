# SPDX-License-Identifier: Apache-2.0
"""What the parts of scripts/gpu_check.py share: the GPUs of this machine, and one part, which runs commands under a time
limit, logs what they print, and knows where the program, its tests and PyTorch are. Standard library only.
"""
import ctypes
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
    """One sentence: what of this part failed."""


class Skipped(Exception):
    """Why this part says nothing here."""


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


class Part:
    """What the parts share: the program, a scratch folder, the log, the time that is left, the figures so far."""

    def __init__(self, args, work):
        self.program = os.path.abspath(args.convoy)
        self.deadline = time.monotonic() + args.seconds
        self.log = os.path.join(os.path.abspath(args.out), "log.txt")
        self.work = work
        self.details = {}
        self.server = None
        folder = os.path.dirname(self.program)
        beside = os.path.join(folder, "mpirun")
        self.in_bundle = os.path.exists(beside)
        self.mpirun = beside if self.in_bundle else "mpirun"
        self.tests = os.path.join(folder, "..", "tests", *(["run"] if self.in_bundle else []))
        self.environment = dict(os.environ)
        if os.geteuid() == 0:
            self.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, command, seconds=math.inf):
        """The exit code (None: it had to be stopped) and what was printed."""
        with open(self.log, "a+b") as log:
            return run_logged(command, log, max(1, min(seconds, self.left() - 15)), cwd=self.work, env=self.environment)

    def must(self, what, command):
        code, text = self.run(command)
        if code != 0:
            raise Failure(f"{what}: {ending(code)}: {last_line(text)}")
        return text

    def ranks(self, count):
        return [self.mpirun, "-n", str(count), "--oversubscribe", "--bind-to", "none"] if count > 1 else []

    def programs(self):
        """The test programs by name."""
        found = {}
        for folder, folders, files in os.walk(self.tests):
            folders[:] = [name for name in folders if name not in ("CMakeFiles", "run")]
            for name in files:
                path = os.path.join(folder, name)
                if os.access(path, os.X_OK) and "." not in name:
                    found[name] = path
        if not found:
            raise Skipped(f"there are no test programs in {os.path.normpath(self.tests)}")
        return found

    def test_cuda(self):
        if "test_cuda" not in self.programs():
            raise Skipped("there is no test_cuda: this build has no CUDA (cmake --preset cuda)")
        return self.programs()["test_cuda"]

    def torch(self):
        """PyTorch's side, started anew if it had to be stopped."""
        if self.server is None or self.server.process.poll() is not None:
            with open(self.log, "ab") as log:
                program = os.path.join(SCRIPTS, "gpu_bench_torch.py")
                self.server = TorchServer([sys.executable, "-u", program, "--serve"], log)
        return self.server


def ending(code):
    return "out of time" if code is None else f"exit code {code}"


def last_line(text):
    """The one that says most: of what went wrong, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["(no output)"]
    return ([line for line in lines if re.search(r"error|ERROR|differ", line)] or lines)[-1][:300]


def settings(*items):
    return [word for item in items for word in ("--set", item)]
