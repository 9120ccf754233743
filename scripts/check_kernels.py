#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the compiled kernels of the CUDA backend, without a GPU: registers, spills, shared memory, and whether what
should move 16 bytes at a time does.

    scripts/check_kernels.py [BUILD]        BUILD: a build with CUDA (build-cuda); --table prints every kernel

Each .cu is compiled to PTX with the options of the build; ptxas says what its kernels take. Fails when a kernel spills
registers or has a stack frame, when fewer than 768 of its threads fit into a multiprocessor, or when the
variant of a kernel for whole vectors has no access of 128 bits. Needs nvcc and ptxas of the build. Ends with 77 where
BUILD has no kernels.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

REGISTERS = 65536  # of a multiprocessor, in all architectures from 8.0 on
THREADS = 768      # of a multiprocessor: each has several loads of 16 bytes under way, which covers the memory's latency
# Elements of 16 bytes, as a template argument behind the type in a mangled name.
VECTOR = re.compile(r"(?:6__half|13__nv_bfloat16)[^E]*?Li8E|kernelIf[^E]*?Li4E")
WIDE = re.compile(r"\b(?:ld|st)\.global(?:\.\w+)*?\.(?:v4\.[a-z]32|v2\.[a-z]64)\b")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout + done.stderr


def kernels_of(entry, work):
    """The kernels of one source: name, registers, bytes spilled, on the stack and shared, accesses of 128 bits."""
    words = [word for word in shlex.split(entry["command"]) if "--generate-code" not in word and "-arch" not in word]
    words = words[next(i for i, word in enumerate(words) if os.path.basename(word) == "nvcc"):]  # without a cache before
    architecture = (re.findall(r"sm_(\d+)", entry["command"]) or re.findall(r"compute_(\d+)", entry["command"]) or ["90"])[0]
    ptx = os.path.join(work, os.path.basename(entry["file"]) + ".ptx")
    words[words.index("-c")] = "-ptx"
    words[words.index("-o") + 1] = ptx
    run([*words, f"-arch=sm_{architecture}"])
    ptxas = os.path.join(os.path.dirname(words[0]), "ptxas")
    said = run([ptxas, "-v", f"-arch=sm_{architecture}", ptx, "-o", os.devnull])
    with open(ptx, encoding="utf-8") as file:
        code = file.read()
    bodies = {name: body for name, body in re.findall(r"\.entry (\w+)\((.*?)^}", code, re.M | re.S)}
    found = []
    for block in said.split("Compiling entry function '")[1:]:
        name = block[:block.index("'")]
        stack, stores, loads = (int(n) for n in re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", block).groups())
        shared = re.search(r"(\d+) bytes smem", block)
        found.append({"file": os.path.basename(entry["file"]), "name": name, "stack": stack, "spilled": stores + loads,
                      "registers": int(re.search(r"Used (\d+) registers", block).group(1)),
                      "shared": int(shared.group(1)) if shared else 0, "wide": len(WIDE.findall(bodies[name]))})
    return found


def demangled(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=False).stdout
    short = [re.sub(r"\(anonymous namespace\)::|convoy::gpu::|convoy::|^void ", "", line) for line in text.splitlines()]
    return [re.sub(r"\(.*", "", line) for line in short] if len(short) == len(names) else list(names)


def problems(kernel):
    if kernel["spilled"] or kernel["stack"]:
        yield f"spills {kernel['spilled']} bytes, {kernel['stack']} bytes of stack"
    if kernel["registers"] * THREADS > REGISTERS:
        yield f"takes {kernel['registers']} registers: fewer than {THREADS} threads fit into a multiprocessor"
    if VECTOR.search(kernel["name"]) and not kernel["wide"]:
        yield "has no access of 128 bits"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build-cuda")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    try:
        with open(os.path.join(args.build, "compile_commands.json"), encoding="utf-8") as file:
            entries = [entry for entry in json.load(file) if entry["file"].endswith(".cu")]
    except OSError as error:
        sys.exit(f"check_kernels: {error} (build with CUDA first: scripts/test_cuda.sh)")
    if not entries:
        print(f"check_kernels: skipped: {args.build} is a build without CUDA")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            kernels = [kernel for found in pool.map(lambda entry: kernels_of(entry, work), entries) for kernel in found]
        except (OSError, RuntimeError) as error:
            sys.exit(f"check_kernels: {error}")
    bad = 0
    for kernel, name in zip(kernels, demangled([kernel["name"] for kernel in kernels])):
        if args.table:
            print(f"{kernel['file']:<24} {kernel['registers']:>4} registers {kernel['shared']:>6} B shared "
                  f"{kernel['wide']:>4} of 128 bits  {name}")
        for problem in problems(kernel):
            bad += 1
            print(f"check_kernels: {kernel['file']}: {name} {problem}")
    vectors = sum(1 for kernel in kernels if VECTOR.search(kernel["name"]))
    print(f"check_kernels: {len(kernels)} kernels of {len(entries)} files, {vectors} of them for whole vectors, at most "
          f"{max(kernel['registers'] for kernel in kernels)} registers: {bad} problems")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
