# SPDX-License-Identifier: Apache-2.0
"""Folders of JPEGs and PNGs for the comparisons with torchvision, and how convoy's reader sees them.

The pictures are sums of waves with edges and noise, in the sizes, samplings and modes of photographs.
"""
import os
import struct
import subprocess
import zlib

import pytest

from interop import np
from programs import helper_program

Image = pytest.importorskip("PIL.Image")

# torchvision does not turn pictures by their Exif block and convoy does, so those have none.
SHAPES = [(500, 375), (375, 500), (333, 500), (640, 480), (1024, 768), (800, 600), (257, 256), (224, 224), (90, 120),
          (500, 150), (2000, 1500)]


def read_samples(*words):
    """What the program image_samples writes."""
    result = subprocess.run([helper_program("io", "image_samples"), *map(str, words)], capture_output=True)
    assert result.returncode == 0, f"{words}: {result.stderr.decode()}"
    return result.stdout


def draw(width, height, seed):
    """A picture with the spectrum of a photograph, roughly: smooth shades, edges, some noise."""
    random = np.random.RandomState(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    image = np.zeros((height, width, 3), np.float32)
    for octave in range(1, 7):
        angle, phase = random.uniform(0, np.pi), random.uniform(0, 2 * np.pi, 3)
        wave = 2 * np.pi * 2 ** octave / max(width, height) * (np.cos(angle) * x + np.sin(angle) * y)
        image += 60 / octave * np.sin(wave[..., None] + phase)
    for _ in range(12):
        center, radius = random.uniform(0, 1, 2) * (width, height), random.uniform(0.05, 0.3) * min(width, height)
        image[(x - center[0]) ** 2 + (y - center[1]) ** 2 < radius ** 2] += random.uniform(-60, 60, 3)
    return (image + 128 + random.normal(0, 4, image.shape)).clip(0, 255).astype(np.uint8)


def make_pictures(folder):
    """Class folders with names that sort in their own way, and files of all kinds in them."""
    for i, (width, height) in enumerate(SHAPES):
        image = Image.fromarray(draw(width, height, i))
        path = os.path.join(folder, ["b", "B", "a-1", "a"][i % 4], ["", "deep", "deep-er"][i % 3])
        os.makedirs(path, exist_ok=True)
        for subsampling in (0, 2):
            image.save(os.path.join(path, f"{i}-{subsampling}.jpg"), quality=90, subsampling=subsampling,
                       progressive=bool(i % 2))
    image = Image.fromarray(draw(400, 300, 99))
    image.convert("L").save(os.path.join(folder, "a", "grey.JPEG"), quality=90)
    image.convert("CMYK").save(os.path.join(folder, "a", "cmyk.JPG"), quality=90)
    image.save(os.path.join(folder, "a", "flat.png"))
    image.convert("RGBA").save(os.path.join(folder, "a", "grown.PNG"))
    open(os.path.join(folder, "a", "notes.txt"), "w").close()


def save_deep(path, picture):
    """A PNG of 16 bits, which Pillow does not write: [H, W, 3] or [H, W] of uint16."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    height, width = picture.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 16, 2 if picture.ndim == 3 else 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in picture)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
