# SPDX-License-Identifier: Apache-2.0
"""Mistakes and failures, on one rank and on two: the exit code, exactly one line on stderr that begins with
`convoy: error:` and says what is wrong, and never a hang.
"""
import os
import shutil
import subprocess

import pytest

from behaviour import DIGITS, FAILURE, MLP, SMALL_NET, USAGE, Folder, config, error_lines, h5py
from programs import ROOT

TIMEOUT = 120  # seconds until a run counts as hanging; a validation may take 4 s of processor time on a busy machine
FUZZ = os.path.join(ROOT, "tests", "fuzz", "corpus")

on_one_and_two_ranks = pytest.mark.parametrize("ranks", (1, 2))


def fails(sections, ranks, codes, words, prepare=None, **options):
    """Runs `sections`; the error line must hold all `words`. prepare(folder) comes first."""
    folder = Folder("run", sections)
    if prepare:
        prepare(folder)
    refused(folder, ranks, codes, words, **options)


def refused(folder, ranks, codes, words, **options):
    code = folder.run(ranks, timeout=TIMEOUT, **options)
    assert code is not None, f"still running after {TIMEOUT} s; stderr:\n{folder.stderr[-1500:]}"
    assert code in (codes if isinstance(codes, tuple) else (codes,))
    lines = error_lines(folder.stderr)
    assert len(lines) == 1, f"one line `convoy: error:` on stderr:\n{folder.stderr[-2500:]}"
    missing = [word for word in words if word not in lines[0]]
    assert not missing, lines[0]


# ---- the config

@on_one_and_two_ranks
def test_unknown_key(ranks):
    fails(config(train={"epochz": 1}), ranks, USAGE, ["run.toml:", "train.epochz", "train.epochs"])


def test_unknown_section():
    fails(config(optimiser={"lr": 1.0}), 2, USAGE, ["optimiser", "optimizer"])


@on_one_and_two_ranks
def test_wrong_type(ranks):
    fails(config(train={"global_batch_size": "32"}), ranks, USAGE, ["run.toml:", "train.global_batch_size"])


@on_one_and_two_ranks
def test_value_out_of_range(ranks):
    fails(config(optimizer={"lr": -0.1}), ranks, USAGE, ["run.toml:", "optimizer.lr", "-0.1"])


def test_broken_toml():
    def break_it(folder):
        with open(folder.file("run.toml"), "a") as file:
            file.write("[train\n")
    fails(config(), 2, USAGE, ["run.toml:"], prepare=break_it)


@on_one_and_two_ranks
def test_missing_config(ranks):
    fails(config(), ranks, USAGE, ["run.toml"], prepare=lambda folder: os.remove(folder.file("run.toml")))


def test_batch_does_not_divide_by_ranks():
    fails(config(train={"global_batch_size": 31}), 2, USAGE, ["31", "30", "32"])


def test_batch_does_not_divide_by_microbatches():
    fails(config(train={"global_batch_size": 31}, parallel={"microbatches": 4}), 1, USAGE, ["31", "28", "32"])


@on_one_and_two_ranks
def test_no_cuda(ranks):
    fails(config(device={"kind": "cuda"}), ranks, USAGE, ["device.kind", "CUDA"])


# ---- files

@on_one_and_two_ranks
def test_missing_data_file(ranks):
    fails(config(data={"train": "nowhere.h5:/train"}), ranks, USAGE, ["data.train", "nowhere.h5"])


@on_one_and_two_ranks
def test_file_without_data_sets(ranks):
    fails(config(data={"train": DIGITS}), ranks, USAGE, ["data.train", "images", "labels"])


@on_one_and_two_ranks
def test_file_that_is_not_hdf5(ranks):
    def write(folder):
        with open(folder.file("text.h5"), "w") as file:
            file.write("this is no HDF5 file\n" * 100)
    fails(config(data={"train": "text.h5"}), ranks, USAGE, ["text.h5"], prepare=write)


@pytest.mark.skipif(not os.path.isdir(FUZZ), reason="no corpus here")
@pytest.mark.parametrize("corpus, name, ranks", (("hdf5_data", "found-local-heap", 1),
                                                 ("hdf5_data", "found-local-heap", 2),
                                                 ("checkpoint", "found-global-heap-loop", 2)))
def test_file_that_makes_hdf5_crash_or_loop(corpus, name, ranks):
    """As HDF5 1.10 does; with another version they may be damaged in other words."""
    fails(config(data={"train": "damaged.h5", "validation": ""}), ranks, USAGE, ["damaged.h5"],
          prepare=lambda folder: shutil.copy(os.path.join(FUZZ, corpus, name), folder.file("damaged.h5")))


@on_one_and_two_ranks
def test_labels_outside_classes(ranks):
    fails(config({**MLP, "classes": 5}), ranks, USAGE, ["label", "5"])


@pytest.fixture(scope="module")
def mlp_checkpoint(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("mlp") / "run", config(MLP, train={"steps": 2}))
    folder.train()
    return folder.checkpoints()[-1]


@on_one_and_two_ranks
def test_checkpoint_of_another_model(mlp_checkpoint, ranks):
    fails(config(SMALL_NET, checkpoint={"resume": mlp_checkpoint}), ranks, USAGE,
          ["holds another model: model.name \"mlp\" -> \"sequential\"", "log.txt lists the tensors"])


def test_checkpoint_of_another_width(mlp_checkpoint):
    fails(config({"name": "mlp", "hidden": [65]}, checkpoint={"resume": mlp_checkpoint}), 1, USAGE,
          ["holds another model: model.hidden [64] -> [65]", "log.txt lists the tensors"])


def test_missing_checkpoint():
    fails(config(checkpoint={"resume": "nowhere.h5"}), 2, USAGE, ["nowhere.h5"])


@on_one_and_two_ranks
def test_run_folder_cannot_be_made(ranks):
    """A file is in its place. Only rank 0 writes, so only rank 0 sees it."""
    def block(folder):
        with open(folder.file("runs"), "w") as file:
            file.write("a file\n")
    fails(config(), ranks, USAGE, ["run.dir", "runs"], prepare=block)


# ---- while training

@on_one_and_two_ranks
def test_nan_loss_keeps_the_checkpoint_before(ranks):
    """Mean squared error at a huge rate: the loss overflows within a few steps."""
    folder = Folder("run", config(MLP, train={"steps": 5, "loss": "mse"}))
    folder.train(ranks)
    good = folder.checkpoints()
    folder.configure(config(MLP, train={"steps": 200, "loss": "mse"}, optimizer={"lr": 1e8}))
    refused(folder, ranks, FAILURE, ["step ", "loss"])
    assert folder.checkpoints() == good
    assert folder.run(1, "inspect", good[-1]) == 0, f"the last good checkpoint is not complete:\n{folder.stderr}"


# 8.7 million parameters: checkpoints of 69 MB.
LARGE = config({"name": "mlp", "hidden": [4096, 2048]}, train={"steps": 20},
               checkpoint={"every_steps": 5, "every_epochs": 0})


@pytest.mark.root
@on_one_and_two_ranks
def test_full_disk_keeps_the_first_checkpoint(ranks):
    """A small tmpfs holds one checkpoint and not two."""
    folder = Folder("run", LARGE)
    disk = folder.file("disk")
    os.mkdir(disk)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        folder.configure({**LARGE, "checkpoint": {**LARGE["checkpoint"], "dir": disk}})
        refused(folder, ranks, FAILURE, ["space", "disk"])
        assert [name for name in os.listdir(disk) if ".h5" in name] == ["step-00000005.h5"]
        code = folder.run(1, "inspect", os.path.join(disk, "step-00000005.h5"))
        assert code == 0, f"the first checkpoint is not complete:\n{folder.stderr}"
    finally:
        subprocess.run(["umount", disk], check=False)


@on_one_and_two_ranks
def test_file_size_limit(ranks):
    """The same with a limit on the size of files, which needs no rights: no checkpoint fits."""
    # 48 MiB leaves room for the files that the MPIs share between ranks. Without the trap a signal would end the rank.
    limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 49152; exec "$@"', "limited"]
    fails(LARGE, ranks, FAILURE, ["cannot write runs/run/checkpoints/step-000000", "File too large"], wrapper=limited)


@pytest.mark.skipif(h5py is None, reason="no h5py")
@on_one_and_two_ranks
def test_error_on_one_rank_ends_all(ranks):
    """A damaged part of the data that only rank 1 reads, in step 3: rank 0 waits for gradients that never come."""
    def damage(folder):
        path = folder.file("damaged.h5")
        with h5py.File(DIGITS, "r") as source, h5py.File(path, "w") as file:
            images = file.create_dataset("images", data=source["train/images"][:640], chunks=(16, 8, 8, 1), fletcher32=True)
            file["labels"] = source["train/labels"][:640]
            # Batches of 32 in file order: rank 1 has samples 16..31 of each, so chunk 5 (80..95) is its part of step 3.
            chunk = images.id.get_chunk_info_by_coord((80, 0, 0, 0))
        with open(path, "r+b") as file:
            file.seek(chunk.byte_offset + 100)
            file.write(b"\xff\x00\xff")

    fails(config(data={"train": "damaged.h5", "validation": "", "shuffle": False}), ranks, (FAILURE, USAGE),
          ["damaged.h5"], prepare=damage)
