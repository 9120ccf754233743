# SPDX-License-Identifier: Apache-2.0
"""Grey JPEGs made by hand, for machines without an imaging library."""


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
