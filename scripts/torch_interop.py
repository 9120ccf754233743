#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights between convoy's HDF5 files, torchvision's .pth and .safetensors: torch_interop.py [--ema] IN OUT, by suffix.

.h5: a checkpoint, or any file with a /model group: torchvision's names with `.` as `/` (docs/interface.md); what is
written serves as model.weights. --ema takes the tensors of the average of the weights (/ema). .pth, .pt: a state_dict, or a dict that holds one under "state_dict" or "model"; the
prefix `module.` of DistributedDataParallel is dropped. .safetensors: 8 bytes with the length of a JSON header, which
says where each tensor lies in the data behind it. Floats become float32 (float16 and bfloat16 exactly,
float64 rounded), num_batches_tracked stays int64. Relies on numpy; h5py for .h5 and torch for .pth. Invariant: float32
and int64 are written with the bits, and under the names, that were read.
"""
import inspect
import json
import math
import os
import struct
import sys

MOST_HEADER = 100 << 20  # bytes of a .safetensors header: the format's own limit
KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8"}  # and BF16, which numpy does not know
SUFFIXES = {".h5": "h5", ".hdf5": "h5", ".pth": "pth", ".pt": "pth", ".safetensors": "safetensors"}


class Problem(Exception):
    pass


def need(module):
    try:
        return __import__(module)
    except ImportError:
        raise Problem(f"this needs the Python package {module} (Debian: python3-{module})") from None


np = None  # set by main(), so that its absence is told in one line


def kind_of(path):
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise Problem(f"{path}: unknown suffix \"{suffix}\" (known: {', '.join(SUFFIXES)})")
    return SUFFIXES[suffix]


def as_weights(path, name, array):
    """float32, or int64 for counters."""
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, dtype="<f4").reshape(array.shape)
    if array.dtype.kind in "iu" and name.endswith("num_batches_tracked"):
        return array.astype("<i8")
    raise Problem(f"{path}: {name} has elements of type {array.dtype}: no weights (floats, or num_batches_tracked)")


def check_name(path, name):
    parts = name.split(".")
    if "/" in name or not all(parts):
        raise Problem(f"{path}: a tensor named \"{name}\" (names are parts joined by single dots)")


# ---- HDF5

def refuse_outside_references(path, file, h5py):
    """Files that refer to others (external storage, virtual datasets, external links) are not read."""
    outside = []

    def visit_link(name, info):
        if info.type not in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT):
            outside.append((name.decode("utf-8", "replace"), "is an external link"))

    def visit_object(name, item):
        if isinstance(item, h5py.Dataset) and (item.is_virtual or item.external):
            outside.append((name, "is a virtual dataset" if item.is_virtual else "is stored in another file"))

    file.id.links.visit(visit_link, info=True)
    if not outside:
        file.visititems(visit_object)
    if outside:
        raise Problem(f"{path}:/{outside[0][0]} {outside[0][1]}: files that refer to others are not read")


def read_h5(path, average=False):
    h5py = need("h5py")
    tensors = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            tensors[name.replace("/", ".")] = np.asarray(item[()])

    try:
        with h5py.File(path, "r") as file:
            refuse_outside_references(path, file, h5py)
            group = file.get("model")
            if not isinstance(group, h5py.Group):
                raise Problem(f"{path}: no group /model, which holds the weights (a convoy checkpoint has one)")
            group.visititems(visit)
            if average:
                if not isinstance(file.get("ema"), h5py.Group):
                    raise Problem(f"{path}: no group /ema (train.ema_decay makes checkpoints that have one)")
                file["ema"].visititems(visit)
    except (OSError, RuntimeError) as error:
        raise Problem(f"{path}: no HDF5 file that can be read ({one_line(error)})") from None
    return tensors


def write_h5(path, tensors):
    h5py = need("h5py")
    with h5py.File(path, "w") as file:
        for name, array in tensors.items():
            key = "model/" + name.replace(".", "/")
            try:
                if array.size == 0 or array.ndim == 0:  # HDF5 cannot chunk, and so not checksum, a scalar
                    file.create_dataset(key, data=array)
                else:
                    file.create_dataset(key, data=array, chunks=True, fletcher32=True)
            except (TypeError, ValueError, OSError) as error:
                raise Problem(f"{name} cannot go into an HDF5 file ({one_line(error)}): is it a name within another?") from None


# ---- PyTorch

def read_pth(path):
    torch = need("torch")
    with open(path, "rb"):  # the system's words for what is not there
        pass
    options = {"map_location": "cpu"}
    if "weights_only" in inspect.signature(torch.load).parameters:  # since 1.13; before, a stranger's file may run code
        options["weights_only"] = True
    try:
        content = torch.load(path, **options)
    except Exception as error:  # torch throws what it likes: pickle's, zip's, runtime errors
        raise Problem(f"{path}: no file of weights that PyTorch can read ({one_line(error)})") from None
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content:
        raise Problem(f"{path}: holds no state_dict but {type(content).__name__} (save model.state_dict())")
    tensors = {}
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise Problem(f"{path}: {name} is no tensor but {type(value).__name__} (save model.state_dict())")
        value = value.detach()
        tensors[name] = (value.float() if value.is_floating_point() else value).numpy()
    if all(name.startswith("module.") for name in tensors):
        tensors = {name[len("module."):]: array for name, array in tensors.items()}
    return tensors


def write_pth(path, tensors):
    torch = need("torch")
    torch.save({name: torch.from_numpy(array.copy()) for name, array in tensors.items()}, path)


# ---- safetensors

def array_of(path, name, entry, data):
    try:
        kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        whole = all(isinstance(number, int) and number >= 0 for number in [*shape, begin, end])
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise Problem(f"{path}: its header describes {name} by {str(entry)[:80]} (dtype, shape, data_offsets)")
    width = 2 if kind == "BF16" else np.dtype(KINDS[kind]).itemsize if kind in KINDS else 0
    if width == 0:
        raise Problem(f"{path}: {name} has elements of type {kind} (read: BF16, {', '.join(KINDS)})")
    if end - begin != width * math.prod(shape) or end > len(data):
        raise Problem(f"{path}: {name} of shape {shape} does not fit bytes {begin} to {end} of {len(data)}")
    raw = data[begin:end]
    if kind == "BF16":  # the upper half of a float32
        return (np.frombuffer(raw, dtype="<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    return np.frombuffer(raw, dtype=KINDS[kind]).reshape(shape)


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 0
    if not 2 <= length <= min(MOST_HEADER, len(content) - 8):
        raise Problem(f"{path}: no .safetensors file (its first 8 bytes are the length of a header)")
    try:
        header = json.loads(content[8:8 + length])
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise Problem(f"{path}: no .safetensors file (its header is not a JSON object)")
    header.pop("__metadata__", None)
    data = memoryview(content)[8 + length:]
    return {name: array_of(path, name, entry, data) for name, entry in header.items()}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, array in tensors.items():
        kind = next(word for word, code in KINDS.items() if array.dtype == np.dtype(code))
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins aligned
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(array.tobytes())


# ---- both ways

READERS = {"h5": read_h5, "pth": read_pth, "safetensors": read_safetensors}
WRITERS = {"h5": write_h5, "pth": write_pth, "safetensors": write_safetensors}


def one_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def convert(source, target, average):
    reader, writer = READERS[kind_of(source)], WRITERS[kind_of(target)]
    if average and reader is not read_h5:
        raise Problem(f"{source}: --ema needs a checkpoint (.h5)")
    found = reader(source, True) if average else reader(source)
    if not found:
        raise Problem(f"{source}: holds no tensors")
    for name in found:
        check_name(source, name)
    tensors = {name: as_weights(source, name, array) for name, array in found.items()}
    # Under another name first: a failure, or IN = OUT, leaves what is there.
    partial = target + ".part" + os.path.splitext(target)[1]
    try:
        writer(partial, tensors)
        os.replace(partial, target)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
    elements = sum(array.size for array in tensors.values())
    print(f"{target}: {len(tensors)} tensors, {elements} elements")


def main():
    global np
    if sys.argv[1:] in (["-h"], ["--help"]):
        print("usage: torch_interop.py [--ema] IN OUT\n\nConverts weights between .h5, .pth and .safetensors. --ema: the average "
              "of the weights\nthat a checkpoint holds.")
        return
    average = sys.argv[1:2] == ["--ema"]
    paths = sys.argv[2:] if average else sys.argv[1:]
    if len(paths) != 2:
        sys.exit("usage: torch_interop.py [--ema] IN OUT (each .h5, .pth or .safetensors)")
    try:
        np = need("numpy")
        convert(*paths, average)
    except (Problem, OSError, MemoryError) as error:
        sys.exit(f"torch_interop: error: {one_line(error)}")


if __name__ == "__main__":
    main()
