# SPDX-License-Identifier: Apache-2.0
"""What the comparisons with PyTorch share: models, files, running convoy, and measuring differences.

Without torch, torchvision, h5py or numpy a test file is skipped. PyTorch and convoy get the same bytes, weights and
images alike.
"""
import json
import os
import subprocess
import tempfile

import pytest

from programs import CONVOY

np = pytest.importorskip("numpy")
h5py = pytest.importorskip("h5py")
torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

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
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value)  # strings, numbers and booleans read the same in TOML


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


def temporary_folder():
    """Removed when the test ends: checkpoints are large."""
    return tempfile.TemporaryDirectory(prefix="convoy-interop-")


def run_convoy(arguments, folder, timeout=500):
    result = subprocess.run([CONVOY, *arguments], cwd=folder, capture_output=True, text=True, timeout=timeout)
    assert result.returncode == 0, f"convoy {' '.join(arguments)}: {result.stdout}{result.stderr}"
    return result.stdout


def read_metrics(folder, event):
    with open(os.path.join(folder, "runs", "run", "metrics.jsonl")) as file:
        return [entry for entry in map(json.loads, file) if entry["event"] == event]


def last_checkpoint(folder):
    checkpoints = os.path.join(folder, "runs", "run", "checkpoints")
    return os.path.join(checkpoints, max(name for name in os.listdir(checkpoints) if name.endswith(".h5")))


# ---- differences

def relative_difference(actual, expected):
    """Of two numbers."""
    return abs(actual - expected) / max(abs(expected), 1e-12)


def assert_close(what, actual, expected, tolerance):
    difference = relative_difference(actual, expected)
    assert difference <= tolerance, (f"{what}: convoy {actual:.9g}, expected {expected:.9g}, relative difference "
                                     f"{difference:.2e} > {tolerance:.0e}")


def assert_same_tensors(what, actual, expected, tolerance):
    """Norm of the difference over the norm, name by name; integers must be equal."""
    assert set(actual) == set(expected), f"{what}: other names"
    worst, worst_name, wrong = 0.0, "", []
    for name in sorted(expected):
        a, e = actual[name], expected[name]
        if a.shape != e.shape:
            wrong.append(f"{name}: shape {tuple(a.shape)}, expected {tuple(e.shape)}")
            continue
        if not e.dtype.is_floating_point:
            if not bool((a == e).all()):
                wrong.append(f"{name}: {a.tolist()}, expected {e.tolist()}")
            continue
        norm = e.double().norm().item()
        difference = (a.double() - e.double()).norm().item() / max(norm, 1e-12)
        if not difference <= worst:
            worst, worst_name = difference, name
        if not difference <= tolerance:
            wrong.append(f"{name}: relative difference {difference:.2e} > {tolerance:.0e}")
    print(f"{what}: {len(expected)} tensors, largest relative difference {worst:.2e} ({worst_name})")
    assert not wrong, f"{what}: {wrong[:20]}"
