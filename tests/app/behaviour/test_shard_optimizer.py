# SPDX-License-Identifier: Apache-2.0
"""parallel.shard_optimizer: each replica keeps the optimizer state of a share of the parameters and updates it, and the
run is the one without.

Bitwise where a sum has two terms or is taken in shared memory, as it is on one node. The norms of LARS and LAMB are those
of whole layers, which one replica updates. Only clipping adds squares of a parameter that two replicas share in another
order, in float64: below 1e-6 after a few steps of a small net.
"""
import functools
import json

import pytest

from behaviour import SMALL_NET, USAGE, Folder, close_series, config, error_lines, same_checkpoint, same_series

STEPS = 6
PIPELINE = {"mode": "pipeline", "stages": 2, "microbatches": 2}
OPTIMIZERS = {
    "sgd": {},
    "adamw": {"name": "adamw", "lr": 1e-3, "momentum": None},
    "lars": {"name": "lars", "lr": 0.5},
    "lamb": {"name": "lamb", "lr": 1e-2, "momentum": None},
    "clipped": {"clip_norm": 0.5},
}


@functools.lru_cache(maxsize=None)
def train(ranks, sharded, optimizer="sgd", pipeline=False, steps=STEPS, ema=0.0):
    folder = Folder(f"{ranks}-{'sharded' if sharded else 'whole'}-{optimizer}-{pipeline}-{steps}-{ema}",
                    config(SMALL_NET, train={"steps": steps, "eval_every_epochs": 0, "ema_decay": ema},
                           optimizer=OPTIMIZERS[optimizer], checkpoint={"every_epochs": 0, "every_steps": 3},
                           parallel={**(PIPELINE if pipeline else {}), "shard_optimizer": sharded, "bucket_mb": 0.004,
                                     "first_bucket_mb": 0.001}))
    folder.train(ranks)
    assert len(folder.losses()) == steps
    return folder


def same_run(actual, expected):
    same_series(actual.path, actual.losses(str), expected.losses(str))
    assert len(actual.checkpoints()) == len(expected.checkpoints()) == 2
    for a, e in zip(actual.checkpoints(), expected.checkpoints()):
        same_checkpoint(actual.path, a, e)


@pytest.mark.parametrize("optimizer", ("sgd", "adamw", "lars", "lamb"))
def test_two_replicas(optimizer):
    same_run(train(2, True, optimizer), train(2, False, optimizer))


@pytest.mark.parametrize("ranks, pipeline", ((4, False), (4, True)), ids=("data", "pipeline"))
def test_four_ranks(ranks, pipeline):
    same_run(train(ranks, True, pipeline=pipeline), train(ranks, False, pipeline=pipeline))


def test_average_of_the_weights():
    same_run(train(2, True, ema=0.5), train(2, False, ema=0.5))


@pytest.mark.parametrize("pipeline", (False, True), ids=("data", "pipeline"))
def test_clipping(pipeline):
    actual, expected = (train(4, sharded, "clipped", pipeline) for sharded in (True, False))
    close_series(actual.path, actual.losses(), expected.losses(), 1e-6)
    norms = [[step["grad_norm"] for step in run.events("step")] for run in (actual, expected)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)


@pytest.mark.parametrize("first, then", ((True, False), (False, True)), ids=("from_sharded", "to_sharded"))
def test_resume_with_and_without(first, then):
    """AdamW has two slots; the second half is that of a run of one kind."""
    folder = train(2, first, "adamw").copy("resumed")
    folder.drop_checkpoints_after(3)
    sections = config(SMALL_NET, train={"steps": STEPS, "eval_every_epochs": 0}, optimizer=OPTIMIZERS["adamw"],
                      checkpoint={"every_epochs": 0, "every_steps": 3}, parallel={"shard_optimizer": then})
    folder.configure(sections)
    folder.train(2)
    assert folder.events("start")[-1]["resumed_from"].endswith("step-00000003.h5")
    same_run(folder, train(2, False, "adamw"))


def test_memory_of_the_state_is_halved():
    """An mlp of 1.9 million parameters, AdamW: two slots of 7.1 MiB on each of two replicas, or half of them."""
    folder = Folder("memory", config({"name": "mlp", "hidden": [1024, 1024, 768]}, optimizer=OPTIMIZERS["adamw"]))
    code = folder.run(2, "bench", "run.toml", "--steps", "2", "--warmup", "1", "--json", "bench.json",
                      "--sweep", "parallel.shard_optimizer=false,true")
    assert code == 0, folder.stderr
    with open(folder.file("bench.json")) as file:
        whole, sharded = (max(result["backend_memory_bytes"]) for result in json.load(file)["results"])
    slot = 4 * (64 * 1024 + 1024 * 1024 + 1024 * 768 + 768 * 10)
    assert 0.95 * slot <= whole - sharded <= 1.05 * slot  # biases, and what the pool rounds up


@pytest.mark.parametrize("words, sections", (
    pytest.param(["parallel.shard_optimizer", "is ignored with", "scatter"], {"parallel": {"mode": "scatter"}}, id="scatter"),
    pytest.param(["run.replay_every", "parallel.shard_optimizer"], {"run": {"replay_every": 2}}, id="replay")))
def test_what_does_not_go_together_is_a_usage_error(words, sections):
    folder = Folder("refused", config(**{**sections, "parallel": {**sections.get("parallel", {}), "shard_optimizer": True}}))
    assert folder.run(2) == USAGE, folder.stderr
    lines = error_lines(folder.stderr)
    assert len(lines) == 1 and all(word in lines[0] for word in words), folder.stderr
