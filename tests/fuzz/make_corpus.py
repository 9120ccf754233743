#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets, small files of every form that the readers know, into corpus/NAME.

Needs h5py, numpy and Pillow. Findings, whose names begin with "found-", stay as they are.
Usage: make_corpus.py [FOLDER]
"""
import gzip
import io
import os
import struct
import sys
import zlib

import h5py
import numpy as np
from PIL import Image

FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
random = np.random.RandomState(1)


def write(target, name, content):
    os.makedirs(os.path.join(FOLDER, target), exist_ok=True)
    with open(os.path.join(FOLDER, target, name), "wb") as file:
        file.write(content)


def idx(array):
    return struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def pair(images, labels):
    return struct.pack(">H", len(images)) + images + labels


def make_idx():
    labels = np.arange(3, dtype=np.uint8)
    grey, colour = (random.randint(0, 256, shape).astype(np.uint8) for shape in ((3, 5, 4), (3, 4, 4, 3)))
    write("idx", "grey", pair(idx(grey), idx(labels)))
    write("idx", "colour", pair(idx(colour), idx(labels)))
    write("idx", "gzipped", pair(gzip.compress(idx(grey), mtime=0), gzip.compress(idx(labels), mtime=0)))
    write("idx", "no-axes-in-labels", pair(idx(grey), struct.pack(">BBBB", 0, 0, 8, 0) + b"\1"))
    write("idx", "too-few-labels", pair(idx(grey), idx(labels[:2])))
    write("idx", "truncated", pair(idx(grey)[:-7], idx(labels)))
    write("idx", "truncated-gzip", pair(gzip.compress(idx(grey), mtime=0)[:-9], idx(labels)))
    write("idx", "huge-header", pair(struct.pack(">BBBBIII", 0, 0, 8, 3, 2**31, 2**31, 2**31), idx(labels)))


def make_cifar10():
    record = bytes([3]) + bytes(range(256)) * 12
    names = b"airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n"
    write("cifar10", "two-records", bytes([0]) + record + bytes([9]) + record[1:])
    write("cifar10", "with-names", bytes([len(names)]) + names + record)
    write("cifar10", "label-too-large", bytes([0]) + bytes([10]) + record[1:])
    write("cifar10", "truncated", bytes([0]) + record[:-1])


def make_jpeg():
    """Bytes before the file: the sample's size less 1; channels and resize; augmentation (one_image.h)."""
    row, column = np.mgrid[0:37, 0:51]
    picture = np.stack([row * 6, column * 5, (row * column) % 256], axis=-1).astype(np.uint8)
    for name, mode, choice, options in (("colour", "RGB", (15, 0, 0), {}), ("crop", "RGB", (31, 0, 7), {"subsampling": 0}),
                                        ("grey", "L", (7, 1, 1), {}), ("inks", "CMYK", (15, 32, 3), {}),
                                        ("progressive", "RGB", (20, 16, 15), {"progressive": True}),
                                        ("changes", "RGB", (15, 0, 63), {})):
        file = io.BytesIO()
        Image.fromarray(picture).convert(mode).save(file, "JPEG", quality=60, **options)
        write("jpeg", name, bytes(choice) + file.getvalue())
    turned, file = Image.Exif(), io.BytesIO()
    turned[0x0112] = 6  # a quarter
    Image.fromarray(picture).save(file, "JPEG", quality=60, exif=turned)
    write("jpeg", "turned", bytes((15, 0, 1)) + file.getvalue())
    write("jpeg", "truncated", bytes((15, 0, 0)) + file.getvalue()[:-200])
    write("jpeg", "text", bytes((15, 0, 0)) + b"no picture at all")


def make_jpeg_part():
    """Bytes before the file: channels, a box, the scale (fuzz_jpeg_part.cpp)."""
    blocks = np.random.RandomState(2).randint(0, 256, (7, 9, 3))
    picture = np.kron(blocks, np.ones((5, 5, 1))).astype(np.uint8)
    for name, mode, choice, options in (
            ("even", "RGB", (0, 60, 30, 200, 90, 0), {"subsampling": 2}), ("half", "RGB", (0, 0, 0, 0, 255, 0), {"subsampling": 1}),
            ("full", "RGB", (1, 99, 99, 99, 99, 1), {"subsampling": 0, "quality": 95}), ("grey", "L", (0, 9, 9, 250, 250, 2), {}),
            ("restarts", "RGB", (0, 80, 40, 90, 90, 0), {"subsampling": 2, "restart_marker_blocks": 2}),
            ("codes", "RGB", (0, 0, 90, 255, 20, 3), {"subsampling": 2, "optimize": True}),
            ("progressive", "RGB", (0, 70, 70, 70, 70, 0), {"progressive": True})):
        file = io.BytesIO()
        Image.fromarray(picture).convert(mode).save(file, "JPEG", **{"quality": 60, **options})
        write("jpeg_part", name, bytes(choice) + file.getvalue())


def png(size, bits, kind, rows, *others, interlaced=0):
    """A PNG (ISO/IEC 15948) of these rows, each behind its filter, and further chunks before them."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    header = struct.pack(">IIBBBBB", *size, bits, kind, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in ((b"IHDR", header), *others,
                                                                    (b"IDAT", zlib.compress(rows)), (b"IEND", b"")))


def make_png():
    """Bytes before the file: as of JPEGs; 128 more in the first: checksums stay as they are."""
    row, column = np.mgrid[0:37, 0:51]
    picture = np.stack([row * 6, column * 5, (row * column) % 256], axis=-1).astype(np.uint8)
    for name, mode, choice in (("colour", "RGB", (15, 0, 0)), ("crop", "RGB", (31, 0, 7)), ("grey", "L", (7, 1, 1)),
                               ("palette", "P", (15, 0, 3)), ("alpha", "RGBA", (20, 16, 15)), ("bits", "1", (9, 1, 2))):
        file = io.BytesIO()
        Image.fromarray(picture).convert(mode).save(file, "PNG")
        write("png", name, bytes(choice) + file.getvalue())
    deep = random.randint(0, 256, (5, 1 + 6 * 6)).astype(np.uint8)
    deep[:, 0] = range(5)  # the filters
    write("png", "deep", bytes((3, 0, 0)) + png((6, 5), 16, 2, deep.tobytes()))
    passes = b"\0\x09\0\7\0\1\2\0\3\4\0\5\6\0\1\2\3\4\0\5\6\7\x08"  # of Adam7: 1, 1, 2, 2 * 2 and 2 * 4 pixels
    write("png", "interlaced", bytes((3, 1, 0)) + png((4, 4), 8, 0, passes, interlaced=1))
    write("png", "transparent", bytes((3, 0, 0)) + png((2, 2), 2, 3, b"\0\x10\0\xb0", (b"PLTE", bytes(range(12))),
                                                       (b"tRNS", b"\0\x80"), (b"tEXt", b"Title\0nothing")))
    write("png", "no-palette", bytes((3, 0, 0)) + png((2, 2), 2, 3, b"\0\x10\0\xb0"))
    write("png", "large", bytes((3, 0, 0)) + png((65000, 65000), 8, 2, b"\0"))
    whole = png((2, 2), 8, 0, b"\0\1\2\0\3\4")
    write("png", "truncated", bytes((3, 0, 0)) + whole[:-20])
    write("png", "checksum", bytes((131, 0, 0)) + whole[:-14] + b"\0" + whole[-13:])


def hdf5(target, name, fill, **options):
    path = os.path.join(FOLDER, target, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with h5py.File(path, "w", **options) as file:
        fill(file)


def make_hdf5_data():
    images = random.randint(0, 256, (3, 4, 4, 1)).astype(np.uint8)
    labels = np.array([0, 2, 1], dtype=np.int64)

    def plain(file):
        file["images"], file["labels"] = images, labels

    def chunked(file):
        file.create_dataset("images", data=images, chunks=(2, 4, 4, 1), compression="gzip", fletcher32=True)
        file.create_dataset("labels", data=labels.astype(np.int16), chunks=(3,), shuffle=True)
        file.attrs["class_names"] = ["one", "two", "three"]

    def grouped(file):
        group = file.create_group("train")
        group["images"], group["labels"] = images, labels
        group.attrs["class_names"] = np.array([b"a", b"bb", b"ccc"])

    def regression(file):
        file["inputs"] = random.randn(3, 2, 2, 2).astype(">f4")
        file["targets"] = random.randn(3, 2).astype(np.float64)

    def negative(file):
        file["images"], file["labels"] = images, -labels

    def jpeg(file):
        file["jpeg/bytes"], file["labels"] = images.ravel(), labels

    def deep(file):
        file["images"], file["labels"] = images.astype(np.uint16) * 257, labels

    def several(file):
        file["images"], file["targets"] = images.astype(np.float32), (images[:, 0, :, 0] > 99).astype(np.uint8)

    for name, fill in (("plain", plain), ("chunked", chunked), ("grouped", grouped), ("regression", regression),
                       ("negative-labels", negative), ("jpeg", jpeg), ("uint16", deep),
                       ("several-labels", several)):
        hdf5("hdf5_data", name, fill, libver="v108")
    hdf5("hdf5_data", "old-format", plain)


def make_checkpoint():
    def attributes(file, complete=True):
        for key in ("step", "epoch", "samples_seen", "lr_step", "ranks", "format_version"):
            file.attrs[key] = np.int64(1)
        file.attrs["seed"], file.attrs["loss_scale"] = np.uint64(42), 1.0
        for key in ("config", "program_version", "mode", "created"):
            file.attrs[key] = "text"
        file.attrs["format"] = "convoy-checkpoint"
        if complete:
            file.attrs["complete"] = np.int64(1)

    def tensors(group):
        for name, shape in (("fc/weight", (2, 3)), ("bn1/running_mean", (4,))):
            group.create_dataset(name, data=random.randn(*shape).astype(np.float32), chunks=shape, fletcher32=True)

    def whole(file):
        attributes(file)
        tensors(file.create_group("model"))
        file["model/bn1/num_batches_tracked"] = np.int64(7)
        tensors(file.create_group("optimizer/momentum"))

    def incomplete(file):
        attributes(file, complete=False)
        tensors(file.create_group("model"))

    def weights(file):
        tensors(file.create_group("model"))

    def no_tensors(file):
        attributes(file)
        file["model"] = np.float32(1)
        file["optimizer/momentum/words"] = "text"

    for name, fill in (("whole", whole), ("incomplete", incomplete), ("weights", weights), ("no-tensors", no_tensors)):
        hdf5("checkpoint", name, fill, libver="v108")


CONFIGS = {
    "resnet": """[model]
name = "resnet50"
stem = "small"
classes = 10
[data]
kind = "synthetic"
samples = 1_000
image_size = 32
mean = [0.4914, 0.4822, 0.4465]
[train]
epochs = 3
global_batch_size = 128
label_smoothing = 0.1
precision = "bf16"
[optimizer]
name = "lars"
lr = 2e-1
trust = 0.001
[lr_schedule]
name = "step"
milestones = [1, 2.5]
[parallel]
mode = "pipeline"
schedule = "interleaved"
stages = 2
microbatches = 4
partition = ["stem", "layer2.0", "layer3.0", "head"]
[checkpoint]
every_steps = 10
resume = "never"
""",
    "sequential": """[run]
name = "net"
max_time = "01:30:00"
stop_signals = ["SIGTERM"]
[model]
name = "sequential"
[[model.layers]]
type = "conv2d"
name = "c"
out_channels = 8
kernel_size = 3
[[model.layers]]
type = "batch_norm2d"
[[model.layers]]
type = "relu"
[[model.layers]]
type = "flatten"
[[model.layers]]
type = "linear"
out_features = 10
bias = false
[data]
kind = "hdf5"
train = "digits.h5:/train"
shuffle = false
[train]
steps = 7
global_batch_size = 16
[optimizer]
name = "adamw"
betas = [0.9, 0.99]
""",
    "toy": """model.name = "toy"
data = {kind = "synthetic", features = 10, targets = 5}
train = {steps = 1, global_batch_size = 4, loss = "mse"}
[log]
progress = "off"
""",
    "mistakes": "[modle]\nname = 'mlp'\n[model]\nname = 3\n[train]\nsteps = -1\nepochs = 1979-05-27\n",
    "freeze": """[model]
name = "resnet18"
freeze = ["stem", "layer1", "layer2.0"]
[data]
kind = "cifar10"
train = "cifar"
[train]
epochs = 1
global_batch_size = 8
""",
}


make_idx()
make_cifar10()
make_jpeg()
make_jpeg_part()
make_hdf5_data()
make_checkpoint()
make_png()
for config_name, text in CONFIGS.items():
    write("config", config_name, text.encode())
