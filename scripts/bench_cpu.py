#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""convoy beside PyTorch on the CPU: training steps of the same networks on the same cores, in turn, in one run.

A step is forward, loss, backward and SGD with momentum and weight decay, channels-last, with synthetic data. Each
repeat times convoy and PyTorch (eager, and torch.compile where it works), in alternating order; convoy is held against
the faster of PyTorch's variants, repeat by repeat. Beside it: peak memory, the share of a step that its convolutions
take when each runs alone (`convoy bench --profile`), and convoy on one and two ranks of one thread each, with twice the
batch. The whole list takes some hours; it wants a machine that does nothing else.

Writes OUT/bench_cpu.json after each point, then OUT/README.md and pictures (scripts/bench_cpu_report.py). What the
programs print goes to OUT/bench_cpu.log, of a run into docs/results to build/bench_cpu.log. CONVOY names the program
(default: build/app/convoy).
"""
import argparse
import concurrent.futures
import contextlib
import datetime
import json
import math
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys

import bench_cpu_report
from bench_cpu_sides import Convoy, Failure, Torch, on_cores, plan_steps, require, steps_for
from bench_cpu_workloads import WORKLOADS
from torch_server import TorchError

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def say(text):
    print(text, flush=True)


def arguments():
    parser = argparse.ArgumentParser(prog="bench_cpu.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="workloads: " + ", ".join(WORKLOADS))
    parser.add_argument("--only", default="", metavar="NAME,...", help="these workloads, or scaling alone (all)")
    parser.add_argument("--scaling-only", action="store_true", help="two ranks beside one, and nothing beside PyTorch")
    parser.add_argument("--threads", default="1,2", metavar="N,...", help="numbers of threads (1,2)")
    parser.add_argument("--precision", default="fp32,bf16", metavar="P,...", help="(fp32,bf16)")
    parser.add_argument("--repeat", type=int, help="times that both are measured (5; with --quick 2)")
    parser.add_argument("--quick", action="store_true",
                        help="short, to see that everything works; OUT is then build/bench_cpu")
    parser.add_argument("--compile-limit", type=float, default=600, metavar="S",
                        help="seconds for torch.compile to come to its second step; 0: leave it out (600)")
    parser.add_argument("--out", metavar="DIR", help="(docs/results/cpu)")
    parser.add_argument("--python", required=True, metavar="PYTHON", help="the one that has torch (a virtual "
                        "environment, build/torch-venv, with what pip gives)")
    parser.add_argument("--check", action="store_true", help="look at the options, then end")
    args = parser.parse_args()
    names = list(filter(None, args.only.split(","))) or [*WORKLOADS, "scaling"]
    unknown = [name for name in names if name not in WORKLOADS and name != "scaling"]
    if unknown:
        parser.error(f"--only: there is no '{unknown[0]}' ({', '.join(WORKLOADS)}, scaling)")
    args.scaling = args.scaling_only or "scaling" in names
    args.workloads = [WORKLOADS[name] for name in names if name != "scaling"]
    args.precisions = list(filter(None, args.precision.split(",")))
    if not args.precisions or set(args.precisions) - {"fp32", "bf16"}:
        parser.error(f"--precision: '{args.precision}' is no list of fp32 and bf16")
    if not all(each.isdecimal() and int(each) > 0 for each in args.threads.split(",")):
        parser.error(f"--threads: '{args.threads}' is no list of numbers of threads")
    args.threads = [int(each) for each in args.threads.split(",")]
    args.cores = cores()
    if max(args.threads) > len(args.cores):
        parser.error(f"--threads: {max(args.threads)} threads want as many cores, and this process may use "
                     f"{len(args.cores)}")
    args.repeat = args.repeat if args.repeat is not None else (2 if args.quick else 5)
    if args.repeat < 1 or args.compile_limit < 0:
        parser.error("--repeat is at least 1, --compile-limit at least 0")
    args.seconds = 1 if args.quick else 8
    args.out = os.path.abspath(args.out or os.path.join(ROOT, "build/bench_cpu" if args.quick else "docs/results/cpu"))
    args.python = os.path.abspath(args.python)
    args.program = os.path.abspath(os.environ.get("CONVOY") or os.path.join(ROOT, "build/app/convoy"))
    return args


# ---- The machine ----------------------------------------------------------------------------------------------------


def cores():
    """One CPU of each physical core that this process may use."""
    allowed, found = os.sched_getaffinity(0), {}
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        text = subprocess.run(["lscpu", "-p=CPU,CORE,SOCKET"], capture_output=True, text=True, check=True).stdout
        for line in text.splitlines():
            if not line.startswith("#"):
                cpu, *core = line.split(",")
                if int(cpu) in allowed:
                    found.setdefault(tuple(core), int(cpu))
    return sorted(found.values()) or sorted(allowed)


def command_line():
    """As it was typed, without the options that only name places."""
    words = iter(sys.argv[1:])
    kept = [word for word in words
            if not (word in ("--python", "--out") and next(words)) and not word.startswith(("--python=", "--out="))]
    return shlex.join(["scripts/bench_cpu.sh", *kept])


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": model, "cores": len(cores()), "memory_bytes": memory, "kernel": platform.release(),
            "load_before": os.getloadavg()[0]}


# ---- One point ------------------------------------------------------------------------------------------------------


def spread(values):
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values), "per_repeat": values}


def check_same_network(result, convoy, torch):
    """Both learn the same number of parameters."""
    if convoy != torch.prepared["parameters"]:
        raise Failure(f"{result['workload']}: convoy has {convoy} parameters, PyTorch {torch.prepared['parameters']}: "
                      "not the same network")


def checked(answer):
    if not math.isfinite(answer["loss"]):
        raise TorchError(f"PyTorch's loss is {answer['loss']}")
    return answer


def start_torch(args, log, workload, precision, threads, result):
    """The variants that work, ready; the reason for each that does not is in `result`."""
    ready = {}
    cache = os.path.abspath("build/torch-cache")  # so that a second run compiles in seconds
    for variant, limit in (("eager", 600), ("compile", args.compile_limit)):
        result["torch"][variant] = {"images_per_second": [], "peak_memory_bytes": 0}
        if limit == 0:
            result["torch"][variant]["error"] = "left out"
            continue
        try:
            torch = Torch(args.python, log, workload, precision, threads, variant, args.cores[:threads], cache, limit)
            result["torch"][variant]["memory_before_bytes"] = torch.versions["memory_bytes"]
            ready[variant] = torch
            result["torch"][variant]["first_step_seconds"] = torch.prepared["first_step_seconds"]
            checked(torch.prepared)
        except TorchError as error:
            result["torch"][variant]["error"] = str(error)
            if variant in ready:
                ready.pop(variant).close()
    return ready


def measure_turns(args, convoy, workload, precision, threads, torch, result):
    """All repeats, each of convoy and every variant, in alternating order."""
    pinned = args.cores[:threads]
    plans = {"convoy": plan_steps(args.seconds, lambda steps, warmup: convoy.steps(
        workload, precision, threads, pinned, steps, warmup)["step_seconds"])}
    for variant, each in torch.items():
        plans[variant] = steps_for(args.seconds, statistics.median(each.prepared["step_seconds"]))
    for number in range(args.repeat):
        for side in list(plans)[::-1 if number % 2 else 1]:
            if side == "convoy":
                answer, figures = convoy.steps(workload, precision, threads, pinned, *plans[side]), result["convoy"]
                memory = answer["peak_memory_bytes"][0]
            else:
                figures = result["torch"][side]
                if "error" in figures:
                    continue
                try:
                    answer = checked(torch[side].steps(*plans[side]))
                except TorchError as error:
                    figures["error"] = str(error)
                    continue
                memory = answer["peak_memory_bytes"]
            figures["images_per_second"].append(workload.batch / statistics.median(answer["step_seconds"]))
            figures["peak_memory_bytes"] = max(figures["peak_memory_bytes"], memory)
            figures["steps"] = plans[side][0]


def measure_point(args, convoy, log, workload, precision, threads, versions):
    result = {"workload": workload.name, "title": workload.title, "precision": precision, "threads": threads,
              "batch": workload.batch, "convoy": {"images_per_second": [], "peak_memory_bytes": 0}, "torch": {}}
    pinned = args.cores[:threads]
    result["parameters"], result["convoy"]["first_losses"] = convoy.look(workload, precision, threads, pinned)
    torch = start_torch(args, log, workload, precision, threads, result)
    try:
        for each in torch.values():
            versions.update({key: each.versions[key] for key in ("torch", "onednn")})
            check_same_network(result, result["parameters"], each)
        measure_turns(args, convoy, workload, precision, threads, torch, result)
    finally:
        for each in torch.values():
            each.close()
    whole = {name: figures["images_per_second"] for name, figures in result["torch"].items()
             if "error" not in figures}
    if not whole:
        raise Failure(f"{workload.name}: PyTorch: {result['torch']['eager']['error']}")
    best = result["best_variant"] = max(whole, key=lambda name: statistics.median(whole[name]))
    result["ratio"] = spread([a / b for a, b in zip(result["convoy"]["images_per_second"], whole[best])])
    if workload.model["name"].startswith("resnet"):
        profiled = convoy.bench("profile", workload, precision, threads, on_cores(pinned), "--steps",
                                str(3 if args.quick else 10), "--warmup", "2", "--profile")[0]
        for bound in ("convolution_bound", "direct_convolution_bound"):
            result[bound + "_s"] = profiled["profile"][bound + "_s"]
            result["share_of_" + bound] = result[bound + "_s"] / profiled["profile"]["step_seconds"]
    return result


def measure_processes(args, convoy, workload, precision, steps, warmup):
    """Images/s of two processes of one thread each that have nothing to do with each other, at the same time, over those
    of one alone: what the machine leaves to two ranks; and what would be left of it if at every step each of them waited
    for the slower one, as ranks do.
    """
    def step_seconds(core):
        return convoy.steps(workload, precision, 1, [core], steps, warmup)["step_seconds"]

    free, in_step = [], []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in range(args.repeat):
            both = list(pool.map(step_seconds, args.cores[:2]))
            alone = statistics.median(step_seconds(args.cores[0]))
            free.append(sum(alone / statistics.median(each) for each in both))
            in_step.append(2 * alone / statistics.median(map(max, *both)))
    return {"processes_ratio": spread(free), "processes_in_step_ratio": spread(in_step)}


def measure_scaling(args, convoy, workload, precision):
    """Images/s of two ranks over those of one, one thread each, the same batch for each rank."""
    cases = [f"ranks={ranks} train.global_batch_size={ranks * workload.batch}" for ranks in (1, 2)]

    def bench(steps, warmup, repeats):
        return convoy.bench("scaling", workload, precision, 1,
                            ["mpirun", "-n", "2", "--bind-to", "core", "--map-by", "core"], "--steps", str(steps),
                            "--warmup", str(warmup), "--repeat", str(repeats),
                            *(word for case in cases for word in ("--case", case)))

    plan = plan_steps(args.seconds, lambda steps, warmup: bench(steps, warmup, 1)[0]["step_seconds"])
    results = bench(*plan, args.repeat)
    rates = {ranks: [each["images_per_second"] for each in sorted(results, key=lambda r: r["repeat"])
                     if each["ranks"] == ranks] for ranks in (1, 2)}
    return {"workload": workload.name, "title": workload.title, "precision": precision,
            "batch_per_rank": workload.batch, "images_per_second": {str(ranks): each for ranks, each in rates.items()},
            "ratio": spread([two / one for one, two in zip(rates[1], rates[2])]),
            **measure_processes(args, convoy, workload, precision, *plan)}


# ---- All of it ------------------------------------------------------------------------------------------------------


def store(out, figures):
    """The file is always whole."""
    path = os.path.join(out, "bench_cpu.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)


def run(args, convoy, log, figures):
    """Measures everything that was asked for; what fails is noted, and the rest goes on."""
    def attempt(title, kind, measure):
        say(f"== {title}")
        try:
            figures[kind].append(measure())
            say(bench_cpu_report.sentence(figures[kind][-1]))
        except (Failure, LookupError, ValueError, OSError) as failure:
            text = str(failure) if isinstance(failure, Failure) else f"{type(failure).__name__}: {failure}"
            figures["failures"].append(f"{title}: {text}")
            say(f"failed: {text}")
        figures["commands"] = convoy.commands
        store(args.out, figures)

    for workload in [] if args.scaling_only else args.workloads:
        for precision in args.precisions:
            for threads in args.threads:
                attempt(f"{workload.title}, {precision}, threads: {threads}", "results",
                        lambda w=workload, p=precision, t=threads: measure_point(args, convoy, log, w, p, t,
                                                                                 figures["versions"]["pytorch"]))
    if args.scaling and len(args.cores) < 2:
        figures["without_scaling"] = "two ranks want two cores, and this process may use one"
    elif args.scaling:
        for workload in args.workloads or WORKLOADS.values():
            for precision in args.precisions:
                attempt(f"{workload.title}, {precision}, two ranks beside one", "scaling",
                        lambda w=workload, p=precision: measure_scaling(args, convoy, w, p))


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended on the way out
    os.chdir(ROOT)
    if args.check:
        return 0
    require("taskset", *(["mpirun"] if args.scaling else []))
    if not os.access(args.program, os.X_OK):
        raise Failure(f"there is no program {args.program}: build it (cmake --preset release && cmake --build --preset "
                      "release), or name another with CONVOY=FILE")
    os.makedirs(args.out, exist_ok=True)
    in_docs = args.out == os.path.abspath("docs/results/cpu")
    path = os.path.join("build" if in_docs else args.out, "bench_cpu.log")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    with open(path, "a+b") as log:  # both sides write to its end
        convoy = Convoy(args.program, log)
        figures = {"command": command_line(),
                   "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "machine": machine(),
                   "versions": {"convoy": convoy.versions(), "pytorch": {}}, "quick": args.quick,
                   "repeats": args.repeat, "seconds_per_measurement": args.seconds, "results": [], "scaling": [],
                   "failures": []}
        if figures["machine"]["load_before"] > 0.5:
            say(f"Others use this machine (load {figures['machine']['load_before']:.1f}): the figures will say little.")
        say(f"what the programs print: {path}")
        run(args, convoy, log, figures)
    for file in bench_cpu_report.write(figures, args.out, say):
        say(f"wrote {file}")
    say(bench_cpu_report.table(figures))
    for failure in figures["failures"]:
        say(f"failed: {failure}")
    return int(bool(figures["failures"]))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, OSError) as problem:
        print(f"bench_cpu: {problem}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
