#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times training steps in PyTorch on the CPU: what scripts/bench_cpu.py holds convoy against. It starts this program
once for each network, precision, number of threads and variant, on the cores that the process is to use, and asks for
`prepare` (the network, its first steps) and then for measurements, as JSON lines (scripts/torch_server.py).

PyTorch gets what it offers: channels-last, a fused optimizer, autocast for bfloat16, gradients dropped instead of
zeroed, the same batch in memory every step. Variants: eager and compile (torch.compile). Memory is the process's
largest resident size from the second step on, so that what compiling takes is not counted. Needs torch.

  bench_cpu_torch.py --threads N
"""
import argparse
import contextlib
import ctypes
import re
import time

import torch_models
from torch_server import answers_to_parent, import_torch, serve


def reset_peak_memory():
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def memory(name="VmHWM"):
    """Resident bytes, the largest (VmHWM) or now (VmRSS)."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))


class Trial:
    """A network with its batch and optimizer, ready to take steps as the request says."""

    def __init__(self, torch, request):
        self.torch = torch
        self.bf16 = request["precision"] == "bf16"
        torch.manual_seed(1)
        self.model = torch_models.build(torch, **request["model"]).to(memory_format=torch.channels_last)
        self.network = torch.compile(self.model) if request["variant"] == "compile" else self.model
        batch, classes = request["batch"], request["model"]["classes"]
        self.inputs = torch.rand(batch, *request["input"])
        if len(request["input"]) == 3:
            self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)
        if request["loss"] == "mse":
            self.targets, self.loss = torch.rand(batch, classes), torch.nn.MSELoss()
        else:
            self.targets, self.loss = torch.randint(0, classes, (batch,)), torch.nn.CrossEntropyLoss()
        self.optimizer = self.make_optimizer(request["optimizer"])

    def make_optimizer(self, settings):
        try:  # one pass over the parameters, where this version has it
            return self.torch.optim.SGD(self.model.parameters(), **settings, fused=True)
        except (TypeError, RuntimeError):
            return self.torch.optim.SGD(self.model.parameters(), **settings, foreach=True)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with self.torch.autocast("cpu", dtype=self.torch.bfloat16, enabled=self.bf16):
            loss = self.loss(self.network(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def timed_step(self):
        start = time.perf_counter()
        loss = self.step()
        return time.perf_counter() - start, loss


class Bench:
    """Answers requests: `prepare` makes the trial that the others time."""

    def __init__(self, torch):
        self.torch = torch
        self.trial = None

    def run(self, request):
        if request["do"] == "prepare":
            self.trial = Trial(self.torch, request)
            compiling, _ = self.trial.timed_step()
            reset_peak_memory()
            timed, end = [], time.perf_counter() + 0.5
            while len(timed) < 2 or time.perf_counter() < end:
                timed.append(self.trial.timed_step())
            return {"parameters": sum(each.numel() for each in self.trial.model.parameters()),
                    "loss": float(timed[-1][1]), "first_step_seconds": compiling,
                    "step_seconds": [seconds for seconds, _ in timed[len(timed) // 2:]]}
        for _ in range(request["warmup"]):
            self.trial.step()
        timed = [self.trial.timed_step() for _ in range(request["steps"])]
        answer = {"step_seconds": [seconds for seconds, _ in timed], "loss": float(timed[-1][1]),
                  "peak_memory_bytes": memory()}
        ctypes.CDLL(None).malloc_trim(0)  # what was freed is for the other side, whose turn it is
        return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, required=True)
    threads = parser.parse_args().threads
    answers = answers_to_parent()
    torch = import_torch(answers)
    torch.set_num_threads(threads)
    library = re.search(r"(?:MKL-DNN|oneDNN) v([\d.]+)", torch.__config__.show())
    versions = {"torch": torch.__version__, "onednn": library[1] if library else "unknown",
                "compile": hasattr(torch, "compile"), "memory_bytes": memory("VmRSS")}
    serve(Bench(torch).run, versions, answers)


if __name__ == "__main__":
    main()
