# SPDX-License-Identifier: Apache-2.0
"""How each side of scripts/bench_cpu.py is started and asked: convoy (`convoy bench`, a process for each measurement)
and PyTorch (scripts/bench_cpu_torch.py, a process for each network, precision, number of threads and variant).
Invariant: a measurement ends, or is ended, within its limit, and nothing that was started stays behind.
"""
import json
import math
import os
import re
import shlex
import shutil
import statistics
import subprocess
import tempfile

from run_logged import run_logged
from torch_server import TorchError, TorchServer

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
CONFIGS = "app/configs"  # the caller stands in the repository's root
LIMIT = 1200  # seconds, for a measurement that should take a tenth of that
MOST_STEPS = 20000
OPTIMIZER = {"lr": 0.001, "momentum": 0.9, "weight_decay": 1e-4}


class Failure(Exception):
    """One sentence: what could not be measured, and why."""


def plan_steps(seconds, step_seconds):
    """How many steps fill that time, and how many go before them; `step_seconds(steps, warmup)` times some."""
    step = statistics.median(step_seconds(3, 2))
    if step < 0.02:  # so few of these say little
        step = statistics.median(step_seconds(100, 100))
    return steps_for(seconds, step)


def steps_for(seconds, step):
    """The same where a step's time is known."""
    steps = max(3, min(MOST_STEPS, int(seconds / step)))
    return steps, max(2, min(1000, steps // 5))


def on_cores(cores):
    return ["taskset", "-c", ",".join(map(str, cores))]


class Convoy:
    """The program; what it prints goes to `log`, a binary file open for appending and reading."""

    def __init__(self, program, log):
        self.program = program
        self.log = log
        self.environment = dict(os.environ)
        if os.geteuid() == 0:
            self.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.commands = {}  # the last of each kind, as text, for the account of the run

    def versions(self):
        """What `convoy --version` says, line by line: {"convoy": "0.1.0", "CPU": "oneDNN ...", ...}."""
        lines = self._run("version", [self.program, "--version"], 60).splitlines()
        return dict(line.split(None, 1) for line in lines if len(line.split(None, 1)) == 2)

    def settings(self, workload, precision, threads):
        samples = max(1024, 8 * workload.batch)
        items = [*workload.settings, f"train.precision={precision}", f"train.global_batch_size={workload.batch}",
                 f"data.samples={samples}", "device.kind=cpu", f"device.threads={threads}", "optimizer.name=sgd",
                 *(f"optimizer.{key}={value}" for key, value in OPTIMIZER.items())]
        return [os.path.join(CONFIGS, workload.config), *(word for item in items for word in ("--set", item))]

    def bench(self, kind, workload, precision, threads, start, *words):
        """The results of `convoy bench` with these words; `start` are the words before it."""
        with tempfile.TemporaryDirectory(prefix="convoy-bench-") as folder:
            path = os.path.join(folder, "bench.json")
            self._run(kind, [*start, self.program, "bench", *self.settings(workload, precision, threads), *words,
                             "--json", path], LIMIT)
            with open(path, encoding="utf-8") as file:
                return json.load(file)["results"]

    def steps(self, workload, precision, threads, cores, steps, warmup):
        return self.bench("convoy", workload, precision, threads, on_cores(cores), "--steps", str(steps), "--warmup",
                          str(warmup))[0]

    def look(self, workload, precision, threads, cores):
        """Two steps of training: the number of parameters and the losses."""
        with tempfile.TemporaryDirectory(prefix="convoy-bench-") as folder:
            items = [f"run.dir={folder}", "run.name=look", "train.steps=2", "log.progress=off", "log.every_steps=1",
                     "log.tensorboard=false", "checkpoint.every_epochs=0"]
            self._run("look", [*on_cores(cores), self.program, "train",
                               *self.settings(workload, precision, threads),
                               *(word for item in items for word in ("--set", item))], LIMIT)
            with open(os.path.join(folder, "look", "metrics.jsonl"), encoding="utf-8") as file:
                events = [json.loads(line) for line in file]
        losses = [event["loss"] for event in events if event["event"] == "step"]
        # A loss that is not a number is null in JSON.
        if len(losses) != 2 or not all(isinstance(each, float) and math.isfinite(each) for each in losses):
            raise Failure(f"convoy's losses of {workload.name} in {precision} are {losses}: two numbers were expected")
        return events[0]["parameters"], losses  # "start" comes first

    def _run(self, kind, command, limit):
        text = shlex.join(command)
        self.commands[kind] = re.sub(rf"{re.escape(tempfile.gettempdir())}/convoy-bench-[^/ ]+", "FOLDER", text)
        code, output = run_logged(command, self.log, limit, stdin=subprocess.DEVNULL, env=self.environment)
        if code is None:
            raise Failure(f"convoy took more than {limit} s: {text}")
        if code != 0:
            lines = [line.strip() for line in output.splitlines() if line.strip()] or ["(no output)"]
            said = ([line for line in lines if re.search("error", line)] or lines)[-1]
            raise Failure(f"convoy ended with exit code {code}: {said[:300]}")
        return output


class Torch:
    """PyTorch's side of one point, ready to be timed: raises TorchError if it does not come that far."""

    def __init__(self, python, log, workload, precision, threads, variant, cores, cache, limit):
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_CACHE_DIR": cache,
                       "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        command = [*on_cores(cores), python, "-u", os.path.join(SCRIPTS, "bench_cpu_torch.py"), "--threads",
                   str(threads)]
        self.server = TorchServer(command, log, environment)
        try:
            self.versions = self.server.versions
            if variant == "compile" and not self.versions["compile"]:
                raise TorchError(f"PyTorch {self.versions['torch']} has no torch.compile")
            self.prepared = self.server.measure(limit, do="prepare", variant=variant, precision=precision,
                                                batch=workload.batch, input=workload.input, loss=workload.loss,
                                                model=workload.model, optimizer=OPTIMIZER)
        except BaseException:
            self.close()
            raise

    def steps(self, steps, warmup):
        return self.server.measure(LIMIT, do="measure", steps=steps, warmup=warmup)

    def close(self):
        self.server.close()


def require(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Failure(f"there is no {tool} on this machine (Debian: util-linux has taskset, openmpi-bin mpirun)")
