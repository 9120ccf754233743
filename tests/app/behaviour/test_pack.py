# SPDX-License-Identifier: Apache-2.0
"""convoy pack: training from the packed file is that from the source, bit for bit; a killed packing goes on; bad input."""
import os
import random
import signal
import struct
import time

from behaviour import Folder, check, h5py, kill_tree, main, same_series
from packing import losses, packed
from pictures import NET, pictures, slow_pictures


def jpegs():
    folder = Folder("pack-jpegs", {})
    pictures(folder)
    text = packed(folder, "pictures", "out.h5", "--verify")
    check("30 samples, 3 classes" in text, text)
    options = {"image_size": 32, "augment": ["crop", "flip"]}
    same_series("packed JPEGs", losses(folder, NET, kind="hdf5", train="out.h5", **options),
                losses(folder, NET, kind="image_folder", train="pictures", **options))
    packed(folder, "out.h5", "again.h5")
    same = open(folder.file("out.h5"), "rb").read() == open(folder.file("again.h5"), "rb").read()
    check(same, "a packed file that is packed again differs")
    packed(folder, "pictures", "raw.h5", "--raw", "32", "--threads", "3")
    same_series("pixels", losses(folder, NET, kind="hdf5", train="raw.h5"),
                losses(folder, NET, kind="image_folder", train="pictures", image_size=32))
    check(not [name for name in os.listdir(folder.path) if ".part" in name], "temporary files are left")


def small_images():
    folder = Folder("pack-small", {})
    tens = {**NET, "layers": [*NET["layers"][:-1], {**NET["layers"][-1], "out_features": 10}]}
    source = random.Random(2)
    for group, count in (("train", 40), ("t10k", 20)):
        for kind, extents, size in (("images-idx3", (count, 28, 28), count * 784), ("labels-idx1", (count,), count)):
            os.makedirs(folder.file("mnist"), exist_ok=True)
            with open(folder.file("mnist", f"{group}-{kind}-ubyte"), "wb") as file:
                file.write(bytes([0, 0, 8, len(extents)]) + struct.pack(f">{len(extents)}I", *extents))
                file.write(bytes(source.randrange(10 if "labels" in kind else 256) for _ in range(size)))
    with open(folder.file("batch.bin"), "wb") as file:
        file.write(b"".join(bytes([i % 10]) + source.randbytes(3072) for i in range(40)))
    text = packed(folder, "mnist", "mnist.h5")
    check("60 samples (40 in /train, 20 in /validation)" in text, text)
    packed(folder, "batch.bin", "cifar.h5")
    same_series("packed IDX", losses(folder, tens, kind="hdf5", train="mnist.h5:/train", validation="mnist.h5:/validation"),
                losses(folder, tens, kind="idx", train="mnist", validation="mnist"))
    same_series("packed CIFAR-10", losses(folder, tens, kind="hdf5", train="cifar.h5"),
                losses(folder, tens, kind="cifar10", train="batch.bin"))


def split():
    if h5py is None:
        return "needs h5py"
    folder = Folder("pack-split", {})
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
            check(offsets[0] == 0 and offsets[-1] == len(data), f"{group}: offsets {offsets[0]} to {offsets[-1]}")
            check([labels.count(i) for i in range(3)] == [members] * 3, f"{group}: labels {labels}")
            check(labels != sorted(labels), f"{group} is not shuffled")
            check(list(file[group].attrs["class_names"]) == ["a", "b", "c"], f"{group}: class names")
            found += [(data[offsets[i]:offsets[i + 1]], label) for i, label in enumerate(labels)]
    check(sorted(found) == files, "the parts together are not the source")
    return None


def killed():
    """Kills a packing once its journal has some blocks; and one that runs into a full disk."""
    folder = Folder("pack-killed", {})
    slow_pictures(folder, 1500)
    words = ["pictures", "out.h5", "--resize", "320", "--threads", "1"]
    packed(folder, "pictures", "whole.h5", *words[2:4])
    whole = open(folder.file("whole.h5"), "rb").read()
    journal = folder.file("out.h5.part.json")
    process = folder.start(1, "pack", *words)
    while process.poll() is None and not (os.path.exists(journal) and open(journal).read().count("\n") > 1):
        time.sleep(0.005)
    check(process.poll() is None, "the packing ended before it could be killed")
    kill_tree(process)
    check(not os.path.exists(folder.file("out.h5")), "a killed packing leaves its file")
    check("going on after" in packed(folder, *words), "it does not go on")
    check(open(folder.file("out.h5"), "rb").read() == whole, "a killed packing that went on differs")
    os.remove(folder.file("out.h5"))
    blocks = len(whole) // 2 // 1024  # of ulimit
    limited = ["bash", "-c", f'trap "" XFSZ; ulimit -f {blocks}; exec "$@"', "limited"]
    packed(folder, *words, code=1, wrapper=limited)
    errors = folder.stderr.splitlines()
    check(len(errors) == 1 and "out.h5.part: File too large" in errors[0], f"full disk: {errors}")
    check(not os.path.exists(folder.file("out.h5")), "a full disk leaves a file")
    check("going on after" in packed(folder, *words), "it does not go on after a full disk")
    check(open(folder.file("out.h5"), "rb").read() == whole, "after a full disk it differs")
    os.remove(folder.file("out.h5"))
    process = folder.start(1, "pack", *words)
    while process.poll() is None and not os.path.exists(folder.file("out.h5.part")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    code = process.wait(60)
    folder.read_outputs()
    check(code == 75 and "the same command goes on there" in folder.stdout, f"Ctrl-C: {code}, {folder.stdout}")
    check("beginning anew" in packed(folder, *words, "--quality", "50"), "other options go on with the same file")
    check(open(folder.file("out.h5"), "rb").read() != whole, "--quality changes nothing")


def bad_input():
    folder = Folder("pack-bad", {})
    pictures(folder)
    os.makedirs(folder.file("empty"))
    with open(folder.file("text"), "w") as file:
        file.write("this is no data set")

    def refused(word, *words, code=2):
        packed(folder, *words, code=code)
        errors = folder.stderr.splitlines()
        check(len(errors) == 1 and errors[0].startswith("convoy: error:") and word in errors[0],
              f"pack {words}: {errors}")
        check(not os.path.exists(folder.file("out.h5")), f"pack {words}: leaves a file")

    refused("there is no file or folder nowhere", "nowhere", "out.h5")
    refused("nothing in it that is known", "empty", "out.h5")
    refused("text: neither HDF5", "text", "out.h5")
    refused("--kind", "pictures", "out.h5", "--kind", "mnist")
    refused("no folder no/such", "pictures", "no/such/out.h5")
    refused("is a folder", "pictures", "empty")
    refused("--validation", "pictures", "out.h5", "--validation", "1.5")
    refused("leaves a part without any", "pictures", "out.h5", "--validation", "0.001")
    refused("text is there already", "pictures", "text")
    refused("--quality", "pictures", "out.h5", "--quality", "50")
    source = folder.file("pictures", "a", "000.jpg")
    os.truncate(source, 1 << 29)  # a hole, of which the disk is to hold 3000
    for i in range(3000):
        os.link(source, folder.file("pictures", "b", f"link{i}.jpg"))
    refused("bytes are needed", "pictures", "out.h5")
    check(not [name for name in os.listdir(folder.path) if ".part" in name], "no room: temporary files are left")
    for i in range(3000):
        os.remove(folder.file("pictures", "b", f"link{i}.jpg"))
    with open(folder.file("pictures", "a", "000.jpg"), "r+b") as file:
        file.truncate(160)  # a little behind its header
    refused("1 broken files among 30", "pictures", "out.h5", "--verify", code=1)
    pictures(folder, 120)
    with open(folder.file("pictures", "a", "000.jpg"), "r+b") as file:
        file.truncate(160)
    text = packed(folder, "pictures", "out.h5", "--resize", "40")
    check("left out: pictures/a/000.jpg" in text and "119 samples, 1 broken ones left out" in text, text)


main([jpegs, small_images, split, killed, bad_input])
