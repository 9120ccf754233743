# SPDX-License-Identifier: Apache-2.0
"""scripts/export_onnx.py: onnxruntime gives the outputs of `convoy predict --out`, with batch norms folded and not, for
any batch size."""
import os
import subprocess
import sys

import pytest

from interop import base_config, h5py, last_checkpoint, make_images, np, run_convoy, temporary_folder, toml, write_images
from programs import ROOT

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
SCRIPT = os.path.join(ROOT, "scripts", "export_onnx.py")
MEAN, STD = [0.4, 0.5, 0.6], [0.25, 0.2, 0.3]

CONVOLUTIONS = [
    {"type": "conv2d", "name": "conv", "out_channels": 12, "kernel_size": [3, 5], "stride": [1, 2], "padding": [1, 2], "bias": True},
    {"type": "batch_norm2d", "name": "bn"},
    {"type": "silu"},
    {"type": "max_pool2d", "kernel_size": 3, "stride": 2, "padding": 1},
    {"type": "conv2d", "name": "depthwise", "out_channels": 12, "kernel_size": 3, "padding": 1, "groups": 12},
    {"type": "layer_norm", "name": "ln"},
    {"type": "gelu"},
    {"type": "bottleneck", "name": "block", "channels": 4, "stride": 2},
    {"type": "avg_pool2d", "kernel_size": 2, "stride": 1, "padding": 1},
    {"type": "batch_norm2d", "name": "bn2"},
    {"type": "tanh"},
    {"type": "flatten"},
    {"type": "linear", "name": "hidden", "out_features": 20},
    {"type": "layer_norm", "name": "ln2"},
    {"type": "sigmoid"},
    {"type": "dropout", "probability": 0.2},
    {"type": "linear", "name": "fc", "out_features": 10, "bias": False},
]
SIGNALS = [
    {"type": "conv1d", "name": "conv", "out_channels": 6, "kernel_size": 5, "stride": 2, "padding": 2},
    {"type": "batch_norm2d", "name": "bn"},
    {"type": "relu"},
    {"type": "avg_pool1d", "kernel_size": 2},
    {"type": "max_pool1d", "kernel_size": 2},
    {"type": "global_avg_pool"},
    {"type": "linear", "name": "fc", "out_features": 4},
]
CASES = (  # model, form of the samples, shape given to the script
    pytest.param(({"name": "resnet18", "stem": "small"}, "images", None), id="resnet18"),
    pytest.param(({"name": "resnet9"}, "images", None), id="resnet9"),
    pytest.param(({"name": "sequential", "layers": CONVOLUTIONS}, "images", None), id="convolutions"),
    pytest.param(({"name": "sequential", "layers": SIGNALS}, "signals", None), id="signals"),
    pytest.param(({"name": "mlp", "hidden": [30, 20]}, "images", "3,16,16"), id="mlp_images"),
    pytest.param(({"name": "mlp", "hidden": [30]}, "vectors", None), id="mlp_vectors"))


def write_toml(path, sections):
    """As interop.write_config(), with [[model.layers]]."""
    sections = {name: dict(keys) for name, keys in sections.items()}
    layers = sections["model"].pop("layers", [])
    with open(path, "w") as file:
        for section, keys in sections.items():
            file.write(f"[{section}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in keys.items()))
            for layer in layers if section == "model" else []:
                file.write("[[model.layers]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in layer.items()))


def samples_of(form, folder):
    """Writes data.h5; the input of the graph, and data.mean and data.std."""
    if form == "images":
        images, labels = make_images(24, 16, 3)
        write_images(os.path.join(folder, "data.h5"), images, labels)
        return images.transpose(0, 3, 1, 2).astype("float32") / 255, MEAN, STD
    random = np.random.RandomState(3)
    shape = (24, 2, 40) if form == "signals" else (24, 7)
    inputs = random.normal(1.0, 2.0, shape).astype("float32")
    with h5py.File(os.path.join(folder, "data.h5"), "w") as file:
        file["inputs"], file["labels"] = inputs, random.randint(0, 4, 24).astype("int64")
    return inputs[:, :, None, :] if form == "signals" else inputs, [0.5], [2.0]


def export(folder, *words):
    return subprocess.run([sys.executable, SCRIPT, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("case", CASES)
def test_outputs(case):
    model, form, shape = case
    with temporary_folder() as folder:
        x, mean, std = samples_of(form, folder)
        config = base_config(model, {"kind": "hdf5", "train": "data.h5", "mean": mean, "std": std},
                             {"steps": 3, "global_batch_size": 8}, {"name": "sgd", "lr": 0.05})
        write_toml(os.path.join(folder, "run.toml"), config)
        run_convoy(["train", "run.toml"], folder)
        checkpoint = last_checkpoint(folder)
        run_convoy(["predict", "run.toml", "--checkpoint", checkpoint, "data.h5", "--out", "out.h5"], folder)
        with h5py.File(os.path.join(folder, "out.h5"), "r") as file:
            expected = file["outputs"][()]
        for fold in ([], ["--fold"]):
            result = export(folder, checkpoint, "net.onnx", *fold, *(["--shape", shape] if shape else []))
            assert result.returncode == 0, result.stderr
            session = onnxruntime.InferenceSession(os.path.join(folder, "net.onnx"), providers=["CPUExecutionProvider"])
            assert session.get_inputs()[0].shape[0] == "N"
            operators = {node.op_type for node in __import__("onnx").load(os.path.join(folder, "net.onnx")).graph.node}
            if model["name"] == "resnet18":
                assert ("BatchNormalization" in operators) == (not fold)
            for count in (24, 5):
                actual, = session.run(None, {"input": x[:count]})
                # float32 of two programs; the order of sums differs.
                difference = np.abs(actual - expected[:count]).max() / np.abs(expected).max()
                print(f"{fold} {count}: {difference:.1e}")
                assert actual.shape == (count, expected.shape[1]) and difference < 1e-5


def test_what_is_no_checkpoint_is_refused():
    with temporary_folder() as folder:
        with h5py.File(os.path.join(folder, "weights.h5"), "w") as file:
            file["model/fc/weight"] = np.zeros((2, 2), "float32")
        for name, words in (("weights.h5", "not a checkpoint of convoy"), ("missing.h5", "cannot be read as HDF5")):
            result = export(folder, name, "net.onnx")
            assert result.returncode == 2 and len(result.stderr.splitlines()) == 1 and words in result.stderr
