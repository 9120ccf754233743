#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How fast JPEGs become training samples: convoy's loader beside torchvision's transforms, on one core.

Both decode, take a random resized crop of 224, flip, and normalise to float32: torchvision as
RandomResizedCrop + RandomHorizontalFlip + ToTensor + Normalize over Pillow, convoy as `convoy bench --data` with one
loader thread, from the files and from one HDF5 file that `convoy pack` makes of them. They take turns in one session, pinned to the same core, and what counts is processor time per image, so
that other programs on the machine touch neither side (wall time is shown, too). The files are in the page cache: a first
pass of both is thrown away.

With --augment the table has a line for each random change of pixels beyond crop and flip, from the packed file: images per
second of one core on both sides.

Usage: bench_images.py FOLDER [--augment] [--rounds N] [--core N] [--json FILE]; FOLDER has a folder of JPEGs for each class. CONVOY
names the program (default: build/app/convoy). Needs torch and torchvision.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CONFIG = """
[model]
name = "sequential"
[[model.layers]]
type = "global_avg_pool"
[[model.layers]]
type = "linear"
out_features = {classes}
[data]
kind = "{kind}"
train = {train}
augment = ["crop", "flip"]
mean = {mean}
std = {std}
loader_threads = 1
[device]
kind = "cpu"
threads = 1
[train]
epochs = 1
global_batch_size = {batch}
"""
# What data.augment has beyond crop and flip, and the transform of torchvision that it is.
CHANGES = {"": None, "jitter": ("ColorJitter", 0.4, 0.4, 0.4), "hue": ("ColorJitter", 0, 0, 0, 0.1),
           "jitter,hue": ("ColorJitter", 0.4, 0.4, 0.4, 0.1), "trivial": ("TrivialAugmentWide",), "rand": ("RandAugment",)}


def torchvision_round(folder, changes):
    """In a process of its own: seconds of processor and wall per image."""
    import torch
    from torchvision import datasets, transforms
    torch.set_num_threads(1)
    name, *strengths = CHANGES[changes] or [None]
    pictures = datasets.ImageFolder(folder, transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
        *([getattr(transforms, name)(*strengths)] if name else []), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]))
    pictures[0]
    processor, wall = time.process_time(), time.perf_counter()
    for i in range(len(pictures)):
        pictures[i]
    count = len(pictures)
    print(json.dumps([(time.process_time() - processor) / count, (time.perf_counter() - wall) / count]))


def run(words, folder=None):
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True,
                            env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    if result.returncode:
        sys.exit(f"bench_images: {' '.join(words)}: exit code {result.returncode}\n{result.stderr[-2000:]}")
    return result.stdout


def convoy_round(program, pinned, scratch, kind, steps, changes=""):
    report = os.path.join(scratch, "data.json")
    augment = json.dumps(["crop", "flip", *filter(None, changes.split(","))])
    run([*pinned, program, "bench", kind + ".toml", "--data", "--warmup", "4", "--steps", str(steps), "--json", report,
         "--set", "data.augment=" + augment], scratch)
    with open(report) as file:
        result = json.load(file)["results"][0]
    return result["processor_seconds_per_image"], 1 / result["images_per_second"]


def compare_changes(rounds, torchvision, convoy):
    """A line for each of CHANGES; both sides are functions of one, which return seconds of processor and wall. Returns
    the processor seconds of all rounds."""
    seconds = {changes: ([], []) for changes in CHANGES}
    for number in range(rounds + 1):
        for changes, sides in seconds.items():
            each = torchvision(changes)[0], convoy(changes)[0]
            for side, value in zip(sides, each if number else ()):
                side.append(value)
    print(f"{'':<18} {'images/s of a core':^24}\n{'crop, flip and':<18} {'torchvision':>12} {'convoy':>11}  times")
    for changes, sides in seconds.items():
        ratios = sorted(a / b for a, b in zip(*sides))
        print(f"{changes.replace(',', ', ') or '-':<18} {1 / statistics.median(sides[0]):>12.0f} "
              f"{1 / statistics.median(sides[1]):>11.0f}  {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return seconds


def compare_sides(rounds, torchvision, convoy):
    """A line for each round: torchvision, convoy from files and convoy from the packed file. Returns all of them."""
    print(f"{'':>5} {'processor ms an image':^38}   wall ms an image\n"
          f"{'round':>5} {'torchvision':>12} {'files':>12} {'packed':>12}   torchvision, files, packed")
    found = []
    for number in range(rounds + 1):
        each = {"torchvision": torchvision(), "files": convoy("image_folder"), "packed": convoy("hdf5")}
        if number == 0:
            continue
        found.append(each)
        print(f"{number:>5} " + " ".join(f"{1e3 * each[side][0]:>12.3f}" for side in each) + "   " +
              ", ".join(f"{1e3 * each[side][1]:.3f}" for side in each), flush=True)
    for side in ("files", "packed"):
        ratios = sorted(each["torchvision"][0] / each[side][0] for each in found)
        print(f"{rounds} rounds: from {side} convoy is {statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to "
              f"{ratios[-1]:.2f})")
    return found


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--torchvision-round":
        return torchvision_round(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--json")
    args = parser.parse_args()
    folder = os.path.abspath(args.folder)
    counts = [sum(len(files) for _, _, files in os.walk(entry.path)) for entry in os.scandir(folder) if entry.is_dir()]
    batch = 20
    if sum(counts) < batch:
        parser.error(f"{folder}: {sum(counts)} files in folders of classes (at least {batch})")
    program = os.path.abspath(os.environ.get("CONVOY") or os.path.join(ROOT, "build/app/convoy"))
    pinned = ["taskset", "-c", str(args.core)]
    with tempfile.TemporaryDirectory(prefix="convoy-images-") as scratch:
        packed = os.path.join(scratch, "packed.h5")
        run([program, "pack", folder, packed, "--progress", "off"])
        for kind, train in (("image_folder", folder), ("hdf5", packed)):
            with open(os.path.join(scratch, kind + ".toml"), "w") as file:
                file.write(CONFIG.format(classes=len(counts), kind=kind, train=json.dumps(train), mean=MEAN, std=STD,
                                         batch=batch))
        steps = sum(counts) // batch
        print(f"{sum(counts)} images")

        def torchvision(changes=""):
            return json.loads(run([*pinned, sys.executable, os.path.abspath(__file__), "--torchvision-round", folder, changes]))

        if args.augment:
            rounds = compare_changes(args.rounds, torchvision,
                                     lambda changes: convoy_round(program, pinned, scratch, "hdf5", steps, changes))
        else:
            rounds = compare_sides(args.rounds, torchvision,
                                   lambda kind: convoy_round(program, pinned, scratch, kind, steps))
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"images": sum(counts), "seconds_per_image": "[torchvision, convoy]" if args.augment else "[processor, wall]",
                       "rounds": rounds}, file, indent=2)


main()
