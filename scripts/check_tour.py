#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on code in docs/tour.md that is no longer in the sources, and on paths there that do not exist.

Each line of a C++ block must occur in a source file, white space aside. Lines with `...` are left out."""
import os
import re
import sys

from check_modules import sources


def breaches(tour, files, exists):
    """A line for each breach, as `docs/tour.md:LINE: what is wrong`."""
    code = "".join(re.sub(r"\s", "", text) + "\n" for text in files.values())
    block = None
    for number, line in enumerate(tour.splitlines(), 1):
        if line.startswith("```"):
            block = line[3:] if block is None else None
        elif block == "cpp":
            quoted = re.sub(r"\s", "", line)
            if "..." not in quoted and quoted not in code:
                yield f"docs/tour.md:{number}: is not in the sources: {line.strip()}"
        elif block is None:
            for path in re.findall(r"`((?:app|layers|parallel|io|tests|scripts)/[\w/.]+\.(?:cpp|cu|h|py|sh))`", line):
                if not exists(path):
                    yield f"docs/tour.md:{number}: {path} does not exist"


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    with open(os.path.join(root, "docs", "tour.md"), encoding="utf-8") as file:
        tour = file.read()
    found = list(breaches(tour, sources(root), lambda path: os.path.exists(os.path.join(root, path))))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
