#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the experiments of PyTorch's tutorials with convoy and writes OUT/figures.json, pictures and OUT/README.md.

  a  the toy network: data parallel, stopped and resumed, two stages with two replicas; the losses must agree
  b  ResNet-50 on one rank against two stages on two ranks
  c  the same with pipelining, and data parallel on two ranks; and two processes that each train alone at the same time,
     which is what the machine leaves to two ranks
  d  time against the split size (images per microbatch) of the pipeline
  e  scatter mode against data mode on two ranks, phase by phase

b, c and d are one `convoy bench` with every case in turn, so that each repeat compares all of them at the same time.
Every figure in OUT is measured by this run or quoted from the tutorials as theirs. Run from the repository's root.
"""
import argparse
import datetime
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys

import plot_tutorials

PROGRAM = os.environ.get("CONVOY", "build/app/convoy")
CONFIGS = "app/configs/tutorials"
RUNS = "runs/tutorials"  # scratch: the runs of a, what bench wrote
SPLITS = [1, 3, 5, 8, 10, 12, 20, 40, 60]
TOY_STEPS = 10
TOLERANCE = 1e-5  # of losses that agree to rounding, relative

TUTORIAL = {  # what the tutorials' own pages say, in seconds for 3 batches of 120
    "ddp": "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html",
    "model_parallel": "https://pytorch.org/tutorials/intermediate/model_parallel_tutorial.html",
    "single_seconds": 3.75,
    "model_seconds": 4.02,
    "pipeline_seconds": {"20": 2.51, "12": 2.43},
    "fastest_split": 12,
}


class Failure(Exception):
    """One sentence for the user."""


def say(text):
    print(text, flush=True)


def arguments():
    parser = argparse.ArgumentParser(prog="reproduce_tutorials.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, help="images per step (120; with --quick 24)")
    parser.add_argument("--image", type=int, help="height and width of an image (128; with --quick 64)")
    parser.add_argument("--repeats", type=int, help="times each case is run (10; with --quick 2)")
    parser.add_argument("--steps", type=int, default=3, help="batches timed in each run (3)")
    parser.add_argument("--warmup", type=int, default=1, help="batches before those (1)")
    parser.add_argument("--partition", help="parallel.partition of the two stages (default: the program's choice)")
    parser.add_argument("--schedule", help="parallel.schedule of the pipelines (default: zb_v)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", default="a,b,c,d,e", help="experiments, separated by commas")
    parser.add_argument("--out", default="docs/results/tutorials")
    parser.add_argument("--quick", action="store_true", help="small and short: to see that everything works")
    parser.add_argument("--plot-only", action="store_true", help="draw OUT/figures.json again")
    args = parser.parse_args()
    args.batch = args.batch if args.batch is not None else (24 if args.quick else 120)
    args.image = args.image if args.image is not None else (64 if args.quick else 128)
    args.repeats = args.repeats if args.repeats is not None else (2 if args.quick else 10)
    args.parts = set(filter(None, args.only.split(",")))
    if not args.parts or args.parts - set("abcde"):
        parser.error(f"--only: '{args.only}' is no list of a, b, c, d and e")
    if args.batch < 2 or args.batch % 2:
        parser.error(f"--batch: {args.batch} does not divide among two ranks")
    if min(args.image, args.repeats, args.steps) < 1 or args.warmup < 0:
        parser.error("--image, --repeats and --steps are at least 1, --warmup at least 0")
    return args


# ---- The machine and the program ------------------------------------------------------------------------------------


def output_of(command):
    """What a command prints, or "" if there is no such command or it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def physical_cores():
    """Cores that Open MPI may count as slots: it takes physical cores, not hardware threads."""
    lines = output_of(["lscpu", "-p=CORE,SOCKET"]).splitlines()
    allowed = len(os.sched_getaffinity(0))
    return min(len({line for line in lines if not line.startswith("#")}) or allowed, allowed)


def mpirun(ranks, device):
    """One core per rank where there are enough."""
    if ranks > physical_cores():
        return ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
    if device == "cuda":
        return ["mpirun", "-n", str(ranks), "--bind-to", "none"]
    return ["mpirun", "-n", str(ranks), "--bind-to", "core", "--map-by", "core"]


def device_settings(device, ranks):
    if device == "cpu":
        return ["--set", "device.kind=cpu", "--set", "device.threads=1"]
    gpus = len(output_of(["nvidia-smi", "-L"]).splitlines())
    if gpus == 0:
        raise Failure("--device cuda: nvidia-smi lists no GPU on this machine (use --device cpu)")
    shared = ["--set", "device.share_gpu=true"] if gpus < ranks else []
    return ["--set", "device.kind=cuda", *shared]


def require_program(args):
    if not os.access(PROGRAM, os.X_OK):
        raise Failure(f"there is no program {PROGRAM}: build it (cmake --preset release && cmake --build --preset "
                      "release) or name another with CONVOY=FILE")
    if not shutil.which("mpirun"):
        raise Failure("there is no mpirun: scripts/install_deps.sh installs Open MPI")
    if args.parts & set("bcde") and "--case" not in output_of([PROGRAM, "bench", "--help"]):
        raise Failure(f"{PROGRAM} is too old: its bench has no --case (build it again)")


def run(command):
    """Runs a command in view of the user; returns it as text."""
    text = shlex.join(command)
    say(f"$ {text}")
    code = subprocess.run(command).returncode
    if code:
        raise Failure(f"this command ended with exit code {code}: {text}")
    return text


def remove(path):
    """So that what an earlier run left is never taken for this one's."""
    if os.path.exists(path):
        os.remove(path)


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError as error:
        raise Failure(f"there is no {path}") from error
    except ValueError as error:
        raise Failure(f"{path} is no JSON ({error})") from error


# ---- a: the toy -----------------------------------------------------------------------------------------------------


def toy_run(name, ranks, device, settings, steps_of_each=(TOY_STEPS,)):
    """Trains the toy, stopping after each of the steps and starting again; what metrics.jsonl says of it."""
    folder = os.path.join(RUNS, name)
    shutil.rmtree(folder, ignore_errors=True)
    commands = []
    for steps in steps_of_each:
        override = [f"run.dir={RUNS}", f"run.name={name}", f"train.steps={steps}", *settings]
        commands.append(run([*mpirun(ranks, device), PROGRAM, "train", f"{CONFIGS}/toy_ddp.toml",
                             *device_settings(device, ranks), *(word for o in override for word in ("--set", o))]))
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    steps = [e for e in events if e["event"] == "step"]
    starts = [{k: e.get(k) for k in ("step", "ranks", "replicas", "stages", "resumed_from")}
              for e in events if e["event"] == "start"]
    return {"name": name, "ranks": ranks, "commands": commands, "starts": starts,
            "steps": [e["step"] for e in steps], "losses": [e["loss"] for e in steps]}


def experiment_toy(args):
    two_stages = ["parallel.mode=model", "parallel.stages=2"]
    runs = [toy_run("toy_1_rank", 1, args.device, []),
            toy_run("toy_2_ranks", 2, args.device, []),
            toy_run("toy_4_ranks", 4, args.device, []),
            toy_run("toy_2_ranks_resumed", 2, args.device, [], (TOY_STEPS // 2, TOY_STEPS)),
            toy_run("toy_2_replicas_of_2_stages", 4, args.device, two_stages)]
    for each in runs:
        if each["steps"] != list(range(1, TOY_STEPS + 1)):
            raise Failure(f"{RUNS}/{each['name']}/metrics.jsonl has steps {each['steps']} instead of 1 to {TOY_STEPS}")
        each["largest_relative_difference"] = max(
            abs(mine - reference) / abs(reference) for mine, reference in zip(each["losses"], runs[0]["losses"]))
    by_name = {each["name"]: each for each in runs}
    if len(by_name["toy_2_ranks_resumed"]["starts"]) != 2 or by_name["toy_2_ranks_resumed"]["starts"][1]["step"] == 0:
        raise Failure(f"{RUNS}/toy_2_ranks_resumed started anew instead of going on from its checkpoint")
    if by_name["toy_2_replicas_of_2_stages"]["starts"][0]["stages"] != 2:
        raise Failure(f"{RUNS}/toy_2_replicas_of_2_stages ran without two stages: nothing is compared")
    return {"tolerance": TOLERANCE, "runs": runs,
            "agree": all(each["largest_relative_difference"] <= TOLERANCE for each in runs),
            "resumed_equals_unstopped_bitwise":
                by_name["toy_2_ranks_resumed"]["losses"] == by_name["toy_2_ranks"]["losses"],
            "commands": [command for each in runs for command in each.pop("commands")]}


# ---- b to e: ResNet-50 ----------------------------------------------------------------------------------------------


def resnet_points(args):
    """The cases of b, c and d as (key, case), and a sentence on splits that were dropped ("" if none)."""
    stages = "parallel.stages=2" + (f" parallel.partition={args.partition}" if args.partition else "")
    points = [("single", "ranks=1")]
    if args.parts & set("bc"):
        points.append(("model", f"ranks=2 parallel.mode=model {stages}"))
    if args.parts & set("cd"):
        points.append(("processes", "processes=2"))
        points.append(("data", "ranks=2 parallel.mode=data"))
    fitting = [s for s in SPLITS if s < args.batch and args.batch % s == 0]
    dropped = [s for s in SPLITS if s not in fitting]
    splits = fitting if "d" in args.parts else [s for s in fitting if s <= 20][-1:] if "c" in args.parts else []
    for split in splits:
        microbatches = args.batch // split
        schedule = args.schedule or "zb_v"
        points.append((f"split {split}", f"ranks=2 parallel.mode=pipeline {stages} parallel.schedule={schedule} "
                                         f"parallel.microbatches={microbatches}"))
    sentence = ""
    if dropped and splits:
        sentence = (f"Split sizes {', '.join(map(str, dropped))} are left out: they do not cut a batch of {args.batch} "
                    "into two or more equal parts.")
    return points, sentence


def words(case):
    """A case as a mapping of its words, without quotes, so that spelling and order do not matter."""
    pairs = case.items() if isinstance(case, dict) else (word.split("=", 1) for word in case.split())
    return {key: str(value).strip("\"'") for key, value in pairs}


def bench(args, name, points):
    """One `convoy bench` over all points in turn; each point with the times and phases of its repeats."""
    document_path = os.path.join(RUNS, f"{name}.json")
    remove(document_path)
    sizes = [f"train.global_batch_size={args.batch}", f"data.image_size={args.image}", f"data.samples={3 * args.batch}"]
    command = run([*mpirun(2, args.device), PROGRAM, "bench", f"{CONFIGS}/resnet50_tutorial.toml",
                   *device_settings(args.device, 2), *(word for s in sizes for word in ("--set", s)),
                   "--steps", str(args.steps), "--warmup", str(args.warmup), "--repeat", str(args.repeats),
                   *(word for _, case in points for word in ("--case", case)), "--json", document_path])
    document = load(document_path)
    measured = []
    for key, case in points:
        wanted = {"ranks": "1", **words(case)}
        rows = [r for r in document["results"]
                if {**words(r.get("case") or r["overrides"]), "ranks": str(r["ranks"])} == wanted]
        rows.sort(key=lambda r: r["repeat"])
        if len(rows) != args.repeats:
            raise Failure(f"{document_path} has {len(rows)} results of '{case}' instead of {args.repeats}")
        seconds = [batches_seconds(r) for r in rows]
        measured.append({
            "key": key, "case": case, "step_seconds": [r["step_seconds"] for r in rows], "seconds": seconds,
            **processes_seconds(rows),
            "mean": statistics.mean(seconds), "deviation": statistics.stdev(seconds) if len(seconds) > 1 else 0.0,
            "images_per_second": [r["images_per_second"] for r in rows],
            "peak_memory_bytes": [r["peak_memory_bytes"] for r in rows], "phases": [r["phases"] for r in rows]})
    settings = {k: getattr(args, k) for k in ("batch", "image", "steps", "warmup", "repeats", "device", "partition")}
    return {"program_version": document["program_version"], "machine": document["machine"], "settings": settings,
            "commands": [command], "points": measured}


def batches_seconds(result):
    """For the batches of a result; of processes, for as many batches in all."""
    if "processes" not in result:
        return sum(result["step_seconds"])
    return 1 / sum(1 / sum(seconds) for seconds in result["step_seconds_of_processes"])


def processes_seconds(results):
    """What results of processes have besides: the steps of the first one, whose phases they have, and the seconds for as
    many batches if at every step each process waited for the slowest, as ranks do."""
    if "processes" not in results[0]:
        return {}
    return {"step_seconds": [r["step_seconds_of_processes"][0] for r in results], "processes": results[0]["processes"],
            "in_step_seconds": [sum(r["step_seconds"]) / r["processes"] for r in results]}


def add_ratios(experiment, pairs):
    """pairs: name -> (numerator, denominator). Ratios of the same repeat, then their median and spread."""
    seconds = {p["key"]: p["seconds"] for p in experiment["points"]}
    experiment["ratios"] = {}
    for name, (top, bottom) in pairs.items():
        if top not in seconds or bottom not in seconds:
            continue
        each = [a / b for a, b in zip(seconds[top], seconds[bottom])]
        experiment["ratios"][name] = {"of": [top, bottom], "per_repeat": each, "median": statistics.median(each),
                                      "lowest": min(each), "highest": max(each)}


def experiment_resnet(args, points, sentence):
    result = bench(args, "resnet50", points)
    result["dropped"] = sentence
    parallel = [key for key, _ in points if key not in ("single", "model")]
    pairs = {"model / single": ("model", "single"), **{f"single / {key}": ("single", key) for key in parallel}}
    pairs.update({f"processes / {key}": ("processes", key) for key in parallel if key != "processes"})
    add_ratios(result, pairs)
    return result


SCATTER_POINTS = [("data", "ranks=2 parallel.mode=data"), ("scatter", "ranks=2 parallel.mode=scatter")]


def experiment_scatter(args):
    result = bench(args, "scatter", SCATTER_POINTS)
    add_ratios(result, {"scatter / data": ("scatter", "data")})
    return result


def announce(args, points):
    """Times one step on one rank and prints how long all of it should take."""
    path = os.path.join(RUNS, "probe.json")
    remove(path)
    run([*mpirun(1, args.device), PROGRAM, "bench", f"{CONFIGS}/resnet50_tutorial.toml",
         *device_settings(args.device, 2), "--set", f"train.global_batch_size={args.batch}",
         "--set", f"data.image_size={args.image}", "--set", f"data.samples={3 * args.batch}",
         "--steps", "1", "--warmup", "1", "--json", path])
    step = load(path)["results"][0]["step_seconds"][0]
    # Two ranks share the work where each has its own core or GPU; a model in turns does not. Start-up: about a second.
    shares = {"single": 1.0, "model": 1.1, "processes": 1.1, "data": 0.6, "scatter": 0.7}
    work = sum(shares.get(key, 0.7) for key, _ in points)
    seconds = args.repeats * (work * step * (args.steps + args.warmup) + len(points))
    say(f"Estimate: {step:.3g} s a step on one rank, {len(points)} cases x {args.repeats} repeats x "
        f"{args.steps}+{args.warmup} steps: about {max(1, round(seconds / 60))} min in all.")


# ---- All of it ------------------------------------------------------------------------------------------------------


def store(path, figures, name, result):
    """Adds one experiment to the file, which is always whole."""
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    figures["tutorial"] = TUTORIAL
    figures["experiments"][name] = {"date": now, **result}
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)


def main():
    args = arguments()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    missing = plot_tutorials.what_is_missing()
    if missing:
        raise Failure(missing)
    path = os.path.join(args.out, "figures.json")
    figures = load(path) if args.plot_only or os.path.exists(path) else {"experiments": {}}
    if not args.plot_only:
        require_program(args)
        if os.geteuid() == 0:
            os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        os.makedirs(args.out, exist_ok=True)
        os.makedirs(RUNS, exist_ok=True)
        if physical_cores() < 2 and args.parts & set("bcde"):
            say("Two ranks share one core here: two ranks cannot be faster than one.")
        points, sentence = resnet_points(args) if args.parts & set("bcd") else ([], "")
        scatter = SCATTER_POINTS if "e" in args.parts else []
        if sentence:
            say(sentence)
        if points or scatter:
            announce(args, points + scatter)
        if "a" in args.parts:
            store(path, figures, "toy", experiment_toy(args))
        if points:
            store(path, figures, "resnet50", experiment_resnet(args, points, sentence))
        if scatter:
            store(path, figures, "scatter", experiment_scatter(args))
    for file in plot_tutorials.draw_all(figures, args.out):
        say(f"wrote {file}")
    if "a" in args.parts and not figures["experiments"].get("toy", {}).get("agree", True):
        raise Failure(f"the toy's losses differ by more than {TOLERANCE:g}: see {path}")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"reproduce_tutorials: {failure}")
    except OSError as error:
        sys.exit(f"reproduce_tutorials: {error}")
    except KeyError as error:
        sys.exit(f"reproduce_tutorials: a file of results has no {error}: another version of convoy wrote it")
    except KeyboardInterrupt:
        sys.exit(130)
