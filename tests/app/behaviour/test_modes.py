# SPDX-License-Identifier: Apache-2.0
"""Where the layers and the samples are computed never changes what is computed.

ResNet-18 in every mode and schedule against one rank that works through the same parts of each batch: bitwise (losses,
evaluations, and every data set of the final checkpoint), except where sums of more than two parts are grouped otherwise.

Those are compared to rounding: all of the first step of ResNet-18, and an epoch and a step of a small net at a learning
rate of 1e-3. More of ResNet-18 would say nothing: it amplifies rounding tenfold a step, even at 1e-3 (a rate 3e-7 larger
changes its loss by 2e-5 after 7 steps and by 1e-1 after 30), because some ReLU always stands so close to zero that it
tips over.
"""
import functools
import os
import re

from behaviour import (SMALL_NET, Folder, check, close_series, config, failures, h5py, main, part_of, same_checkpoint,
                       same_series)

RESNET = {"name": "resnet18", "stem": "small"}
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v")
OPTIMIZERS = {
    "sgd": {},
    "gentle sgd": {"lr": 1e-3},
    "adamw": {"name": "adamw", "lr": 1e-3, "momentum": None},
    "lars": {"name": "lars", "lr": 0.5},
}
SAMPLES = 477  # of the training digits, which h5py takes out
STEPS = 10 if h5py else 30  # one more than an epoch of batches of 48


@functools.lru_cache(maxsize=None)
def digits():
    return part_of("modes-data", "train", SAMPLES)


@functools.lru_cache(maxsize=None)  # several cases ask for the same runs
def train(ranks, mode="data", optimizer="sgd", steps=STEPS, batch=48, drop_last=True, small=False, **parallel):
    words = [mode, ranks, optimizer.replace(" ", "-"), *(f"{key}-{value}" for key, value in parallel.items()),
             f"{steps}x{batch}", *(["small"] if small else [])]
    folder = Folder("modes-" + "-".join(str(word) for word in words),
                    config(SMALL_NET if small else RESNET,
                           train={"steps": steps, "global_batch_size": batch, "eval_every_epochs": 0},
                           optimizer=OPTIMIZERS[optimizer], data={"train": digits(), "drop_last": drop_last},
                           checkpoint={"every_epochs": 0}, parallel={"mode": mode, **parallel}))
    folder.train(ranks, timeout=300)
    start = (folder.events("start") or [{}])[-1]
    stages = parallel.get("stages", ranks) if mode in ("model", "pipeline") else 1
    check((start.get("replicas"), start.get("stages")) == (ranks // stages, stages), f"{folder.path}: {start}")
    check(len(folder.losses()) == steps, f"{folder.path}: {len(folder.losses())} steps")
    return folder


def evaluations(folder, parse_float=float):
    return [[entry[key] for key in ("step", "samples", "top1", "top5", "loss")]
            for entry in folder.events("eval", parse_float)]


def last_checkpoint(folder):
    return (folder.checkpoints() or ["no checkpoint"])[-1]


def same_run(actual, expected):
    """Bitwise: what is printed with 9 digits is a float32 or a sum of a few of them."""
    what = f"{os.path.basename(actual.path)} and {os.path.basename(expected.path)}"
    same_series(what, actual.losses(str), expected.losses(str))
    seen, wanted = (evaluations(folder, str) for folder in (actual, expected))
    check(seen == wanted and len(seen) == 1, f"{what}: evaluations {seen}, {wanted}")
    same_checkpoint(what, last_checkpoint(actual), last_checkpoint(expected))
    if not failures and "modes-data" not in actual.path:  # 90 MB, and nothing else is compared with it
        os.remove(last_checkpoint(actual))


def close_run(actual, expected, tolerance=1e-5):
    """To rounding: each loss, and the elements of each data set relative to its largest."""
    what = f"{os.path.basename(actual.path)} and {os.path.basename(expected.path)}"
    a, e = actual.losses(), expected.losses()
    worst = {"loss": max(abs(a[step] - e[step]) / abs(e[step]) for step in e if step in a)}
    close_series(what, a, e, tolerance)
    seen, wanted = evaluations(actual), evaluations(expected)
    check([s[:4] for s in seen] == [w[:4] for w in wanted] and len(seen) == 1, f"{what}: evaluations {seen}, {wanted}")
    for s, w in zip(seen, wanted):
        worst["evaluation"] = abs(s[4] - w[4]) / w[4]
    worst.update(largest_differences(last_checkpoint(actual), last_checkpoint(expected)))
    far = {name: f"{value:.1e}" for name, value in worst.items() if not value <= tolerance}
    check(not far, f"{what}: beyond {tolerance:.0e}: {far}")
    largest = max(worst, key=worst.get)  # printed, for the log
    print(f"{what}: " + ("the same bits" if worst[largest] == 0 else f"differ by up to {worst[largest]:.1e} ({largest}; "
          f"losses {worst['loss']:.1e})"), flush=True)


def largest_differences(actual, expected):
    if h5py is None:
        return {}
    worst = {}
    with h5py.File(actual, "r") as a, h5py.File(expected, "r") as e:
        names = [], []
        for file, found in zip((a, e), names):
            file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
        check(names[0] == names[1], f"{actual}: other data sets: {sorted(set(names[0]) ^ set(names[1]))[:5]}")
        for name in set(names[0]) & set(names[1]):
            scale = abs(e[name][()]).max()
            worst[name] = float(abs(a[name][()].astype("f8") - e[name][()]).max() / (scale if scale > 0 else 1))
    return worst


def model_parallel():
    for ranks in (2, 3, 4):
        same_run(train(ranks, "model"), train(1))


def pipeline():
    """Two chunks a rank in interleaved and zb_v: eight stretches of ten units on four ranks."""
    for ranks in (2, 4):
        for schedule in SCHEDULES:
            same_run(train(ranks, "pipeline", schedule=schedule, microbatches=4), train(1, microbatches=4))


def data_parallel():
    """A sum of two has one order; of four parts, ranks add other pairs first than one rank does."""
    same_run(train(2), train(1, microbatches=2))
    for ranks in (2, 4):
        for keys in ({"steps": 1}, {"optimizer": "gentle sgd", "small": True}):
            close_run(train(ranks, microbatches=4 // ranks, **keys), train(1, microbatches=4, **keys))


def hybrid():
    """Two replicas of two stages add the same two sums as two ranks with the whole model each."""
    for schedule in ("1f1b", "zb_v"):
        same_run(train(4, "pipeline", schedule=schedule, stages=2, microbatches=2), train(2, microbatches=2))
    same_run(train(4, "model", stages=2), train(2))


def hybrid_sync_batch_norm():
    """The statistics of a microbatch of all replicas are summed stage by stage."""
    same_run(train(4, "pipeline", stages=2, microbatches=2, steps=10, sync_batch_norm=True),
             train(2, microbatches=2, steps=10, sync_batch_norm=True))


def scatter():
    """Who reads the batches makes no difference. (On four ranks sums may be grouped otherwise.)"""
    same_run(train(2, "scatter"), train(2))
    for keys in ({"steps": 1}, {"optimizer": "gentle sgd", "small": True}):
        close_run(train(4, "scatter", **keys), train(4, **keys))


def other_optimizers():
    for optimizer in ("adamw", "lars"):
        for schedule in ("1f1b", "zero_bubble"):
            same_run(train(2, "pipeline", optimizer, 10, schedule=schedule, microbatches=4),
                     train(1, "data", optimizer, 10, microbatches=4))
        same_run(train(4, "pipeline", optimizer, 10, stages=2, microbatches=2),
                 train(2, "data", optimizer, 10, microbatches=2))


def partial_last_batch():
    """477 = 2 x 160 + 157 (as 1,437 does): parts of 40, 39, 39 and 39 samples. An epoch, and one step of the next."""
    keys = {"steps": 4 if h5py else 10, "batch": 160, "drop_last": False}

    def run(ranks, mode, **parallel):
        return train(ranks, mode, microbatches=4, **keys, **parallel)

    for schedule in SCHEDULES:
        same_run(run(2, "pipeline", schedule=schedule), run(1, "data"))
    same_run(train(2, "model", **keys), train(1, **keys))


def evaluation():
    """convoy eval, over stages and replicas, also of a number of samples that does not divide (357 = 3 x 7 x 17)."""
    checkpoint = last_checkpoint(train(1, microbatches=4))
    samples = 357 if h5py else 360
    validation = part_of("modes-evaluation-data", "validation", samples)
    said = {}
    for ranks, mode, parallel in ((1, "data", {"microbatches": 4}),
                                  (2, "model", {}),
                                  (2, "pipeline", {"microbatches": 4}),
                                  (2, "pipeline", {"microbatches": 4, "schedule": "zb_v"}),
                                  (2, "scatter", {}),
                                  (4, "pipeline", {"microbatches": 2, "stages": 2})):
        what = " ".join([mode, str(ranks), *(str(value) for value in parallel.values())])
        folder = Folder("modes-evaluation-" + what.replace(" ", "-"),
                        config(RESNET, train={"global_batch_size": 48}, data={"validation": validation},
                               parallel={"mode": mode, **parallel}))
        code = folder.run(ranks, "eval", "run.toml", "--checkpoint", checkpoint)
        numbers = re.search(r"on (\d+) samples.*\nloss\s+(\S+)\ntop-1\s+(\S+) %\ntop-5\s+(\S+) %", folder.stdout)
        if check(code == 0 and numbers, f"eval, {what}: exit code {code}: {folder.stdout} {folder.stderr}"):
            said[what] = numbers.groups()
    check(all(numbers[0] == str(samples) for numbers in said.values()), f"not {samples} samples: {said}")
    # Microbatches of one size give the same bits. Others may take another algorithm for a convolution, whose roundings
    # are some 3e-6 of a sum (docs/reproducibility.md), in a mean over all samples far less.
    check(len({(number, *tops) for number, _, *tops in said.values()}) == 1, f"eval: {said}")
    losses = {what: float(numbers[1]) for what, numbers in said.items()}
    check(max(losses.values()) - min(losses.values()) < 1e-6 * min(losses.values()), f"eval: {said}")
    of_12 = [loss for what, loss in losses.items() if what.startswith("pipeline") or what == "data 1 4"]
    check(len(of_12) == 4 and len(set(of_12)) == 1, f"eval, microbatches of 12: {said}")


main([model_parallel, pipeline, data_parallel, hybrid, hybrid_sync_batch_norm, scatter, other_optimizers,
      partial_last_batch, evaluation])
