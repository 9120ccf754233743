#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training costs each rank at its start, against the number of ranks: seconds, messages, memory, file access.

  scripts/measure_ranks.py app/configs/toy.toml --ranks 16 64 128
  scripts/measure_ranks.py photos.toml --ranks 4 64 --files photos

Every rank has a batch of one sample and one thread. Seconds are those from the start of mpirun to the first line of a
step in metrics.jsonl. Messages are counted by scripts/count_messages.c (Open MPI 4, mpicc is needed): all that a rank
sends, MPI's own in collectives included; those of one step are the difference of runs with one and three steps.
With --files, strace counts the system calls of each rank that have a path below that folder.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NO_CHECKPOINTS = ("checkpoint.every_epochs=0", "checkpoint.every_steps=0", "train.eval_every_epochs=0",
                  "log.tensorboard=false", "log.progress=off")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 128])
    parser.add_argument("--steps", type=int, default=30, help="of the timed runs: long enough to look at their memory")
    parser.add_argument("--repeat", type=int, default=1, help="timed runs, of which the median counts")
    parser.add_argument("--files", metavar="FOLDER", help="count system calls with paths below it, and nothing else")
    parser.add_argument("--convoy", default="build/app/convoy")
    return parser.parse_args()


def words_of(args, folder, ranks, steps, wrapper=(), log_every=1000):
    items = [*NO_CHECKPOINTS, "device.kind=cpu", "device.threads=1", f"train.global_batch_size={ranks}",
             f"train.steps={steps}", f"log.every_steps={log_every}", f"run.dir={folder}", "run.name=ranks", *args.set]
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *wrapper, os.path.abspath(args.convoy),
            "train", args.config, *(word for item in items for word in ("--set", item))]


def memory_of(pid):
    """The peak of the resident memory and the proportional set size of a process, in MiB; None when it has gone."""
    try:
        with open(f"/proc/{pid}/status") as file:
            peak = int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1))
        with open(f"/proc/{pid}/smaps_rollup") as file:
            share = int(re.search(r"Pss:\s+(\d+)", file.read()).group(1))
        return peak / 1024, share / 1024
    except (OSError, AttributeError):
        return None


def ranks_below(pid):
    """Processes that mpirun has started."""
    result = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], check=False, capture_output=True, text=True)
    return [int(word) for word in result.stdout.split()]


def first_step(path):
    try:
        with open(path) as file:
            return any('"event":"step"' in line for line in file)
    except OSError:
        return False


def run(words, metrics, counts=None, library=None):
    """Seconds to the first step, and the largest memory of each rank that was seen after it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if library:
        words = [words[0], "-x", f"LD_PRELOAD={library}", "-x", f"COUNT_MESSAGES={counts}", *words[1:]]
    start, seconds, memory = time.monotonic(), None, {}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=errors,
                                   stdin=subprocess.DEVNULL)
        while process.poll() is None:
            if seconds is None and first_step(metrics):
                seconds = time.monotonic() - start
            if seconds is not None and not memory:
                memory = {pid: found for pid in ranks_below(process.pid) if (found := memory_of(pid))}
            time.sleep(0.01)
        if process.returncode != 0:
            errors.seek(0)
            sys.exit(f"measure_ranks: {' '.join(words)}\nended with {process.returncode}\n{errors.read()[-3000:]}")
    return seconds, list(memory.values())


def measure(args, ranks, library):
    def once(steps, count):
        with tempfile.TemporaryDirectory() as folder:
            words = words_of(args, folder, ranks, steps, log_every=1000 if count else 1)
            result = run(words, f"{folder}/ranks/metrics.jsonl", folder, library if count else None)
            sent = []
            for rank in range(ranks if count else 0):
                with open(f"{folder}/{rank}") as file:
                    sent.append([int(word) for word in file.read().split()[1:]])
        return result, sent

    timed = [once(args.steps, False)[0] for _ in range(args.repeat)]
    one, three = once(1, True)[1], once(3, True)[1]
    memory = [found for _, of_ranks in timed for found in of_ranks]
    print(f"| {ranks} | {statistics.median(seconds for seconds, _ in timed):.1f} "
          f"| {max(row[0] for row in one)} | {statistics.median(row[0] for row in one):.0f} "
          f"| {max(row[2] for row in one)} "
          f"| {max((b[0] - a[0]) / 2 for a, b in zip(one, three)):.0f} "
          f"| {max(row[1] for row in one) / 1024:.0f} "
          + (f"| {max(peak for peak, _ in memory):.0f} | {statistics.median(share for _, share in memory):.0f} |"
             if memory else "| - | - |"), flush=True)


def count_files(args, ranks):
    below = os.path.abspath(args.files)
    with tempfile.TemporaryDirectory() as folder:
        trace = ("strace", "-f", "-qq", "-y", "-e", "trace=%file,%desc,getdents64", "-o")
        script = f'exec {" ".join(trace)} {folder}/$OMPI_COMM_WORLD_RANK.txt "$@"'
        run(words_of(args, folder, ranks, 1, ("sh", "-c", script, "sh")), f"{folder}/ranks/metrics.jsonl")
        metadata, reads = [], []
        for rank in range(ranks):
            with open(f"{folder}/{rank}.txt", errors="replace") as file:
                calls = [line.split()[1].split("(")[0] for line in file if below in line and "resumed" not in line]
            read = [call for call in calls if call.startswith(("read", "pread", "close"))]
            reads.append(len(read))
            metadata.append(len(calls) - len(read))
    print(f"| {ranks} | {metadata[0]} | {statistics.median(metadata[1:]):.0f} | {max(metadata[1:])} "
          f"| {sum(metadata)} |", flush=True)


def main():
    args = arguments()
    if args.files:
        print("| ranks | rank 0 | another rank (median) | another rank (most) | all ranks |\n|---|---|---|---|---|")
        for ranks in args.ranks:
            count_files(args, ranks)
        return
    print("| ranks | s to the first step | messages, most of a rank | median | of them by MPI_Isend | a step | KiB "
          "| peak MiB, most | PSS MiB, median |\n|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/count_messages.so"
        subprocess.run(["mpicc", "-O2", "-shared", "-fPIC", "-o", library, f"{HERE}/count_messages.c"], check=True)
        for ranks in args.ranks:
            measure(args, ranks, library)


if __name__ == "__main__":
    main()
