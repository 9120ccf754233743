# SPDX-License-Identifier: Apache-2.0
"""convoy pack: training from the packed file is that from the source, bit for bit; a killed packing resumes; bad input."""
import glob
import json
import os
import random
import shutil
import signal
import struct
import time

import pytest

from behaviour import FAILURE, USAGE, Folder, h5py, kill_tree, same_series
from packing import losses, packed
from pictures import NET, add_pngs, pictures, slow_pictures

TENS = {**NET, "layers": [*NET["layers"][:-1], {**NET["layers"][-1], "out_features": 10}]}  # ten classes


def content(folder, name):
    with open(folder.file(name), "rb") as file:
        return file.read()


def partial_files(folder):
    return [name for name in os.listdir(folder.path) if ".part" in name]


def truncate(folder, name, size=160):
    """A little behind the header of a JPEG."""
    with open(folder.file("pictures", *name), "r+b") as file:
        file.truncate(size)


def test_packed_jpegs_train_as_the_folder_does():
    folder = Folder("pack", {})
    pictures(folder)
    assert "30 samples, 3 classes" in packed(folder, "pictures", "out.h5", "--verify")
    options = {"image_size": 32, "augment": ["crop", "flip"]}
    same_series("packed JPEGs", losses(folder, NET, kind="hdf5", train="out.h5", **options),
                losses(folder, NET, kind="image_folder", train="pictures", **options))
    packed(folder, "out.h5", "again.h5")
    assert content(folder, "out.h5") == content(folder, "again.h5"), "a packed file that is packed again differs"
    packed(folder, "pictures", "raw.h5", "--raw", "32", "--threads", "3")
    same_series("pixels", losses(folder, NET, kind="hdf5", train="raw.h5"),
                losses(folder, NET, kind="image_folder", train="pictures", image_size=32))
    assert not partial_files(folder)


def test_packed_pngs_train_as_the_folder_does():
    folder = Folder("pack", {})
    pictures(folder)
    add_pngs(folder)
    assert "36 samples, 3 classes" in packed(folder, "pictures", "out.h5", "--verify")
    options = {"image_size": 32, "augment": ["crop", "flip"]}
    same_series("packed JPEGs and PNGs", losses(folder, NET, kind="hdf5", train="out.h5", **options),
                losses(folder, NET, kind="image_folder", train="pictures", **options))
    text = packed(folder, "pictures", "raw.h5", "--raw", "32")
    assert text.count("has transparency, which is dropped") == 1
    same_series("pixels", losses(folder, NET, kind="hdf5", train="raw.h5"),
                losses(folder, NET, kind="image_folder", train="pictures", image_size=32))
    packed(folder, "pictures", "small.h5", "--resize", "24")
    assert folder.run(1, "verify", "out.h5", "small.h5") == 0, folder.stdout
    if h5py:
        with h5py.File(folder.file("out.h5")) as whole, h5py.File(folder.file("small.h5")) as small:
            for file, pngs in ((whole, 6), (small, 0)):  # every PNG is larger, and becomes a JPEG
                data, offsets = file["jpeg/bytes"][()].tobytes(), file["jpeg/offsets"][()]
                starts = [data[first:first + 4] for first in offsets[:-1]]
                assert starts.count(b"\x89PNG") == pngs and len(starts) == 36
    with open(folder.file("pictures", "b", "p001.png"), "r+b") as file:
        file.truncate(300)
    packed(folder, "pictures", "broken.h5", "--verify", code=FAILURE)
    assert "b/p001.png: the PNG ends early" in folder.stderr


def test_packed_idx_trains_as_idx_does():
    folder = Folder("pack", {})
    source = random.Random(2)
    os.makedirs(folder.file("mnist"))
    for group, count in (("train", 40), ("t10k", 20)):
        for kind, extents, size in (("images-idx3", (count, 28, 28), count * 784), ("labels-idx1", (count,), count)):
            with open(folder.file("mnist", f"{group}-{kind}-ubyte"), "wb") as file:
                file.write(bytes([0, 0, 8, len(extents)]) + struct.pack(f">{len(extents)}I", *extents))
                file.write(bytes(source.randrange(10 if "labels" in kind else 256) for _ in range(size)))
    assert "60 samples (40 in /train, 20 in /validation)" in packed(folder, "mnist", "mnist.h5")
    same_series("packed IDX", losses(folder, TENS, kind="hdf5", train="mnist.h5:/train", validation="mnist.h5:/validation"),
                losses(folder, TENS, kind="idx", train="mnist", validation="mnist"))


def test_packed_cifar10_trains_as_cifar10_does():
    folder = Folder("pack", {})
    source = random.Random(2)
    with open(folder.file("batch.bin"), "wb") as file:
        file.write(b"".join(bytes([i % 10]) + source.randbytes(3072) for i in range(40)))
    packed(folder, "batch.bin", "cifar.h5")
    same_series("packed CIFAR-10", losses(folder, TENS, kind="hdf5", train="cifar.h5"),
                losses(folder, TENS, kind="cifar10", train="batch.bin"))


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_validation_share_is_shuffled_and_balanced():
    folder = Folder("pack", {})
    pictures(folder, 60)
    packed(folder, "pictures", "out.h5", "--validation", "0.25", "--seed", "5", "--shuffle", "1")
    paths = [folder.file("pictures", name, file) for name in "abc"
             for file in sorted(os.listdir(folder.file("pictures", name)))]
    files = sorted((open(path, "rb").read(), "abc".index(os.path.basename(os.path.dirname(path)))) for path in paths)
    found = []
    with h5py.File(folder.file("out.h5")) as file:
        for group, members in (("train", 15), ("validation", 5)):
            labels, offsets = file[group]["labels"][()].tolist(), file[group]["jpeg/offsets"][()]
            data = file[group]["jpeg/bytes"][()].tobytes()
            assert offsets[0] == 0 and offsets[-1] == len(data), group
            assert [labels.count(i) for i in range(3)] == [members] * 3, group
            assert labels != sorted(labels), f"{group} is not shuffled"
            assert list(file[group].attrs["class_names"]) == ["a", "b", "c"], group
            found += [(data[offsets[i]:offsets[i + 1]], label) for i, label in enumerate(labels)]
    assert sorted(found) == files, "the parts together are not the source"


# ---- other pixels than bytes, and their statistics

FLAT = {"name": "sequential", "layers": [
    {"type": "conv2d", "name": "conv", "out_channels": 4, "kernel_size": 3}, {"type": "relu"},
    {"type": "global_avg_pool"}, {"type": "linear", "name": "fc", "out_features": 3}]}


@pytest.fixture
def deep():
    """The same images as uint16 and as float32, of five channels."""
    if h5py is None:
        pytest.skip("needs h5py")
    import numpy
    folder = Folder("pack", {})
    random_state = numpy.random.RandomState(3)
    labels = numpy.arange(48) % 3
    folder.images = (random_state.randint(0, 30000, (48, 9, 8, 5)) + 9000 * labels[:, None, None, None]).astype("uint16")
    for name, images in (("words.h5", folder.images),
                         ("floats.h5", folder.images.astype("float32") / numpy.float32(65535))):
        with h5py.File(folder.file(name), "w") as file:
            file["images"], file["labels"] = images, labels
    return folder


def test_uint16_trains_as_the_same_floats_do(deep):
    options = {"kind": "hdf5", "mean": [0.3, 0.4, 0.4, 0.4, 0.5], "std": [0.2], "augment": ["crop", "flip"], "crop_padding": 2}
    expected = losses(deep, FLAT, train="floats.h5", **options)
    same_series("uint16", losses(deep, FLAT, train="words.h5", **options), expected)
    for name in ("words.h5", "floats.h5"):
        packed(deep, name, "out.h5", "--force", "--shuffle", "2")
        packed(deep, name, "out.h5", "--force", "--shards", "3")
        packed(deep, name, "out.h5", "--force")
        with h5py.File(deep.file("out.h5")) as file, h5py.File(deep.file(name)) as source:
            assert file["images"].dtype == source["images"].dtype and (file["images"][()] == source["images"][()]).all()
        same_series(f"packed {name}", losses(deep, FLAT, train="out.h5", verify=True, **options), expected)
        same_series(f"{name} in shards", losses(deep, FLAT, train="out-*.h5", verify=True, **options), expected)
        assert deep.run(1, "verify", "out.h5") == 0, deep.stdout
    deep.configure({"model": FLAT, "data": {"kind": "hdf5", "train": "words.h5", "augment": ["jitter"]},
                    "train": {"steps": 1, "global_batch_size": 8}})
    assert deep.run(1) == USAGE and "data.augment: \"jitter\" is for images of bytes" in deep.stderr


def two_lines(text):
    lines = [line for line in text.splitlines() if line.startswith(("mean = ", "std = "))]
    assert [line.split(" = ")[0] for line in lines] == ["mean", "std"], text
    return [json.loads(line.split(" = ")[1]) for line in lines]


@pytest.mark.parametrize("words", ([], ["--validation", "0.25"], ["--shards", "3", "--shuffle", "1", "--threads", "3"]))
def test_statistics_of_arrays_are_numpys(deep, words):
    for name, scale in (("words.h5", 65535), ("floats.h5", 1)):
        mean, std = two_lines(packed(deep, name, "out.h5", "--force", "--statistics", *words))
        path = "out-00001-of-00003.h5" if "--shards" in words else "out.h5"
        with h5py.File(deep.file(path)) as file:
            group = file["train"] if "--validation" in words else file
            attributes = dict(group["images"].attrs)
            with h5py.File(deep.file(name)) as source:
                images = (group if "--validation" in words else source)["images"][()].astype("float64") / scale
        for found, written, expected in ((mean, attributes["mean"], images.mean((0, 1, 2))),
                                         (std, attributes["std"], images.std((0, 1, 2)))):
            assert len(found) == 5 and written.dtype == "float64"
            assert abs(written - expected).max() < 1e-12  # sums of float64 in another order
            assert abs(found - expected).max() < 1e-8  # nine digits
        if "--shards" not in words:
            assert deep.run(1, "inspect", "out.h5") == 0 and two_lines(deep.stdout) == [mean, std]


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_statistics_of_files_are_those_of_their_pixels():
    folder = Folder("pack", {})
    pictures(folder, 12)
    add_pngs(folder)
    mean, std = two_lines(packed(folder, "pictures", "raw.h5", "--raw", "24", "--statistics"))
    with h5py.File(folder.file("raw.h5")) as file:
        pixels = file["images"][()].astype("float64") / 255
    assert abs(pixels.mean((0, 1, 2)) - mean).max() < 1e-8 and abs(pixels.std((0, 1, 2)) - std).max() < 1e-8
    before = two_lines(packed(folder, "pictures", "one.h5", "--statistics", "--threads", "1"))
    assert before == two_lines(packed(folder, "pictures", "three.h5", "--statistics", "--threads", "3"))
    assert content(folder, "one.h5") == content(folder, "three.h5")
    image = pytest.importorskip("PIL.Image")
    import numpy
    rows = []
    for name in sorted(glob.glob(folder.file("pictures", "*", "*.*"))):
        picture = image.open(name)
        deep_grey = picture.mode.startswith("I")  # whose convert("RGB") cuts off
        array = numpy.asarray(picture if deep_grey else picture.convert("RGB"), "float64")
        rows.append(numpy.rint(array / 257)[..., None].repeat(3, -1).reshape(-1, 3) if deep_grey else array.reshape(-1, 3))
    values = numpy.concatenate(rows) / 255
    # 2e-3: half a level of 255 in one picture of 18, of 16 bits, of which Pillow takes the high byte
    assert abs(values.mean(0) - before[0]).max() < 2e-3 and abs(values.std(0) - before[1]).max() < 2e-3


# ---- interrupted

@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A folder of pictures that take a while, and the words that pack them into out.h5."""
    folder = Folder(tmp_path_factory.mktemp("slow") / "source", {})
    slow_pictures(folder, 1500)
    folder.words = [folder.file("pictures"), "out.h5", "--resize", "320", "--threads", "1"]
    packed(folder, folder.file("pictures"), "whole.h5", *folder.words[2:4])
    folder.whole = content(folder, "whole.h5")
    return folder


def test_killed_packing_goes_on(slow):
    """Killed once its journal has some blocks."""
    folder = Folder("pack", {})
    journal = folder.file("out.h5.part.json")
    process = folder.start(1, "pack", *slow.words)
    while process.poll() is None and not (os.path.exists(journal) and open(journal).read().count("\n") > 1):
        time.sleep(0.005)
    assert process.poll() is None, "the packing ended before it could be killed"
    kill_tree(process)
    assert not os.path.exists(folder.file("out.h5")), "a killed packing leaves its file"
    assert "resuming after" in packed(folder, *slow.words)
    assert content(folder, "out.h5") == slow.whole, "a killed packing that went on differs"


def test_packing_goes_on_after_a_full_disk(slow):
    folder = Folder("pack", {})
    blocks = len(slow.whole) // 2 // 1024  # of ulimit
    limited = ["bash", "-c", f'trap "" XFSZ; ulimit -f {blocks}; exec "$@"', "limited"]
    packed(folder, *slow.words, code=1, wrapper=limited)
    errors = folder.stderr.splitlines()
    assert len(errors) == 1 and "out.h5.part: File too large" in errors[0]
    assert not os.path.exists(folder.file("out.h5")), "a full disk leaves a file"
    assert "resuming after" in packed(folder, *slow.words)
    assert content(folder, "out.h5") == slow.whole, "after a full disk it differs"


def test_interrupted_packing_says_how_to_go_on_and_starts_anew_with_other_options(slow):
    folder = Folder("pack", {})
    process = folder.start(1, "pack", *slow.words)
    while process.poll() is None and not os.path.exists(folder.file("out.h5.part")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    code = process.wait(60)
    folder.read_outputs()
    assert code == 75 and "the same command resumes there" in folder.stdout
    assert "starting over" in packed(folder, *slow.words, "--quality", "50"), "other options resume the same file"
    assert content(folder, "out.h5") != slow.whole, "--quality changes nothing"


# ---- bad input

@pytest.fixture
def folder():
    """With thirty pictures, an empty folder and a text."""
    folder = Folder("pack", {})
    pictures(folder)
    os.makedirs(folder.file("empty"))
    with open(folder.file("text"), "w") as file:
        file.write("this is no data set")
    return folder


def refused(folder, word, *words, code=USAGE):
    packed(folder, *words, code=code)
    errors = folder.stderr.splitlines()
    assert len(errors) == 1 and errors[0].startswith("convoy: error:") and word in errors[0]
    assert not os.path.exists(folder.file("out.h5")), "leaves a file"


@pytest.mark.parametrize("word, words", (
    ("there is no file or folder nowhere", ["nowhere", "out.h5"]),
    ("nothing in it that is known", ["empty", "out.h5"]),
    ("text: neither HDF5", ["text", "out.h5"]),
    ("--kind", ["pictures", "out.h5", "--kind", "mnist"]),
    ("no folder no/such", ["pictures", "no/such/out.h5"]),
    ("is a folder", ["pictures", "empty"]),
    ("--validation", ["pictures", "out.h5", "--validation", "1.5"]),
    ("leaves a part without any", ["pictures", "out.h5", "--validation", "0.001"]),
    ("text is there already", ["pictures", "text"]),
    ("--quality", ["pictures", "out.h5", "--quality", "50"])))
def test_bad_input_is_a_usage_error(folder, word, words):
    refused(folder, word, *words)


def test_packing_that_does_not_fit_is_refused_at_once(folder):
    source = folder.file("pictures", "a", "000.jpg")
    os.truncate(source, 1 << 29)  # a hole, of which the disk is to hold 3000
    for i in range(3000):
        os.link(source, folder.file("pictures", "b", f"link{i}.jpg"))
    refused(folder, "bytes are needed", "pictures", "out.h5", code=FAILURE)
    assert not partial_files(folder)
    shutil.rmtree(folder.file("pictures"))  # whoever copies it fills a disk


def test_verify_refuses_one_broken_file_of_thirty(folder):
    truncate(folder, ("a", "000.jpg"))
    refused(folder, "1 broken files among 30", "pictures", "out.h5", "--verify", code=1)


def test_broken_file_among_many_is_left_out_and_named(folder):
    pictures(folder, 120)
    truncate(folder, ("a", "000.jpg"))
    text = packed(folder, "pictures", "out.h5", "--resize", "40")
    assert "left out: pictures/a/000.jpg" in text and "119 samples, 1 broken ones left out" in text
