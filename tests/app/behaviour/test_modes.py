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

import pytest

from behaviour import SMALL_NET, Folder, close_series, config, h5py, part_of, same_checkpoint, same_series

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
    return part_of("data", "train", SAMPLES)


@functools.lru_cache(maxsize=None)  # several cases ask for the same runs
def train(ranks, mode="data", optimizer="sgd", steps=STEPS, batch=48, drop_last=True, small=False, **parallel):
    words = [mode, ranks, optimizer.replace(" ", "-"), *(f"{key}-{value}" for key, value in parallel.items()),
             f"{steps}x{batch}", *(["small"] if small else [])]
    folder = Folder("-".join(str(word) for word in words),
                    config(SMALL_NET if small else RESNET,
                           train={"steps": steps, "global_batch_size": batch, "eval_every_epochs": 0},
                           optimizer=OPTIMIZERS[optimizer], data={"train": digits(), "drop_last": drop_last},
                           checkpoint={"every_epochs": 0}, parallel={"mode": mode, **parallel}))
    folder.train(ranks, timeout=300)
    start = (folder.events("start") or [{}])[-1]
    stages = parallel.get("stages", ranks) if mode in ("model", "pipeline") else 1
    assert (start.get("replicas"), start.get("stages")) == (ranks // stages, stages)
    assert len(folder.losses()) == steps
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
    assert seen == wanted and len(seen) == 1, what
    same_checkpoint(what, last_checkpoint(actual), last_checkpoint(expected))
    if not os.path.basename(actual.path).startswith("data-"):  # 90 MB, and nothing else is compared with it
        os.remove(last_checkpoint(actual))


def close_run(actual, expected, tolerance=1e-5):
    """To rounding: each loss, and the elements of each data set relative to its largest."""
    what = f"{os.path.basename(actual.path)} and {os.path.basename(expected.path)}"
    a, e = actual.losses(), expected.losses()
    worst = {"loss": max(abs(a[step] - e[step]) / abs(e[step]) for step in e if step in a)}
    close_series(what, a, e, tolerance)
    seen, wanted = evaluations(actual), evaluations(expected)
    assert [s[:4] for s in seen] == [w[:4] for w in wanted] and len(seen) == 1, what
    for s, w in zip(seen, wanted):
        worst["evaluation"] = abs(s[4] - w[4]) / w[4]
    worst.update(largest_differences(last_checkpoint(actual), last_checkpoint(expected)))
    far = {name: f"{value:.1e}" for name, value in worst.items() if not value <= tolerance}
    assert not far, f"{what}: beyond {tolerance:.0e}"
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
        assert names[0] == names[1], f"{actual}: other data sets"
        for name in set(names[0]) & set(names[1]):
            scale = abs(e[name][()]).max()
            worst[name] = float(abs(a[name][()].astype("f8") - e[name][()]).max() / (scale if scale > 0 else 1))
    return worst


slow = pytest.mark.slow

# A step and an epoch that are compared to rounding.
ROUNDING = (pytest.param({"steps": 1}, id="resnet18"),
            pytest.param({"optimizer": "gentle sgd", "small": True}, id="small_net"))


@pytest.mark.parametrize("ranks", (2, pytest.param(3, marks=slow), pytest.param(4, marks=slow)))
def test_model_parallel_gives_the_same_bits(ranks):
    same_run(train(ranks, "model"), train(1))


@pytest.mark.parametrize("ranks", (2, pytest.param(4, marks=slow)))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pipeline_gives_the_same_bits(schedule, ranks):
    """Two chunks a rank in interleaved and zb_v: eight stages of ten units on four ranks."""
    same_run(train(ranks, "pipeline", schedule=schedule, microbatches=4), train(1, microbatches=4))


def test_data_parallel_gives_the_same_bits_on_two_ranks():
    """A sum of two has one order."""
    same_run(train(2), train(1, microbatches=2))


@pytest.mark.parametrize("mode", ("data", "pipeline"))
def test_waits_that_block_give_the_same_bits(mode):
    """Two ranks of two threads each: how they wait changes nothing."""
    runs = []
    for policy in ("active", "passive"):
        folder = Folder(f"waits-{mode}-{policy}",
                        config(SMALL_NET, train={"steps": 12}, device={"threads": 2, "wait_policy": policy},
                               parallel={"mode": mode, **({"microbatches": 2} if mode == "pipeline" else {})}))
        folder.train(2)
        assert len(folder.losses()) == 12
        runs.append(folder)
    same_series(mode, runs[1].losses(str), runs[0].losses(str))
    same_checkpoint(mode, last_checkpoint(runs[1]), last_checkpoint(runs[0]))


@slow
@pytest.mark.parametrize("ranks", (2, 4))
@pytest.mark.parametrize("keys", ROUNDING)
def test_data_parallel_with_four_parts_agrees_to_rounding(keys, ranks):
    """Of four parts, ranks add other pairs first than one rank does."""
    close_run(train(ranks, microbatches=4 // ranks, **keys), train(1, microbatches=4, **keys))


@slow
@pytest.mark.parametrize("schedule", ("1f1b", "zb_v"))
def test_hybrid_pipeline_gives_the_same_bits(schedule):
    """Two replicas of two stages add the same two sums as two ranks with the whole model each."""
    same_run(train(4, "pipeline", schedule=schedule, stages=2, microbatches=2), train(2, microbatches=2))


@slow
def test_hybrid_model_parallel_gives_the_same_bits():
    same_run(train(4, "model", stages=2), train(2))


@slow
def test_hybrid_sync_batch_norm_gives_the_same_bits():
    """The statistics of a microbatch of all replicas are summed stage by stage."""
    same_run(train(4, "pipeline", stages=2, microbatches=2, steps=10, sync_batch_norm=True),
             train(2, microbatches=2, steps=10, sync_batch_norm=True))


def test_scatter_gives_the_same_bits_on_two_ranks():
    """Who reads the batches makes no difference."""
    same_run(train(2, "scatter"), train(2))


@slow
@pytest.mark.parametrize("keys", ROUNDING)
def test_scatter_on_four_ranks_agrees_to_rounding(keys):
    """Sums may be grouped otherwise."""
    close_run(train(4, "scatter", **keys), train(4, **keys))


@slow
@pytest.mark.parametrize("optimizer", ("adamw", "lars"))
@pytest.mark.parametrize("schedule", ("1f1b", "zero_bubble"))
def test_pipeline_with_other_optimizers_gives_the_same_bits(schedule, optimizer):
    same_run(train(2, "pipeline", optimizer, 10, schedule=schedule, microbatches=4),
             train(1, "data", optimizer, 10, microbatches=4))


@slow
@pytest.mark.parametrize("optimizer", ("adamw", "lars"))
def test_hybrid_with_other_optimizers_gives_the_same_bits(optimizer):
    same_run(train(4, "pipeline", optimizer, 10, stages=2, microbatches=2), train(2, "data", optimizer, 10, microbatches=2))


# 477 = 2 x 160 + 157 (as 1,437 does): parts of 40, 39, 39 and 39 samples. An epoch, and one step of the next.
PARTIAL = {"steps": 4 if h5py else 10, "batch": 160, "drop_last": False}


@slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pipeline_with_a_partial_last_batch_gives_the_same_bits(schedule):
    same_run(train(2, "pipeline", microbatches=4, **PARTIAL, schedule=schedule), train(1, "data", microbatches=4, **PARTIAL))


@slow
def test_model_parallel_with_a_partial_last_batch_gives_the_same_bits():
    same_run(train(2, "model", **PARTIAL), train(1, **PARTIAL))


@slow
def test_evaluation_is_the_same_in_every_mode():
    """convoy eval, over stages and replicas, also of a number of samples that does not divide (357 = 3 x 7 x 17)."""
    checkpoint = last_checkpoint(train(1, microbatches=4))
    samples = 357 if h5py else 360
    validation = part_of("validation", "validation", samples)
    results = {}
    for ranks, mode, parallel in ((1, "data", {"microbatches": 4}),
                                  (2, "model", {}),
                                  (2, "pipeline", {"microbatches": 4}),
                                  (2, "pipeline", {"microbatches": 4, "schedule": "zb_v"}),
                                  (2, "scatter", {}),
                                  (4, "pipeline", {"microbatches": 2, "stages": 2})):
        what = " ".join([mode, str(ranks), *(str(value) for value in parallel.values())])
        folder = Folder("evaluation-" + what.replace(" ", "-"),
                        config(RESNET, train={"global_batch_size": 48}, data={"validation": validation},
                               parallel={"mode": mode, **parallel}))
        code = folder.run(ranks, "eval", "run.toml", "--checkpoint", checkpoint)
        numbers = re.search(r"on (\d+) samples.*\nloss\s+(\S+)\ntop-1\s+(\S+) %\ntop-5\s+(\S+) %", folder.stdout)
        assert code == 0 and numbers, f"{what}: {folder.stdout} {folder.stderr}"
        results[what] = numbers.groups()
    assert all(numbers[0] == str(samples) for numbers in results.values())
    # Microbatches of one size give the same bits. Others may take another algorithm for a convolution, whose roundings
    # are some 3e-6 of a sum (docs/reproducibility.md), in a mean over all samples far less.
    assert len({(number, *tops) for number, _, *tops in results.values()}) == 1
    losses = {what: float(numbers[1]) for what, numbers in results.items()}
    assert max(losses.values()) - min(losses.values()) < 1e-6 * min(losses.values())
    of_12 = [loss for what, loss in losses.items() if what.startswith("pipeline") or what == "data 1 4"]
    assert len(of_12) == 4 and len(set(of_12)) == 1, "microbatches of 12"
