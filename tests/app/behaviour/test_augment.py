# SPDX-License-Identifier: Apache-2.0
"""Random changes of colour images of one size: the same samples for every number of ranks and loader threads and after a
resume, and what is refused. tests/interop compares the samples with torchvision's.
"""
import os
import random
import sys

import pytest

from behaviour import USAGE, Folder, close_series, config, error_lines, same_series
from programs import ROOT
from test_report import decode

sys.path.insert(0, os.path.join(ROOT, "scripts"))
from sample_order import crc32c, order  # noqa: E402

SAMPLES = 48
NET = {"name": "sequential", "layers": [  # no batch norm, whose statistics are those of each part of a batch
    {"type": "conv2d", "name": "conv", "out_channels": 8, "kernel_size": 5, "stride": 2}, {"type": "relu"},
    {"type": "global_avg_pool"}, {"type": "linear", "name": "fc", "out_features": 10}]}


def settings(augment, threads=1, microbatches=1, steps=8, **data):
    return config(NET, data={"kind": "cifar10", "train": "train.bin", "validation": None, "augment": augment,
                                   "loader_threads": threads, **data},
                  train={"steps": steps, "global_batch_size": 16}, parallel={"microbatches": microbatches})


def folder_of(name, sections):
    """With smooth colour images of 32x32 in CIFAR-10's binary format, by hand."""
    folder, numbers = Folder(name, sections), random.Random(1)
    with open(folder.file("train.bin"), "wb") as file:
        for i in range(SAMPLES):
            file.write(bytes([i % 10]))
            for _ in range(3):
                start, right, down = numbers.randint(0, 255), numbers.uniform(-4, 4), numbers.uniform(-4, 4)
                file.write(bytes(min(255, max(0, int(start + right * x + down * y))) for y in range(32) for x in range(32)))
    return folder


def train(name, augment, ranks, threads, microbatches, steps=8):
    folder = folder_of(name, settings(augment, threads, microbatches, steps))
    folder.train(ranks)
    return folder


@pytest.mark.parametrize("augment", (["crop", "flip", "jitter", "hue"], ["crop", "flip", "trivial"],
                                     ["jitter", "hue", "rand"], ["flip", "crop", "repeated"]), ids="-".join)
def test_ranks_threads_and_resuming_change_no_sample(augment):
    one = train("one", augment, 1, 1, 2)
    assert one.losses() != train("plain", augment[:-1], 1, 1, 2).losses(), f"{augment[-1]} changes nothing"
    same_series("4 loader threads", train("threads", augment, 1, 4, 2).losses(str), one.losses(str))
    same_series("2 ranks", train("two", augment, 2, 1, 1).losses(str), one.losses(str))
    # Sums of four parts may be taken in another order; other samples would differ in the first digits.
    close_series("4 ranks", train("four", augment, 4, 1, 1).losses(), one.losses(), 1e-5)
    resumed = train("resumed", augment, 1, 4, 2, steps=4)
    resumed.configure(settings(augment))
    resumed.train(2)
    same_series("resumed on 2 ranks", resumed.losses(str), one.losses(str))


@pytest.mark.parametrize("data, words", (
    ({"augment": ["hues"]}, ["data.augment[0]", "unknown name", '"hue"']),
    ({"augment": ["hue"], "hue": 0.6}, ["data.hue", "0.6 is out of range", "0 to 0.5"]),
    ({"augment": ["rand", "trivial"]}, ["data.augment", "one of the two"]),
    ({"augment": ["rand"], "rand_magnitude": 31}, ["data.rand_magnitude", "31 is out of range", "0 to 30"]),
    ({"augment": ["rand"], "rand_operations": 0}, ["data.rand_operations", "0 is out of range"]),
    ({"augment": ["trivial"], "rand_operations": 3}, ["data.rand_operations", 'without "rand" in data.augment']),
    ({"augment": ["repeated"]}, ["data.augment", "alone repeats equal samples"]),
    ({"augment": ["flip", "repeated"], "shuffle": False}, ["data.shuffle", "the same first 1/3 of the samples"]),
    ({"augment": ["flip", "repeated"], "repeated_times": 1}, ["data.repeated_times", "1 is out of range"]),
    ({"augment": ["flip", "repeated"], "kind": "synthetic", "train": None}, ["data.augment", '"synthetic"']),
    ({"augment": ["flip"], "hue": 0.2}, ["data.hue", 'without "hue" in data.augment']),
), ids=str)
def test_bad_options_are_usage_errors(data, words):
    folder = folder_of("run", settings(**{"augment": [], **data}))
    code = folder.run(2)
    errors = error_lines(folder.stderr)
    assert code == USAGE and len(errors) == 1 and all(word in errors[0] for word in words), folder.stderr
    assert not os.path.exists(folder.file("runs"))


def test_repeated_samples_come_in_a_row_and_differ():
    """The indices that metrics.jsonl has checksums of, against the order worked out by another program."""
    folder = folder_of("run", settings(["crop", "repeated"], repeated_times=5))
    folder.train(2)
    steps = folder.events("step")
    assert [step["position"] for step in steps] == [0, 16, 32] * 2 + [0, 16], "an epoch has another length"
    for step in steps:
        seen = order(SAMPLES, 3, True, step["epoch"], 5)[step["position"]:][:step["samples"]]
        assert step["samples_crc32c"] == crc32c(b"".join(index.to_bytes(8, "little") for index in seen)), step
    assert folder.run(1, "inspect", "run.toml", "--images", "2") == 0, folder.stderr
    width, _, channels, rows = decode(folder.file("grid.png"))
    side = (width - 6) // 2 - 6  # with 6 pixels around each sample
    first, second = ([row[channels * left:channels * (left + side)] for row in rows[6:6 + side]] for left in (6, side + 12))
    assert first != second, "the repetitions of a sample are equal"


def test_inspect_shows_the_changes():
    def grid(augment):
        folder = folder_of("-".join(["inspect", *augment]), settings(augment))
        assert folder.run(1, "inspect", "run.toml", "--images", "12") == 0, folder.stderr
        return open(folder.file("grid.png"), "rb").read()
    assert len({grid(augment) for augment in ([], ["jitter"], ["hue"], ["trivial"], ["rand"])}) == 5
