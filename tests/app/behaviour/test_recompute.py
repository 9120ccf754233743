# SPDX-License-Identifier: Apache-2.0
"""model.recompute changes no bit of losses and checkpoints, in any mode, and a run may begin to use it when it resumes."""
import functools

import pytest

from behaviour import SMALL_NET, Folder, config, same_checkpoint, same_series

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v")
GROUPS = ["conv", "bn", "block", "4"]  # conv and bn together


@functools.lru_cache(maxsize=None)
def train(ranks, recompute="none", mode="data", freeze=(), precision="fp32", replay_every=0, **parallel):
    words = [ranks, "-".join(recompute), mode, *freeze, precision, replay_every, *parallel.values()]
    folder = Folder("-".join(str(word) for word in words),
                    config({**SMALL_NET, "recompute": recompute, "freeze": list(freeze)},
                           run={"replay_every": replay_every},
                           train={"steps": 6, "global_batch_size": 48, "eval_every_epochs": 0, "ema_decay": 0.9,
                                  "precision": precision},
                           checkpoint={"every_epochs": 0, "every_steps": 3}, parallel={"mode": mode, **parallel}))
    folder.train(ranks)
    assert len(folder.losses()) == 6
    return folder


def same_run(actual, expected):
    what = f"{actual.path} and {expected.path}"
    same_series(what, actual.losses(str), expected.losses(str))
    same_checkpoint(what, actual.checkpoints()[-1], expected.checkpoints()[-1])


@pytest.mark.parametrize("keys", ({}, {"precision": "bf16"}, {"freeze": ("conv",)}, {"replay_every": 2}),
                         ids=("plain", "bf16", "frozen", "replay"))
def test_one_rank_gives_the_same_bits(keys):
    same_run(train(1, "blocks", **keys), train(1, **keys))


def test_named_units_give_the_same_bits():
    same_run(train(1, tuple(GROUPS)), train(1))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pipeline_gives_the_same_bits(schedule):
    same_run(train(2, "blocks", "pipeline", schedule=schedule, microbatches=4), train(1, microbatches=4))


def test_model_parallel_gives_the_same_bits():
    same_run(train(2, "blocks", "model"), train(1))


def test_data_parallel_with_synchronised_batch_norm_gives_the_same_bits():
    same_run(train(2, "blocks", sync_batch_norm=True, microbatches=2), train(2, sync_batch_norm=True, microbatches=2))


def test_scatter_gives_the_same_bits():
    same_run(train(2, "blocks", "scatter"), train(1, microbatches=2))


def test_run_resumes_with_recomputation():
    other = train(1).copy("resumed")
    other.drop_checkpoints_after(3)
    code = other.run(1, "train", "run.toml", "--set", "model.recompute=blocks")
    assert code == 0, other.stderr
    same_run(other, train(1))
