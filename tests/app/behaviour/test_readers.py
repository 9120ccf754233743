# SPDX-License-Identifier: Apache-2.0
"""The same images from different kinds of files: the training is bitwise the same. Bad files are usage errors."""
import gzip
import os
import random
import struct

from behaviour import DIGITS, SMALL_NET, Folder, check, config, h5py, main, same_series

USAGE = 2
STEPS = {"steps": 60, "global_batch_size": 32}  # more than an epoch of 44


def write_idx(path, extents, elements, pack=False):
    data = bytes([0, 0, 8, len(extents)]) + struct.pack(f">{len(extents)}I", *extents) + elements
    with (gzip.open if pack else open)(path, "wb") as file:
        file.write(data)


def trained(name, data, ranks=2):
    sections = config(SMALL_NET, train=STEPS)
    sections["data"] = data
    folder = Folder(name, sections)
    folder.train(ranks)
    return folder


def idx():
    if h5py is None:
        return "needs h5py"
    place = Folder("readers-idx-files", {})
    with h5py.File(DIGITS, "r") as source:
        for group, name in (("train", "train"), ("validation", "t10k")):
            images, labels = source[group]["images"][()], source[group]["labels"][()]
            n, height, width = images.shape[:3]
            write_idx(place.file(f"{name}-images-idx3-ubyte.gz"), (n, height, width), images.tobytes(), pack=True)
            write_idx(place.file(f"{name}-labels-idx1-ubyte"), (n,), labels.astype("uint8").tobytes())
    expected = trained("readers-hdf5", config()["data"])
    actual = trained("readers-idx", {"kind": "idx", "train": place.path, "validation": place.path})
    same_series("idx beside hdf5", actual.losses(str), expected.losses(str))
    evaluations = [[(e["loss"], e["top1"], e["samples"]) for e in run.events("eval", str)] for run in (actual, expected)]
    check(evaluations[0] == evaluations[1] and evaluations[0], f"evaluations differ: {evaluations}")


def cifar10():
    if h5py is None:
        return "needs h5py"
    import numpy
    place = Folder("readers-cifar-files", {})
    numbers = numpy.random.default_rng(1)
    images = numbers.integers(0, 256, (100, 32, 32, 3), dtype=numpy.uint8)
    labels = numbers.integers(0, 10, 100)
    labels[0] = 9  # the number of classes is that of the labels
    for batch in range(5):
        with open(place.file(f"data_batch_{batch + 1}.bin"), "wb") as file:
            for i in range(20 * batch, 20 * batch + 20):
                file.write(bytes([labels[i]]) + images[i].transpose(2, 0, 1).tobytes())
    with h5py.File(place.file("same.h5"), "w") as file:
        file["images"], file["labels"] = images, labels
    expected = trained("readers-cifar-hdf5", {"kind": "hdf5", "train": place.file("same.h5")})
    actual = trained("readers-cifar", {"kind": "cifar10", "train": place.path})
    same_series("cifar10 beside hdf5", actual.losses(str), expected.losses(str))


def bad_files():
    def refused(name, data, *words):
        sections = config(SMALL_NET, train=STEPS)
        sections["data"] = data
        folder = Folder(name, sections)
        code = folder.run(2)
        errors = [line for line in folder.stderr.split("\n") if line.startswith("convoy: error:")]
        check(code == USAGE and len(errors) == 1, f"{name}: exit code {code}\n{folder.stderr}")
        for word in words:
            check(errors and word in errors[0], f"{name}: {word!r} is not in {errors}")

    place = Folder("readers-bad-files", {})
    rubbish = bytes(random.Random(1).randrange(256) for _ in range(5000))
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "data_batch_1.bin"):
        with open(place.file(name), "wb") as file:
            file.write(rubbish)
    refused("readers-bad-idx", {"kind": "idx", "train": place.path}, "data.train", "train-images-idx3-ubyte", "no IDX file")
    refused("readers-bad-cifar", {"kind": "cifar10", "train": place.file("data_batch_1.bin")}, "data.train",
            "5000 bytes are not whole records")
    refused("readers-no-batches", {"kind": "cifar10", "train": place.path}, "data.train", "data_batch_2.bin")
    refused("readers-no-folder", {"kind": "idx", "train": os.path.join(place.path, "nowhere")}, "data.train", "nowhere")
    refused("readers-folder-as-hdf5", {"kind": "hdf5", "train": place.path}, "data.train", "is a folder (must be a file)")


main([idx, cifar10, bad_files])
