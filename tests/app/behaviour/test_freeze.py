# SPDX-License-Identifier: Apache-2.0
"""model.freeze: frozen units keep every bit, and where ranks compute changes nothing.

A small ResNet-18 of which all but some units are frozen, in every mode and schedule on 1, 2 and 4 ranks, against one
rank that works through the same parts of each batch: bitwise, but for sums of more than two parts (test_modes.py says
more). The stages of a cut model are at times wholly frozen, below what learns and above it.
"""
import functools

from behaviour import (SMALL_NET, Folder, check, close_series, config, h5py, main, same_checkpoint, same_series)

RESNET = {"name": "resnet18", "stem": "small"}
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v")
MIDDLE = ["stem", "layer1", "layer3", "layer4.1"]  # layer2, layer4.0 and head learn: nothing below layer2 is needed
HEAD_ONLY = ["stem", "layer1", "layer2", "layer3", "layer4"]


@functools.lru_cache(maxsize=None)
def train(ranks, mode="data", freeze="middle", optimizer="sgd", model="resnet", steps=6, **parallel):
    words = [mode, ranks, freeze, optimizer, model, *(f"{key}-{value}" for key, value in parallel.items())]
    units = {"middle": MIDDLE, "head": HEAD_ONLY, "small": ["conv", "bn", "block"], "none": []}[freeze]
    folder = Folder("freeze-" + "-".join(str(word) for word in words),
                    config({**(RESNET if model == "resnet" else SMALL_NET), "freeze": units},
                           train={"steps": steps, "global_batch_size": 48, "eval_every_epochs": 0},
                           optimizer={"name": optimizer, "lr": 1e-3,
                                      "momentum": None if optimizer == "adamw" else 0.9, "weight_decay": 0.1},
                           checkpoint={"every_epochs": 0, "every_steps": 3},
                           parallel={"mode": mode, **parallel}))
    folder.train(ranks, timeout=300)
    check(len(folder.losses()) == steps, f"{folder.path}: {len(folder.losses())} steps")
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


def frozen_stay():
    """Every parameter and statistic of frozen units has the bits that it started with; all others have not."""
    if h5py is None:
        return
    for optimizer in ("sgd", "adamw", "lars"):
        folder = train(1, optimizer=optimizer)
        first, last = tensors(folder.checkpoints()[0]), tensors(folder.checkpoints()[-1])
        check(set(first) == set(last) and any(name.startswith("optimizer/") for name in last), "names differ")
        start = Folder(f"freeze-start-{optimizer}", config(RESNET, train={"steps": 1, "global_batch_size": 48},
                                                           optimizer={"lr": 1e-300, "weight_decay": 0.0}))
        start.train(1)
        initial = tensors(start.checkpoints()[-1])  # of the same seed; as a float32 that rate is 0
        frozen = ("model/conv1", "model/bn1", "model/layer1", "model/layer3", "model/layer4/1")
        for name in (name for name in last if name.startswith("model/")):
            stays = name.startswith(frozen)
            check((last[name] == first[name]) == stays, f"{optimizer}: {name} {'changed' if stays else 'stayed'}")
            if stays and "running" not in name and "tracked" not in name:
                check(last[name] == initial[name], f"{optimizer}: {name} is not as it was made")
        for name in (name for name in last if name.startswith("optimizer/")):
            path = "model/" + name.split("/", 2)[2]
            check(any(last[name]) != path.startswith(frozen), f"{optimizer}: {name}: state of a frozen parameter")


def model_parallel():
    for freeze in ("middle", "head"):
        for ranks in (2, 4):
            same_run(train(ranks, "model", freeze), train(1, freeze=freeze))


def pipeline():
    for ranks, schedules in ((2, SCHEDULES), (4, ("1f1b", "zb_v"))):
        for schedule in schedules:
            same_run(train(ranks, "pipeline", schedule=schedule, microbatches=4), train(1, microbatches=4))
    for schedule in ("1f1b", "zero_bubble", "zb_v"):
        same_run(train(2, "pipeline", "head", schedule=schedule, microbatches=4), train(1, freeze="head", microbatches=4))


def replicas():
    """Data, hybrid and scatter: two parts have one order of summing; more parts agree to rounding."""
    same_run(train(2), train(1, microbatches=2))
    same_run(train(4, "pipeline", stages=2, microbatches=2), train(2, microbatches=2))
    same_run(train(4, "model", stages=2), train(2))
    same_run(train(2, "scatter"), train(2))
    small = {"freeze": "small", "model": "small"}
    close_series("4 ranks", train(4, **small).losses(), train(1, microbatches=4, **small).losses(), 1e-5)


def resume():
    """From the middle, in another mode; and with other units frozen than before."""
    whole = train(1, optimizer="adamw")
    again = whole.copy("freeze-resume")
    again.drop_checkpoints_after(3)
    again.train(1)
    same_run(again, whole)
    other = whole.copy("freeze-resume-unfrozen")
    other.drop_checkpoints_after(3)
    code = other.run(1, "train", "run.toml", "--set", "model.freeze=[]")
    check(code == 0 and len(other.losses()) == 6, f"unfrozen: exit code {code}: {other.stderr}")


def errors():
    folder = Folder("freeze-errors", config(RESNET))
    for value, words in (('["layer5"]', 'no unit "layer5", did you mean "layer1"?'), ('["stem.conv1"]', "(units: stem, layer1.0,"),
                         ('["stem", "layer1", "layer2", "layer3", "layer4", "head"]', "names every unit"),
                         ('["layer1."]', "no unit"), ('[""]', "no unit"), ('"stem"', "model.freeze"), ("[3]", "model.freeze")):
        code = folder.run(1, "train", "run.toml", "--set", f"model.freeze={value}")
        check(code == 2 and words in folder.stderr and folder.stderr.count("\n") == 1, f"{value}: {code} {folder.stderr}")


main([frozen_stay, model_parallel, pipeline, replicas, resume, errors])
