# SPDX-License-Identifier: Apache-2.0
"""convoy verify and data.verify: checksums are those of an independent implementation, a flipped byte anywhere in a
packed file or checkpoint is found, and so is damage to the logs of a run."""
import glob
import json
import os
import random
import shutil
import struct
import time

import pytest

from behaviour import DIGITS, FAILURE, MLP, USAGE, Folder, config, error_lines, h5py, wait_or_kill
from checksums import crc32c, trailer
from packing import packed
from pictures import NET, pictures

needs_h5py = pytest.mark.skipif(h5py is None, reason="needs h5py")


def verify(folder, *words):
    """The exit code, and {path: (state, line)}."""
    code = folder.run(1, "verify", *words)
    rows = [line.split(None, 1) for line in folder.stdout.splitlines()]
    return code, {rest.split(": ")[0]: (state, rest) for state, rest in rows if state in ("valid", "readable", "damaged")}


def states(folder, *words):
    code, rows = verify(folder, *words)
    return code, {path: state for path, (state, _) in rows.items()}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """digits.h5 packed, JPEGs packed in two groups, and the JPEGs in shards."""
    folder = Folder(tmp_path_factory.mktemp("small") / "files", {})
    pictures(folder)
    packed(folder, DIGITS + ":/validation", "digits.h5", "--progress", "off")
    packed(folder, "pictures", "jpegs.h5", "--validation", "0.2", "--progress", "off")
    packed(folder, "pictures", "shards.h5", "--shards", "3", "--progress", "off")
    return folder


def flip(path, place, bit=0x10):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ bit]))


@needs_h5py
@pytest.mark.parametrize("name, group", (("digits.h5", "/"), ("jpegs.h5", "/train"), ("jpegs.h5", "/validation"),
                                         ("shards-00001-of-00003.h5", "/")))
def test_checksums_are_crc32c_of_sample_and_label(small, name, group):
    with h5py.File(small.file(name), "r") as file:
        part = file[group]
        labels, checksums = part["labels"][()], part["crc32c"][()]
        if "images" in part:
            samples = [image.tobytes() for image in part["images"][()]]
        else:
            data, at = part["jpeg/bytes"][()].tobytes(), part["jpeg/offsets"][()]
            samples = [data[at[i]:at[i + 1]] for i in range(len(labels))]
    assert checksums.dtype == "uint32" and len(samples) == len(labels) == len(checksums) > 0
    assert [crc32c(sample + struct.pack("<q", label)) for sample, label in zip(samples, labels)] == list(checksums)


@pytest.mark.parametrize("name", ("jpegs.h5", "shards-00000-of-00003.h5"))
def test_trailer_covers_the_file(small, name):
    data = open(small.file(name), "rb").read()
    end = data.rindex(b"\nconvoy-seal ")
    assert data[end:] == trailer(data[:end])


def test_whole_files_are_valid(small):
    code, found = states(small, "digits.h5", "jpegs.h5", "shards-*.h5")
    assert code == 0, small.stderr
    assert found == {path: "valid" for path in ["digits.h5", "jpegs.h5"] + [f"shards-0000{i}-of-00003.h5" for i in range(3)]}
    assert small.stdout.splitlines()[-1] == "5 files: 5 valid, 0 readable without a checksum, 0 damaged"


def flipped_copies(folder, path, count):
    """Copies of the file, each with one bit changed: at random places, and at both ends of the file."""
    source, size = random.Random(4), os.path.getsize(path)
    places = {0, 7, 8, 12, 28, 47, size - 1, size - 62, size - 63, *(source.randrange(size) for _ in range(count))}
    os.makedirs(folder.file("flipped"), exist_ok=True)
    for place in sorted(places):
        copy = folder.file("flipped", f"{place}.h5")
        shutil.copy(path, copy)
        flip(copy, place, 1 << source.randrange(8))
        yield os.path.relpath(copy, folder.path)


@pytest.mark.parametrize("name", ("digits.h5", "jpegs.h5"))
def test_each_flipped_bit_of_a_packed_file_is_found(small, name):
    folder = Folder("flips", {})
    copies = list(flipped_copies(folder, small.file(name), 60))
    code, found = states(folder, *copies)
    assert code == FAILURE and found == {copy: "damaged" for copy in copies}


def test_each_flipped_bit_of_a_checkpoint_is_found(run):
    folder = Folder("flips", {})
    copies = list(flipped_copies(folder, run.checkpoints()[-1], 60))
    code, found = states(folder, *copies)
    assert code == FAILURE and found == {copy: "damaged" for copy in copies}


def place_of(path, pattern):
    return open(path, "rb").read().index(pattern)


@needs_h5py
def test_damaged_block_is_named(small):
    folder = small.copy("damaged")
    with h5py.File(folder.file("jpegs.h5"), "r") as file:
        at = file["train/jpeg/bytes"].id.get_offset() + int(file["train/jpeg/offsets"][7]) + 5
    flip(folder.file("jpegs.h5"), at)
    code, rows = verify(folder, "jpegs.h5")
    assert code == FAILURE and "/train: block 7 (sample 7) is damaged" in rows["jpegs.h5"][1], folder.stdout
    assert len(error_lines(folder.stderr)) == 1


def trains(folder, net, ranks, code, **data):
    shutil.rmtree(folder.file("runs"), ignore_errors=True)
    folder.configure(config(net, data={"kind": "hdf5", "validation": None, **data},
                            train={"steps": None, "epochs": 1, "global_batch_size": 6, "eval_every_epochs": 0}))
    assert folder.run(ranks) == code, folder.stderr[-1500:]


@needs_h5py
@pytest.mark.parametrize("ranks", (1, 2))
def test_training_verifies_pixels(small, ranks):
    folder = small.copy("run")
    trains(folder, MLP, ranks, 0, train="digits.h5", verify=True)
    expected = folder.losses(str)
    trains(folder, MLP, ranks, 0, train="digits.h5")
    assert folder.losses(str) == expected
    with h5py.File(folder.file("digits.h5"), "r") as file:
        at, image = file["images"].id.get_offset(), file["images"][0].size
    flip(folder.file("digits.h5"), at + 11 * image + image // 2)
    trains(folder, MLP, ranks, 0, train="digits.h5")  # not asked for
    trains(folder, MLP, ranks, USAGE, train="digits.h5", verify=True)
    errors = error_lines(folder.stderr)
    assert len(errors) == 1 and "digits.h5: block 11 (sample 11) is damaged" in errors[0], folder.stderr


@needs_h5py
@pytest.mark.parametrize("name, file_of_sample", (("jpegs.h5:/train", "jpegs.h5"), ("shards-*.h5", "shards-00002-of-00003.h5")))
def test_training_verifies_jpegs_and_shards(small, name, file_of_sample):
    """A damaged block is no broken picture, in whose place another comes."""
    folder = small.copy("run")
    trains(folder, NET, 1, 0, train=name, verify=True, image_size=16, max_broken=1.0)
    with h5py.File(folder.file(file_of_sample), "r") as file:
        part = file["train"] if "train" in file else file
        at = part["jpeg/bytes"].id.get_offset() + int(part["jpeg/offsets"][4]) - 3
    flip(folder.file(file_of_sample), at)
    trains(folder, NET, 1, USAGE, train=name, verify=True, image_size=16, max_broken=1.0)
    errors = error_lines(folder.stderr)
    assert len(errors) == 1 and f"{file_of_sample}" in errors[0] and "block 3 (sample 3) is damaged" in errors[0], folder.stderr


def test_data_without_checksums():
    folder = Folder("run", config(data={"verify": True}))
    assert folder.run(1) == USAGE
    errors = error_lines(folder.stderr)
    assert len(errors) == 1 and "has no checksums of its samples" in errors[0] and "convoy pack" in errors[0], folder.stderr
    assert states(folder, DIGITS) == (0, {DIGITS: "readable"})


# ---- runs

@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("run") / "run", config(MLP, train={"steps": 12}, log={"tensorboard": True},
                    checkpoint={"every_steps": 4, "every_epochs": 0}))
    folder.train()
    os.makedirs(folder.file("runs", "run", "launch"))
    with open(folder.file("runs", "run", "launch", "state.json"), "w") as file:
        json.dump({"status": "done", "exit_code": 0, "generation": 0, "restarts": 0, "has_checkpoint": True, "leader": "a",
                   "generations": []}, file)
    return folder


def test_run_is_valid(run):
    code, found = states(run, "runs/run", "--json", "found.json")
    assert code == 0, run.stdout + run.stderr
    names = {os.path.basename(path): state for path, state in found.items()}
    events = [name for name in names if name.startswith("events.out.tfevents.")]
    assert names == {"config.toml": "readable", "step-00000004.h5": "valid", "step-00000008.h5": "valid",
                     "step-00000012.h5": "valid", "metrics.jsonl": "valid", "log.txt": "readable", "state.json": "valid",
                     "digits.h5": "readable", events[0]: "valid"}
    with open(run.file("found.json")) as file:
        assert {entry["path"]: entry["state"] for entry in json.load(file)["files"]} == found


def test_second_copies_are_of_the_run():
    folder = Folder("copied", config(MLP, train={"steps": 8}, checkpoint={"every_steps": 4, "every_epochs": 0, "copy_to": "copies"}))
    folder.train()
    copies = glob.glob(folder.file("copies", "*", "step-*.h5"))
    assert copies
    code, found = states(folder, "runs/run/")
    copied = {path: state for path, state in found.items() if path.startswith("copies/")}
    assert code == 0 and len(copied) == len(copies) and set(copied.values()) == {"valid"}, folder.stdout
    middle(copies[0])
    code, found = states(folder, "runs/run")
    assert code == FAILURE and found[os.path.relpath(copies[0], folder.path)] == "damaged", folder.stdout


def swap_lines(path):
    with open(path) as file:
        lines = file.readlines()
    steps = [i for i, line in enumerate(lines) if '"event":"step"' in line]
    lines[steps[3]], lines[steps[5]] = lines[steps[5]], lines[steps[3]]
    with open(path, "w") as file:
        file.writelines(lines)


def cut(path):
    os.truncate(path, os.path.getsize(path) - 3)


def middle(path):
    flip(path, os.path.getsize(path) // 2)


def no_json(path):
    with open(path, "r+b") as file:
        file.seek(40)
        file.write(b"\0\0\0\0")


@pytest.mark.parametrize("name, damage", (
    ("checkpoints/step-00000008.h5", middle), ("checkpoints/step-00000008.h5", cut),
    ("checkpoints/step-00000008.h5", lambda path: shutil.copy(path.replace("08.h5", "04.h5"), path)),
    ("metrics.jsonl", swap_lines), ("metrics.jsonl", cut), ("metrics.jsonl", no_json),
    ("events.out.tfevents.*", middle), ("events.out.tfevents.*", cut),
    ("launch/state.json", cut), ("launch/state.json", no_json), ("log.txt", no_json), ("config.toml", no_json)))
def test_damaged_file_of_a_run_is_found(run, name, damage):
    folder = run.copy("damaged")
    path = glob.glob(folder.file("runs", "run", name))[0]
    damage(path)
    code, found = states(folder, "runs/run")
    assert code == FAILURE
    assert [found_path for found_path, state in found.items() if state == "damaged"] == [os.path.relpath(path, folder.path)]


def test_missing_data_of_a_run_is_found(small):
    folder = small.copy("run")
    trains(folder, NET, 1, 0, train="shards-*.h5", image_size=16)
    assert states(folder, "runs/run")[0] == 0, folder.stdout
    os.remove(folder.file("shards-00001-of-00003.h5"))
    code, rows = verify(folder, "runs/run")
    assert code == FAILURE and rows["shards-*.h5"][0] == "damaged" and "00001-of-00003" in folder.stdout, folder.stdout


def test_checkpoint_that_goes_meanwhile_is_not_damaged(run):
    """The run deletes a checkpoint when its folder has been listed: while an earlier one is read, here a pipe."""
    folder = run.copy("rotated")
    pipe, gone = (folder.file("runs", "run", "checkpoints", f"step-{step:08d}.h5") for step in (4, 8))
    os.remove(pipe)
    os.mkfifo(pipe)
    process = folder.start(1, "verify", "runs/run")
    writer = os.open(pipe, os.O_WRONLY)  # when it is opened for reading
    os.remove(gone)
    os.close(writer)
    deadline = time.time() + 60
    while process.poll() is None and time.time() < deadline:
        try:
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody reads it now
            time.sleep(0.001)
    assert wait_or_kill(process, 0.01) == FAILURE
    folder.read_outputs()
    states_of = {line.split(None, 1)[1].split(": ")[0]: line.split()[0] for line in folder.stdout.splitlines()[:-1]}
    checkpoints = {os.path.basename(path): state for path, state in states_of.items() if path.endswith(".h5") and "step-" in path}
    assert checkpoints == {"step-00000004.h5": "damaged", "step-00000012.h5": "valid"}, folder.stdout
    assert folder.stdout.splitlines()[-1].endswith(" 1 damaged")


def test_folder_of_runs(run):
    folder = run.copy("many")
    for name in ("b", "a"):
        shutil.copytree(folder.file("runs", "run"), folder.file("runs", name))
    os.makedirs(folder.file("runs", "other"))
    for words, named in ((["runs"], "runs/a, runs/b, runs/run"), (["runs/"], "runs/a, runs/b, runs/run")):
        assert folder.run(1, "verify", *words) == USAGE
        assert error_lines(folder.stderr) == [f"convoy: error: {words[0]} is a folder of runs: name one of them ({named})"]


def test_file_of_no_known_kind():
    folder = Folder("run", {})
    with open(folder.file("env.sh"), "w") as file:
        file.write("export A=1\n")
    assert folder.run(1, "verify", "env.sh") == USAGE
    assert error_lines(folder.stderr) == ["convoy: error: env.sh: neither HDF5, nor IDX, nor a batch of CIFAR-10 "
                                          "(name a run's folder, a checkpoint, data or a log of a run)"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="another user's folder needs root and setpriv")
@pytest.mark.parametrize("words", (["watch", "runs/run"], ["report", "runs/run"], ["inspect", "runs/run"], ["verify", "runs/run"],
                                   ["inspect", "runs/run/newest"], ["eval", "runs/run"], ["predict", "runs/run", DIGITS],
                                   ["eval", "run.toml", "--checkpoint", "runs/run"]))
def test_run_that_another_user_may_not_read(run, words):
    wrapper = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    folder = run.copy("foreign")
    if folder.run(1, "check", "run.toml", wrapper=wrapper) != 0:
        pytest.skip("this folder cannot be used by another user: " + folder.stderr[-300:])
    os.chmod(folder.file("runs", "run"), 0o700)
    assert folder.run(1, *words, wrapper=wrapper) == USAGE, folder.stderr
    assert error_lines(folder.stderr) == ["convoy: error: cannot read runs/run: Permission denied"]


@pytest.mark.parametrize("words", (["nowhere"], ["nothing-*.h5"], ["empty"], []))
def test_nothing_to_verify_is_a_usage_error(words):
    folder = Folder("run", {})
    os.makedirs(folder.file("empty"))
    assert folder.run(1, "verify", *words) == USAGE
    assert len(error_lines(folder.stderr)) == 1, folder.stderr
