# SPDX-License-Identifier: Apache-2.0
"""Mistakes and failures, on one rank and on two: the exit code, exactly one line on stderr that begins with
`convoy: error:` and says what is wrong, and never a hang.
"""
import os
import shutil
import subprocess

from behaviour import DIGITS, MLP, SMALL_NET, Folder, check, config, h5py, main

TIMEOUT = 40  # seconds until a run counts as hanging
USAGE, FAILURE = 2, 1
FUZZ = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fuzz", "corpus")


def fails(name, sections, codes, words, ranks=(1, 2), prepare=None, **options):
    """Runs `sections`; the error line must hold all `words`. prepare(folder) comes first."""
    for count in ranks:
        folder = Folder(f"errors-{name}-{count}", sections)
        if prepare:
            prepare(folder)
        refused(f"{name} on {count} ranks", folder, count, codes, words, **options)


def refused(what, folder, ranks, codes, words, **options):
    code = folder.run(ranks, timeout=TIMEOUT, **options)
    if not check(code is not None, f"{what}: still running after {TIMEOUT} s; stderr:\n{folder.stderr[-1500:]}"):
        return
    check(code in (codes if isinstance(codes, tuple) else (codes,)), f"{what}: exit code {code}, not {codes}")
    lines = [line for line in folder.stderr.splitlines() if line.startswith("convoy: error:")]
    if check(len(lines) == 1, f"{what}: {len(lines)} lines `convoy: error:` on stderr:\n{folder.stderr[-2500:]}"):
        missing = [word for word in words if word not in lines[0]]
        check(not missing, f"{what}: {missing} not in: {lines[0]}")


# ---- the config

def unknown_key():
    fails("unknown-key", config(train={"epochz": 1}), USAGE, ["run.toml:", "train.epochz", "train.epochs"])


def unknown_section():
    fails("unknown-section", config(optimiser={"lr": 1.0}), USAGE, ["optimiser", "optimizer"], ranks=(2,))


def wrong_type():
    fails("wrong-type", config(train={"global_batch_size": "32"}), USAGE, ["run.toml:", "train.global_batch_size"])


def out_of_range():
    fails("out-of-range", config(optimizer={"lr": -0.1}), USAGE, ["run.toml:", "optimizer.lr", "-0.1"])


def broken_toml():
    def break_it(folder):
        with open(folder.file("run.toml"), "a") as file:
            file.write("[train\n")
    fails("broken-toml", config(), USAGE, ["run.toml:"], prepare=break_it, ranks=(2,))


def missing_config():
    fails("missing-config", config(), USAGE, ["run.toml"], prepare=lambda folder: os.remove(folder.file("run.toml")))


def batch_does_not_divide():
    fails("batch", config(train={"global_batch_size": 31}), USAGE, ["31", "30", "32"], ranks=(2,))
    fails("batch-micro", config(train={"global_batch_size": 31}, parallel={"microbatches": 4}), USAGE,
          ["31", "28", "32"], ranks=(1,))


def no_cuda():
    fails("cuda", config(device={"kind": "cuda"}), USAGE, ["device.kind", "CUDA"])


# ---- files

def missing_file():
    fails("missing-file", config(data={"train": "nowhere.h5:/train"}), USAGE, ["data.train", "nowhere.h5"])


def no_data_sets():
    fails("no-data-sets", config(data={"train": DIGITS}), USAGE, ["data.train", "images", "labels"])


def not_hdf5():
    def write(folder):
        with open(folder.file("text.h5"), "w") as file:
            file.write("this is no HDF5 file\n" * 100)
    fails("not-hdf5", config(data={"train": "text.h5"}), USAGE, ["text.h5"], prepare=write)


def hdf5_crashes():
    """Files that make HDF5 1.10 crash, or loop for ever; with another version they may be damaged in other words."""
    for corpus, name, ranks in (("hdf5_data", "found-local-heap", (1, 2)), ("checkpoint", "found-global-heap-loop", (2,))):
        def copy(folder, path=os.path.join(FUZZ, corpus, name)):
            shutil.copy(path, folder.file("damaged.h5"))
        fails(name, config(data={"train": "damaged.h5", "validation": ""}), USAGE, ["damaged.h5"], ranks, copy)


def labels_outside_classes():
    fails("labels", config({**MLP, "classes": 5}), USAGE, ["label", "5"])


def checkpoint_of_another_model():
    other = Folder("errors-other-model", config(MLP, train={"steps": 2}))
    other.train()
    checkpoint = other.checkpoints()[-1]
    fails("other-model", config(SMALL_NET, checkpoint={"resume": checkpoint}), USAGE, ["fc1.weight", "conv.weight"])
    fails("other-width", config({"name": "mlp", "hidden": [65]}, checkpoint={"resume": checkpoint}), USAGE,
          ["fc1.weight", "64", "65"], ranks=(1,))


def missing_checkpoint():
    fails("missing-checkpoint", config(checkpoint={"resume": "nowhere.h5"}), USAGE, ["nowhere.h5"], ranks=(2,))


def folder_not_writable():
    """The run's folder cannot be made: a file is in its place. Only rank 0 writes, so only rank 0 sees it."""
    def block(folder):
        with open(folder.file("runs"), "w") as file:
            file.write("a file\n")
    fails("folder", config(), USAGE, ["run.dir", "runs"], prepare=block)


# ---- while training

def nan_loss():
    """Mean squared error at a huge rate: the loss overflows within a few steps. The checkpoint before stays."""
    for ranks in (1, 2):
        folder = Folder(f"errors-nan-{ranks}", config(MLP, train={"steps": 5, "loss": "mse"}))
        folder.train(ranks)
        good = folder.checkpoints()
        folder.configure(config(MLP, train={"steps": 200, "loss": "mse"}, optimizer={"lr": 1e8}))
        refused(f"NaN loss on {ranks} ranks", folder, ranks, FAILURE, ["step ", "loss"])
        check(folder.checkpoints() == good, f"NaN loss: checkpoints {folder.checkpoints()}, before {good}")
        code = folder.run(1, "inspect", good[-1])
        check(code == 0, f"NaN loss: the last good checkpoint is not whole: exit code {code}\n{folder.stderr}")


# 2.2 million parameters: checkpoints of 18 MB.
LARGE = config({"name": "mlp", "hidden": [2048, 1024]}, train={"steps": 20},
               checkpoint={"every_steps": 5, "every_epochs": 0})


def full_disk():
    """A small tmpfs holds one checkpoint and not two."""
    for ranks in (1, 2):
        folder = Folder(f"errors-disk-{ranks}", LARGE)
        disk = folder.file("disk")
        os.mkdir(disk)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=27m", "tmpfs", disk], capture_output=True)
        if mounted.returncode != 0:
            return "mounting a tmpfs is not allowed here"
        try:
            folder.configure({**LARGE, "checkpoint": {**LARGE["checkpoint"], "dir": disk}})
            refused(f"full disk on {ranks} ranks", folder, ranks, FAILURE, ["space", "disk"])
            names = sorted(os.listdir(disk))
            check(names == ["step-00000005.h5"], f"full disk: the folder holds {names}")
            code = folder.run(1, "inspect", os.path.join(disk, "step-00000005.h5"))
            check(code == 0, f"full disk: the first checkpoint is not whole: exit code {code}\n{folder.stderr}")
        finally:
            subprocess.run(["umount", disk], check=False)


def file_size_limit():
    """The same with a limit on the size of files, which needs no rights: no checkpoint fits."""
    # 10 MiB leaves room for the files that Open MPI shares between ranks. Without the trap a signal would end the rank.
    limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 10240; exec "$@"', "limited"]
    fails("file-size", LARGE, FAILURE, ["step-00000005.h5"], wrapper=limited)


def one_rank_fails():
    """A damaged part of the data that only rank 1 reads, in step 3: rank 0 waits for gradients that never come."""
    if h5py is None:
        return "no h5py"

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

    fails("one-rank", config(data={"train": "damaged.h5", "validation": "", "shuffle": False}), (FAILURE, USAGE),
          ["damaged.h5"], prepare=damage)


main([unknown_key, unknown_section, wrong_type, out_of_range, broken_toml, missing_config, batch_does_not_divide, no_cuda,
      missing_file, no_data_sets, not_hdf5, hdf5_crashes, labels_outside_classes, checkpoint_of_another_model, missing_checkpoint,
      folder_not_writable, nan_loss, full_disk, file_size_limit, one_rank_fails])
