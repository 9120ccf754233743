# SPDX-License-Identifier: Apache-2.0
"""convoy pack --shards: training from shards is that from the unsharded file, bit for bit; a killed packing resumes
and never mixes with another; bad sets of shards.
"""
import glob
import json
import os
import shutil
import signal
import time

import pytest

from behaviour import USAGE, Folder, config, kill_tree, same_series
from packing import losses, packed
from pictures import NET, pictures, slow_pictures

COUNT = 600  # pictures that take a while
JPEGS = {"image_size": 32, "augment": ["crop", "flip", "jitter"]}
SPLIT = ["--validation", "0.2", "--seed", "5", "--shuffle", "1"]


def names(folder, pattern="out*"):
    return sorted(os.path.basename(path) for path in glob.glob(folder.file(pattern)))


def shards(count, stem="out"):
    return [f"{stem}-{i:05}-of-{count:05}.h5" for i in range(count)]


def contents(folder, files):
    return [open(folder.file(name), "rb").read() for name in files]


def grid(folder, source, **data):
    """The pixels of an epoch as training reads them."""
    folder.configure(config(NET, data={"kind": "hdf5", "train": source, "validation": None, **data}))
    code = folder.run(1, "inspect", "run.toml", "--images", "60", "-o", "grid.png")
    assert code == 0, f"inspect {source}: {folder.stderr}"
    return open(folder.file("grid.png"), "rb").read()


# ---- the same data

@pytest.fixture(scope="module")
def jpegs(tmp_path_factory):
    """61 pictures, in whole.h5 and in four shards out-*; what packing the shards printed is in .text."""
    folder = Folder(tmp_path_factory.mktemp("jpegs") / "pack", {})
    pictures(folder, 61)
    packed(folder, "pictures", "whole.h5", *SPLIT)
    folder.text = packed(folder, "pictures", "out.h5", *SPLIT, "--shards", "4", "--threads", "2")
    return folder


def test_set_of_shards_is_complete_for_any_number_of_threads(jpegs):
    assert "out-*-of-00004.h5: 61 samples (49 in /train, 12 in /validation), 3 classes" in jpegs.text
    assert names(jpegs) == shards(4)
    sizes = [len(data) for data in contents(jpegs, shards(4))]
    packed(jpegs, "pictures", "out.h5", *SPLIT, "--shards", "4", "--threads", "1", "--force")
    assert sizes == [len(data) for data in contents(jpegs, shards(4))], "one thread makes other shards"
    assert not names(jpegs, "*.part*"), "temporary files are left"


def test_shards_of_jpegs_train_as_one_file_does(jpegs):
    expected = losses(jpegs, NET, train="whole.h5:/train", validation="whole.h5:/validation", **JPEGS)
    groups = {"train": "out-*.h5:/train", "validation": "out-*.h5:/validation"}
    same_series("JPEGs in shards", losses(jpegs, NET, **groups, **JPEGS), expected)
    same_series("JPEGs in shards, two ranks", losses(jpegs, NET, 2, **groups, **JPEGS),
                losses(jpegs, NET, 2, train="whole.h5:/train", validation="whole.h5:/validation", **JPEGS))
    assert grid(jpegs, "out-*.h5:/train", **JPEGS) == grid(jpegs, "whole.h5:/train", **JPEGS), "JPEGs differ"


def test_shards_of_jpegs_packed_into_one_file_are_that_file(jpegs):
    packed(jpegs, "out-*.h5:/train", "again.h5")
    packed(jpegs, "whole.h5:/train", "once.h5")
    assert contents(jpegs, ["again.h5"]) == contents(jpegs, ["once.h5"])
    assert not names(jpegs, "*.part*"), "temporary files are left"


def test_shards_of_pixels_train_as_one_file_does():
    folder = Folder("pack", {})
    pictures(folder, 61)
    packed(folder, "pictures", "raw.h5", "--raw", "32")
    packed(folder, "pictures", "raw.h5", "--raw", "32", "--shards", "61")  # one sample each
    same_series("pixels in shards", losses(folder, NET, train="raw-*.h5", augment=["crop", "flip"]),
                losses(folder, NET, train="raw.h5", augment=["crop", "flip"]))
    assert grid(folder, "raw-*.h5", augment=["flip"]) == grid(folder, "raw.h5", augment=["flip"]), "pixels differ"
    packed(folder, "raw-*-of-00061.h5", "pixels.h5")
    assert contents(folder, ["pixels.h5"]) == contents(folder, ["raw.h5"]), "raw shards in one file differ from one file"
    assert not names(folder, "*.part*"), "temporary files are left"


def test_broken_jpeg_is_replaced_as_in_one_file():
    """Within its class, from whatever shard."""
    folder = Folder("pack", {})
    pictures(folder, 60)
    with open(folder.file("pictures", "b", "004.jpg"), "r+b") as file:
        file.truncate(160)
    packed(folder, "pictures", "whole.h5")
    packed(folder, "pictures", "out.h5", "--shards", "7")
    options = {**JPEGS, "max_broken": 0.05}
    expected = losses(folder, NET, train="whole.h5", **options)
    assert "broken" in folder.stderr and "whole.h5" in folder.stderr
    same_series("a broken file in shards", losses(folder, NET, train="out-*.h5", **options), expected)
    assert "out-00002-of-00007.h5:/jpeg/bytes image 4" in folder.stderr, "the shard is not named"


# ---- interrupted

WORDS = ["pictures", "out.h5", "--resize", "320", "--threads", "1"]


@pytest.fixture
def slow():
    folder = Folder("pack", {})
    slow_pictures(folder, COUNT // 2)
    return folder


def interrupt_in(folder, shard, *more, how=signal.SIGKILL):
    """Kills a packing, or sends it Ctrl-C, as soon as it writes the shard."""
    process = folder.start(1, "pack", *WORDS, *more)
    while process.poll() is None and not os.path.exists(folder.file(shard + ".part")):
        time.sleep(0.002)
    assert process.poll() is None, "the packing ended before it could be killed"
    if how == signal.SIGKILL:
        kill_tree(process)
        return
    process.send_signal(how)
    assert process.wait(60) == 75


def test_killed_packing_goes_on_and_never_mixes_with_another(slow):
    packed(slow, "pictures", "whole.h5", "--resize", "320", "--shards", "5")
    whole = contents(slow, shards(5, "whole"))
    interrupt_in(slow, shards(5)[2], "--shards", "5")
    assert os.path.exists(slow.file("out.h5.part.json"))
    assert not [name for name in names(slow) if ".part" not in name], "a killed packing leaves finished shards"
    assert "resuming after" in packed(slow, *WORDS, "--shards", "5")
    assert contents(slow, shards(5)) == whole, "shards of a killed packing that went on differ"
    assert names(slow) == shards(5)
    for count in ("5", "3"):
        packed(slow, *WORDS, "--shards", count, code=USAGE)
        assert "out-00000-of-00005.h5 is there already (--force" in slow.stderr
    # With --force the old set is complete until the new one is.
    interrupt_in(slow, shards(3)[2], "--shards", "3", "--force", how=signal.SIGINT)
    assert contents(slow, shards(5)) == whole, "a stopped packing has touched the shards before it"
    assert "starting over" in packed(slow, *WORDS, "--shards", "4", "--force"), "it resumes with other shards"
    assert names(slow) == shards(4), "shards of another packing are left"


def test_packing_killed_while_it_names_its_shards_goes_on(slow):
    """Two shards have their names, the rest lie under the temporary ones."""
    packed(slow, *WORDS, "--shards", "4")
    new = contents(slow, shards(4))
    for name in shards(4):
        os.remove(slow.file(name))
    interrupt_in(slow, shards(4)[3], "--shards", "4")
    journal = slow.file("out.h5.part.json")
    head, block = open(journal).read().splitlines()[:2]
    size, checksum = (json.loads(block)[key][0] for key in ("sizes", "crc32c"))  # all pictures are the same one
    lines = [head]
    for _ in range(4):
        left = COUNT // 4
        while left > 0:
            count = min(64, left)
            lines.append(json.dumps({"sizes": [size] * count, "crc32c": [checksum] * count, "broken": []}))
            left -= 64

    def interrupted(kept):
        for name in names(slow):
            os.remove(slow.file(name))
        for shard, data in list(enumerate(new))[:kept]:
            with open(slow.file(shards(4)[shard] + ("" if shard < 2 else ".part")), "wb") as file:
                file.write(data)
        with open(journal, "w") as file:
            file.write("\n".join([*lines, '{"placing":true}']) + "\n")

    for kept, word in ((4, f"resuming after {COUNT} of {COUNT}"), (3, "nothing to resume from")):
        interrupted(kept)
        assert word in packed(slow, *WORDS, "--shards", "4"), f"{kept} shards kept"
        assert contents(slow, shards(4)) == new, f"{kept} shards kept"
        assert names(slow) == shards(4), f"{kept} shards kept"


# ---- bad sets

@pytest.fixture
def folder():
    """Thirty pictures."""
    folder = Folder("pack", {})
    pictures(folder, 30)
    return folder


@pytest.fixture
def three(folder):
    """Thirty pictures in three shards."""
    packed(folder, "pictures", "out.h5", "--shards", "3")
    return folder


def refused(folder, word, *words):
    code = folder.run(1, *words)
    errors = folder.stderr.splitlines()
    assert code == USAGE and len(errors) == 1 and word in errors[0], words


def configure(folder, source, **data):
    folder.configure(config(NET, data={"kind": "hdf5", "train": source, "validation": None, **data}))


def test_wrong_numbers_of_shards_are_refused(folder):
    before = names(folder, "*")
    packed(folder, "pictures", "out.h5", "--shards", "8", "--validation", "0.2", code=USAGE)
    assert "convoy: error: --shards: 8 are more than the 6 validation samples" in folder.stderr
    packed(folder, "pictures", "out.h5", "--shards", "31", code=USAGE)
    assert "--shards: 31 are more than the 30 samples" in folder.stderr
    packed(folder, "pictures", "out.h5", "--shards", "0", code=USAGE)
    assert set(names(folder, "*")) - set(before) <= {"stdout.txt", "stderr.txt"}, "files are left"


def test_pattern_names_a_set_of_shards(three):
    configure(three, "out-*.h5")
    assert three.run(1, "check", "run.toml") == 0 and 'train = "out-*.h5"' in three.stdout, three.stderr
    assert three.run(1, "inspect", "run.toml") == 0 and "30 samples" in three.stdout, three.stderr
    assert three.run(1, "inspect", "out-*.h5") == 0 and "out-*.h5: all 3 shards are there" in three.stdout, three.stderr


def test_help_describes_shards(folder):
    assert folder.run(1, "--help") == 0
    assert folder.run(1, "pack", "--help") == 0 and "--shards" in folder.stdout


def test_pattern_is_looked_for_beside_the_config(three):
    configure(three, "out-*.h5")
    os.makedirs(three.file("elsewhere"))
    shutil.copy(three.file("run.toml"), three.file("elsewhere", "run.toml"))
    for name in shards(3):
        os.rename(three.file(name), three.file("elsewhere", name))
    assert three.run(1, "inspect", "elsewhere/run.toml") == 0, three.stderr


def test_pattern_without_files_is_refused(three):
    configure(three, "gone-*.h5")
    refused(three, 'data.train: there is no file "gone-*.h5"', "train", "run.toml")
    configure(three, "out-*.h5", kind="idx")
    refused(three, 'there is no file "out-*.h5"', "train", "run.toml")
    refused(three, "no file matches", "inspect", "gone-*.h5")
    refused(three, "no file matches", "pack", "gone-*.h5", "new.h5")


def test_missing_shard_is_named(three):
    configure(three, "out-*.h5")
    os.remove(three.file(shards(3)[1]))
    refused(three, "run.toml:", "train", "run.toml")
    for words in (("train", "run.toml"), ("inspect", "out-*.h5"), ("pack", "out-*.h5", "new.h5")):
        refused(three, "1 of the 3 shards are missing: out-00001-of-00003.h5", *words)


def test_shard_of_another_kind_or_damaged_is_named(three):
    configure(three, "out-*.h5")
    packed(three, "pictures", "other.h5", "--raw", "16", "--shards", "3")
    shutil.copy(three.file("other-00001-of-00003.h5"), three.file(shards(3)[1]))
    refused(three, "out-00001-of-00003.h5: holds something else than encoded images, out-00000-of-00003.h5 does not",
            "train", "run.toml")
    with open(three.file(shards(3)[1]), "w") as file:
        file.write("damaged")
    refused(three, "out-00001-of-00003.h5", "train", "run.toml")
