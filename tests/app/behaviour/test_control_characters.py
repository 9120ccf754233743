# SPDX-License-Identifier: Apache-2.0
"""Names that hold control characters reach neither a terminal nor a log line as such."""
import os
import re

import pytest

from behaviour import DIGITS, USAGE, Folder, config, h5py
from pictures import NET, pictures

EVIL = "\x1b[2J\x1b]0;owned\x07\u009b31m\u202e"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def is_clean(*texts):
    for text in texts:
        assert not CONTROLS.search(text), ascii(text)
        assert not [line for line in text.splitlines() if line.startswith("forged")], text
    assert any("\\x1b[2J" in text for text in texts), texts


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_names_in_hdf5_files():
    folder = Folder("run", config(data={"train": "evil.h5", "validation": None}))
    with h5py.File(DIGITS, "r") as source, h5py.File(folder.file("evil.h5"), "w") as file:
        file["images"], file["labels"] = source["train/images"][()], source["train/labels"][()]
        file.attrs["class_names"] = [EVIL + f"\nforged {i}" for i in range(10)]
        file["extra" + EVIL + "\nforged"] = [1.0]
    assert folder.run(1, "inspect", "evil.h5") == 0, folder.stderr
    is_clean(folder.stdout)
    assert folder.run(1, "inspect", "run.toml") == 0, folder.stderr
    is_clean(folder.stdout)
    assert folder.run(1, "verify", "evil.h5") == 0, folder.stderr
    with h5py.File(folder.file("evil.h5"), "a") as file:
        file["labels"][3] = -1
    assert folder.run(1) == USAGE
    with h5py.File(folder.file("evil.h5"), "a") as file:
        del file["labels"]
    assert folder.run(1) == USAGE
    is_clean(folder.stderr)


def test_names_of_files():
    folder = Folder("run", config())
    for words in (["verify"], ["inspect"], ["report"], ["train"], ["eval", "run.toml", "--checkpoint"]):
        assert folder.run(1, *words, EVIL + "\nforged") == USAGE
        is_clean(folder.stderr)


def test_broken_pictures_in_a_log():
    folder = Folder("run", {})
    pictures(folder)
    with open(folder.file("pictures", "a", EVIL + "\nforged.jpg"), "wb") as file:
        file.write(b"no picture")
    folder.configure(config(NET, data={"kind": "image_folder", "train": "pictures", "validation": None, "image_size": 16,
                                       "max_broken": 0.5}, train={"steps": 10, "global_batch_size": 8}))
    folder.train()
    is_clean(folder.stderr, open(folder.file("runs", "run", "log.txt")).read())
    assert folder.run(1, "pack", "pictures", "out.h5", "--verify", "--progress", "lines") == 1
    is_clean(folder.stdout, folder.stderr)
    os.rename(folder.file("pictures"), folder.file("pictures" + EVIL))
    assert folder.run(1, "verify", "pictures" + EVIL) == 1
    is_clean(folder.stdout)
