# SPDX-License-Identifier: Apache-2.0
"""convoy pack --shards: training from shards is that from the unsharded file, bit for bit; a killed packing goes on
and never mixes with another; bad sets of shards."""
import glob
import json
import os
import shutil
import signal
import time

from behaviour import Folder, check, config, kill_tree, main, same_series
from packing import losses, packed
from pictures import NET, pictures, slow_pictures

COUNT = 600  # pictures that take a while
JPEGS = {"image_size": 32, "augment": ["crop", "flip", "jitter"]}


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
    check(code == 0, f"inspect {source}: {code} {folder.stderr}")
    return open(folder.file("grid.png"), "rb").read()


def same_as_one_file():
    folder = Folder("shards-same", {})
    pictures(folder, 61)
    split = ["--validation", "0.2", "--seed", "5", "--shuffle", "1"]
    packed(folder, "pictures", "whole.h5", *split)
    text = packed(folder, "pictures", "out.h5", *split, "--shards", "4", "--threads", "2")
    check("out-*-of-00004.h5: 61 samples (49 in /train, 12 in /validation), 3 classes" in text, text)
    check(names(folder) == shards(4), f"there are {names(folder)}")
    sizes = [len(data) for data in contents(folder, shards(4))]
    packed(folder, "pictures", "out.h5", *split, "--shards", "4", "--threads", "1", "--force")
    check(sizes == [len(data) for data in contents(folder, shards(4))], "one thread makes other shards")
    expected = losses(folder, NET, train="whole.h5:/train", validation="whole.h5:/validation", **JPEGS)
    groups = {"train": "out-*.h5:/train", "validation": "out-*.h5:/validation"}
    same_series("JPEGs in shards", losses(folder, NET, **groups, **JPEGS), expected)
    same_series("JPEGs in shards, two ranks", losses(folder, NET, 2, **groups, **JPEGS),
                losses(folder, NET, 2, train="whole.h5:/train", validation="whole.h5:/validation", **JPEGS))
    check(grid(folder, "out-*.h5:/train", **JPEGS) == grid(folder, "whole.h5:/train", **JPEGS), "JPEGs differ")
    # Shards packed into one file are that file.
    packed(folder, "out-*.h5:/train", "again.h5")
    packed(folder, "whole.h5:/train", "once.h5")
    check(contents(folder, ["again.h5"]) == contents(folder, ["once.h5"]), "shards in one file differ from one file")
    packed(folder, "pictures", "raw.h5", "--raw", "32")
    packed(folder, "pictures", "raw.h5", "--raw", "32", "--shards", "61")  # one sample each
    same_series("pixels in shards", losses(folder, NET, train="raw-*.h5", augment=["crop", "flip"]),
                losses(folder, NET, train="raw.h5", augment=["crop", "flip"]))
    check(grid(folder, "raw-*.h5", augment=["flip"]) == grid(folder, "raw.h5", augment=["flip"]), "pixels differ")
    packed(folder, "raw-*-of-00061.h5", "pixels.h5")
    check(contents(folder, ["pixels.h5"]) == contents(folder, ["raw.h5"]), "raw shards in one file differ from one file")
    check(not names(folder, "*.part*"), "temporary files are left")


def broken():
    """A broken JPEG is replaced within its class, from whatever shard; in one file it is the same one."""
    folder = Folder("shards-broken", {})
    pictures(folder, 60)
    with open(folder.file("pictures", "b", "004.jpg"), "r+b") as file:
        file.truncate(160)
    packed(folder, "pictures", "whole.h5")
    packed(folder, "pictures", "out.h5", "--shards", "7")
    options = {**JPEGS, "max_broken": 0.05}
    expected = losses(folder, NET, train="whole.h5", **options)
    check("broken" in folder.stderr and "whole.h5" in folder.stderr, f"no warning: {folder.stderr}")
    same_series("a broken file in shards", losses(folder, NET, train="out-*.h5", **options), expected)
    check("out-00002-of-00007.h5:/jpeg/bytes image 4" in folder.stderr, f"the shard is not named: {folder.stderr}")


def killed():
    """Kills a packing within a shard; the next one goes on. One of other options leaves nothing of it."""
    folder = Folder("shards-killed", {})
    slow_pictures(folder, COUNT // 2)
    words = ["pictures", "out.h5", "--resize", "320", "--threads", "1"]
    packed(folder, "pictures", "whole.h5", "--resize", "320", "--shards", "5")
    whole = contents(folder, shards(5, "whole"))
    journal = folder.file("out.h5.part.json")

    def kill_in(shard, *more, how=signal.SIGKILL):
        process = folder.start(1, "pack", *words, *more)
        while process.poll() is None and not os.path.exists(folder.file(shard + ".part")):
            time.sleep(0.002)
        check(process.poll() is None, "the packing ended before it could be killed")
        if how == signal.SIGKILL:
            return kill_tree(process)
        process.send_signal(how)
        check(process.wait(60) == 75, "Ctrl-C does not end it with 75")

    kill_in(shards(5)[2], "--shards", "5")
    check(os.path.exists(journal) and not [name for name in names(folder) if ".part" not in name],
          f"a killed packing leaves finished shards: {names(folder)}")
    check("going on after" in packed(folder, *words, "--shards", "5"), "it does not go on")
    check(contents(folder, shards(5)) == whole, "shards of a killed packing that went on differ")
    check(names(folder) == shards(5), f"there are {names(folder)}")
    packed(folder, *words, "--shards", "5", code=2)
    check("out-00000-of-00005.h5 is there already (--force" in folder.stderr, folder.stderr)
    packed(folder, *words, "--shards", "3", code=2)
    check("out-00000-of-00005.h5 is there already (--force" in folder.stderr, folder.stderr)
    # With --force the old set is whole until the new one is.
    kill_in(shards(3)[2], "--shards", "3", "--force", how=signal.SIGINT)
    check(contents(folder, shards(5)) == whole, "a stopped packing has touched the shards before it")
    check("beginning anew" in packed(folder, *words, "--shards", "4", "--force"), "it goes on with other shards")
    check(names(folder) == shards(4), f"shards of another packing are left: {names(folder)}")
    # Killed while shards got their names: two have them, the rest lie under the others.
    new = contents(folder, shards(4))
    for name in shards(4):
        os.remove(folder.file(name))
    kill_in(shards(4)[3], "--shards", "4")
    head, block = open(journal).read().splitlines()[:2]
    size = json.loads(block)["sizes"][0]  # all pictures are the same one
    lines = [head]
    for shard in range(4):
        left = COUNT // 4
        while left > 0:
            lines.append(json.dumps({"sizes": [size] * min(64, left), "broken": []}))
            left -= 64

    def interrupted(kept):
        for name in names(folder):
            os.remove(folder.file(name))
        for shard, data in list(enumerate(new))[:kept]:
            with open(folder.file(shards(4)[shard] + ("" if shard < 2 else ".part")), "wb") as file:
                file.write(data)
        with open(journal, "w") as file:
            file.write("\n".join([*lines, '{"placing":true}']) + "\n")

    for kept, word in ((4, f"going on after {COUNT} of {COUNT}"), (3, "nothing that can be gone on with")):
        interrupted(kept)
        text = packed(folder, *words, "--shards", "4")
        check(word in text, f"killed while it named its shards: {text}")
        check(contents(folder, shards(4)) == new, f"a packing killed while it named its shards differs, {kept} kept")
        check(names(folder) == shards(4), f"there are {names(folder)}")


def bad_sets():
    folder = Folder("shards-bad", {})
    pictures(folder, 30)
    before = names(folder, "*")
    packed(folder, "pictures", "out.h5", "--shards", "8", "--validation", "0.2", code=2)
    check("convoy: error: --shards: 8 are more than the 6 validation samples" in folder.stderr, folder.stderr)
    packed(folder, "pictures", "out.h5", "--shards", "31", code=2)
    check("--shards: 31 are more than the 30 samples" in folder.stderr, folder.stderr)
    packed(folder, "pictures", "out.h5", "--shards", "0", code=2)
    check(set(names(folder, "*")) - set(before) <= {"stdout.txt", "stderr.txt"}, f"left: {names(folder, '*')}")
    packed(folder, "pictures", "out.h5", "--shards", "3")

    def refused(word, *words):
        code = folder.run(1, *words)
        errors = folder.stderr.splitlines()
        check(code == 2 and len(errors) == 1 and word in errors[0], f"{words}: {code} {errors}")

    def configured(source, **data):
        folder.configure(config(NET, data={"kind": "hdf5", "train": source, "validation": None, **data}))

    configured("out-*.h5")
    check(folder.run(1, "check", "run.toml") == 0 and 'train = "out-*.h5"' in folder.stdout, folder.stderr)
    check(folder.run(1, "inspect", "run.toml") == 0 and "30 samples" in folder.stdout, folder.stderr)
    check(folder.run(1, "inspect", "out-*.h5") == 0 and "out-*.h5: all 3 shards are there" in folder.stdout,
          folder.stdout + folder.stderr)
    check(folder.run(1, "--help") == 0 and folder.run(1, "pack", "--help") == 0 and "--shards" in folder.stdout, "help")
    os.makedirs(folder.file("elsewhere"))
    shutil.copy(folder.file("run.toml"), folder.file("elsewhere", "run.toml"))
    for name in shards(3):
        os.rename(folder.file(name), folder.file("elsewhere", name))
    check(folder.run(1, "inspect", "elsewhere/run.toml") == 0, f"beside the config: {folder.stderr}")
    for name in shards(3):
        os.rename(folder.file("elsewhere", name), folder.file(name))
    configured("gone-*.h5")
    refused('data.train: there is no file "gone-*.h5"', "train", "run.toml")
    configured("out-*.h5", kind="idx")
    refused('there is no file "out-*.h5"', "train", "run.toml")
    refused("no file matches", "inspect", "gone-*.h5")
    refused("no file matches", "pack", "gone-*.h5", "new.h5")
    configured("out-*.h5")
    os.remove(folder.file(shards(3)[1]))
    refused("run.toml:", "train", "run.toml")
    for words in (("train", "run.toml"), ("inspect", "out-*.h5"), ("pack", "out-*.h5", "new.h5")):
        refused("1 of the 3 shards are missing: out-00001-of-00003.h5", *words)
    packed(folder, "pictures", "other.h5", "--raw", "16", "--shards", "3")
    shutil.copy(folder.file("other-00001-of-00003.h5"), folder.file(shards(3)[1]))
    refused("out-00001-of-00003.h5: holds something else than JPEGs, out-00000-of-00003.h5 does not", "train", "run.toml")
    with open(folder.file(shards(3)[1]), "w") as file:
        file.write("damaged")
    refused("out-00001-of-00003.h5", "train", "run.toml")


main([same_as_one_file, broken, killed, bad_sets])
