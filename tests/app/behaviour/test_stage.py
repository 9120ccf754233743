# SPDX-License-Identifier: Apache-2.0
"""data.stage_dir: training from staged files is that from the files themselves; they are copied once a node; whoever is
killed or comes at the same time does no harm; what cannot be copied is told."""
import glob
import os
import random
import shutil
import struct
import subprocess
import time

from behaviour import DIGITS, Folder, check, config, kill_tree, main, same_series

STEPS = {"steps": 6, "global_batch_size": 16, "eval_every_epochs": 0}
PADDING = 400 << 20  # bytes behind a data file, a hole of the disk: HDF5 does not look at them, but they are copied


def configure(folder, **data):
    sources = {"train": "digits.h5:/train", "validation": "digits.h5:/validation"}
    folder.configure(config(data={**sources, **data}, train=STEPS, checkpoint={"resume": "never"}))


def digits(name, padding=0, stage_dir="stage"):
    folder = Folder(name, {})
    shutil.copy(DIGITS, folder.file("digits.h5"))
    os.truncate(folder.file("digits.h5"), os.path.getsize(DIGITS) + padding)
    configure(folder, stage_dir=stage_dir)
    return folder


def losses(folder, ranks=1, **options):
    shutil.rmtree(folder.file("runs"), ignore_errors=True)
    folder.train(ranks, **options)
    return folder.losses(str), folder.events("eval", str)[-1]["loss"]


def staged(folder, stage="stage"):
    """Every staged file with what changes when it is copied again."""
    paths = [path for path in glob.glob(folder.file(stage, "**"), recursive=True)
             if os.path.isfile(path) and not path.endswith(".lock")]
    return {os.path.basename(path): (path, os.stat(path).st_ino, os.stat(path).st_mtime_ns) for path in paths}


def log(folder):
    return open(folder.file("runs", "run", "log.txt")).read()


def refused(folder, word, ranks=1, **options):
    code = folder.run(ranks, **options)
    errors = [line for line in folder.stderr.splitlines() if line.startswith("convoy: error:")]
    check(code == 2 and len(errors) == 1 and word in errors[0], f"{word}: exit code {code}, {folder.stderr[:500]}")


def same_as_unstaged():
    folder = digits("stage-same")
    for ranks in (1, 2, 4):
        configure(folder)
        expected = losses(folder, ranks)
        shutil.rmtree(folder.file("stage"), ignore_errors=True)
        configure(folder, stage_dir="stage")
        same_series(f"staged, {ranks} ranks", losses(folder, ranks)[0], expected[0])
        files = staged(folder)
        check(list(files) == ["digits.h5"], f"{ranks} ranks: staged {files}")  # train and validation are one file
        check("staged     digits.h5:/train (" in folder.stdout and " to stage/digits.h5-" in log(folder), folder.stdout)
        check("digits.h5:/validation" in folder.stdout and "already there" in folder.stdout, folder.stdout)
        actual = losses(folder, ranks)
        check(actual == expected, f"staged before, {ranks} ranks: {actual} instead of {expected}")
        check(staged(folder) == files, f"{ranks} ranks: copied a second time")
        check("digits.h5:/train (" in folder.stdout and " is already there: stage/digits.h5-" in folder.stdout,
              folder.stdout)
        text = open(folder.file("runs", "run", "config.toml")).read()
        check('train = "digits.h5:/train"' in text and 'stage_dir = "stage"' in text, "the config names other files")
    path = files["digits.h5"][0]
    with open(path, "r+b") as file:
        file.write(bytes(4096))  # as long as it was: so that it is seen to be read
    refused(folder, os.path.relpath(path, folder.path), ranks=2)
    os.utime(folder.file("digits.h5"))
    check(losses(folder, 4) == expected, "a file that has changed is not staged anew")
    # A dry run copies nothing.
    shutil.rmtree(folder.file("stage"))
    check(folder.run(1, "train", "run.toml", "--dry-run") == 0 and not os.path.exists(folder.file("stage")), "dry run")


def all_kinds():
    folder = Folder("stage-kinds", {})
    source = random.Random(2)
    os.makedirs(folder.file("mnist", "raw"))
    for group, count in (("train", 40), ("t10k", 20)):
        for kind, extents, size in (("images-idx3", (count, 6, 6), count * 36), ("labels-idx1", (count,), count)):
            with open(folder.file("mnist", "raw", f"{group}-{kind}-ubyte"), "wb") as file:
                file.write(bytes([0, 0, 8, len(extents)]) + struct.pack(f">{len(extents)}I", *extents))
                file.write(bytes(source.randrange(10 if "labels" in kind else 256) for _ in range(size)))
    os.makedirs(folder.file("cifar", "cifar-10-batches-bin"))
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        with open(folder.file("cifar", "cifar-10-batches-bin", name), "wb") as file:
            file.write(b"".join(bytes([i % 10]) + source.randbytes(3072) for i in range(24)))
    with open(folder.file("cifar", "cifar-10-batches-bin", "batches.meta.txt"), "w") as file:
        file.write("".join(f"class {i}\n" for i in range(10)))
    code = folder.run(1, "pack", "mnist", "out.h5", "--shards", "3")
    check(code == 0, folder.stderr)
    batch = "cifar/cifar-10-batches-bin/test_batch.bin"
    cases = [("idx", "mnist", "mnist", 4), ("idx", "mnist/raw/train-images-idx3-ubyte", "mnist", 4),
             ("cifar10", "cifar", "cifar", 6 + 2), ("cifar10", batch, batch, 2),
             ("hdf5", "out-*.h5:/train", "out-*.h5:/validation", 3)]
    for kind, train, validation, count in cases:
        shutil.rmtree(folder.file("stage"), ignore_errors=True)
        configure(folder, kind=kind, train=train, validation=validation)
        expected = losses(folder)
        configure(folder, kind=kind, train=train, validation=validation, stage_dir="stage")
        for ranks in (1, 2):
            actual = losses(folder, ranks)
            if ranks == 1:
                check(actual == expected, f"{kind} {train}: {actual} instead of {expected}")
        files = [path for path in glob.glob(folder.file("stage", "*", "*"))]
        check(len(files) == count, f"{kind} {train}: staged {files}, not {count} files")
    check(not glob.glob(folder.file("stage", "*.part")), "unfinished copies are left")


def killed():
    folder = digits("stage-killed", PADDING)
    for ranks in (1, 2):
        shutil.rmtree(folder.file("stage"), ignore_errors=True)
        process = folder.start(ranks)
        while process.poll() is None and not glob.glob(folder.file("stage", "*.part")):
            time.sleep(0.001)
        check(process.poll() is None, "the run ended before it could be killed")
        kill_tree(process)
        check(not [name for name in staged(folder) if name == "digits.h5"], "an unfinished copy has its name")
        check(len(glob.glob(folder.file("stage", "*.part"))) == 1, "the copy was not under way")
        os.utime(folder.file("digits.h5"))  # another file: what is left of the first one is in nobody's way
        losses(folder, ranks)
        check(list(staged(folder)) == ["digits.h5"], f"after a kill there is {staged(folder)}")


def at_the_same_time():
    folder = digits("stage-together", PADDING)
    other = folder.copy("stage-together-2")
    configure(folder)
    expected = losses(folder)
    for place in (folder, other):
        configure(place, train=folder.file("digits.h5") + ":/train", validation=folder.file("digits.h5") + ":/validation",
                  stage_dir=folder.file("stage"))
    runs = [place.start(1) for place in (folder, other)]
    for place, run in zip((folder, other), runs):
        code = run.wait(60)
        place.read_outputs()
        check(code == 0, f"two at the same time: exit code {code}, {place.stderr}")
        same_series("two at the same time", place.losses(str), expected[0])
    check(list(staged(folder)) == ["digits.h5"], f"two at the same time: {staged(folder)}")
    texts = [line for place in (folder, other) for line in place.stdout.splitlines() if "/train (" in line]
    check(len(texts) == 2 and sum("already there" in line for line in texts) == 1, f"both copied: {texts}")


def no_room():
    folder = digits("stage-full", PADDING, stage_dir="disk/stage")
    disk = folder.file("disk")
    os.makedirs(disk)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode != 0:
        return "cannot mount a small disk"
    try:
        for ranks in (1, 2):
            refused(folder, " needs 419.", ranks)
            check(" MB more and 104.9 MB are free there (make room" in folder.stderr, folder.stderr)
            check("data.stage_dir: " + os.uname().nodename in folder.stderr, f"no host: {folder.stderr}")
        check(not staged(folder, "disk"), f"no room: {staged(folder, 'disk')} are left")
        # Room when it begins, but not to the end: the other data set takes it.
        os.truncate(folder.file("digits.h5"), 90 << 20)
        process = folder.start(1)
        while process.poll() is None and not glob.glob(folder.file("disk", "stage", "*.part")):
            pass
        with open(folder.file("disk", "other"), "wb") as file:
            try:
                file.write(bytes(60 << 20))
            except OSError:
                pass
        code = process.wait(60)
        folder.read_outputs()
        check(code == 2 and " MB more and " in folder.stderr, f"filled on the way: {code} {folder.stderr}")
        check(list(staged(folder, "disk")) == ["other"], f"filled on the way: {staged(folder, 'disk')} are left")
        os.remove(folder.file("disk", "other"))
        losses(folder)
    finally:
        subprocess.run(["umount", disk], check=False)
    return None


def bad_input():
    folder = digits("stage-bad")
    for ranks in (1, 2):
        configure(folder, stage_dir="no/such/folder")
        refused(folder, "cannot create the folder no/such/folder: No such file", ranks)
        configure(folder, stage_dir="digits.h5")
        refused(folder, "a file is called that", ranks)
        configure(folder, stage_dir="$STAGE/x")
        refused(folder, "$STAGE in \"$STAGE/x\" is not set (set it", ranks, wrapper=["env", "-u", "STAGE"])
    configure(folder, stage_dir="${STAGE}/x")
    os.makedirs(folder.file("place"))
    losses(folder, 2, wrapper=["env", "STAGE=place"])
    check(list(staged(folder, "place/x")) == ["digits.h5"], f"a variable: {staged(folder, 'place')}")
    configure(folder, stage_dir="/sys/convoy" if os.geteuid() == 0 else "locked/stage")
    os.makedirs(folder.file("locked"), 0o555)
    refused(folder, "cannot create the folder")
    configure(folder, stage_dir="stage", train="gone.h5")
    refused(folder, 'data.train: there is no file "gone.h5"')
    os.makedirs(folder.file("pictures", "a"))
    configure(folder, kind="image_folder", train="pictures", validation=None, stage_dir="stage")
    refused(folder, "data.stage_dir: does not copy folders of images (pack it with `convoy pack`")
    configure(folder, kind="synthetic", train=None, validation=None, stage_dir="stage")
    refused(folder, "data.stage_dir: means nothing with data.kind = \"synthetic\"")
    check(not os.path.exists(folder.file("stage")), "what is refused writes something")


main([same_as_unstaged, all_kinds, killed, at_the_same_time, no_room, bad_input])
