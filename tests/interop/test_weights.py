# SPDX-License-Identifier: Apache-2.0
"""scripts/torch_interop.py: weights from torchvision into convoy and back, through .pth, .safetensors and HDF5.

torchvision's models evaluate to the same loss in convoy (1e-4 relative, as everywhere here); a checkpoint of convoy
loads into torchvision with strict=True; every way round gives back the same bits; bad files are told in one line.
"""
import collections
import json
import os
import re
import struct
import subprocess
import sys

import pytest

from interop import (as_input, assert_close, base_config, h5py, last_checkpoint, make_images, np, randomize_buffers,
                     read_group, resnet, run_convoy, temporary_folder, torch, write_config, write_images)
from programs import ROOT

SCRIPT = os.path.join(ROOT, "scripts", "torch_interop.py")


def run_script(folder, *arguments, environment=None):
    return subprocess.run([sys.executable, SCRIPT, *arguments], cwd=folder, capture_output=True, text=True, timeout=200,
                          env={**os.environ, **(environment or {})})


def convert(folder, *arguments):
    result = run_script(folder, *arguments)
    assert result.returncode == 0, f"torch_interop.py {arguments}: {result.stderr}"


def same_bits(actual, expected):
    assert set(actual) == set(expected)
    for name, e in expected.items():
        a = actual[name]
        assert a.dtype == e.dtype and a.shape == e.shape and a.numpy().tobytes() == e.numpy().tobytes(), name


def loss_of_eval(folder, checkpoint):
    text = run_convoy(["eval", "run.toml", "--checkpoint", checkpoint], folder)
    return float(re.search(r"loss\s+(\S+)", text)[1])


def loss_of_torch(model, images, labels):
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(as_input(images)), torch.from_numpy(labels)).item()


def data_config(folder, model, images, labels, steps=1):
    write_images(os.path.join(folder, "images.h5"), images, labels)
    write_config(os.path.join(folder, "run.toml"),
                 base_config(model, {"kind": "hdf5", "train": "images.h5", "mean": [0.45], "std": [0.25],
                                     "shuffle": False},
                             {"steps": steps, "global_batch_size": len(labels)}, {"name": "sgd", "lr": 0.001}))


# ---- from torchvision into convoy, and all ways round

Converted = collections.namedtuple("Converted", ("folder", "state", "loss"))


@pytest.fixture(scope="module", params=("resnet18", "resnet50"))
def converted(request):
    """Files in all formats, of a model whose loss is torchvision's: the first has the dict and the prefixes that training
    scripts save."""
    name = request.param
    torch.manual_seed(4)
    model = resnet(name, "imagenet", 3)
    randomize_buffers(model)
    model.eval()
    state = model.state_dict()
    images, labels = make_images(24, 64, 3)
    with temporary_folder() as folder:
        torch.save({"state_dict": {"module." + key: value for key, value in state.items()}, "epoch": 3},
                   os.path.join(folder, "ddp.pth"))
        convert(folder, "ddp.pth", "weights.h5")
        data_config(folder, {"name": name, "stem": "imagenet", "classes": 10, "weights": "weights.h5"}, images, labels)
        for step in (("weights.h5", "a.safetensors"), ("a.safetensors", "b.pth"), ("b.pth", "c.h5"),
                     ("c.h5", "d.pth"), ("d.pth", "e.safetensors"), ("e.safetensors", "f.h5")):
            convert(folder, *step)
        yield Converted(folder, state, loss_of_torch(model, images, labels))


def test_inspect_knows_the_weights(converted):
    seen = run_convoy(["inspect", "weights.h5"], converted.folder)
    assert f"{len(converted.state)} data sets" in seen and "0 damaged" in seen


def test_eval_of_torchvisions_weights(converted):
    assert_close("loss of torchvision's weights", loss_of_eval(converted.folder, "weights.h5"), converted.loss, 1e-4)


@pytest.mark.parametrize("file", ("weights.h5", "c.h5", "f.h5"))
def test_hdf5_has_the_same_bits(converted, file):
    same_bits(read_group(os.path.join(converted.folder, file), "model"), converted.state)


@pytest.mark.parametrize("file", ("b.pth", "d.pth"))
def test_pth_has_the_same_bits(converted, file):
    same_bits(torch.load(os.path.join(converted.folder, file)), converted.state)


# ---- a training from the weights, and back to torchvision

Trained = collections.namedtuple("Trained", ("folder", "checkpoint", "model", "images", "labels"))


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(5)
    model = resnet("resnet18", "small", 1)
    images, labels = make_images(16, 8, 1)
    with temporary_folder() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "weights.pth"))
        convert(folder, "weights.pth", "weights.h5")
        data_config(folder, {"name": "resnet18", "stem": "small", "classes": 10, "weights": "weights.h5"}, images,
                    labels)
        run_convoy(["train", "run.toml"], folder)
        checkpoint = last_checkpoint(folder)
        convert(folder, checkpoint, "trained.pth")
        yield Trained(folder, checkpoint, model, images, labels)


def test_training_starts_from_the_weights(trained):
    with open(os.path.join(trained.folder, "runs", "run", "metrics.jsonl")) as file:
        first = next(entry["loss"] for entry in map(json.loads, file) if entry["event"] == "step")
    model = resnet("resnet18", "small", 1)
    model.load_state_dict(torch.load(os.path.join(trained.folder, "weights.pth")))
    model.train()
    loss = torch.nn.functional.cross_entropy(model(as_input(trained.images)), torch.from_numpy(trained.labels)).item()
    assert_close("first loss of a training from these weights", first, loss, 1e-4)


def test_checkpoint_as_pth_has_the_same_bits(trained):
    same_bits(torch.load(os.path.join(trained.folder, "trained.pth")), read_group(trained.checkpoint, "model"))


def test_torchvision_loads_the_checkpoint(trained):
    model = trained.model
    model.load_state_dict(torch.load(os.path.join(trained.folder, "trained.pth")), strict=True)
    model.eval()
    assert_close("loss of the trained model", loss_of_eval(trained.folder, trained.checkpoint),
                 loss_of_torch(model, trained.images, trained.labels), 1e-4)


# ---- .safetensors written by hand

def safetensors_bytes(tensors, header=None):
    """By hand: {name: (dtype, shape, raw bytes)}."""
    entries, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape, raw) in tensors.items():
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = header if header is not None else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


VALUES = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
EXPECTED = {"a.weight": VALUES, "b.weight": VALUES.half().float(), "c.weight": VALUES.bfloat16().float(),
            "n.num_batches_tracked": torch.tensor(7)}


@pytest.fixture
def by_hand(tmp_path):
    raw = {"a.weight": ("F32", [3, 4], VALUES.numpy().tobytes()),
           "b.weight": ("F16", [3, 4], VALUES.half().numpy().tobytes()),
           "c.weight": ("BF16", [3, 4], VALUES.bfloat16().view(torch.int16).numpy().tobytes()),
           "n.num_batches_tracked": ("I64", [], struct.pack("<q", 7))}
    (tmp_path / "hand.safetensors").write_bytes(safetensors_bytes(raw))
    convert(tmp_path, "hand.safetensors", "hand.h5")
    return tmp_path


def test_reads_safetensors(by_hand):
    same_bits(read_group(by_hand / "hand.h5", "model"), EXPECTED)


def test_writes_safetensors(by_hand):
    convert(by_hand, "hand.h5", "back.safetensors")
    content = (by_hand / "back.safetensors").read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    assert length % 8 == 0 and set(header) == set(EXPECTED)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == ("I64" if name.endswith("tracked") else "F32"), name
        assert entry["shape"] == list(EXPECTED[name].shape), name
        assert data[begin:end] == EXPECTED[name].numpy().tobytes(), name


# ---- bad files

@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder of files, of which only good.pth is good."""
    folder = tmp_path_factory.mktemp("bad")
    contents = {
        "noise.pth": b"no weights at all",
        "noise.h5": b"no weights at all",
        "noise.safetensors": b"no weights at all",
        "empty.safetensors": b"",
        "list.safetensors": safetensors_bytes({}, b"[1, 2]"),
        "short.safetensors": safetensors_bytes({"a": ("F32", [2], b"1234")}),
        "kind.safetensors": safetensors_bytes({"a": ("F8_E4M3", [4], b"1234")}),
        "shape.safetensors": safetensors_bytes({}, b'{"a": {"dtype": "F32", "shape": "x", "data_offsets": [0]}}'),
        "names.safetensors": safetensors_bytes({"a..b": ("F32", [1], b"1234")}),
        "within.safetensors": safetensors_bytes({"a": ("F32", [1], b"1234"), "a.b": ("F32", [1], b"1234")}),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    torch.save([1, 2], folder / "list.pth")
    torch.save({"a": 3}, folder / "number.pth")
    torch.save({"a": torch.ones(2, dtype=torch.int32)}, folder / "integers.pth")
    with h5py.File(folder / "data.h5", "w") as file:
        file["images"] = np.zeros((2, 2))
    torch.save({"a.weight": torch.ones(2)}, folder / "good.pth")
    return folder


@pytest.mark.parametrize("source, target, words", (
    ("noise.pth", "o.h5", "no file of weights"), ("noise.h5", "o.pth", "no HDF5 file"),
    ("noise.safetensors", "o.h5", "no .safetensors file"), ("empty.safetensors", "o.h5", "first 8"),
    ("list.safetensors", "o.h5", "not a JSON object"), ("short.safetensors", "o.h5", "does not fit"),
    ("kind.safetensors", "o.h5", "F8_E4M3"), ("shape.safetensors", "o.h5", "describes a by"),
    ("names.safetensors", "o.h5", "single dots"), ("within.safetensors", "o.h5", "within another"),
    ("list.pth", "o.h5", "no state_dict"), ("number.pth", "o.h5", "no tensor but int"),
    ("integers.pth", "o.h5", "int32"), ("data.h5", "o.pth", "no group /model"),
    ("missing.pth", "o.h5", "No such file"), ("good.pth", "o.onnx", "unknown suffix"),
    ("good.pth", "nowhere/o.h5", "nowhere")))
def test_bad_files_are_an_error(files, source, target, words):
    result = run_script(files, source, target)
    assert result.returncode == 1 and words in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1 and "Traceback" not in result.stderr, result.stderr
    assert not [name for name in os.listdir(files) if name.startswith("o.")]


@pytest.mark.parametrize("module", ("torch", "h5py"))
def test_missing_package_is_an_error(files, tmp_path, module):
    """A folder of modules that cannot be imported comes first on the path."""
    (tmp_path / (module + ".py")).write_text("raise ImportError('hidden')\n")
    result = run_script(files, "good.pth", "o.h5", environment={"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 1 and f"package {module} " in result.stderr and result.stderr.count("\n") == 1, result.stderr
