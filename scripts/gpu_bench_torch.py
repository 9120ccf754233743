#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times training steps of ResNet-50 in PyTorch: what convoy bench is held against by scripts/gpu_check.py.

  python3 scripts/gpu_bench_torch.py --batch 256 --precision bf16 --variant eager,graph,compile

PyTorch gets every advantage that it offers: channels-last, cuDNN's search for the fastest algorithm, a fused optimizer,
data that is on the GPU already, and steps timed by events on the stream, without the host waiting for any of them.
The network is torch_models.py's ResNet-50 v1.5, as convoy's resnet50 and torchvision's. Needs torch, nothing else.

Variants: eager; graph (a step recorded once as a CUDA graph; in fp16 all of it but the update, which may be skipped);
compile (torch.compile, mode max-autotune). With --serve requests come as JSON lines on stdin, answers go to stdout.
"""
import argparse
import gc
import json
import statistics
import time

import torch_models
from torch_server import answers_to_parent, attempt, import_torch, serve

DEFAULTS = {"batch": 256, "image": 224, "precision": "bf16", "tf32": False, "variant": "eager", "channels_last": True,
            "loss": "cross_entropy", "lr": 0.0125, "momentum": 0.9, "weight_decay": 1e-4, "steps": 20, "warmup": 5,
            "device": "cuda"}


class Trial:
    """A network with its data and optimizer, ready to take steps as the request says."""

    def __init__(self, torch, request):
        self.torch = torch
        self.request = request
        self.cuda = request["device"] == "cuda"
        if self.cuda:
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = bool(request["tf32"])
            torch.backends.cuda.matmul.allow_tf32 = bool(request["tf32"])
        layout = torch.channels_last if request["channels_last"] else torch.contiguous_format
        torch.manual_seed(1)
        batch, image = request["batch"], request["image"]
        self.model = torch_models.resnet(torch, 50).to(request["device"], memory_format=layout)
        self.network = self.model  # or what torch.compile makes of it
        self.images = torch.rand(batch, 3, image, image, device=request["device"]).contiguous(memory_format=layout)
        labels = torch.randint(0, 1000, (batch,), device=request["device"])
        one_hot = request["loss"] == "mse"
        self.targets = torch.nn.functional.one_hot(labels, 1000).float() if one_hot else labels
        self.loss = torch.nn.MSELoss() if one_hot else torch.nn.CrossEntropyLoss()
        self.optimizer = self.make_optimizer()
        self.scaler = None
        if request["precision"] == "fp16":
            new = getattr(getattr(torch, "amp", None), "GradScaler", None)
            self.scaler = new("cuda") if new else torch.cuda.amp.GradScaler()
        self.take_step = {"eager": self.eager, "graph": self.graph, "compile": self.compiled}[request["variant"]]()

    def make_optimizer(self):
        settings = {key: self.request[key] for key in ("lr", "momentum", "weight_decay")}
        try:  # one kernel for all parameters, where this version has it
            return self.torch.optim.SGD(self.model.parameters(), **settings, fused=self.cuda)
        except (TypeError, RuntimeError):
            return self.torch.optim.SGD(self.model.parameters(), **settings, foreach=True)

    def forward(self):
        kind = {"bf16": self.torch.bfloat16, "fp16": self.torch.float16}.get(self.request["precision"])
        with self.torch.autocast(self.request["device"], dtype=kind, enabled=kind is not None):
            return self.loss(self.network(self.images), self.targets)

    def backward(self, loss):
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return loss.detach()

    def update(self):
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def eager(self):
        def step():
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.backward(self.forward())
            self.update()
            return loss
        return step

    def compiled(self):
        self.network = self.torch.compile(self.model, mode="max-autotune")
        plain = self.eager()

        def step():
            self.torch.compiler.cudagraph_mark_step_begin()
            return plain()
        return step

    def graph(self):
        torch, step = self.torch, self.eager()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # workspaces and optimizer state are made before recording
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        self.optimizer.zero_grad(set_to_none=True)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            loss = self.backward(self.forward())
            if self.scaler is None:
                self.update()

        def replay():
            recorded.replay()
            if self.scaler is not None:
                self.update()
            return loss
        return replay

    def measure(self):
        """Seconds of each timed step, between events on the stream."""
        torch, steps = self.torch, self.request["steps"]
        for _ in range(self.request["warmup"]):
            loss = self.take_step()
        if not self.cuda:
            seconds = []
            for _ in range(steps):
                start = time.perf_counter()
                loss = self.take_step()
                seconds.append(time.perf_counter() - start)
            return seconds, float(loss)
        torch.cuda.synchronize()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        marks[0].record()
        for mark in marks[1:]:
            loss = self.take_step()
            mark.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in zip(marks, marks[1:])], float(loss)


class Bench:
    """Makes trials and times them. A compiled one is kept: compiling takes minutes. Others leave the GPU at once."""

    def __init__(self, torch):
        self.torch = torch
        self.kept = {}

    def run(self, request):
        request = {**DEFAULTS, **request}
        key = json.dumps({**request, "steps": 0, "warmup": 0}, sort_keys=True)
        if key not in self.kept:
            self.release()
        if self.torch.cuda.is_available():
            self.torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        try:
            trial = self.kept.get(key) or Trial(self.torch, request)
            seconds, loss = trial.measure()
            memory = self.torch.cuda.max_memory_allocated() if request["device"] == "cuda" else 0
            if request["variant"] == "compile":
                self.kept[key] = trial
        finally:
            trial = None
            if request["variant"] != "compile":
                self.release()
        return {"step_seconds": seconds, "images_per_second": request["batch"] / statistics.median(seconds),
                "peak_memory_bytes": memory, "loss": loss, "seconds": time.perf_counter() - start}

    def release(self):
        self.kept.clear()
        gc.collect()
        if self.torch.cuda.is_available():
            self.torch.cuda.empty_cache()


def versions(torch):
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "device": device}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="requests and answers as JSON lines")
    for key, default in DEFAULTS.items():
        name = "--" + key.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(name, type=int, choices=(0, 1), default=int(default))
        else:
            parser.add_argument(name, type=type(default), default=default, help=f"({default})")
    args = vars(parser.parse_args())
    answers = answers_to_parent()
    torch = import_torch(answers)
    bench = Bench(torch)
    if args.pop("serve"):
        serve(bench.run, versions(torch), answers)
        return
    for variant in args.pop("variant").split(","):
        answer = attempt(bench.run, {**args, "variant": variant})
        print(json.dumps({"variant": variant, **answer}), file=answers, flush=True)


if __name__ == "__main__":
    main()
