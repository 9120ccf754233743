# SPDX-License-Identifier: Apache-2.0
"""Folders of JPEGs, evaluation and random crops against torchvision.

With --photographs FOLDER, a folder of class folders of JPEGs, order and evaluation are compared on those instead.
"""
import os

import pytest

from interop import np, torch
from jpegs import Image, make_pictures, read_samples
from torchvision import datasets, transforms

SIZE, RESIZE = 224, 256


@pytest.fixture(scope="module")
def pictures(request, tmp_path_factory):
    folder = request.config.getoption("--photographs")
    if not folder:
        folder = str(tmp_path_factory.mktemp("pictures"))
        make_pictures(folder)
    return folder


def test_order(pictures):
    expected = datasets.ImageFolder(pictures)
    lines = [line.split("\t") for line in os.fsdecode(read_samples("list", pictures)).splitlines()]
    assert [(path, int(label)) for path, label in lines] == expected.samples


def test_evaluation(pictures):
    """Mean absolute difference of each picture, in grey levels of 255."""
    transform = transforms.Compose([transforms.Resize(RESIZE), transforms.CenterCrop(SIZE)])
    expected = datasets.ImageFolder(pictures, transform)
    raw = np.frombuffer(read_samples("eval", pictures, SIZE, RESIZE), np.uint8)
    actual = raw.reshape(-1, SIZE, SIZE, 3).astype(np.int16)
    differences = np.array([np.abs(np.asarray(picture, np.int16) - actual[i]).mean()
                            for i, (picture, _) in enumerate(expected)])
    worst = int(differences.argmax())
    print(f"{len(differences)} pictures, mean difference {differences.mean():.3f} of 255, median "
          f"{np.median(differences):.3f}, largest {differences[worst]:.3f} ({expected.samples[worst][0]})")
    assert differences.max() < 1, expected.samples[worst][0]


def kolmogorov_smirnov(a, b):
    """Largest difference of the two distributions, and below which it lies with a probability of 99.9 %."""
    both = np.sort(np.concatenate([a, b]))
    statistic = np.abs(np.searchsorted(np.sort(a), both, side="right") / len(a)
                       - np.searchsorted(np.sort(b), both, side="right") / len(b)).max()
    return statistic, 1.95 * np.sqrt((len(a) + len(b)) / (len(a) * len(b)))


CROPS = 4000
MEASURES = {"area": lambda boxes: boxes[:, 2] * boxes[:, 3], "ratio": lambda boxes: boxes[:, 3] / boxes[:, 2],
            "top": lambda boxes: boxes[:, 0], "left": lambda boxes: boxes[:, 1]}


@pytest.fixture(scope="module")
def crops():
    """Boxes of convoy and of torchvision for pictures of each size. Both sides have fixed seeds, so that the outcome is
    always the same."""
    torch.manual_seed(1)
    found = {}
    for width, height in ((500, 375), (300, 400), (1000, 100)):
        picture = Image.new("RGB", (width, height))
        expected = np.array([transforms.RandomResizedCrop.get_params(picture, (0.08, 1.0), (3 / 4, 4 / 3))
                             for _ in range(CROPS)], np.float64)
        text = read_samples("boxes", width, height, CROPS).decode()
        found[width, height] = np.array([line.split() for line in text.splitlines()], np.float64), expected
    return found


@pytest.mark.parametrize("size", ((500, 375), (300, 400), (1000, 100)), ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("measure", MEASURES)
def test_crops_have_torchvisions_distribution(crops, measure, size):
    statistic, limit = kolmogorov_smirnov(*map(MEASURES[measure], crops[size]))
    print(f"{measure} differs by {statistic:.4f} (limit {limit:.4f})")
    assert statistic < limit
