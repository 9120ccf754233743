# SPDX-License-Identifier: Apache-2.0
"""The first hour of a new user: own images, own floats, fine-tuning from a .pth, a regression, a pipeline with its
trace, and ten mistakes whose messages are compared whole.
"""
import json
import os
import subprocess
import sys

import pytest

from behaviour import ENVIRONMENT, USAGE, Folder, h5py
from programs import CONVOY, MPIRUN, ROOT

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(h5py is None, reason="needs h5py")


def write(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def convoy(*words, ranks=1, code=0):
    command = [CONVOY, *words]
    if ranks > 1:
        command = [MPIRUN, "-n", str(ranks), *command]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def events(run, kind):
    with open(f"runs/{run}/metrics.jsonl") as file:
        return [entry for entry in map(json.loads, file) if entry["event"] == kind]


# ---- what a newcomer does

CNN = """
[model]
name = "sequential"

[[model.layers]]
type = "conv2d"
name = "conv"
out_channels = 8
kernel_size = 3

[[model.layers]]
type = "batch_norm2d"
name = "norm"

[[model.layers]]
type = "relu"

[[model.layers]]
type = "global_avg_pool"

[[model.layers]]
type = "linear"
name = "head"
out_features = {classes}

[data]
kind = "image_folder"
train = "{folder}/train"
validation = "{folder}/val"
image_size = 16
mean = [0.5]
std = [0.25]

[train]
epochs = 6
global_batch_size = 8

[optimizer]
lr = 0.05

[log]
progress = "off"
tensorboard = false
"""


def shades(folder, classes):
    """JPEGs of one brightness for each class."""
    image = pytest.importorskip("PIL.Image")
    for place, count in (("train", 16), ("val", 4)):
        for index, name in enumerate(classes):
            os.makedirs(f"{folder}/{place}/{name}")
            for i in range(count):
                shade = (40 + 160 * index // max(1, len(classes) - 1) + i,) * 3
                image.new("RGB", (20, 24), shade).save(f"{folder}/{place}/{name}/{i}.jpg")


def test_own_images_then_packed():
    shades("photos", ["dark", "light"])
    write("photos.toml", CNN.format(classes=2, folder="photos"))
    assert "top-5" not in convoy("train", "photos.toml").stdout
    assert events("photos", "eval")[-1]["top1"] == 1
    assert "8 samples (" not in convoy("pack", "photos", "photos.h5", "--raw", "16").stdout
    text = CNN.format(classes=2, folder="photos").replace("image_folder", "hdf5").replace("image_size = 16\n", "")
    write("packed.toml", text.replace('"photos/train"', '"photos.h5:/train"').replace('"photos/val"',
                                                                                       '"photos.h5:/validation"'))
    convoy("train", "packed.toml", ranks=2)
    assert events("packed", "eval")[-1]["top1"] == 1


def test_fine_tuning_from_a_pth():
    torch = pytest.importorskip("torch")
    shades("photos", ["dark", "grey", "light"])
    write("net.toml", CNN.format(classes=3, folder="photos"))
    weights = {"conv.weight": torch.randn(8, 3, 3, 3), "conv.bias": torch.zeros(8), "norm.weight": torch.ones(8),
               "norm.bias": torch.zeros(8), "norm.running_mean": torch.zeros(8), "norm.running_var": torch.ones(8),
               "norm.num_batches_tracked": torch.tensor(0), "head.weight": torch.randn(5, 8), "head.bias": torch.zeros(5)}
    torch.save(weights, "old.pth")
    refused = convoy("train", "net.toml", "--set", "model.weights=old.pth", code=USAGE)
    assert refused.stderr == ("convoy: error: --set: model.weights: old.pth is no HDF5 file (convert it: "
                              "scripts/torch_interop.py old.pth weights.h5)\n")
    subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "torch_interop.py"), "old.pth", "weights.h5"], check=True)
    refused = convoy("train", "net.toml", "--set", "model.weights=weights.h5", code=USAGE)
    assert refused.stderr == (
        "convoy: error: weights.h5: does not belong to this model; of another shape: head.weight (float32 [5, 8] in the "
        "file, float32 [3, 8] in the model) head.bias (float32 [5] in the file, float32 [3] in the model) (check "
        "model.name, model.classes and model.stem); all but the last layer fits: initialise that one at random with "
        "model.reset_head = true\n")
    done = convoy("train", "net.toml", "--set", "model.weights=weights.h5", "--set", "model.reset_head=true", "--set",
                  'model.freeze=["conv", "norm"]')
    assert "weights    9 tensors from weights.h5; head.* is initialised at random\n" in done.stdout
    assert "frozen     conv, norm (2 of 4 units); 27 of 267 parameters learn\n" in done.stdout


REGRESSION = """
[model]
name = "mlp"
hidden = [32, 32]

[data]
kind = "hdf5"
train = "curve.h5:/train"
validation = "curve.h5:/validation"

[train]
epochs = 20
global_batch_size = 32
loss = "mse"

[optimizer]
name = "adamw"
lr = 0.01

[log]
progress = "off"
tensorboard = false
"""


def curve():
    random = numpy.random.default_rng(4)
    x = random.uniform(-1, 1, size=(640, 1)).astype("float32")
    with h5py.File("curve.h5", "w") as file:
        for group, part in (("train", slice(0, 512)), ("validation", slice(512, 640))):
            file[f"{group}/inputs"] = x[part]
            file[f"{group}/targets"] = numpy.sin(3 * x[part])


def test_regression():
    curve()
    write("curve.toml", REGRESSION)
    convoy("train", "curve.toml")
    last = events("curve", "eval")[-1]
    assert last["r2"] > 0.98 and last["mae"] < 0.1 and "top1" not in last
    assert events("curve", "step")[0]["samples"] == 32
    shown = convoy("eval", "runs/curve").stdout
    assert shown.startswith("runs/curve/checkpoints/step-00000320.h5 on 128 samples of data.validation\nloss   ")
    assert "\nMAE    " in shown and "\nR2     0.9" in shown


def test_a_pipeline_and_its_trace():
    curve()
    write("curve.toml", REGRESSION)
    convoy("train", "curve.toml", "--set", "parallel.mode=pipeline", "--set", "parallel.microbatches=4", "--set",
           "train.epochs=1", "--set", "log.trace=true", ranks=2)
    pytest.importorskip("matplotlib")
    script = os.path.join(ROOT, "scripts", "plot_trace.py")
    done = subprocess.run([sys.executable, script, "runs/curve/trace.json", "-o", "step"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "step.png step.svg\n", done.stderr
    with open("step.svg") as file:
        assert "bubble" in file.read()


# ---- ten mistakes: what is printed is compared whole

LAYERS = """[model]
name = "sequential"
classes = 3
[[model.layers]]
type = "conv2d"
out_channels = 4
kernel_size = 20
[data]
kind = "synthetic"
image_size = 15
samples = 64
[train]
steps = 2
global_batch_size = 16
"""

MISTAKES = {
    "unknown_key": (["train", "net.toml", "--set", "train.epoch=3"],
                    "--set: train.epoch: unknown key (did you mean train.epochs?)"),
    "no_file": (["train", "nte.toml"], "nte.toml: the config cannot be opened: No such file or directory"),
    "no_data": (["train", "net.toml", "--set", "data.train=absent.h5"],
                "--set: data.train: there is no file \"absent.h5\""),
    "kernel": (["train", "layers.toml"],
               "layers.toml:7:15: model.layers[0] conv2d: kernel_size 20 is larger than its input of 15x15 (larger "
               "images, or a smaller kernel or stem)"),
    "ignored": (["train", "net.toml", "--set", "optimizer.momentum=0.8"],
                "--set: optimizer.momentum: is ignored with optimizer.name = \"adamw\" (it belongs to sgd, lars)"),
    "value": (["train", "net.toml", "--set", "optimizer.lr=fast"],
              "--set: optimizer.lr: is a string (must be a number above 0)"),
    "loss": (["train", "net.toml", "--set", "train.loss=cross_entropy"],
             "--set: train.loss: cross_entropy needs class labels or probabilities, but curve.h5:/train has other float targets (use mse or l1)"),
    "batch": (["train", "net.toml", "--set", "train.global_batch_size=10000"],
              "--set: train.global_batch_size: 10000 is more than the 512 training samples (a smaller batch, or "
              "data.drop_last = false)"),
    "extra": (["train", "net.toml", "runs/a", "--fast"],
              "train: these arguments were not expected: runs/a --fast (see convoy train --help)"),
    "launch": (["launch", "--nproc_per_node", "2", "train", "net.toml"],
               "launch: these arguments were not expected: --nproc_per_node 2 train net.toml (--nproc_per_node is called "
               "--nproc-per-node here)"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake(name):
    words, message = MISTAKES[name]
    curve()
    write("net.toml", REGRESSION)
    write("layers.toml", LAYERS)
    done = convoy(*words, code=USAGE)
    assert done.stderr == f"convoy: error: {message}\n"
    assert not os.path.exists("runs"), "a refused start leaves something"
