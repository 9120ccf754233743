#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times training steps of ResNet-50 in PyTorch: what convoy bench is held against by scripts/gpu_check.py.

  python3 scripts/gpu_bench_torch.py --batch 256 --precision bf16 --variant eager,graph,compile

PyTorch gets every advantage that it offers: channels-last, cuDNN's search for the fastest algorithm, a fused optimizer,
data that is on the GPU already, and steps timed by events on the stream, without the host waiting for any of them.
The network is ResNet-50 v1.5, as convoy's resnet50 and torchvision's. Needs torch, nothing else.

Variants: eager; graph (a step recorded once as a CUDA graph; in fp16 all of it but the update, which may be skipped);
compile (torch.compile, mode max-autotune). With --serve requests come as JSON lines on stdin, answers go to stdout.
"""
import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import threading
import time

DEFAULTS = {"batch": 256, "image": 224, "precision": "bf16", "tf32": False, "variant": "eager", "channels_last": True,
            "loss": "cross_entropy", "lr": 0.0125, "momentum": 0.9, "weight_decay": 1e-4, "steps": 20, "warmup": 5,
            "device": "cuda"}


class TorchError(Exception):
    """What PyTorch's side said, in one sentence."""


class TorchServer:
    """This program as a child that keeps PyTorch loaded between measurements; its messages go to `log`."""

    def __init__(self, python, log):
        self.process = subprocess.Popen([python, "-u", os.path.abspath(__file__), "--serve"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=log, text=True)
        self.versions = self._answer(120)

    def measure(self, seconds, **request):
        """Step seconds and memory; raises TorchError, after `seconds` too."""
        if self.process.poll() is not None:
            raise TorchError("PyTorch's process has ended")
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise TorchError("PyTorch's process has ended") from error
        return self._answer(seconds)

    def close(self):
        self.process.kill()
        self.process.wait()

    def _answer(self, seconds):
        late = threading.Timer(seconds, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        in_time = late.is_alive()
        late.cancel()
        if not line:
            raise TorchError("PyTorch's process ended" if in_time else f"PyTorch took more than {seconds:.0f} s")
        answer = json.loads(line)
        if "error" in answer:
            raise TorchError(answer["error"])
        return answer


# ---- What follows runs with torch -----------------------------------------------------------------------------------


def resnet50(torch, classes=1000):
    nn = torch.nn

    def convolution(inputs, outputs, kernel, stride=1):
        return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)

    class Bottleneck(nn.Module):
        def __init__(self, inputs, channels, stride):
            super().__init__()
            self.conv1, self.bn1 = convolution(inputs, channels, 1), nn.BatchNorm2d(channels)
            self.conv2, self.bn2 = convolution(channels, channels, 3, stride), nn.BatchNorm2d(channels)
            self.conv3, self.bn3 = convolution(channels, 4 * channels, 1), nn.BatchNorm2d(4 * channels)
            self.relu = nn.ReLU(inplace=True)
            self.shortcut = None
            if stride != 1 or inputs != 4 * channels:
                self.shortcut = nn.Sequential(convolution(inputs, 4 * channels, 1, stride),
                                              nn.BatchNorm2d(4 * channels))

        def forward(self, x):
            kept = x if self.shortcut is None else self.shortcut(x)
            x = self.relu(self.bn1(self.conv1(x)))
            x = self.relu(self.bn2(self.conv2(x)))
            return self.relu(self.bn3(self.conv3(x)) + kept)

    layers = [convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        channels = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(inputs, channels, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * channels
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


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
        self.model = resnet50(torch).to(request["device"], memory_format=layout)
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


def attempt(bench, request):
    try:
        return bench.run(request)
    except Exception as error:  # PyTorch fails in many ways: out of memory, no compiler for Triton, ...
        first = (str(error).strip() or "no message").splitlines()[0]
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return {"error": f"{type(error).__name__}: {first}"[:300]}


def serve(torch, answers):
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                "device": device}
    print(json.dumps(versions), file=answers, flush=True)
    bench = Bench(torch)
    for line in sys.stdin:
        print(json.dumps(attempt(bench, json.loads(line))), file=answers, flush=True)


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
    answers = os.fdopen(os.dup(1), "w")  # compilers print to stdout: that goes to stderr from here on
    os.dup2(2, 1)
    try:
        import torch
    except ImportError as error:
        print(json.dumps({"error": f"this Python has no torch ({error})"}), file=answers, flush=True)
        sys.exit(1)
    if args.pop("serve"):
        serve(torch, answers)
        return
    bench = Bench(torch)
    for variant in args.pop("variant").split(","):
        answer = attempt(bench, {**args, "variant": variant})
        print(json.dumps({"variant": variant, **answer}), file=answers, flush=True)


if __name__ == "__main__":
    main()
