#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds convoy plan's predictions against what convoy bench measured.

  scripts/check_plan.py CONFIG BENCH.json [--costs FILE] [--set KEY=VALUE]... [-o OUT.json]

BENCH.json comes from `convoy bench CONFIG --case ... --json BENCH.json`, FILE from `convoy plan CONFIG --ranks N
--calibrate --costs FILE` on the same ranks. Prints one line per case: measured median, prediction, difference.
CONVOY names the program (default: build/app/convoy). Exits with 1 when a difference is above --tolerance.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

PROGRAM = os.environ.get("CONVOY", "build/app/convoy")


def fail(text):
    sys.exit(f"check_plan: {text}")


def predicted(config, costs, case, ranks, settings):
    """Seconds of a step of the layout that the case asks for."""
    overrides = [word for word in case.split() if not word.startswith("ranks=")]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [PROGRAM, "plan", config, "--ranks", str(ranks), "--costs", costs, "--top", "1", "--json", file.name]
        for word in settings + overrides:
            command += ["--set", word]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            fail(f"{shlex.join(command)}: {done.stderr.strip()}")
        own = [layout for layout in json.load(open(file.name))["layouts"] if layout["own_layout"]]
    return own[0]["step_seconds"] if own else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("bench")
    parser.add_argument("--costs", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--tolerance", type=float, default=0.1, help="largest relative difference (0.1)")
    parser.add_argument("-o", "--out")
    args = parser.parse_args()
    try:
        results = json.load(open(args.bench))["results"]
    except (OSError, ValueError, KeyError) as problem:
        fail(f"{args.bench}: {problem}")
    cases = {}
    for result in results:
        cases.setdefault((result["case"], result["ranks"]), []).extend(result["step_seconds"])
    rows, worst = [], 0.0
    print(f"{'case':<100} {'measured s':>11} {'predicted s':>11} {'difference':>10}")
    for (case, ranks), seconds in cases.items():
        step = predicted(args.config, args.costs, case, ranks, args.set)
        if step is None:
            print(f"{case:<100} plan knows no such layout")
            continue
        measured = statistics.median(seconds)
        rows.append({"case": case, "ranks": ranks, "measured_seconds": measured, "steps": len(seconds),
                     "predicted_seconds": step, "difference": step / measured - 1})
        worst = max(worst, abs(rows[-1]["difference"]))
        print(f"{case:<100} {measured:>11.3f} {step:>11.3f} {100 * (step / measured - 1):>9.1f}%")
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"largest_difference": worst, "layouts": rows}, file, indent=1)
    print(f"largest difference: {100 * worst:.1f} %")
    return 0 if rows and worst <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
