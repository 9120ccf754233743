# SPDX-License-Identifier: Apache-2.0
"""CRC-32C by its definition, and the checksum trailer of docs/interface.md: an implementation independent of convoy's."""
import os
import struct

POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in bytes(data):
        value = (value >> 8) ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4 and elsewhere


def trailer(data):
    return f"\nconvoy-seal crc32c {crc32c(data):08x} bytes {len(data):020d}\n".encode()


def with_trailer(path):
    """Appends the trailer to an HDF5 file of format 2 or 3 (libver "v108" and later)."""
    with open(path, "r+b") as file:
        data = file.read()
        assert data[8] in (2, 3), "the trailer needs superblock 2 or 3"
        assert struct.unpack_from("<Q", data, 28)[0] == len(data) == os.path.getsize(path)
        file.write(trailer(data))
