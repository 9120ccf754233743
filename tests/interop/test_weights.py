# SPDX-License-Identifier: Apache-2.0
"""scripts/torch_interop.py: weights from torchvision into convoy and back, through .pth, .safetensors and HDF5.

torchvision's models evaluate to the same loss in convoy (1e-4 relative, as everywhere here); a checkpoint of convoy
loads into torchvision with strict=True; every way round gives back the same bits; bad files are told in one line.
Usage: test_weights.py CONVOY SCRIPT
"""
import json
import os
import re
import struct
import subprocess
import sys

from interop import (Report, as_input, base_config, h5py, last_checkpoint, make_images, np, randomize_buffers,
                     read_group, resnet, run_convoy, temporary_folder, torch, write_config, write_images)

PROGRAM, SCRIPT = sys.argv[1], sys.argv[2]


def run_script(folder, *arguments, environment=None):
    return subprocess.run([sys.executable, SCRIPT, *arguments], cwd=folder, capture_output=True, text=True, timeout=200,
                          env={**os.environ, **(environment or {})})


def convert(folder, *arguments):
    result = run_script(folder, *arguments)
    if result.returncode != 0:
        sys.exit(f"FAILED: torch_interop.py {arguments}: {result.stderr}")


def same_bits(report, what, actual, expected):
    report.check(set(actual) == set(expected), f"{what}: names differ: {sorted(set(actual) ^ set(expected))[:5]}")
    for name in set(actual) & set(expected):
        a, e = actual[name], expected[name]
        report.check(a.dtype == e.dtype and a.shape == e.shape and a.numpy().tobytes() == e.numpy().tobytes(),
                     f"{what}: {name} is not the same")


def data_config(folder, model, images, labels, steps=1):
    write_images(os.path.join(folder, "images.h5"), images, labels)
    write_config(os.path.join(folder, "run.toml"),
                 base_config(model, {"kind": "hdf5", "train": "images.h5", "mean": [0.45], "std": [0.25],
                                     "shuffle": False},
                             {"steps": steps, "global_batch_size": len(labels)}, {"name": "sgd", "lr": 0.001}))


def into_convoy(report, name):
    """.pth -> .h5 -> eval, with the dict and the prefixes that training scripts save; then all ways round."""
    torch.manual_seed(4)
    model = resnet(name, "imagenet", 3)
    randomize_buffers(model)
    model.eval()
    state = model.state_dict()
    images, labels = make_images(24, 64, 3)
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(as_input(images)), torch.from_numpy(labels)).item()
    with temporary_folder() as folder:
        torch.save({"state_dict": {"module." + key: value for key, value in state.items()}, "epoch": 3},
                   os.path.join(folder, "ddp.pth"))
        convert(folder, "ddp.pth", "weights.h5")
        data_config(folder, {"name": name, "stem": "imagenet", "classes": 10, "weights": "weights.h5"}, images, labels)
        seen = run_convoy(PROGRAM, ["inspect", "weights.h5"], folder)
        report.check(f"{len(state)} data sets" in seen and "0 damaged" in seen, f"{name}: inspect says {seen[-200:]}")
        text = run_convoy(PROGRAM, ["eval", "run.toml", "--checkpoint", "weights.h5"], folder)
        report.close(f"{name}: loss of torchvision's weights", float(re.search(r"loss\s+(\S+)", text)[1]), loss, 1e-4)
        for step in (("weights.h5", "a.safetensors"), ("a.safetensors", "b.pth"), ("b.pth", "c.h5"),
                     ("c.h5", "d.pth"), ("d.pth", "e.safetensors"), ("e.safetensors", "f.h5")):
            convert(folder, *step)
        for file in ("weights.h5", "c.h5", "f.h5"):
            same_bits(report, f"{name}: {file}", read_group(os.path.join(folder, file), "model"), state)
        for file in ("b.pth", "d.pth"):
            same_bits(report, f"{name}: {file}", torch.load(os.path.join(folder, file)), state)


def out_of_convoy(report):
    """A training starts from the weights, and its checkpoint goes back to torchvision."""
    torch.manual_seed(5)
    model = resnet("resnet18", "small", 1)
    images, labels = make_images(16, 8, 1)
    with temporary_folder() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "weights.pth"))
        convert(folder, "weights.pth", "weights.h5")
        data_config(folder, {"name": "resnet18", "stem": "small", "classes": 10, "weights": "weights.h5"}, images,
                    labels)
        run_convoy(PROGRAM, ["train", "run.toml"], folder)
        with open(os.path.join(folder, "runs", "run", "metrics.jsonl")) as file:
            first = next(entry["loss"] for entry in map(json.loads, file) if entry["event"] == "step")
        model.train()
        loss = torch.nn.functional.cross_entropy(model(as_input(images)), torch.from_numpy(labels)).item()
        report.close("resnet18: first loss of a training from these weights", first, loss, 1e-4)
        checkpoint = last_checkpoint(folder)
        convert(folder, checkpoint, "trained.pth")
        state = torch.load(os.path.join(folder, "trained.pth"))
        same_bits(report, "checkpoint as .pth", state, read_group(checkpoint, "model"))
        model.load_state_dict(state, strict=True)
        model.eval()
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(as_input(images)), torch.from_numpy(labels)).item()
        text = run_convoy(PROGRAM, ["eval", "run.toml", "--checkpoint", checkpoint], folder)
        report.close("resnet18: loss of the trained model", float(re.search(r"loss\s+(\S+)", text)[1]), loss, 1e-4)


def safetensors_bytes(tensors, header=None):
    """By hand: {name: (dtype, shape, raw bytes)}."""
    entries, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape, raw) in tensors.items():
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = header if header is not None else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors_by_hand(report):
    values = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    half, brain = values.half(), values.bfloat16()
    raw = {"a.weight": ("F32", [3, 4], values.numpy().tobytes()),
           "b.weight": ("F16", [3, 4], half.numpy().tobytes()),
           "c.weight": ("BF16", [3, 4], brain.view(torch.int16).numpy().tobytes()),
           "n.num_batches_tracked": ("I64", [], struct.pack("<q", 7))}
    expected = {"a.weight": values, "b.weight": half.float(), "c.weight": brain.float(),
                "n.num_batches_tracked": torch.tensor(7)}
    with temporary_folder() as folder:
        with open(os.path.join(folder, "hand.safetensors"), "wb") as file:
            file.write(safetensors_bytes(raw))
        convert(folder, "hand.safetensors", "hand.h5")
        same_bits(report, "safetensors by hand", read_group(os.path.join(folder, "hand.h5"), "model"), expected)
        convert(folder, "hand.h5", "back.safetensors")
        with open(os.path.join(folder, "back.safetensors"), "rb") as file:
            content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    report.check(length % 8 == 0 and set(header) == set(expected), f"written header: {header}")
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind = "I64" if name.endswith("tracked") else "F32"
        report.check(entry["dtype"] == kind and entry["shape"] == list(expected[name].shape)
                     and data[begin:end] == expected[name].numpy().tobytes(), f"written {name}: {entry}")


def bad_files(report):
    with temporary_folder() as folder:
        def put(name, content):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)

        put("noise.pth", b"no weights at all")
        put("noise.h5", b"no weights at all")
        put("noise.safetensors", b"no weights at all")
        put("empty.safetensors", b"")
        put("list.safetensors", safetensors_bytes({}, b"[1, 2]"))
        put("short.safetensors", safetensors_bytes({"a": ("F32", [2], b"1234")}))
        put("kind.safetensors", safetensors_bytes({"a": ("F8_E4M3", [4], b"1234")}))
        put("shape.safetensors", safetensors_bytes({}, b'{"a": {"dtype": "F32", "shape": "x", "data_offsets": [0]}}'))
        put("names.safetensors", safetensors_bytes({"a..b": ("F32", [1], b"1234")}))
        put("within.safetensors", safetensors_bytes({"a": ("F32", [1], b"1234"), "a.b": ("F32", [1], b"1234")}))
        torch.save([1, 2], os.path.join(folder, "list.pth"))
        torch.save({"a": 3}, os.path.join(folder, "number.pth"))
        torch.save({"a": torch.ones(2, dtype=torch.int32)}, os.path.join(folder, "integers.pth"))
        with h5py.File(os.path.join(folder, "data.h5"), "w") as file:
            file["images"] = np.zeros((2, 2))
        good = os.path.join(folder, "good.pth")
        torch.save({"a.weight": torch.ones(2)}, good)
        cases = [(["noise.pth", "o.h5"], "no file of weights"), (["noise.h5", "o.pth"], "no HDF5 file"),
                 (["noise.safetensors", "o.h5"], "no .safetensors file"), (["empty.safetensors", "o.h5"], "first 8"),
                 (["list.safetensors", "o.h5"], "not a JSON object"), (["short.safetensors", "o.h5"], "does not fit"),
                 (["kind.safetensors", "o.h5"], "F8_E4M3"), (["shape.safetensors", "o.h5"], "describes a by"),
                 (["names.safetensors", "o.h5"], "single dots"), (["within.safetensors", "o.h5"], "within another"),
                 (["list.pth", "o.h5"], "no state_dict"), (["number.pth", "o.h5"], "no tensor but int"),
                 (["integers.pth", "o.h5"], "int32"), (["data.h5", "o.pth"], "no group /model"),
                 (["missing.pth", "o.h5"], "No such file"), (["good.pth", "o.onnx"], "unknown suffix"),
                 (["good.pth", "nowhere/o.h5"], "nowhere")]
        for arguments, words in cases:
            result = run_script(folder, *arguments)
            report.check(result.returncode == 1 and words in result.stderr and result.stderr.count("\n") == 1
                         and "Traceback" not in result.stderr, f"{arguments}: {result.returncode}, {result.stderr!r}")
        left = [name for name in os.listdir(folder) if name.startswith("o.")]
        report.check(not left, f"failures left {left}")
        # Without the packages: a folder of modules that cannot be imported comes first on the path.
        for module in ("torch", "h5py"):
            hidden = os.path.join(folder, "without-" + module)
            os.mkdir(hidden)
            with open(os.path.join(hidden, module + ".py"), "w") as file:
                file.write("raise ImportError('hidden')\n")
            result = run_script(folder, "good.pth", "o.h5", environment={"PYTHONPATH": hidden})
            report.check(result.returncode == 1 and f"package {module} " in result.stderr
                         and result.stderr.count("\n") == 1, f"without {module}: {result.stderr!r}")


def main():
    report = Report()
    for name in ("resnet18", "resnet50"):
        into_convoy(report, name)
    out_of_convoy(report)
    safetensors_by_hand(report)
    bad_files(report)
    report.finish()


if __name__ == "__main__":
    main()
