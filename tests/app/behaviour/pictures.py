# SPDX-License-Identifier: Apache-2.0
"""Folders of grey JPEGs and PNGs made by hand, for machines without an imaging library, and a network for them."""
import os
import random
import struct
import zlib

NET = {"name": "sequential", "layers": [
    {"type": "conv2d", "name": "conv", "out_channels": 8, "kernel_size": 5, "stride": 2},
    {"type": "relu"}, {"type": "global_avg_pool"}, {"type": "linear", "name": "fc", "out_features": 3}]}


def jpeg(columns, rows, levels):
    """A grey JPEG of 8x8 blocks, each of one level (0 to 255), by hand: only the first coefficient of each block."""
    def segment(marker, body):
        return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body
    head = b"\xff\xd8" + segment(0xDB, b"\0" + bytes([8] * 64))
    head += segment(0xC0, b"\x08" + (8 * rows).to_bytes(2, "big") + (8 * columns).to_bytes(2, "big") + b"\x01\x01\x11\0")
    head += segment(0xC4, b"\x00" + bytes([0, 0, 0, 12] + [0] * 12) + bytes(range(12)))  # sizes 0..11 as 4 bits each
    head += segment(0xC4, b"\x10" + bytes([1] + [0] * 15) + b"\0")  # "no more coefficients" as one 0
    head += segment(0xDA, b"\x01\x01\x00\x00\x3f\x00")
    bits, before = "", 0
    for level in levels:
        difference, before = level - 128 - before, level - 128
        size = abs(difference).bit_length()
        bits += f"{size:04b}"
        if size:
            bits += f"{difference if difference > 0 else difference + (1 << size) - 1:0{size}b}"
        bits += "0"
    bits += "1" * (-len(bits) % 8)
    data = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
    return head + data.replace(b"\xff", b"\xff\0") + b"\xff\xd9"


def png(width, height, pixels, kind=2, bits=8):
    """A PNG of these bytes, row after row: kind 0 grey, 2 RGB, 4 grey and alpha, 6 RGB and alpha."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    stride = len(pixels) // height
    rows = b"".join(b"\0" + bytes(pixels[y * stride:(y + 1) * stride]) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def add_pngs(folder, count=6):
    """pictures/CLASS/pNNN.png in turn, of all kinds, beside those that are there."""
    source = random.Random(5)
    for i in range(count):
        kind, bits = ((0, 8), (2, 8), (2, 16), (4, 8), (6, 8), (0, 16))[i % 6]
        width, height = source.randint(30, 60), source.randint(30, 60)
        size = width * height * {0: 1, 2: 3, 4: 2, 6: 4}[kind] * bits // 8
        with open(folder.file("pictures", "abc"[i % 3], f"p{i:03}.png"), "wb") as file:
            file.write(png(width, height, bytes(min(255, 60 * (i % 3) + source.randrange(99)) for _ in range(size)), kind, bits))


def pictures(folder, count=30):
    """pictures/CLASS/NNN.jpg in turn, of three classes, which differ in their mean level; 32 to 96 pixels a side."""
    source = random.Random(1)
    for i in range(count):
        path = folder.file("pictures", "abc"[i % 3])
        os.makedirs(path, exist_ok=True)
        columns, rows = source.randint(4, 12), source.randint(4, 12)
        levels = [min(255, max(0, 60 + 60 * (i % 3) + source.randint(-50, 50))) for _ in range(columns * rows)]
        with open(os.path.join(path, f"{i:03}.jpg"), "wb") as file:
            file.write(jpeg(columns, rows, levels))


def slow_pictures(folder, count):
    """Two classes, of `count` JPEGs each, that take a while: 768 pixels a side, and all the same one."""
    side = 96
    first = folder.file("pictures", "a", "0000.jpg")
    for name in "ab":
        os.makedirs(folder.file("pictures", name))
        for i in range(count):
            path = folder.file("pictures", name, f"{i:04}.jpg")
            if path != first:
                os.link(first, path)
                continue
            with open(first, "wb") as file:
                file.write(jpeg(side, side, [(7 * k) % 256 for k in range(side * side)]))
