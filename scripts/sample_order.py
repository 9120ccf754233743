# SPDX-License-Identifier: Apache-2.0
"""The order of samples of a run, worked out anew: the same permutation as io/data/sampler.cpp and the same checksum as the
field `samples_crc32c` of metrics.jsonl, in another language, for checks that do not trust the program.

Standard library only. Invariant: a pure function of (size, seed, shuffle, epoch).
"""
MASK = (1 << 64) - 1
TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    TABLE.append(_byte)


def crc32c(data):
    """CRC-32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def mix64(x):
    """SplitMix64's step and finaliser."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def order(size, seed, shuffle, epoch, repetitions=1):
    """The indices of an epoch, in the order in which they are seen; repetitions: data.repeated_times."""
    if repetitions > 1:
        return [index for index in order(size, seed, shuffle, epoch) for _ in range(repetitions)][:size]
    if not shuffle:
        return list(range(size))
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask, key, keys = (1 << half) - 1, mix64(seed ^ mix64(epoch)), []
    for _ in range(8):
        key = mix64(key)
        keys.append(key)
    indices = []
    for value in range(size):
        while True:  # walk the network until the value is back in range
            left, right = value >> half, value & mask
            for key in keys:
                left, right = right, left ^ (mix64(right ^ key) & mask)
            value = (left << half) | right
            if value < size:
                break
        indices.append(value)
    return indices


def check_samples(steps, size, seed, shuffle):
    """What is wrong with the samples that these "step" events say they saw; empty when each index came once an epoch,
    without a gap, in the run's order."""
    problems, expected, epochs = [], {"epoch": 0, "position": 0}, {}
    for event in steps:
        epoch, position, count = event["epoch"], event["position"], event["samples"]
        if epoch != expected["epoch"]:
            expected = {"epoch": expected["epoch"] + 1, "position": 0}  # what does not fill a batch may be left out
        if (epoch, position) != (expected["epoch"], expected["position"]):
            problems.append(f"step {event['step']} begins at epoch {epoch}, position {position}, not {expected}")
        expected = {"epoch": epoch, "position": position + count}
        if epoch not in epochs:
            epochs[epoch] = order(size, seed, shuffle, epoch)
            if sorted(epochs[epoch]) != list(range(size)):
                problems.append(f"the order of epoch {epoch} is no permutation")
        seen = b"".join(index.to_bytes(8, "little") for index in epochs[epoch][position:position + count])
        if len(seen) != 8 * count or crc32c(seen) != event["samples_crc32c"]:
            problems.append(f"step {event['step']} saw other samples than those at {position} of epoch {epoch}")
    return problems
