# SPDX-License-Identifier: Apache-2.0
"""model.freeze: frozen units keep every bit, and where ranks compute changes nothing.

A small ResNet-18 of which all but some units are frozen, in every mode and schedule on 1, 2 and 4 ranks, against one
rank that works through the same parts of each batch: bitwise, but for sums of more than two parts (test_modes.py says
more). The stages of a cut model are at times wholly frozen, below what learns and above it.
"""
import functools

import pytest

from behaviour import SMALL_NET, USAGE, Folder, close_series, config, h5py, same_checkpoint, same_series

RESNET = {"name": "resnet18", "stem": "small"}
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v")
MIDDLE = ["stem", "layer1", "layer3", "layer4.1"]  # layer2, layer4.0 and head learn: nothing below layer2 is needed
HEAD_ONLY = ["stem", "layer1", "layer2", "layer3", "layer4"]


@functools.lru_cache(maxsize=None)
def train(ranks, mode="data", freeze="middle", optimizer="sgd", model="resnet", steps=6, **parallel):
    words = [mode, ranks, freeze, optimizer, model, *(f"{key}-{value}" for key, value in parallel.items())]
    units = {"middle": MIDDLE, "head": HEAD_ONLY, "small": ["conv", "bn", "block"], "none": []}[freeze]
    folder = Folder("-".join(str(word) for word in words),
                    config({**(RESNET if model == "resnet" else SMALL_NET), "freeze": units},
                           train={"steps": steps, "global_batch_size": 48, "eval_every_epochs": 0},
                           optimizer={"name": optimizer, "lr": 1e-3,
                                      "momentum": None if optimizer == "adamw" else 0.9, "weight_decay": 0.1},
                           checkpoint={"every_epochs": 0, "every_steps": 3},
                           parallel={"mode": mode, **parallel}))
    folder.train(ranks, timeout=300)
    assert len(folder.losses()) == steps
    return folder


def same_run(actual, expected):
    what = f"{actual.path} and {expected.path}"
    same_series(what, actual.losses(str), expected.losses(str))
    same_checkpoint(what, actual.checkpoints()[-1], expected.checkpoints()[-1])


def tensors(path):
    found = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset)
                        else None)
    return found


@pytest.mark.skipif(h5py is None, reason="no h5py")
@pytest.mark.parametrize("optimizer", ("sgd", "adamw", "lars"))
def test_frozen_units_keep_every_bit(optimizer):
    """Every parameter and statistic of frozen units has the bits that it started with; all others have not."""
    folder = train(1, optimizer=optimizer)
    first, last = tensors(folder.checkpoints()[0]), tensors(folder.checkpoints()[-1])
    assert set(first) == set(last)
    assert any(name.startswith("optimizer/") for name in last)
    start = Folder("start", config(RESNET, train={"steps": 1, "global_batch_size": 48},
                                   optimizer={"lr": 1e-300, "weight_decay": 0.0}))
    start.train(1)
    initial = tensors(start.checkpoints()[-1])  # of the same seed; as a float32 that rate is 0
    frozen = ("model/conv1", "model/bn1", "model/layer1", "model/layer3", "model/layer4/1")
    for name in (name for name in last if name.startswith("model/")):
        stays = name.startswith(frozen)
        same = last[name] == first[name]
        assert same == stays, f"{name} {'changed' if stays else 'stayed'}"
        if stays and "running" not in name and "tracked" not in name:
            same = last[name] == initial[name]
            assert same, f"{name} is not as it was made"
    for name in (name for name in last if name.startswith("optimizer/")):
        path = "model/" + name.split("/", 2)[2]
        changed = any(last[name])
        assert changed != path.startswith(frozen), f"{name}: state of a frozen parameter"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", (2, 4))
@pytest.mark.parametrize("freeze", ("middle", "head"))
def test_model_parallel_gives_the_same_bits(freeze, ranks):
    same_run(train(ranks, "model", freeze), train(1, freeze=freeze))


@pytest.mark.slow
@pytest.mark.parametrize("ranks, freeze, schedule", (
    *((2, "middle", schedule) for schedule in SCHEDULES), (4, "middle", "1f1b"), (4, "middle", "zb_v"),
    (2, "head", "1f1b"), (2, "head", "zero_bubble"), (2, "head", "zb_v")))
def test_pipeline_gives_the_same_bits(ranks, freeze, schedule):
    same_run(train(ranks, "pipeline", freeze, schedule=schedule, microbatches=4), train(1, freeze=freeze, microbatches=4))


# Two parts have one order of summing; more parts agree to rounding.

def test_data_parallel_gives_the_same_bits():
    same_run(train(2), train(1, microbatches=2))


@pytest.mark.slow
def test_hybrid_gives_the_same_bits():
    same_run(train(4, "pipeline", stages=2, microbatches=2), train(2, microbatches=2))
    same_run(train(4, "model", stages=2), train(2))


@pytest.mark.slow
def test_scatter_gives_the_same_bits():
    same_run(train(2, "scatter"), train(2))


def test_four_ranks_agree_to_rounding():
    small = {"freeze": "small", "model": "small"}
    close_series("4 ranks", train(4, **small).losses(), train(1, microbatches=4, **small).losses(), 1e-5)


def test_resume_from_the_middle_gives_the_same_bits():
    whole = train(1, optimizer="adamw")
    again = whole.copy("again")
    again.drop_checkpoints_after(3)
    again.train(1)
    same_run(again, whole)


def test_resume_with_other_units_frozen():
    other = train(1, optimizer="adamw").copy("unfrozen")
    other.drop_checkpoints_after(3)
    code = other.run(1, "train", "run.toml", "--set", "model.freeze=[]")
    assert code == 0 and len(other.losses()) == 6, other.stderr


@pytest.mark.parametrize("value, words", (
    ('["layer5"]', 'no unit "layer5", did you mean "layer1"?'), ('["stem.conv1"]', "(units: stem, layer1.0,"),
    ('["stem", "layer1", "layer2", "layer3", "layer4", "head"]', "names every unit"),
    ('["layer1."]', "no unit"), ('[""]', "no unit"), ('"stem"', "model.freeze"), ("[3]", "model.freeze")))
def test_wrong_units_are_a_usage_error(value, words):
    folder = Folder("errors", config(RESNET))
    code = folder.run(1, "train", "run.toml", "--set", f"model.freeze={value}")
    assert code == USAGE and words in folder.stderr and folder.stderr.count("\n") == 1, folder.stderr
