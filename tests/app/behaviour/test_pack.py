# SPDX-License-Identifier: Apache-2.0
"""convoy pack: training from the packed file is that from the source, bit for bit; a killed packing resumes; bad input."""
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
