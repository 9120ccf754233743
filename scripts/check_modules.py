#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The modules of the source tree and their order: a module may include the ones above it in MODULES, and nothing below.

Fails on an include that goes the other way, on a folder that is no module, on a module of more than 40 files and on a
library's header outside the modules that may use it. `--map` prints files, lines and subject of each module, as a table."""
import os
import re
import sys

# Lowest first. (folder, subject)
MODULES = [
    ("layers/base", "errors, shapes, tensors, memory pool, random numbers, clock, trace"),
    ("layers/cpu", "how busy the CPUs are, control groups' limits, waits that block while others want the CPUs"),
    ("layers/backend", "the operation interface; which GPUs there are"),
    ("layers/backend/onednn", "CPU backend: element-wise operations, batch norm, pooling, losses, optimizer updates"),
    ("layers/backend/onednn/conv", "CPU backend: convolutions, linear layers and their weights"),
    ("layers/backend/cuda", "GPU backend: memory, streams, recording, own kernels"),
    ("layers/backend/cuda/conv", "GPU backend: convolutions, linear layers and their weights on cuDNN and cuBLASLt"),
    ("layers/backend/observe", "backends that watch operations: comparison, profiling, what they would move on a GPU"),
    ("layers", "layers, parameters, model, loss"),
    ("layers/optim", "optimizers, learning-rate schedules, loss scaling"),
    ("layers/models", "MLP, ResNets, sequential models"),
    ("parallel/base", "error checks of MPI, time spent waiting"),
    ("parallel/watchdog", "status board of a node, hang reports, watch on the launcher"),
    ("parallel/comm", "communicators over MPI and shared memory, agreement on errors"),
    ("parallel/comm/nccl", "communicators over NCCL"),
    ("parallel/schedule", "mesh, pipeline schedules, simulator, partition: pure functions"),
    ("parallel/engine", "executor, stage link, gradient buckets, recording of steps"),
    ("parallel/world", "start and end of MPI, launch checks, CPU binding"),
    ("io/files", "atomic files, locks, copies on a node's own storage, validation in a child process"),
    ("io/hdf5", "HDF5 files: RAII over the C API, checksums"),
    ("io/checkpoint", "checkpoints and the thread that writes them"),
    ("io/images", "JPEG and PNG: decoding, encoding, resizing; changes of pixels"),
    ("io/augment", "random numbers of a sample, random changes of its pixels"),
    ("io/data", "datasets, shards, sampler, loader, augmentation"),
    ("io/pack", "convoy pack: from a source to data files"),
    ("io/log", "metrics, TensorBoard and trace files"),
    ("app/base", "version, error output, durations, paths, examples"),
    ("app/config", "one TOML file to typed values"),
    ("app/build", "config to objects: the only module that knows all below"),
    ("app/train", "trainer, evaluation, progress, stop signals, run folder"),
    ("app/predict", "inputs and outputs of convoy predict"),
    ("app/inspect", "pictures of training samples"),
    ("app/bench", "timing of steps and operations, counts of what they move"),
    ("app/planning", "machine models and predictions"),
    ("app/report", "the page of convoy report"),
    ("app/watch", "the view of convoy watch"),
    ("app/launch", "supervision of ranks: restarts, growing and shrinking"),
    ("app/verify", "checks of a run's files, read back from the disk"),
    ("app/reference", "man pages and completion, from the definition of the command line"),
    ("app/commands", "the command line, one file a command"),
    ("app", "main"),
]
MOST_FILES = 40
# Headers of a library and the modules that may include them.
LIBRARIES = [
    (r"mpi\.h", r"parallel/.*"),
    (r"nccl\.h", r"parallel/comm/nccl"),
    (r"hdf5\.h|H5\w+\.h", r"io/(hdf5|data|pack|checkpoint)"),
    (r"dnnl.*", r"layers/backend/onednn(/.*)?"),
    (r"cuda\w*\.h|cudnn.*|cublas.*", r"layers/backend(/cuda(/conv)?)?|parallel/comm/nccl"),
    (r"toml\+\+/.*|CLI/.*", r"app/.*"),
]
SOURCES = (".h", ".cpp", ".cu", ".cuh")


def sources(root):
    """{path: text} of every source file in the four folders of modules."""
    found = {}
    for top in ("layers", "parallel", "io", "app"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith(SOURCES):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        found[os.path.relpath(path, root)] = file.read()
    return found


def breaches(files):
    """A line for each breach of the rules, as `path: what is wrong`."""
    place = {folder: index for index, (folder, _) in enumerate(MODULES)}
    count = dict.fromkeys(place, 0)
    for path, text in sorted(files.items()):
        module = os.path.dirname(path)
        if module not in place:
            yield f"{path}: {module} is no module (scripts/check_modules.py lists them)"
            continue
        count[module] += 1
        for match in re.finditer(r'^[ \t]*#[ \t]*include ["<]([^">]+)[">]', text, re.M):
            header = match[1]
            for pattern, allowed in LIBRARIES:
                if re.fullmatch(pattern, header) and not re.fullmatch(allowed, module):
                    yield f"{path}: includes <{header}>, which {module} may not use"
            if header in files:
                other = os.path.dirname(header)
                if other in place and place[other] > place[module]:
                    yield f"{path}: includes {header}, but {other} is above {module}"
    for module, number in count.items():
        if number > MOST_FILES:
            yield f"{module}: {number} files (at most {MOST_FILES}: split it by subject)"


def print_map(files):
    """The modules as a Markdown table, highest first."""
    print("| module | files | lines | subject |\n|---|---:|---:|---|")
    for folder, subject in reversed(MODULES):
        texts = [text for path, text in files.items() if os.path.dirname(path) == folder]
        print(f"| `{folder}/` | {len(texts)} | {sum(text.count(chr(10)) for text in texts):,} | {subject} |")


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    files = sources(root)
    if sys.argv[1:] == ["--map"]:
        print_map(files)
        return 0
    found = list(breaches(files))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
