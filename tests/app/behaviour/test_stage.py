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

import pytest

from behaviour import DIGITS, USAGE, Folder, config, error_lines, kill_tree, same_series
from launching import Launch, wait_for

STEPS = {"steps": 6, "global_batch_size": 16, "eval_every_epochs": 0}
PART = ".convoy-part-*"  # an unfinished copy
PADDING = 400 << 20  # bytes behind a data file, a hole of the disk: HDF5 does not look at them, but they are copied


def configure(folder, **data):
    sources = {"train": "digits.h5:/train", "validation": "digits.h5:/validation"}
    folder.configure(config(data={**sources, **data}, train=STEPS))


def digits(name="run", padding=0, stage_dir="stage"):
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
             if os.path.isfile(path)]
    return {os.path.basename(path): (path, os.stat(path).st_ino, os.stat(path).st_mtime_ns) for path in paths}


def log(folder):
    return open(folder.file("runs", "run", "log.txt")).read()


def refused(folder, word, ranks=1, expected=USAGE, **options):
    code = folder.run(ranks, **options)
    errors = error_lines(folder.stderr)
    assert code == expected and len(errors) == 1 and word in errors[0], folder.stderr[:500]


def unstaged_losses(folder, ranks=1):
    """Of the same run without staging; leaves the folder with data.stage_dir."""
    configure(folder)
    expected = losses(folder, ranks)
    configure(folder, stage_dir="stage")
    return expected


@pytest.mark.parametrize("ranks", (1, 2, 4))
def test_staged_files_train_as_the_files_themselves(ranks):
    """They are copied once, and found there by the next run."""
    folder = digits()
    expected = unstaged_losses(folder, ranks)
    same_series("staged", losses(folder, ranks)[0], expected[0])
    files = staged(folder)
    assert list(files) == ["digits.h5"], "train and validation are one file"
    assert "staged     digits.h5:/train (" in folder.stdout and " to stage/digits.h5-" in log(folder)
    assert "digits.h5:/validation" in folder.stdout and "already there" in folder.stdout
    assert losses(folder, ranks) == expected, "staged before"
    assert staged(folder) == files, "copied a second time"
    assert "digits.h5:/train (" in folder.stdout and " is already there: stage/digits.h5-" in folder.stdout
    text = open(folder.file("runs", "run", "config.toml")).read()
    assert 'train = "digits.h5:/train"' in text and 'stage_dir = "stage"' in text, "the config names other files"


@pytest.mark.parametrize("ranks", (1, 2))
def test_damaged_copy_is_replaced(ranks):
    """It is as long as it was: the checksum tells."""
    folder = digits()
    expected = unstaged_losses(folder, ranks)
    losses(folder, ranks)
    path = staged(folder)["digits.h5"][0]
    with open(path, "r+b") as file:
        file.write(bytes(4096))
    assert losses(folder, ranks) == expected
    assert "damaged" in folder.stdout, folder.stdout
    assert open(path, "rb").read() == open(folder.file("digits.h5"), "rb").read()


def test_staged_file_is_read_and_staged_anew_when_its_source_changes():
    folder = digits()
    expected = unstaged_losses(folder, 4)
    losses(folder)
    with open(folder.file("digits.h5"), "r+b") as file:
        file.write(bytes(4096))
        os.utime(file.fileno(), ns=(0, os.fstat(file.fileno()).st_mtime_ns + 10**9))
    refused(folder, "digits.h5-", ranks=2)
    shutil.copy(DIGITS, folder.file("digits.h5"))
    assert losses(folder, 4) == expected, "a file that has changed is not staged anew"


def test_dry_run_copies_nothing():
    folder = digits()
    assert folder.run(1, "train", "run.toml", "--dry-run") == 0
    assert not os.path.exists(folder.file("stage"))


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Data of every kind that is staged: IDX, CIFAR-10, and the IDX files packed into three shards."""
    folder = Folder(tmp_path_factory.mktemp("kinds") / "run", {})
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
    assert folder.run(1, "pack", "mnist", "out.h5", "--shards", "3") == 0, folder.stderr
    return folder


BATCH = "cifar/cifar-10-batches-bin/test_batch.bin"


@pytest.mark.parametrize("kind, train, validation, count", (
    pytest.param("idx", "mnist", "mnist", 4, id="idx_folder"),
    pytest.param("idx", "mnist/raw/train-images-idx3-ubyte", "mnist", 4, id="idx_file"),
    pytest.param("cifar10", "cifar", "cifar", 6 + 2, id="cifar10_folder"),
    pytest.param("cifar10", BATCH, BATCH, 2, id="cifar10_batch"),
    pytest.param("hdf5", "out-*.h5:/train", "out-*.h5:/validation", 3, id="shards")))
def test_every_kind_of_data_is_staged(kinds, kind, train, validation, count):
    shutil.rmtree(kinds.file("stage"), ignore_errors=True)
    configure(kinds, kind=kind, train=train, validation=validation)
    expected = losses(kinds)
    configure(kinds, kind=kind, train=train, validation=validation, stage_dir="stage")
    assert losses(kinds, 1) == expected
    losses(kinds, 2)
    assert len(glob.glob(kinds.file("stage", "*", "*"))) == count, "files staged"
    assert not glob.glob(kinds.file("stage", "*", PART)), "unfinished copies are left"


@pytest.mark.parametrize("ranks", (1, 2))
def test_killed_copy_disturbs_nobody(ranks):
    folder = digits(padding=PADDING)
    process = folder.start(ranks)
    while process.poll() is None and not glob.glob(folder.file("stage", "*", PART)):
        time.sleep(0.001)
    assert process.poll() is None, "the run ended before it could be killed"
    kill_tree(process)
    assert "digits.h5" not in staged(folder), "an unfinished copy has its name"
    assert len(glob.glob(folder.file("stage", "*", PART))) == 1, "the copy was not under way"
    os.utime(folder.file("digits.h5"))  # another file: what is left of the first one is in nobody's way
    losses(folder, ranks)
    assert list(staged(folder)) == ["digits.h5"]


def test_runs_that_stage_at_the_same_time_copy_once():
    folder = digits("one", PADDING)
    other = folder.copy("two")
    configure(folder)
    expected = losses(folder)
    shutil.rmtree(folder.file("runs"))
    for place in (folder, other):
        configure(place, train=folder.file("digits.h5") + ":/train", validation=folder.file("digits.h5") + ":/validation",
                  stage_dir=folder.file("stage"))
    runs = [place.start(1) for place in (folder, other)]
    for place, run in zip((folder, other), runs):
        code = run.wait(60)
        place.read_outputs()
        assert code == 0, place.stderr
        same_series("two at the same time", place.losses(str), expected[0])
    assert list(staged(folder)) == ["digits.h5"]
    texts = [line for place in (folder, other) for line in place.stdout.splitlines() if "/train (" in line]
    assert len(texts) == 2 and sum("already there" in line for line in texts) == 1, "both copied"


# ---- what cannot be copied

@pytest.fixture
def small_disk():
    """A folder whose data is to be staged on a disk of 100 MB, which is mounted at disk."""
    folder = digits(padding=PADDING, stage_dir="disk/stage")
    disk = folder.file("disk")
    os.makedirs(disk)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small disk")
    yield folder
    subprocess.run(["umount", disk], check=False)


@pytest.mark.root
@pytest.mark.parametrize("ranks", (1, 2))
def test_stage_without_room_is_refused(small_disk, ranks):
    refused(small_disk, " needs 419.", ranks, expected=1)  # a full disk may have room at another start
    assert " MB more and 104.9 MB are free there (make room" in small_disk.stderr
    assert "data.stage_dir: " + os.uname().nodename in small_disk.stderr, "no host"
    assert not staged(small_disk, "disk"), "files are left"


@pytest.mark.root
def test_launch_tries_a_full_disk_again(small_disk):
    with Launch(small_disk, "--nproc-per-node", "1", "--max-restarts", "100") as launch:
        wait_for("restarts", lambda: launch.state()["restarts"] >= 3)
        subprocess.run(["mount", "-o", "remount,size=600m", small_disk.file("disk")], check=True)
        launch.ends_with(0)
        generations = launch.state()["generations"]
    assert not any(generation["program_error"] for generation in generations)
    assert " MB are free there" in generations[0]["exit"]


@pytest.mark.root
def test_stage_that_fills_on_the_way_is_refused(small_disk):
    """There is room when it begins, but not to the end: the other data set takes it."""
    os.truncate(small_disk.file("digits.h5"), 90 << 20)
    process = small_disk.start(1)
    while process.poll() is None and not glob.glob(small_disk.file("disk", "stage", "*", PART)):
        pass
    with open(small_disk.file("disk", "other"), "wb") as file:
        try:
            file.write(bytes(60 << 20))
        except OSError:
            pass
    code = process.wait(60)
    small_disk.read_outputs()
    assert code == 1 and " MB more and " in small_disk.stderr
    assert list(staged(small_disk, "disk")) == ["other"], "files are left"
    os.remove(small_disk.file("disk", "other"))
    losses(small_disk)


@pytest.mark.parametrize("ranks", (1, 2))
def test_bad_stage_dir_is_refused(ranks):
    folder = digits()
    configure(folder, stage_dir="no/such/folder")
    refused(folder, "cannot create the folder no/such/folder: No such file", ranks)
    configure(folder, stage_dir="digits.h5")
    refused(folder, "a file is called that", ranks)
    configure(folder, stage_dir="$STAGE/x")
    refused(folder, "$STAGE in \"$STAGE/x\" is not set (set it", ranks, wrapper=["env", "-u", "STAGE"])
    assert not os.path.exists(folder.file("stage")), "what is refused writes something"


def test_stage_dir_names_a_variable():
    folder = digits()
    configure(folder, stage_dir="${STAGE}/x")
    os.makedirs(folder.file("place"))
    losses(folder, 2, wrapper=["env", "STAGE=place"])
    assert list(staged(folder, "place/x")) == ["digits.h5"]


def test_stage_dir_that_may_not_be_made_is_refused():
    folder = digits()
    configure(folder, stage_dir="/sys/convoy" if os.geteuid() == 0 else "locked/stage")
    os.makedirs(folder.file("locked"), 0o555)
    refused(folder, "cannot create the folder")


def test_data_that_cannot_be_staged_is_refused():
    folder = digits()
    configure(folder, stage_dir="stage", train="gone.h5")
    refused(folder, 'data.train: there is no file "gone.h5"')
    os.makedirs(folder.file("pictures", "a"))
    configure(folder, kind="image_folder", train="pictures", validation=None, stage_dir="stage")
    refused(folder, "data.stage_dir: does not copy folders of images (pack it with `convoy pack`")
    configure(folder, kind="synthetic", train=None, validation=None, stage_dir="stage")
    refused(folder, "data.stage_dir: is ignored with data.kind = \"synthetic\"")
    assert not os.path.exists(folder.file("stage")), "what is refused writes something"
