# SPDX-License-Identifier: Apache-2.0
"""Changes of the pixels of training images against torchvision, bit for bit: each operation by itself, and samples with
the random choices that convoy has made. torchvision works on PIL images, as in its reference trainings.
"""
import subprocess

import pytest

from interop import np
from jpegs import Image, draw
from programs import helper_program
from torchvision.transforms import autoaugment, functional

NEAREST = functional.InterpolationMode.NEAREST

SIZES = [(1, 1), (2, 5), (3, 3), (37, 24), (64, 64), (33, 131)]  # height, width


def image(size, channels, seed=1):
    height, width = size
    return draw(width, height, seed)[..., :channels]


def picture(pixels):
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def pixels(picture):
    array = np.asarray(picture)
    return array[..., None] if array.ndim == 2 else array


def program(*words, images):
    """What image_samples makes of (name, value, pixels)."""
    data = b"".join(f"{name} {value!r} {' '.join(map(str, image.shape))}\n".encode() + image.tobytes()
                    for name, value, image in images)
    result = subprocess.run([helper_program("io", "image_samples"), *map(str, words)], input=data, capture_output=True)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def compare(cases, change):
    """Each of (name, value, pixels) changed by convoy and by change(picture, name, value)."""
    raw = program("changes", images=cases)
    assert len(raw) == sum(image.size for _, _, image in cases)
    for name, value, image in cases:
        actual, raw = np.frombuffer(raw[:image.size], np.uint8).reshape(image.shape), raw[image.size:]
        expected = pixels(change(picture(image), name, value))
        assert np.array_equal(actual, expected), f"{name} {value} of {image.shape}: {(actual != expected).sum()} bytes differ"


@pytest.mark.parametrize("channels", (1, 3))
def test_hue(channels):
    """Every colour of 6 bits, and pictures."""
    level = np.arange(0, 256, 4, dtype=np.uint8) + np.uint8(3)
    colours = np.stack(np.meshgrid(level, level, level, indexing="ij"), axis=-1).reshape(512, 512, 3)[..., :channels]
    images = [colours] + [image(size, channels) for size in SIZES]
    compare([("hue", turn, image) for image in images for turn in (-0.5, -0.31, -0.004, 0.0, 0.1, 0.249, 0.5)],
            lambda picture, _, turn: functional.adjust_hue(picture, turn))


ADJUST = [functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation, functional.adjust_hue]


@pytest.mark.parametrize("channels", (1, 3))
@pytest.mark.parametrize("strength", ((0.4, 0.4, 0.4, 0), (0.4, 0.3, 1.2, 0.1), (0, 0, 0, 0.5)), ids=str)
def test_jitter(strength, channels):
    plain, count, used = image((37, 24), channels), 40, set()
    raw = program("jitter", count, *strength, images=[("-", 0.0, plain)])
    for _ in range(count):
        line, raw = raw.split(b"\n", 1)
        words = line.split()
        order, factors = [int(word) for word in words[1:5]][:int(words[0])], [float(word) for word in words[5:9]]
        expected = picture(plain)
        for which in order:
            if strength[which] > 0:
                expected = ADJUST[which](expected, factors[which])
        actual, raw = np.frombuffer(raw[:plain.size], np.uint8).reshape(plain.shape), raw[plain.size:]
        assert np.array_equal(actual, pixels(expected)), line
        used.add(tuple(order))
    assert not raw and len(used) > 4


# ---- TrivialAugment and RandAugment

POLICIES = {"trivial": autoaugment.TrivialAugmentWide()._augmentation_space(31),
            "rand": autoaugment.RandAugment()._augmentation_space(31, (37, 24))}


def apply(picture, name, magnitude):
    return autoaugment._apply_op(picture, name, magnitude, interpolation=NEAREST, fill=None)


def test_magnitudes():
    """torch.linspace computes in float32, in vectors whose length depends on the CPU: the last bit may differ. What is
    cut off to whole pixels or bits may not."""
    for line in program("magnitudes", 37, 24, images=[]).decode().splitlines():
        name, magnitude, *values = line.split()
        for policy, value in zip(POLICIES, map(float, values)):
            expected = POLICIES[policy][name][0]
            expected = float(expected[int(magnitude)]) if expected.ndim else 0.0
            assert value == pytest.approx(expected, rel=3e-7, abs=0), line
            assert int(value) == int(expected), line


@pytest.mark.parametrize("channels", (1, 3))
@pytest.mark.parametrize("name", POLICIES["trivial"])
def test_operation(name, channels):
    """At every other magnitude of both policies, of either sign, and at sizes of all kinds. The second picture is dark
    and of few levels, the third of one."""
    images = [image(size, channels) for size in SIZES]
    images += [image((37, 24), channels, seed=2) // 3 & np.uint8(0xFC), np.full((9, 7, channels), 77, np.uint8)]
    cases = []
    for policy in POLICIES.values():
        magnitudes, signed = policy[name]
        values = [float(magnitude) for magnitude in magnitudes[::2]] if magnitudes.ndim else [0.0]
        cases += [(name, sign * value, image) for value in values for sign in ((1, -1) if signed else (1,))
                  for image in images]
    compare(cases, apply)


@pytest.mark.parametrize("channels", (1, 3))
@pytest.mark.parametrize("words", (["trivial", 60], ["rand", 40, 2, 9], ["rand", 20, 3, 30]), ids=str)
def test_policy(words, channels):
    plain, names = image((37, 24), channels), set()
    raw = program(*words, images=[("-", 0.0, plain)])
    for _ in range(words[1]):
        line, raw = raw.split(b"\n", 1)
        choices, expected = line.decode().split(), picture(plain)
        assert len(choices) == 2 * (words[2] if words[0] == "rand" else 1)
        for name, magnitude in zip(choices[::2], choices[1::2]):
            expected = apply(expected, name, float(magnitude))
            names.add(name)
        actual, raw = np.frombuffer(raw[:plain.size], np.uint8).reshape(plain.shape), raw[plain.size:]
        assert np.array_equal(actual, pixels(expected)), line
    assert not raw and len(names) > 10
