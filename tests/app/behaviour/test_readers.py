# SPDX-License-Identifier: Apache-2.0
"""The same images from different kinds of files: the training is bitwise the same. Bad files are usage errors."""
import gzip
import os
import random
import struct

import pytest

from behaviour import DIGITS, SMALL_NET, USAGE, Folder, config, error_lines, h5py, same_series

needs_h5py = pytest.mark.skipif(h5py is None, reason="needs h5py")
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


@needs_h5py
def test_idx_files_train_as_hdf5_does():
    place = Folder("idx-files", {})
    with h5py.File(DIGITS, "r") as source:
        for group, name in (("train", "train"), ("validation", "t10k")):
            images, labels = source[group]["images"][()], source[group]["labels"][()]
            n, height, width = images.shape[:3]
            write_idx(place.file(f"{name}-images-idx3-ubyte.gz"), (n, height, width), images.tobytes(), pack=True)
            write_idx(place.file(f"{name}-labels-idx1-ubyte"), (n,), labels.astype("uint8").tobytes())
    expected = trained("hdf5", config()["data"])
    actual = trained("idx", {"kind": "idx", "train": place.path, "validation": place.path})
    same_series("idx beside hdf5", actual.losses(str), expected.losses(str))
    evaluations = [[(e["loss"], e["top1"], e["samples"]) for e in run.events("eval", str)] for run in (actual, expected)]
    assert evaluations[0] == evaluations[1] and evaluations[0]


@needs_h5py
def test_cifar10_files_train_as_hdf5_does():
    import numpy
    place = Folder("cifar-files", {})
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
    expected = trained("cifar-hdf5", {"kind": "hdf5", "train": place.file("same.h5")})
    actual = trained("cifar", {"kind": "cifar10", "train": place.path})
    same_series("cifar10 beside hdf5", actual.losses(str), expected.losses(str))


@pytest.fixture
def bad_files():
    """A folder of files with the right names and random bytes."""
    place = Folder("bad-files", {})
    rubbish = bytes(random.Random(1).randrange(256) for _ in range(5000))
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "data_batch_1.bin"):
        with open(place.file(name), "wb") as file:
            file.write(rubbish)
    return place.path


@pytest.mark.parametrize("kind, path, words", (
    pytest.param("idx", "", ["train-images-idx3-ubyte", "no IDX file"], id="idx"),
    pytest.param("cifar10", "data_batch_1.bin", ["5000 bytes are not whole records"], id="cifar10"),
    pytest.param("cifar10", "", ["data_batch_2.bin"], id="missing_batch"),
    pytest.param("idx", "nowhere", ["nowhere"], id="missing_folder"),
    pytest.param("hdf5", "", ["is a folder (must be a file)"], id="folder_as_hdf5")))
def test_bad_file_is_a_usage_error(bad_files, kind, path, words):
    sections = config(SMALL_NET, train=STEPS)
    sections["data"] = {"kind": kind, "train": os.path.join(bad_files, path) if path else bad_files}
    folder = Folder("run", sections)
    code = folder.run(2)
    errors = error_lines(folder.stderr)
    assert code == USAGE and len(errors) == 1, folder.stderr
    for word in ("data.train", *words):
        assert word in errors[0]


# ---- sizes that headers claim

def idx_header(*extents):
    return bytes([0, 0, 8, len(extents)]) + struct.pack(f">{len(extents)}I", *extents)


@pytest.mark.parametrize("images, labels, words", (
    pytest.param(idx_header(1 << 20, 60, 60), idx_header(1 << 20) + bytes(1 << 20), ["images-idx3", "elements cannot be in a gzipped file of"], id="more_than_deflate_can"),
    pytest.param(idx_header(1 << 20, 128, 64), idx_header(1 << 20) + bytes(1 << 20), ["gunzip it"], id="more_than_4_gib"),
    pytest.param(idx_header(60, 4, 4) + bytes(960), idx_header(1 << 30), ["labels-idx1", "1073741824 elements cannot be in"],
                 id="labels_of_other_images")))
def test_idx_header_is_not_believed(images, labels, words):
    """Nor that of the labels, which is read before the elements of the images."""
    place = Folder("idx-files", {})
    with gzip.open(place.file("train-images-idx3-ubyte.gz"), "wb") as file:
        file.write(images)
    with gzip.open(place.file("train-labels-idx1-ubyte.gz"), "wb") as file:
        file.write(labels)
    assert place.run(1, "pack", place.path, "out.h5") == USAGE
    errors = error_lines(place.stderr)
    assert len(errors) == 1 and all(word in errors[0] for word in words), place.stderr


@pytest.mark.parametrize("bytes_there, word", ((959, "truncated"), (961, "longer than its header says")))
def test_plain_idx_file_has_the_size_of_its_header(bytes_there, word):
    place = Folder("idx-files", {})
    with open(place.file("train-images-idx3-ubyte"), "wb") as file:
        file.write(idx_header(60, 4, 4) + bytes(bytes_there))
    with open(place.file("train-labels-idx1-ubyte"), "wb") as file:
        file.write(idx_header(60) + bytes(60))
    assert place.run(1, "pack", place.path, "out.h5") == USAGE
    assert word in place.stderr and "train-images" in place.stderr, place.stderr
