#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What it takes to feed a GPU: processor time of the loader for each image, from each form of a data set.

A folder of JPEGs is packed as it is (`convoy pack`), with smaller JPEGs (`--resize`) and as pixels (`--raw`).
`convoy bench --data` then reads batches of each with one loader thread, in turn, several rounds. What counts is the
processor time of the loader's thread, so that other programs on the machine matter little; normalisation and the copy to
the device are not in it. The files are in the page cache. From the median follow the cores for a rate of images, and the
bytes that are read and uploaded each second.

Usage: bench_input.py FOLDER [--rounds N] [--rate IMAGES] [--copies N] [--core N] [--json FILE]; FOLDER has a folder of
JPEGs for each class. CONVOY names the program (default: build/app/convoy).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH = 256
CONFIG = """
[model]
name = "sequential"
[[model.layers]]
type = "global_avg_pool"
[[model.layers]]
type = "linear"
out_features = {classes}
[data]
kind = "hdf5"
train = "packed.h5"
augment = ["crop", "flip"]
loader_threads = 1
[device]
kind = "cpu"
threads = 1
[train]
epochs = 1
global_batch_size = {batch}
"""
PACKS = {"packed.h5": [], "resize320.h5": ["--resize", "320"], "resize256.h5": ["--resize", "256"],
         "raw224.h5": ["--raw", "224"], "raw160.h5": ["--raw", "160"]}
# What is shown, the file, the size of a sample, what else is set.
CASES = [
    ("JPEGs in a folder, crop and flip", "files", 224, {}),
    ("JPEGs, packed, crop and flip", "packed.h5", 224, {}),
    ("the same, train_sizes 192", "packed.h5", 192, {"data.train_sizes": "[192]"}),
    ("the same, train_sizes 160", "packed.h5", 160, {"data.train_sizes": "[160]"}),
    ("the same, train_sizes 128", "packed.h5", 128, {"data.train_sizes": "[128]"}),
    ("JPEGs, --resize 320, crop and flip", "resize320.h5", 224, {}),
    ("JPEGs, --resize 256, crop and flip", "resize256.h5", 224, {}),
    ("the same, train_sizes 160", "resize256.h5", 160, {"data.train_sizes": "[160]"}),
    ("the same, 224, with jitter", "resize256.h5", 224, {"data.augment": '["crop", "flip", "jitter"]'}),
    ("pixels, --raw 224, as they are", "raw224.h5", 224, {"data.augment": "[]"}),
    ("pixels, --raw 224, flip", "raw224.h5", 224, {"data.augment": '["flip"]'}),
    ("pixels, --raw 224, crop and flip", "raw224.h5", 224, {}),
    ("the same, with jitter", "raw224.h5", 224, {"data.augment": '["crop", "flip", "jitter"]'}),
    ("pixels, --raw 160, crop and flip", "raw160.h5", 160, {}),
]


def run(words, folder):
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True,
                            env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    if result.returncode:
        sys.exit(f"bench_input: {' '.join(words)}: exit code {result.returncode}\n{result.stderr[-2000:]}")


def repeated(folder, copies, scratch):
    """A folder with each JPEG under `copies` names, so that a data set of few images is larger than the CPU's caches."""
    for of_class in os.scandir(folder):
        if not of_class.is_dir():
            continue
        os.makedirs(os.path.join(scratch, "files", of_class.name))
        for image in os.scandir(of_class.path):
            for number in range(copies):
                os.symlink(image.path, os.path.join(scratch, "files", of_class.name, f"{number}-{image.name}"))


def bytes_of(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=9000, help="images a second that a GPU takes")
    parser.add_argument("--copies", type=int, default=8, help="of each image in the data set that is read")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--json")
    args = parser.parse_args()
    program = os.path.abspath(os.environ.get("CONVOY") or os.path.join(ROOT, "build/app/convoy"))
    rounds = []
    with tempfile.TemporaryDirectory(prefix="convoy-input-") as scratch:
        repeated(os.path.abspath(args.folder), args.copies, scratch)
        for name, options in PACKS.items():
            run([program, "pack", "files", name, *options, "--progress", "off"], scratch)
        folders = [entry.path for entry in os.scandir(os.path.join(scratch, "files"))]
        images = sum(len(os.listdir(path)) for path in folders)
        if images < 2 * BATCH:
            parser.error(f"{images} images, copies included (at least {2 * BATCH}: more --copies)")
        with open(os.path.join(scratch, "input.toml"), "w") as file:
            file.write(CONFIG.format(classes=len(folders), batch=BATCH))
        read = {name: bytes_of(os.path.join(scratch, name)) / images for name in ("files", *PACKS)}
        for number in range(args.rounds + 1):
            times = []
            for _, source, _, options in CASES:
                kind = "image_folder" if source == "files" else "hdf5"
                settings = {"data.kind": kind, "data.train": source, **options}
                report = os.path.join(scratch, "report.json")
                run(["taskset", "-c", str(args.core), program, "bench", "input.toml", "--data", "--warmup", "5",
                     "--steps", str(images // BATCH), "--json", report,
                     *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))], scratch)
                with open(report) as file:
                    times.append(json.load(file)["results"][0]["loader_processor_seconds_per_image"])
            if number > 0:  # the first round only fills the page cache
                rounds.append(times)
    print(f"{images} images, {args.rounds} rounds; at {args.rate:g} images/s:\n"
          f"{'':<36} {'ms an image':>11} {'lowest':>8} {'highest':>8} {'cores':>7} {'read MB/s':>10} {'upload MB/s':>12}")
    for (what, source, size, _), times in zip(CASES, zip(*rounds)):
        median = statistics.median(times)
        print(f"{what:<36} {1e3 * median:>11.3f} {1e3 * min(times):>8.3f} {1e3 * max(times):>8.3f} {args.rate * median:>7.2f} "
              f"{args.rate * read[source] / 1e6:>10.0f} {args.rate * 3 * size * size / 1e6:>12.0f}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"images": images, "seconds_per_image": "[round][case], processor time of the loader",
                       "cases": [case[0] for case in CASES], "rounds": rounds}, file, indent=2)


main()
