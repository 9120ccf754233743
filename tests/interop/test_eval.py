# SPDX-License-Identifier: Apache-2.0
"""`convoy eval` on torchvision's weights against torchvision on the same images: loss, top-1 and top-5 on a number of
samples that fills no whole batch.
"""
import collections
import os
import re

import pytest

from interop import (as_input, assert_close, base_config, make_images, np, randomize_buffers, resnet, run_convoy,
                     temporary_folder, torch, write_config, write_images, write_weights)

Evaluation = collections.namedtuple("Evaluation", ("samples", "loss", "top1", "top5"))  # the last two in percent

MODELS = (  # name, stem, size, channels, samples
    pytest.param(("resnet18", "small", 8, 1, 101), id="resnet18_small"),
    pytest.param(("resnet18", "imagenet", 64, 3, 37), id="resnet18"),
    pytest.param(("resnet50", "imagenet", 64, 3, 37), id="resnet50"))


def evaluate(folder):
    text = run_convoy(["eval", "run.toml", "--checkpoint", "weights.h5"], folder)
    found = re.search(r"on (\d+) samples.*\nloss\s+(\S+)\ntop-1\s+(\S+) %\ntop-5\s+(\S+) %", text)
    assert found, text
    return Evaluation(*(float(number) for number in found.groups()))


@pytest.fixture(scope="module", params=MODELS)
def evaluations(request):
    """What convoy says, and what torchvision says."""
    name, stem, size, channels, samples = request.param
    torch.manual_seed(4)
    model = resnet(name, stem, channels)
    randomize_buffers(model)
    model.eval()
    images, labels = make_images(samples, size, channels)
    with torch.no_grad():
        logits = model(as_input(images))
        # The labels of half of the samples are the model's own first choices and others of its first five, so that
        # the shares are neither 0 nor 1.
        order = logits.argsort(dim=1, descending=True).numpy()
        for i in range(0, samples, 2):
            labels[i] = order[i, (i // 2) % 6]
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels)).item()
    rank = np.array([list(order[i]).index(labels[i]) for i in range(samples)])
    expected = Evaluation(samples, loss, 100 * np.mean(rank < 1), 100 * np.mean(rank < 5))
    with temporary_folder() as folder:
        write_weights(os.path.join(folder, "weights.h5"), model.state_dict())
        write_images(os.path.join(folder, "images.h5"), images, labels)
        config = base_config({"name": name, "stem": stem, "classes": 10},
                             {"kind": "hdf5", "train": "images.h5", "validation": "images.h5", "mean": [0.45],
                              "std": [0.25]},
                             {"steps": 1, "global_batch_size": 8}, {"name": "sgd", "lr": 0.1})
        write_config(os.path.join(folder, "run.toml"), config)
        actual = evaluate(folder)
    print(f"convoy {actual}, torchvision {expected}")
    return actual, expected


def test_samples(evaluations):
    actual, expected = evaluations
    assert actual.samples == expected.samples


def test_loss(evaluations):
    actual, expected = evaluations
    assert_close("loss", actual.loss, expected.loss, 1e-4)


def test_top1(evaluations):
    actual, expected = evaluations
    assert abs(actual.top1 - expected.top1) < 1e-3


def test_top5(evaluations):
    actual, expected = evaluations
    assert abs(actual.top5 - expected.top5) < 1e-3
