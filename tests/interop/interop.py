# SPDX-License-Identifier: Apache-2.0
"""What the comparisons with PyTorch share: models, files, running convoy, and measuring differences.

Run with the distribution's /usr/bin/python3; without torch, torchvision, h5py or numpy a test is skipped (exit 77).
All work happens in a temporary folder. Invariant: PyTorch and convoy get the same bytes, weights and images alike.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
    import torch
    import torchvision
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

torch.set_num_threads(2)
MEAN, STD = 0.45, 0.25  # of pixels in [0, 1]


class Toy(torch.nn.Module):
    """Linear 10 -> 10, ReLU, Linear 10 -> 5."""

    def __init__(self):
        super().__init__()
        self.net1 = torch.nn.Linear(10, 10)
        self.relu = torch.nn.ReLU()
        self.net2 = torch.nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


class Mlp(torch.nn.Module):
    """fc1, ReLU, fc2, ReLU, ... over the flattened image."""

    def __init__(self, inputs, hidden, classes):
        super().__init__()
        widths = [inputs, *hidden, classes]
        self.count = len(widths) - 1
        for i in range(self.count):
            setattr(self, f"fc{i + 1}", torch.nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        x = x.flatten(1)
        for i in range(1, self.count + 1):
            x = getattr(self, f"fc{i}")(x)
            if i < self.count:
                x = torch.relu(x)
        return x


def resnet(name, stem, channels):
    """torchvision's model with 10 classes; stem small as convoy means it: 3x3 stride 1, no max-pool."""
    model = getattr(torchvision.models, name)(num_classes=10)
    if stem == "small":
        model.conv1 = torch.nn.Conv2d(channels, 64, 3, stride=1, padding=1, bias=False)
        model.maxpool = torch.nn.Identity()
        torch.nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    elif channels != 3:
        model.conv1 = torch.nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    return model


def randomize_buffers(model, seed=3):
    """Running statistics as training would leave them, so that evaluation depends on them."""
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
        elif name.endswith("running_var"):
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
        elif name.endswith("num_batches_tracked"):
            buffer.fill_(7)


# ---- files

def write_weights(path, state_dict):
    """The `/model` group that model.weights reads: torchvision's names with `.` as `/`."""
    with h5py.File(path, "w") as file:
        for name, value in state_dict.items():
            file["model/" + name.replace(".", "/")] = value.detach().numpy()


def make_images(samples, size, channels, seed=5):
    """uint8 [N, H, W, C] and int64 labels; each class has a pattern of its own under noise, so there is something to learn."""
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, samples)
    coarse = random.randint(40, 216, (10, 4, 4, channels))
    patterns = coarse.repeat(size // 4, axis=1).repeat(size // 4, axis=2)
    noise = random.randint(-40, 40, (samples, size, size, channels))
    return (patterns[labels] + noise).astype(np.uint8), labels.astype(np.int64)


def write_images(path, images, labels):
    with h5py.File(path, "w") as file:
        file["images"] = images
        file["labels"] = labels


def as_input(images):
    """What convoy feeds the network: [N, C, H, W] float32, scaled to [0, 1], then normalised."""
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().float() / 255
    return (x - MEAN) / STD


def read_group(path, group):
    """Every dataset under `group`, by dotted name."""
    values = {}
    with h5py.File(path, "r") as file:
        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                values[name.replace("/", ".")] = torch.from_numpy(np.array(item))
        file[group].visititems(visit)
    return values


# ---- convoy

def toml(value):
    return json.dumps(value)  # strings, numbers, booleans and lists of them read the same in TOML


def write_config(path, sections):
    with open(path, "w") as file:
        for section, keys in sections.items():
            file.write(f"[{section}]\n")
            for key, value in keys.items():
                file.write(f"{key} = {toml(value)}\n")


def base_config(model, data, train, optimizer):
    return {
        "run": {"name": "run", "dir": "runs", "seed": 1},
        "device": {"kind": "cpu", "threads": 2},
        "model": model,
        "data": data,
        "train": train,
        "optimizer": optimizer,
        "log": {"progress": "off", "every_steps": 1, "tensorboard": False},
    }


def run_convoy(program, arguments, folder, timeout=500):
    result = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=timeout)
    if result.returncode != 0:
        print(result.stdout)
        print(result.stderr)
        sys.exit(f"FAILED: convoy {' '.join(arguments)}: exit code {result.returncode}")
    return result.stdout


def read_metrics(folder, event):
    with open(os.path.join(folder, "runs", "run", "metrics.jsonl")) as file:
        return [entry for entry in map(json.loads, file) if entry["event"] == event]


def last_checkpoint(folder):
    checkpoints = os.path.join(folder, "runs", "run", "checkpoints")
    return os.path.join(checkpoints, max(name for name in os.listdir(checkpoints) if name.endswith(".h5")))


def temporary_folder():
    return tempfile.TemporaryDirectory(prefix="convoy-interop-")


# ---- differences

class Report:
    """Collects failures, so that one run shows them all."""

    def __init__(self):
        self.failures = 0

    def check(self, holds, text):
        if not holds:
            self.failures += 1
            if self.failures <= 20:
                print("FAILED: " + text)

    def close(self, what, actual, expected, tolerance):
        """Relative difference of two numbers."""
        difference = abs(actual - expected) / max(abs(expected), 1e-12)
        self.check(difference <= tolerance,
                   f"{what}: convoy {actual:.9g}, expected {expected:.9g}, relative difference {difference:.2e}"
                   f" > {tolerance:.0e}")
        return difference

    def same_tensors(self, what, actual, expected, tolerance):
        """Norm of the difference over the norm, name by name; integers must be equal."""
        missing, unknown = sorted(set(expected) - set(actual)), sorted(set(actual) - set(expected))
        self.check(not missing and not unknown, f"{what}: missing {missing}, unknown {unknown}")
        worst, worst_name = 0.0, ""
        for name in sorted(set(expected) & set(actual)):
            a, e = actual[name], expected[name]
            if a.shape != e.shape:
                self.check(False, f"{what} {name}: shape {tuple(a.shape)}, expected {tuple(e.shape)}")
                continue
            if not e.dtype.is_floating_point:
                self.check(bool((a == e).all()), f"{what} {name}: {a.tolist()}, expected {e.tolist()}")
                continue
            norm = e.double().norm().item()
            difference = (a.double() - e.double()).norm().item() / max(norm, 1e-12)
            if not difference <= worst:
                worst, worst_name = difference, name
            self.check(difference <= tolerance, f"{what} {name}: relative difference {difference:.2e} > {tolerance:.0e}")
        print(f"{what}: {len(expected)} tensors, largest relative difference {worst:.2e} ({worst_name})")

    def finish(self):
        if self.failures:
            sys.exit(f"FAILED: {self.failures} checks")
        print("passed")
