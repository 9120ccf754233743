#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes are what is used: clang-tidy's misc-include-cleaner over every source and header of the program and its tests.

A finding is a header of the standard library or of this project that is included and not used, and a name of the
standard library whose header is not included. A source may rely on the standard headers that the header of its own name
includes. Headers of other libraries are not looked at: they have umbrella headers that include-cleaner does not know.
Like check_tidy.py it looks only at what has changed since it passed. Exit 77 without a clang-tidy of 17 or newer
(Debian 12: clang-tidy-19, Debian 13: clang-tidy).

Usage: check_includes.py [--fix] [BUILD] [SOURCE...]   BUILD (default: build) holds compile_commands.json;
                                                        --fix adds and removes the includes
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from check_tidy import ROOT, by_source, key_of

FOLDERS = ("layers", "parallel", "io", "app", "tests")
CHECK = ["--quiet", "--checks=-*,misc-include-cleaner", "--extra-arg=-Wno-unknown-warning-option",
         "--extra-arg=-Wno-pragma-once-outside-header", "--extra-arg=-idirafter" + os.path.join(ROOT, "scripts", "tidy")]
WARNING = re.compile(r"^(\S+?):(\d+):\d+: warning: (.*) \[misc-include-cleaner\]$")
MISSING = re.compile(r'no header providing "(std::[^"]*)" is directly included')
UNUSED = re.compile(r"included header (\S+) is not used directly")
INCLUDE = re.compile(r'^#include ([<"])([^>"]+)[>"]', re.M)
STANDARD = re.compile(r"^[a-z_]+$")  # <vector>, <cstdint>


def find_tidy():
    for name in ("clang-tidy", *(f"clang-tidy-{version}" for version in range(21, 16, -1))):
        if shutil.which(name):
            version = re.search(r"version (\d+)", subprocess.run([name, "--version"], capture_output=True, text=True).stdout)
            if version and int(version[1]) >= 17:
                return name
    return None


def own_header(path):
    header = os.path.splitext(path)[0] + ".h"
    return header if not path.endswith(".h") and os.path.exists(header) else None


def includes(path):
    """{header: its line, from 0} of the includes of a file."""
    found = {}
    with open(path) as file:
        for number, line in enumerate(file):
            match = INCLUDE.match(line)
            if match:
                found[match[2]] = number
    return found


def needed_headers(tidy, database, path):
    """What clang-tidy's --fix would include: {symbol: header}."""
    with tempfile.NamedTemporaryFile("r", suffix=".yaml") as fixes:
        result = subprocess.run([tidy, "-p", database, *CHECK, "--config={}", "--export-fixes=" + fixes.name, path],
                                capture_output=True, text=True)
        text = fixes.read()
    headers = {}
    for diagnostic in text.split("  - DiagnosticName:")[1:]:
        symbol, header = MISSING.search(diagnostic.replace("''", "'")), re.search(r"#include <([^>]+)>", diagnostic)
        if symbol and header:
            headers[symbol[1]] = header[1]
    return headers, result


def findings(tidy, database, path):
    """(header to add or remove, text) of each finding of a file, or an error of the compiler as (None, text)."""
    headers, result = needed_headers(tidy, database, path)
    present = includes(path)
    lines, found = {number: name for name, number in present.items()}, []
    mine = set(present)
    if own_header(path):
        mine |= {name for name in includes(own_header(path)) if STANDARD.match(name)}
    for line in result.stdout.splitlines():
        match = WARNING.match(line)
        if not match:
            if re.match(r"\S+:\d+:\d+: (fatal )?error: ", line):
                found.append((None, line))
            continue
        place = f"{os.path.relpath(path, ROOT)}:{match[2]}"
        symbol, unused = MISSING.search(match[3]), UNUSED.search(match[3])
        name = lines.get(int(match[2]) - 1)
        header = headers.get(symbol[1]) if symbol else None  # a header is given for the first name that needs it
        if header and header not in mine:
            found.append((header, f"{place}: {symbol[1]} is used and <{header}> is not included"))
        elif unused and name and (STANDARD.match(name) or name.split("/")[0] in FOLDERS):
            found.append((name, f"{place}: {name} is included and not used"))
    return found


def fix(path, headers):
    """Removes those of `headers` that the file includes and adds the others, in order, among its standard headers."""
    present = includes(path)
    with open(path) as file:
        lines = file.read().split("\n")
    for name in sorted(headers & set(present), key=present.get, reverse=True):
        del lines[present[name]]
    standard = [number for number, line in enumerate(lines) if re.match(r"#include <[a-z_]+>", line)]
    add = [f"#include <{name}>" for name in sorted(headers - set(present))]
    if standard:
        first, last = standard[0], standard[-1] + 1
        lines[first:last] = sorted(lines[first:last] + add)
    elif add:
        at = next(number for number, line in enumerate(lines) if line.startswith(("#include", "namespace", "#pragma once")))
        own = own_header(path) and os.path.basename(own_header(path)) in lines[at]
        if own or lines[at].startswith(("#pragma", "#include <")):
            at += 1
            while lines[at].startswith("#include <"):
                at += 1
            lines[at:at] = ["", *add]
        else:
            lines[at:at] = [*add, ""]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    with open(path, "w") as file:
        file.write(text)


def compile_commands(build):
    """{file: command} of all sources, and of all headers as if each were compiled by itself."""
    with open(os.path.join(build, "compile_commands.json")) as file:
        entries = by_source(json.load(file))
    commands, folder_of = {}, {}
    for entry in sorted(entries, key=lambda entry: len(entry["command"])):  # a fuzz target has fewer folders of headers
        commands[entry["file"]] = entry["command"]
        folder_of[os.path.dirname(entry["file"])] = entry["file"]
    inside = [path for path in commands if os.path.relpath(path, ROOT).split(os.sep)[0] in FOLDERS]
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", *(f"{folder}/*.h" for folder in FOLDERS)],
                            capture_output=True, text=True, check=True).stdout.split("\0")
    everything = {path: commands[path] for path in inside}
    for header in filter(None, listed):
        header = os.path.join(ROOT, header)
        like = header[:-2] + ".cpp"
        if like not in commands:
            like = folder_of.get(os.path.dirname(header))
        if like:  # in a folder without a source of this build nothing says how it is compiled
            everything[header] = commands[like].replace(like, header).replace(" -c ", " -x c++ -c ")
    return everything


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("build", nargs="?", default=os.path.join(ROOT, "build"))
    parser.add_argument("source", nargs="*")
    arguments = parser.parse_args()
    build = os.path.abspath(arguments.build)
    tidy = find_tidy()
    if tidy is None or not os.path.exists(os.path.join(build, "compile_commands.json")):
        print("check_includes: skipped: " + (f"no compile_commands.json in {build}" if tidy else "no clang-tidy of 17 or newer here"))
        return 77
    commands = compile_commands(build)
    only = {os.path.abspath(name) for name in arguments.source}
    paths = [path for path in sorted(commands) if not only or path in only]
    cache = os.path.join(build, "includes")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "compile_commands.json"), "w") as file:
        json.dump([{"directory": build, "file": path, "command": command} for path, command in commands.items()], file)

    def check(path):
        marker = os.path.join(cache, key_of(path, commands[path]))
        if os.path.exists(marker):
            return None
        found = findings(tidy, cache, path)
        if not found:
            open(marker, "w").close()
        return found

    jobs = int(os.environ.get("CONVOY_BUILD_JOBS", 0)) or len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = dict(zip(paths, pool.map(check, paths)))
    bad = {path: found for path, found in results.items() if found}
    for path, found in bad.items():
        print("\n".join(text for _, text in found))
        headers = {header for header, _ in found if header}
        if arguments.fix and headers and all(header for header, _ in found):  # what does not compile misleads
            fix(path, headers)
    print(f"check_includes: {len(paths)} files, {list(results.values()).count(None)} unchanged since they passed, {len(bad)} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
