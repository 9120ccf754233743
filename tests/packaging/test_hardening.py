# SPDX-License-Identifier: Apache-2.0
"""The program as it was linked: protections of memory, and no library from the folder that it is started in."""
import re
import shutil
import subprocess

import pytest

from programs import BUILD, CONVOY

pytestmark = pytest.mark.skipif(not shutil.which("readelf"), reason="there is no readelf (binutils)")


def readelf(*options):
    return subprocess.run(["readelf", "--wide", *options, CONVOY], capture_output=True, text=True, check=True, timeout=60).stdout


def cache(name):
    with open(f"{BUILD}/CMakeCache.txt") as file:
        return re.search(rf"^{name}:\w+=(.*)$", file.read(), re.M)[1]


hardened = pytest.mark.skipif(cache("CONVOY_HARDENING") != "ON" or cache("CONVOY_SANITIZE") != "",
                              reason="built without CONVOY_HARDENING, or with sanitizers")


def test_libraries_come_from_absolute_folders():
    for paths in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", readelf("-d")):
        for folder in paths.split(":"):
            assert folder.startswith(("/", "$ORIGIN")), paths


@hardened
def test_position_independent_and_bound_at_start():
    assert re.search(r"Type:\s+DYN", readelf("-h"))
    flags = " ".join(re.findall(r"\(FLAGS(?:_1)?\)\s+(.*)", readelf("-d")))
    assert "PIE" in flags and "NOW" in flags


@hardened
def test_memory_is_writable_or_executable_not_both():
    segments = readelf("-l")
    assert "GNU_RELRO" in segments
    assert re.search(r"GNU_STACK(?:\s+0x\w+){5}\s+RW\s", segments)
    assert not re.search(r"LOAD(?:\s+0x\w+){5}\s+RWE", segments)


@hardened
def test_checks_of_the_stack_and_of_buffers():
    symbols = readelf("--dyn-syms")
    assert "__stack_chk_fail@" in symbols
    assert re.search(r"__\w+_chk@", symbols)
    assert "__glibcxx_assert_fail" in symbols  # _GLIBCXX_ASSERTIONS
