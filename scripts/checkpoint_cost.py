#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What checkpoints cost a training: the same run with and without them, in turn, several times over.

A step's time is the batch over its images/s, plus what training stood still for a checkpoint after it (stall_s); both
are in metrics.jsonl. The steps up to the second checkpoint are left out: the first one allocates its memory.

  scripts/checkpoint_cost.py app/configs/resnet50_synthetic.toml --every 5 --steps 30 --repeat 3 \
      --set data.image_size=128 --set train.global_batch_size=64
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--every", type=int, default=5, help="steps from checkpoint to checkpoint")
    parser.add_argument("--steps", type=int, default=30, help="of each run")
    parser.add_argument("--repeat", type=int, default=3, help="pairs of runs")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--folder", help="where the checkpoints go (default: a temporary folder)")
    parser.add_argument("--convoy", default="build/app/convoy")
    parser.add_argument("--json", help="write the figures to this file, too")
    args = parser.parse_args()
    if args.steps < 4 * args.every:
        parser.error(f"--steps {args.steps} are too few: at least four times --every ({4 * args.every})")
    return args


def seconds_per_step(args, folder, every):
    """The mean over whole cycles of --every steps, and the stalls of the checkpoints in them."""
    shutil.rmtree(os.path.join(folder, "cost"), ignore_errors=True)
    items = [*args.set, "run.name=cost", f"run.dir={folder}", f"train.steps={args.steps}", "log.every_steps=1",
             "log.progress=off", "log.tensorboard=false", "train.eval_every_epochs=0", "checkpoint.every_epochs=0",
             f"checkpoint.every_steps={every}", "checkpoint.keep=2"]
    words = [args.convoy, "train", args.config, *(word for item in items for word in ("--set", item))]
    if args.ranks > 1:
        words = ["mpirun", "-n", str(args.ranks), "--bind-to", "core", *words]
    result = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        sys.exit(f"checkpoint_cost: {' '.join(words)}\nended with {result.returncode}\n{result.stderr}")
    with open(os.path.join(folder, "cost", "metrics.jsonl")) as file:
        events = [json.loads(line) for line in file]
    with open(os.path.join(folder, "cost", "config.toml")) as file:
        batch = next(int(line.split("=")[1]) for line in file if line.startswith("global_batch_size"))
    first = 2 * args.every
    last = first + (args.steps - first) // args.every * args.every
    within = [event for event in events if first < event.get("step", 0) <= last]
    steps = [batch / event["images_per_second"] for event in within if event["event"] == "step"]
    # The run's own last checkpoint is written when it is over, and counts for neither.
    stalls = [event["stall_s"] for event in within
              if event["event"] == "checkpoint" and every and event["step"] < args.steps]
    return (sum(steps) + sum(stalls)) / len(steps), stalls


def main():
    args = arguments()
    folder = args.folder or tempfile.mkdtemp(prefix="convoy-cost-")
    pairs, stalls = [], []
    try:
        for number in range(args.repeat):
            order = (args.every, 0) if number % 2 else (0, args.every)
            found = {every: seconds_per_step(args, folder, every) for every in order}
            pairs.append({"with": found[args.every][0], "without": found[0][0]})
            stalls += found[args.every][1]
            added = pairs[-1]["with"] / pairs[-1]["without"] - 1
            print(f"pair {number + 1}: {pairs[-1]['without']:.4f} s a step without, {pairs[-1]['with']:.4f} s with a "
                  f"checkpoint every {args.every} steps: {100 * added:+.2f} %", flush=True)
    finally:
        if not args.folder:
            shutil.rmtree(folder, ignore_errors=True)
    added = [pair["with"] / pair["without"] - 1 for pair in pairs]
    print(f"median of {len(pairs)} pairs: {100 * statistics.median(added):+.2f} % (from {100 * min(added):+.2f} to "
          f"{100 * max(added):+.2f} %); training stood still for {1000 * statistics.median(stalls):.0f} ms a checkpoint")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"config": args.config, "set": args.set, "every": args.every, "steps": args.steps,
                       "ranks": args.ranks, "pairs": pairs, "stalls_s": stalls}, file, indent=1)


if __name__ == "__main__":
    main()
