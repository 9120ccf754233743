# SPDX-License-Identifier: Apache-2.0
"""Folders of JPEGs and PNGs, evaluation and random crops against torchvision.

With --photographs FOLDER, a folder of class folders of JPEGs, order and evaluation are compared on those instead.
"""
import os

import pytest

from interop import np, torch
from jpegs import Image, draw, make_pictures, read_samples, save_deep
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


def whole_pictures(folder, side):
    """The pictures of a folder of pictures of side x side, pixel by pixel: nothing is resized or cropped."""
    return np.frombuffer(read_samples("eval", folder, side, side), np.uint8).reshape(-1, side, side, 3)


@pytest.mark.parametrize("mode", ("RGB", "L", "P", "1", "RGBA", "LA", "PA"))
def test_png_has_pillows_pixels(tmp_path, mode):
    """Alpha is dropped as by torchvision's loader, convert("RGB")."""
    (tmp_path / "class").mkdir()
    picture = Image.fromarray(draw(96, 96, 5))
    if mode == "PA":
        picture = picture.convert("P")
        picture.info["transparency"] = bytes(range(256))
    elif mode == "LA":
        picture = Image.merge("LA", picture.convert("RGB").split()[:2])
    elif mode == "RGBA":
        picture.putalpha(picture.convert("L"))
    else:
        picture = picture.convert(mode)
    picture.save(tmp_path / "class" / "0.png")
    (expected, _), = datasets.ImageFolder(str(tmp_path))
    assert (whole_pictures(tmp_path, 96)[0] == np.asarray(expected)).all()


@pytest.mark.parametrize("channels", (1, 3))
def test_png_of_16_bits_is_scaled_to_8(tmp_path, channels):
    """As torchvision scales: value / 65535, here times 255. Pillow takes the high byte of colours, at most 1 apart."""
    (tmp_path / "class").mkdir()
    values = np.random.RandomState(2).randint(0, 65536, (64, 64, 3), np.int64)
    values[0, :, 0] = np.arange(64)  # black, or nearly
    values[1, :, 0] = 65535 - np.arange(64)
    picture = values.astype(np.uint16) if channels == 3 else values[..., 0].astype(np.uint16)
    save_deep(tmp_path / "class" / "0.png", picture)
    found = whole_pictures(tmp_path, 64)[0].astype(np.int64)
    expected = np.rint(torch.from_numpy(values).double().numpy() / 65535 * 255)
    assert (found == (expected if channels == 3 else expected[..., :1])).all()
    if channels == 3:
        (high_byte, _), = datasets.ImageFolder(str(tmp_path))
        assert np.abs(found - np.asarray(high_byte, np.int64)).max() <= 1


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
