# SPDX-License-Identifier: Apache-2.0
"""erase, mixup and cutmix: pairs, boxes and shares that no layout changes, and what they are refused with."""
import functools

import pytest

from behaviour import DIGITS, MLP, USAGE, Folder, close_series, config, error_lines, h5py, same_checkpoint, same_series

STEPS = 50  # six more than an epoch


def mixed(**sections):
    data = {"augment": ["flip", "erase", "mixup", "cutmix"], "erase_probability": 0.5, **sections.pop("data", {})}
    return config(MLP, data=data, checkpoint={"every_epochs": 0}, **sections)


@functools.lru_cache(maxsize=None)
def train(ranks, mode="data", loss="cross_entropy", **parallel):
    name = "-".join(str(word) for word in (mode, ranks, loss, *parallel.values()))
    folder = Folder(name, mixed(train={"steps": STEPS, "loss": loss, "eval_every_epochs": 0},
                                parallel={"mode": mode, **parallel}))
    folder.train(ranks)
    return folder


def same_run(actual, expected):
    same_series("losses", actual.losses(str), expected.losses(str))
    same_checkpoint("weights", actual.checkpoints()[-1], expected.checkpoints()[-1])
    checksums = [[event["samples_crc32c"] for event in folder.events("step")] for folder in (actual, expected)]
    assert checksums[0] == checksums[1]
    evaluations = [[event["loss"] for event in folder.events("eval", str)] for folder in (actual, expected)]
    assert evaluations[0] == evaluations[1] and len(evaluations[0]) == 1


def test_pairs_of_two_ranks_are_those_of_one():
    same_run(train(2), train(1, microbatches=2))


def test_scatter_on_two_ranks_gives_the_same_bits():
    same_run(train(2, "scatter"), train(2))


@pytest.mark.parametrize("loss", ("cross_entropy", "bce"))
def test_model_parallel_gives_the_same_bits(loss):
    same_run(train(2, "model", loss), train(1, loss=loss))


def test_pipeline_gives_the_same_bits():
    same_run(train(2, "pipeline", microbatches=4), train(1, microbatches=4))


@pytest.mark.parametrize("mode, parallel", (("data", {}), ("scatter", {}), ("pipeline", {"stages": 2, "microbatches": 2})))
def test_four_ranks_agree_to_rounding(mode, parallel):
    """Sums of more than two parts are grouped otherwise; 50 steps of two layers carry that on."""
    actual, expected = train(4, mode, **parallel), train(1)
    close_series(mode, actual.losses(), expected.losses(), 1e-4)


def test_a_resumed_run_mixes_as_the_uninterrupted_one():
    folder = Folder("resumed", mixed(train={"steps": 21, "eval_every_epochs": 0}))
    folder.train(2)
    folder.configure(mixed(train={"steps": STEPS, "eval_every_epochs": 0}))
    folder.train(1)  # on other ranks: the same samples, losses to rounding
    close_series("resumed", folder.losses(), train(1).losses(), 1e-4)
    again = Folder("again", mixed(train={"steps": 21, "eval_every_epochs": 0}))
    again.train(1)
    again.configure(mixed(train={"steps": STEPS, "eval_every_epochs": 0}))
    again.train(1)
    same_series("again", again.losses(str), train(1).losses(str))
    same_checkpoint("again", again.checkpoints()[-1], train(1).checkpoints()[-1])


@pytest.mark.parametrize("sections, message", (
    ({"train": {"loss": "mse"}}, 'data.augment: "mixup" mixes class labels, which train.loss = "mse" does not take'),
    ({"train": {"global_batch_size": 1}}, 'data.augment: "mixup" with a batch of one'),
    ({"data": {"augment": ["cutmix"], "erase_probability": 0.5}}, "data.erase_probability: is ignored without \"erase\""),
    ({"data": {"augment": ["erase"], "erase_area": [0.5, 0.2]}}, "data.erase_area: [0.5, 0.2] (the smaller share first)"),
    ({"data": {"augment": ["mixup"], "erase_probability": None, "mixup_alpha": 0}}, "data.mixup_alpha: 0")))
def test_what_cannot_be_mixed_is_one_line(sections, message):
    folder = Folder("refused", mixed(**sections))
    assert folder.run(1) == USAGE
    lines = error_lines(folder.stderr)
    assert len(lines) == 1 and message in lines[0], folder.stderr


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_vectors_are_not_mixed():
    folder = Folder("vectors", mixed(data={"train": "data.h5", "validation": None, "augment": ["mixup"],
                                           "erase_probability": None}))
    with h5py.File(folder.file("data.h5"), "w") as file, h5py.File(DIGITS, "r") as digits:
        file["inputs"] = digits["train/images"][:100].reshape(100, -1).astype("float32")
        file["labels"] = digits["train/labels"][:100]
    assert folder.run(1) == USAGE
    assert "is for images of bytes" in folder.stderr
