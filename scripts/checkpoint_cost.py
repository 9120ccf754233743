#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What checkpoints cost a training: the same run with and without them, in turn, several times over.

A step's time is the batch over its images/s, plus what training stood still for a checkpoint after it (stall_s); both
are in metrics.jsonl. The steps up to the second checkpoint are left out: the first one allocates its memory.

Two figures: run against run; and, where the machine's speed changes from run to run, within the runs with checkpoints:
the steps during a write, and the stall, against the steps of the same few seconds after it.

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


class Run:
    """A run's whole cycles of --every steps: each one a list of step times, after a checkpoint if there are any."""

    def __init__(self, steps, checkpoints, every, first):
        self.cycles = [steps[at:at + every] for at in range(first, len(steps) - every + 1, every)]
        self.checkpoints = [checkpoints.get(at) for at in range(first, len(steps) - every + 1, every)]
        self.stalls = [checkpoint["stall_s"] for checkpoint in self.checkpoints if checkpoint]

    def seconds_per_step(self):
        return (sum(map(sum, self.cycles)) + sum(self.stalls)) / sum(map(len, self.cycles))

    def added(self):
        """What each checkpoint added to its cycle, by the steps of that cycle that began after it was written."""
        shares = []
        for cycle, checkpoint in zip(self.cycles, self.checkpoints):
            begun = [sum(cycle[:i]) for i in range(len(cycle))]
            during = [t for t, begin in zip(cycle, begun) if begin < checkpoint["seconds"]]
            if len(during) < len(cycle):
                usual = statistics.median(cycle[len(during):])
                shares.append((sum(during) - len(during) * usual + checkpoint["stall_s"]) / (len(cycle) * usual))
        return shares


def measure(args, folder, every):
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
    steps = [batch / event["images_per_second"] for event in events if event["event"] == "step"]
    checkpoints = {event["step"]: event for event in events if event["event"] == "checkpoint" and every}
    return Run(steps, checkpoints, args.every, 2 * args.every)


def quartile(values, number):
    return statistics.quantiles(values, n=4, method="inclusive")[number] if len(values) > 1 else values[0]


def main():
    args = arguments()
    folder = args.folder or tempfile.mkdtemp(prefix="convoy-cost-")
    pairs, stalls, shares = [], [], []
    try:
        for number in range(args.repeat):
            order = (args.every, 0) if number % 2 else (0, args.every)
            found = {every: measure(args, folder, every) for every in order}
            pairs.append({"with": found[args.every].seconds_per_step(), "without": found[0].seconds_per_step()})
            stalls += found[args.every].stalls
            shares += found[args.every].added()
            added = pairs[-1]["with"] / pairs[-1]["without"] - 1
            print(f"pair {number + 1}: {pairs[-1]['without']:.4f} s a step without, {pairs[-1]['with']:.4f} s with a "
                  f"checkpoint every {args.every} steps: {100 * added:+.2f} %", flush=True)
    finally:
        if not args.folder:
            shutil.rmtree(folder, ignore_errors=True)
    added = [pair["with"] / pair["without"] - 1 for pair in pairs]
    print(f"median of {len(pairs)} pairs: {100 * statistics.median(added):+.2f} % (from {100 * min(added):+.2f} to "
          f"{100 * max(added):+.2f} %); training stood still for {1000 * statistics.median(stalls):.0f} ms a checkpoint")
    if shares:
        print(f"within the runs, by {len(shares)} checkpoints: {100 * statistics.median(shares):+.2f} % (quartiles "
              f"{100 * quartile(shares, 0):+.2f} and {100 * quartile(shares, 2):+.2f} %)")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"config": args.config, "set": args.set, "every": args.every, "steps": args.steps,
                       "ranks": args.ranks, "pairs": pairs, "stalls_s": stalls, "within_runs": shares}, file, indent=1)


if __name__ == "__main__":
    main()
