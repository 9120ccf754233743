#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks convoy on a machine with a GPU, in three parts of at most nine minutes each, one call a part:

  gpu_check.sh --part 1    what convoy finds on the machine, all operations against the CPU, recording, speed beside
                           PyTorch at batch 256
  gpu_check.sh --part 2    time of each kind of operation, plans of convolutions, fp16, batch sizes, torch.compile
  gpu_check.sh --part 3    every parallel mode with ranks that share the GPU, NCCL, the quickstart, memcheck

Results are kept after every case: figures in DIR/results.json, what was printed in DIR/log.txt, cuDNN's plans in
DIR/plans; a table comes last. Later calls add to the same folder. In a repository the program of build-cuda is checked,
in a bundle (docs/bundle.md) the one that is there. PYTHON names the Python that has torch.

Exit code 0: nothing failed; 1: something failed; 2: no GPU, or a wrong argument.
"""
import argparse
import datetime
import os
import signal
import sys
import tempfile
import time

import gpu_speed
import gpu_tests
import gpu_training
from gpu_session import Check, Failure, Session, Skipped, gpus, say

# Seconds of each check. What one leaves over is the next one's.
CHECKS = {
    "doctor": (gpu_tests.doctor, 40),
    "compare": (gpu_tests.compare, 150),
    "backend": (gpu_tests.backend, 90),
    "speed_bf16": (lambda check: gpu_speed.speed(check, "bf16", [256], ["eager", "graph"], without_graphs=True), 240),
    "kernels": (gpu_speed.kernels, 80),
    "speed_fp16": (lambda check: gpu_speed.speed(check, "fp16", [256], ["graph"]), 120),
    "speed_batches": (lambda check: gpu_speed.speed(check, "bf16", [512, 128, 64], ["graph"], turns=1), 150),
    "speed_compile": (lambda check: gpu_speed.speed(check, "bf16", [256], ["compile"], compile_seconds=140), 170),
    "nccl": (gpu_tests.nccl, 70),
    "quickstart": (gpu_training.quickstart, 90),
    "modes": (gpu_training.modes, 280),
    "sanitizer": (gpu_tests.sanitizer, 80),
    "modes_resnet50": (gpu_training.modes_resnet50, 240),
    "speed_seed": (gpu_speed.speed_seed, 240),
}
PARTS = {
    1: ["doctor", "compare", "backend", "speed_bf16"],
    2: ["kernels", "speed_fp16", "speed_batches", "speed_compile"],
    3: ["nccl", "quickstart", "modes", "sanitizer"],
}


def run_check(name, session, seconds):
    """Its entry, which is in the file of results after each case."""
    entry = {"result": "failed", "figure": "ended without a result",
             "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "seconds": 0, "details": {}}
    session.store(name, entry)
    start = time.monotonic()

    def late(_signal, _frame):
        raise Failure("out of time")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(max(1, int(seconds) + 5))  # commands end before; this is for a check that does not
    try:
        entry.update(figure=CHECKS[name][0](Check(name, session, start + seconds, entry)), result="passed")
    except Failure as failure:
        entry.update(figure=str(failure))
    except Skipped as reason:
        entry.update(result="skipped", figure=str(reason))
    except (OSError, KeyError, ValueError, IndexError, TypeError) as error:
        entry.update(figure=f"{type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
    entry["seconds"] = round(time.monotonic() - start, 1)
    session.store(name, entry)
    say(f"{name}: {entry['result']}: {entry['figure']}")
    return entry


def run_all(names, session):
    """Every check until the time of all is over. The entries by name."""
    start, allowed, entries = time.monotonic(), 0, {}
    for name in names:
        allowed += CHECKS[name][1]
        say(f"== {name}")
        entries[name] = run_check(name, session, start + allowed - time.monotonic())
    say(f"\n{'check':<15} {'result':<8} {'s':>5}  figure")
    for name, entry in entries.items():
        say(f"{name:<15} {entry['result']:<8} {entry['seconds']:>5.0f}  {entry['figure']}")
    return entries


def arguments():
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, choices=PARTS, help="one part; default: all three, one after another")
    parser.add_argument("--only", metavar="CHECK,...", help=f"these checks: {', '.join(CHECKS)}")
    parser.add_argument("--out", metavar="DIR", default="gpu-check", help="folder of the results (gpu-check)")
    parser.add_argument("--convoy", metavar="PROGRAM", help="the program to check")
    parser.add_argument("--rehearse", action="store_true", help="everything on the CPU, in small: does the check itself work?")
    args = parser.parse_args()
    if args.part and args.only:
        parser.error("--part and --only: give one of them")
    args.names = [name for part in PARTS.values() for name in part] if not args.part else PARTS[args.part]
    if args.only:
        args.names = args.only.split(",")
        for name in args.names:
            if name not in CHECKS:
                parser.error(f"--only: there is no check '{name}' (one of {', '.join(CHECKS)})")
    return args, parser


def program_of(args, parser):
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    build = "build" if args.rehearse else "build-cuda"
    places = [args.convoy] if args.convoy else [os.path.join(root, "bin", "convoy"), os.path.join(root, build, "app", "convoy")]
    for place in places:
        if os.access(place, os.X_OK) and os.path.isfile(place):
            return place
    preset = "release" if args.rehearse else "cuda"
    parser.error(f"there is no program {os.path.normpath(places[-1])}: build it (cmake --preset {preset} && cmake "
                 f"--build --preset {preset}), or name one with --convoy")


def main():
    args, parser = arguments()
    program = program_of(args, parser)
    names, reason = gpus()
    if not names and not args.rehearse and set(args.names) - {"doctor"}:
        parser.error(f"{reason}; without one only --only doctor runs, and --rehearse")
    try:
        os.makedirs(os.path.join(args.out, "plans"), exist_ok=True)
    except OSError as error:
        parser.error(f"--out: {args.out} cannot be written: {error.strerror}")
    say(f"gpu_check: {'a rehearsal on the CPU' if args.rehearse else '; '.join(names) or reason}; results and log in {args.out}")
    with tempfile.TemporaryDirectory(prefix="convoy-gpu-check-") as work:
        session = Session(program, args.out, work, args.rehearse)
        try:
            entries = run_all(args.names, session)
        finally:
            session.close()
    return int(any(entry["result"] == "failed" for entry in entries.values()))


if __name__ == "__main__":
    sys.exit(main())
