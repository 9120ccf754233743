#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How fast JPEGs become training samples: convoy's loader beside torchvision's transforms, on one core.

Both decode, take a random resized crop of 224, flip, and normalise to float32: torchvision as
RandomResizedCrop + RandomHorizontalFlip + ToTensor + Normalize over Pillow, convoy as `convoy bench --data` with one
loader thread. They take turns in one session, pinned to the same core, and what counts is processor time per image, so
that other programs on the machine touch neither side (wall time is shown, too). The files are in the page cache: a first
pass of both is thrown away.

Usage: bench_images.py FOLDER [--rounds N] [--core N] [--json FILE]; FOLDER has a folder of JPEGs for each class. CONVOY
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
kind = "image_folder"
train = {folder}
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


def torchvision_round(folder):
    """In a process of its own: seconds of processor and wall per image."""
    import torch
    from torchvision import datasets, transforms
    torch.set_num_threads(1)
    pictures = datasets.ImageFolder(folder, transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(MEAN, STD)]))
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


def convoy_round(program, pinned, scratch, steps):
    report = os.path.join(scratch, "data.json")
    run([*pinned, program, "bench", "net.toml", "--data", "--warmup", "4", "--steps", str(steps), "--json", report], scratch)
    with open(report) as file:
        result = json.load(file)["results"][0]
    return result["processor_seconds_per_image"], 1 / result["images_per_second"]


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--torchvision-round":
        return torchvision_round(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
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
    rounds = []
    with tempfile.TemporaryDirectory(prefix="convoy-images-") as scratch:
        with open(os.path.join(scratch, "net.toml"), "w") as file:
            file.write(CONFIG.format(classes=len(counts), folder=json.dumps(folder), mean=MEAN, std=STD, batch=batch))
        print(f"{'round':>5} {'torchvision ms':>15} {'convoy ms':>10} {'ratio':>6}   (wall: torchvision, convoy, ratio)")
        for number in range(args.rounds + 1):
            theirs = json.loads(run([*pinned, sys.executable, os.path.abspath(__file__), "--torchvision-round", folder]))
            ours = convoy_round(program, pinned, scratch, sum(counts) // batch)
            if number == 0:
                continue
            rounds.append({"torchvision": theirs, "convoy": ours})
            print(f"{number:>5} {1e3 * theirs[0]:>15.3f} {1e3 * ours[0]:>10.3f} {theirs[0] / ours[0]:>6.2f}   "
                  f"({1e3 * theirs[1]:.3f}, {1e3 * ours[1]:.3f}, {theirs[1] / ours[1]:.2f})", flush=True)
    ratios = sorted(each["torchvision"][0] / each["convoy"][0] for each in rounds)
    print(f"{sum(counts)} images, {args.rounds} rounds: convoy is {statistics.median(ratios):.2f} times as fast "
          f"({ratios[0]:.2f} to {ratios[-1]:.2f})")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"images": sum(counts), "seconds_per_image": "[processor, wall]", "rounds": rounds}, file, indent=2)


main()
