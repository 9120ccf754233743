#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""convoy beside PyTorch on CPUs that others use, too: training steps of ResNet-18 at 32x32 on some cores, first alone,
then beside threads that do nothing but take CPU time on the same cores.

Each repeat times convoy and PyTorch (eager) in turn, quiet and busy. The share of a program is its own quiet speed
times the part of the cores that the scheduler would give to its threads if all threads were always ready to run:
THREADS / (THREADS + BURNERS) of all cores. A sample in which other programs took more than 10 % of the cores' time is
taken again, three times at most.

Writes OUT/bench_busy.json and OUT/README.md; what the programs print goes to build/bench_busy.log. CONVOY names the
program (default: build/app/convoy); --than another one that takes its turns, too.
"""
import argparse
import contextlib
import datetime
import json
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time

from bench_cpu_sides import Convoy, Failure, Torch, on_cores, require
from bench_cpu_workloads import WORKLOADS
from torch_server import TorchError

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
DISTURBED = 0.1  # of the cores' time, taken by others; Open MPI's daemon, which a single rank starts, is among them
TRIES = 4
TICK = 1 / os.sysconf("SC_CLK_TCK")


def arguments():
    parser = argparse.ArgumentParser(prog="bench_cpu.sh --busy", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads of each program, and cores (2)")
    parser.add_argument("--burners", type=int, default=3, metavar="N", help="threads that take CPU time (3)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="images in a batch (32)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="times that each is measured (3)")
    parser.add_argument("--seconds", type=float, default=8, metavar="S", help="about the length of a sample (8)")
    parser.add_argument("--than", metavar="PROGRAM", help="another convoy to compare with")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs/results/busy"), metavar="DIR",
                        help="(docs/results/busy)")
    parser.add_argument("--python", required=True, metavar="PYTHON", help="the one that has torch")
    parser.add_argument("--check", action="store_true", help="look at the options, then end")
    args = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    for name in ("threads", "burners", "batch", "repeat"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is at least 1")
    if args.threads > len(allowed):
        parser.error(f"--threads: {args.threads} threads want as many cores, and this process may use {len(allowed)}")
    if args.seconds <= 0:
        parser.error("--seconds is more than 0")
    args.cores = allowed[:args.threads]
    args.out = os.path.abspath(args.out)
    args.python = os.path.abspath(args.python)
    args.program = os.path.abspath(os.environ.get("CONVOY") or os.path.join(ROOT, "build/app/convoy"))
    args.than = os.path.abspath(args.than) if args.than else None
    return args


# ---- CPU time -------------------------------------------------------------------------------------------------------


def busy_seconds(cores):
    """Of the cores, since the machine started: user, nice, system, irq and softirq time."""
    total = 0
    with open("/proc/stat", encoding="ascii") as file:
        for line in file:
            name, *fields = line.split()
            if name in {f"cpu{core}" for core in cores}:
                total += sum(int(fields[i]) for i in (0, 1, 2, 5, 6))
    return total * TICK


def process_seconds(pid):
    """CPU time of a running process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def children_seconds():
    """CPU time of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def burning(count, cores):
    """`count` threads that never stop, on these cores; their processes."""
    processes = [subprocess.Popen([*on_cores(cores), "sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---- Samples --------------------------------------------------------------------------------------------------------


class Sides:
    """The programs, each with a way to take steps."""

    def __init__(self, args, log):
        self.args = args
        self.workload = WORKLOADS["resnet18_32_b128"]._replace(
            batch=args.batch, name=f"resnet18_32_b{args.batch}",
            title=f"ResNet-18, small stem, 32×32, batch {args.batch}")
        self.convoys = {"convoy": Convoy(args.program, log)}
        if args.than:
            self.convoys["other convoy"] = Convoy(args.than, log)
        self.torch = Torch(args.python, log, self.workload, "fp32", args.threads, "eager", args.cores, "", 600)
        self.names = [*self.convoys, "PyTorch"]

    def step_seconds(self, name, steps, warmup):
        if name == "PyTorch":
            return self.torch.steps(steps, warmup)["step_seconds"]
        return self.convoys[name].steps(self.workload, "fp32", self.args.threads, self.args.cores, steps,
                                        warmup)["step_seconds"]

    def own_seconds(self):
        """CPU time of all sides."""
        return children_seconds() + process_seconds(self.torch.server.process.pid)


def sample(sides, name, step, burners):
    """Images/s over all steps, and the share of the cores' time that others took: the least disturbed of some tries.
    step: seconds that one is thought to take.
    """
    args, best = sides.args, None
    steps = max(4, int(args.seconds / step))
    for _ in range(TRIES):
        start, busy, own = time.monotonic(), busy_seconds(args.cores), sides.own_seconds()
        burnt = sum(process_seconds(each.pid) for each in burners)
        seconds = sides.step_seconds(name, steps, max(2, steps // 5))
        own = sides.own_seconds() - own + sum(process_seconds(each.pid) for each in burners) - burnt
        passed = (time.monotonic() - start) * len(args.cores)
        others = max(0.0, busy_seconds(args.cores) - busy - own) / passed
        result = {"images_per_second": args.batch * len(seconds) / sum(seconds), "others": others, "steps": steps}
        if best is None or others < best["others"]:
            best = result
        if others <= DISTURBED:
            break
    print(f"  {name:<13} {best['images_per_second']:8.1f} images/s, others took {100 * best['others']:.1f} % of the "
          "cores", flush=True)
    return best


def measure(sides, results):
    args = sides.args
    step = {name: statistics.median(sides.step_seconds(name, 5, 3)) for name in sides.names}
    share = args.threads / (args.threads + args.burners)
    for repeat in range(args.repeat):
        names = sides.names[::-1] if repeat % 2 else sides.names
        print(f"repeat {repeat + 1}, quiet", flush=True)
        for name in names:
            results["quiet"].setdefault(name, []).append(sample(sides, name, step[name], []))
        print(f"repeat {repeat + 1}, beside {args.burners} busy threads", flush=True)
        with burning(args.burners, args.cores) as burners:
            for name in names:
                results["busy"].setdefault(name, []).append(sample(sides, name, step[name] / share, burners))


# ---- Report ---------------------------------------------------------------------------------------------------------


def figures(results, state, name):
    return [each["images_per_second"] for each in results[state][name]]


def spread(values, digits=1):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def table(results):
    share = results["threads"] / (results["threads"] + results["burners"])
    lines = ["| program | quiet, images/s | busy, images/s | of its share | over PyTorch, busy |", "|---|---|---|---|---|"]
    for name in results["quiet"]:
        quiet, busy = figures(results, "quiet", name), figures(results, "busy", name)
        of_share = [100 * b / (share * statistics.median(quiet)) for b in busy]
        ratio = [b / t for b, t in zip(busy, figures(results, "busy", "PyTorch"))]
        lines.append(f"| {name} | {spread(quiet)} | {spread(busy)} | {spread(of_share, 0)} % | {spread(ratio, 2)} |")
    return lines


def readme(results):
    n, b = results["threads"], results["burners"]
    machine, versions = results["machine"], results["versions"]
    others = [each["others"] for state in ("quiet", "busy") for each in sum(results[state].values(), [])]
    return "\n".join([
        "# Beside other programs", "",
        f"Written by `scripts/bench_cpu.sh --busy` from [bench_busy.json](bench_busy.json). {results['title']}, float32, "
        f"{n} threads on {n} cores. Busy: beside {b} threads that never stop, on the same cores. Images per second over "
        f"all steps of a sample; median (lowest to highest) of {len(results['quiet']['convoy'])} repeats, the programs in "
        "turn.", "",
        f"The share of a program is {n}/{n + b} of its quiet speed: what its {n} threads would get of {n} cores among "
        f"{n + b} threads that are always ready to run.", "", *table(results), "",
        f"{results['date']}, {machine['cpu']}, Linux {machine['kernel']}. {versions['convoy']}; PyTorch "
        f"{versions['torch']} (oneDNN {versions['onednn']}). Load before it {machine['load_before']:.2f}; in a sample, "
        f"other programs took {100 * statistics.median(others):.1f} % of the cores' time (at most "
        f"{100 * max(others):.1f} %).", "",
        "```console", f"$ {results['command']}", "```", ""])


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown CPU")
    return {"cpu": model, "kernel": platform.release(), "load_before": os.getloadavg()[0]}


def command_line():
    """As it was typed, without the options that only name places."""
    words, kept = iter(sys.argv[1:]), []
    for word in words:
        if word in ("--python", "--out"):
            next(words)
        elif not word.startswith(("--python=", "--out=")):
            kept.append("PROGRAM" if kept and kept[-1] == "--than" else word)
    return shlex.join(["scripts/bench_cpu.sh", "--busy", *kept])


def main():
    args = arguments()
    if args.check:
        return 0
    os.chdir(ROOT)
    os.makedirs("build", exist_ok=True)
    sides = None
    with open("build/bench_busy.log", "w+b") as log:
        try:
            require("taskset")
            sides = Sides(args, log)
            versions = sides.convoys["convoy"].versions()
            results = {"title": sides.workload.title, "threads": args.threads, "burners": args.burners,
                       "batch": args.batch, "date": datetime.date.today().isoformat(), "command": command_line(),
                       "machine": machine(), "quiet": {}, "busy": {},
                       "versions": {"convoy": f"convoy {versions['convoy']} ({versions['CPU']})",
                                    "torch": sides.torch.versions["torch"], "onednn": sides.torch.versions["onednn"]}}
            measure(sides, results)
        except (Failure, TorchError) as error:
            print(f"bench_busy: {error} (build/bench_busy.log)", file=sys.stderr)
            return 1
        finally:
            if sides is not None:
                sides.torch.close()
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "bench_busy.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    text = readme(results)
    with open(os.path.join(args.out, "README.md"), "w", encoding="utf-8") as file:
        file.write(text)
    print("\n" + "\n".join(table(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
