#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy (.clang-tidy) over the program's sources, one process a core.

A source that passed is not looked at again until it, a header of this project that it reaches, .clang-tidy or its
compile command changes: the hashes of what passed are kept in BUILD/tidy. Exit 77 when clang-tidy 14 is not here.

Usage: check_tidy.py [BUILD] [SOURCE...]    BUILD (default: build) holds compile_commands.json
"""
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# GCC builds convoy; clang 14 lacks two things that GCC's flags and library headers take for granted.
EXTRA = ["--extra-arg=" + flag for flag in ("-Wno-unknown-warning-option", "-DFMT_CONSTEVAL=",
                                            "-include" + os.path.join(ROOT, "scripts", "tidy", "source_location.h"))]
FOLDERS = ("layers", "parallel", "io", "app")
# GCC's precompiled headers mean nothing to clang, and each source includes what it needs.
PRECOMPILED = re.compile(r" -Winvalid-pch| -include \S*/cmake_pch\.hxx| -fpch-preprocess")
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
OUTPUT = re.compile(r" -o \S+")


def find_tidy():
    for name in ("clang-tidy-14", "clang-tidy"):
        if shutil.which(name):
            version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
            if "version 14." in version:
                return name
    return None


def reach(path, seen):
    """Adds `path` and every header of this project that it includes, directly or not."""
    if path in seen or not os.path.exists(path):
        return
    with open(path, "rb") as file:
        text = file.read()
    seen[path] = text
    for header in INCLUDE.findall(text):
        name = header.decode()
        reach(os.path.join(ROOT, name), seen)
        reach(os.path.join(os.path.dirname(path), name), seen)


def by_source(entries):
    """The compile commands of a build, with those of unity sources (CONVOY_UNITY) as one for each of their sources."""
    commands = []
    for entry in entries:
        path = os.path.abspath(os.path.join(entry["directory"], entry["file"]))
        command = OUTPUT.sub("", PRECOMPILED.sub("", entry["command"]))
        sources = [path]
        if os.sep + "Unity" + os.sep in path:
            with open(path, "rb") as file:
                sources = [name.decode() for name in INCLUDE.findall(file.read())]
        commands += [{**entry, "file": source, "command": command.replace(entry["file"], source)} for source in sources]
    return commands


def key_of(source, command):
    files = {}
    reach(source, files)
    digest = hashlib.sha256(command.encode())
    with open(os.path.join(ROOT, ".clang-tidy"), "rb") as file:
        digest.update(file.read())
    for path in sorted(files):
        digest.update(os.path.relpath(path, ROOT).encode() + b"\0" + files[path])
    return digest.hexdigest()


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build"))
    only = {os.path.abspath(name) for name in sys.argv[2:]}
    tidy = find_tidy()
    database = os.path.join(build, "compile_commands.json")
    if tidy is None or not os.path.exists(database):
        print("check_tidy: skipped: " + ("no clang-tidy 14 here" if tidy is None else "no " + database))
        return 77
    with open(database) as file:
        entries = by_source(json.load(file))
    commands = {entry["file"]: entry["command"] for entry in entries}
    sources = [path for path in sorted(commands)
               if os.path.relpath(path, ROOT).split(os.sep)[0] in FOLDERS and (not only or path in only)]
    cache = os.path.join(build, "tidy")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "compile_commands.json"), "w") as file:
        json.dump(entries, file)

    def check(source):
        marker = os.path.join(cache, key_of(source, commands[source]))
        if os.path.exists(marker):
            return None
        result = subprocess.run([tidy, "-p", cache, "--quiet", "--warnings-as-errors=*",
                                 *EXTRA, source], capture_output=True, text=True)
        if result.returncode == 0:
            open(marker, "w").close()
            return ""
        return result.stdout + "".join(line for line in result.stderr.splitlines(True) if "error:" in line)

    jobs = int(os.environ.get("CONVOY_BUILD_JOBS", 0)) or len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(check, sources))
    for text in filter(None, results):
        print(text)
    bad = sum(1 for text in results if text)
    print(f"check_tidy: {len(sources)} files, {results.count(None)} unchanged since they passed, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
