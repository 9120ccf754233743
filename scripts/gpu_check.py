#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parts of the check of a GPU machine; scripts/gpu_check.sh runs them one after another, each under a time limit.

  gpu_check.py run PART --out DIR --convoy PROGRAM --seconds N   one part: its result goes to DIR/results.json, what its
                                                                 commands print to DIR/log.txt
  gpu_check.py gpus                       names the GPUs; without any it says why and ends with 2
  gpu_check.py table PART... --out DIR    the results; ends with 1 if one failed

Standard library only; torch, where the speed is held against PyTorch's.
"""
import argparse
import datetime
import json
import math
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time

from gpu_part import CONFIGS, Failure, Part, Skipped, ending, gpus, last_line, say, settings
from gpu_speed import speed, speed_seed

TOLERANCE = 1e-3  # of losses on the GPU against the CPU, relative
COMPARE_CASES = "*agree*"  # of test_cuda: with the CPU, operation by operation
LONG_CASES = "*ResNet*"    # of test_cuda: too long under a sanitizer


# ---- What works ---------------------------------------------------------------------------------------------------


def doctor(part):
    text = part.must("convoy doctor", [part.program, "doctor"])
    lines = text.splitlines()
    part.details = {"doctor": lines, "gpus": gpus()[0], "version": part.run([part.program, "--version"])[1]}
    if shutil.which("nvidia-smi"):
        part.run(["nvidia-smi"])
    for line in lines:
        if not line.startswith("ok"):
            say(line)
    return "; ".join(part.details["gpus"]) or "no GPU"


def tests(part):
    """Every test program, those of several ranks on 1, 2 and 4; what test_cuda compares is a part of its own."""
    results = part.details
    for name, path in sorted(part.programs().items()):
        plain = [path]
        if name == "test_cuda":
            plain += [f"--test-case-exclude={COMPARE_CASES}"]
        if name == "test_app" and part.in_bundle:  # it looks where it was built
            plain += ["--test-case-exclude=the examples are good configs"]
        if name == "test_mpi_abort":
            runs = [(f"{name} {how}", part.ranks(2) + [path, how]) for how in ("throws", "hangs")]
        elif name in ("test_parallel_mpi", "test_nccl"):
            runs = [(f"{name} on {ranks}", part.ranks(ranks) + plain) for ranks in (1, 2, 4)]
        else:
            runs = [] if name == "io_files" else [(name, plain)]
        for title, command in runs:
            start = time.monotonic()
            code, text = part.run(command)
            good = "aborted in time" in text and "too late" not in text if name == "test_mpi_abort" else code == 0
            result = "passed" if good else "skipped" if code == 77 else f"failed: {ending(code)}: {last_line(text)}"
            results[title] = {"result": result, "seconds": round(time.monotonic() - start, 1)}
            say(f"{title:<28} {results[title]['seconds']:>6} s  {result}")
    failed = [title for title, each in results.items() if each["result"].startswith("failed")]
    if failed:
        raise Failure(f"{len(failed)} of {len(results)} failed: {', '.join(failed)}")
    return f"{len(results)} runs, {sum(each['result'] == 'skipped' for each in results.values())} skipped"


def compare(part):
    code, text = part.run([part.test_cuda(), f"--test-case={COMPARE_CASES}"])
    if code == 77:
        raise Skipped(last_line(text))
    if code != 0:
        raise Failure(f"{ending(code)}: {last_line(text)}")
    summary = re.findall(r"test cases:.*", text)
    if not summary or re.search(r"test cases:\s+0\b", summary[-1]):
        raise Failure("test_cuda has no case that compares")
    return re.sub(r"\s+", " ", summary[-1])


def sanitizer(part):
    path = os.environ.get("PATH", "") + ":" + os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
    tool = shutil.which("compute-sanitizer", path=path)
    if not tool:
        raise Skipped("compute-sanitizer is not on this machine")
    program, results = part.test_cuda(), part.details
    for name, share in (("memcheck", 0.5), ("racecheck", 0.6), ("initcheck", 1)):  # of the time that is left
        code, text = part.run([tool, "--tool", name, "--target-processes", "all", "--error-exitcode", "99", program,
                                f"--test-case-exclude={LONG_CASES}"], (part.left() - 20) * share)
        found = any(int(count) for count in re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text))
        without_finding = {0: "clean", 77: "skipped", None: "no finding before the time was over"}
        failed = found or code not in without_finding
        results[name] = f"failed: {ending(code)}: {last_line(text)}" if failed else without_finding[code]
        say(f"{name:<10} {results[name]}")
    bad = [f"{name} {result}" for name, result in results.items() if result.startswith("failed")]
    if bad:
        raise Failure("; ".join(bad))
    return "; ".join(f"{name} {result}" for name, result in results.items())


# ---- Training -------------------------------------------------------------------------------------------------------


def train(part, name, ranks, config, *items):
    """Trains in a new run folder; the events of its metrics.jsonl by kind."""
    folder = os.path.join(part.work, "runs", name)
    shutil.rmtree(folder, ignore_errors=True)
    common = (f"run.dir={os.path.dirname(folder)}", f"run.name={name}", "log.tensorboard=false", "log.progress=off",
              "log.every_steps=1")
    part.must(name, [*part.ranks(ranks), part.program, "train", os.path.join(CONFIGS, config),
                        *settings(*common, *items)])
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    shutil.rmtree(folder)  # its checkpoints are large
    return {kind: [e for e in events if e["event"] == kind] for kind in ("start", "step", "eval", "end")}


def quickstart(part):
    start = time.monotonic()
    events = train(part, "quickstart", 1, "quickstart.toml", "device.kind=cuda")
    seconds = time.monotonic() - start
    part.details = {"events": events, "seconds": seconds}
    top1 = events["eval"][-1]["top1"]
    rate = statistics.median(event["images_per_second"] for event in events["step"])
    figure = f"top-1 {100 * top1:.1f} % after {len(events['step'])} steps, {seconds:.0f} s, {rate:.0f} images/s"
    if top1 < 0.97:
        raise Failure(f"{figure} (97 % was to be reached)")
    return figure


PIPELINE = "parallel.mode=pipeline parallel.microbatches=4"
MODES = {
    "data": {
        "data, 1 rank": (1, ""),
        "data, 1 rank, without graphs": (1, "device.graphs=false"),
        "data, 1 rank, deterministic": (1, "device.deterministic=true"),
        "data, 1 rank, 2 microbatches": (1, "parallel.microbatches=2"),
        "data, 2 ranks": (2, ""),
        "data, 4 ranks": (4, ""),
        "data, 2 ranks, sync_batch_norm": (2, "parallel.sync_batch_norm=true"),
        "2 replicas of 2 stages": (4, f"{PIPELINE} parallel.stages=2"),
        "scatter, 2 ranks": (2, "parallel.mode=scatter"),
    },
    "pipeline": {
        "model, 2 ranks": (2, "parallel.mode=model"),
        **{f"{name}, 2 ranks": (2, f"{PIPELINE} parallel.schedule={name}")
           for name in ("gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v")},
        **{f"{name}, 4 ranks": (4, f"{PIPELINE} parallel.schedule={name}") for name in ("1f1b", "interleaved", "zb_v")},
    },
}


# A batch that a small ResNet learns by heart in gentle steps: the losses fall by a third, and rounding alone (another
# number of threads) moves them by 6e-5. On the 8x8 digits at the usual rates it moves them by 1e-2 after five steps.
GENTLE = ["model.stem=small", "model.classes=10", "train.loss=cross_entropy", "optimizer.lr=0.001",
          "optimizer.momentum=0.9"]
RESNET18 = ["model.name=resnet18", "data.image_size=16", "data.samples=128", "train.global_batch_size=128",
            "train.steps=10", *GENTLE]
RESNET50 = ["data.image_size=32", "data.samples=64", "train.global_batch_size=64", "train.steps=20", *GENTLE]


def differences(losses, reference):
    """Of each step, relative; one infinite number where the steps are not the same."""
    if not 0 < len(losses) == len(reference):
        return [math.inf]
    return [abs(mine - theirs) / abs(theirs) for mine, theirs in zip(losses, reference)]


def hold_against_cpu(part, title, ranks, words, items, by_rounding=False):
    """The losses of a run on the GPU and of the same on the CPU, and whether they agree: within TOLERANCE or, by
    rounding, within ten times of what another number of threads has changed on the CPU up to that step."""
    def losses(kind, *more):
        name = re.sub(r"\W+", "-", f"{title} {kind}")
        events = train(part, name, ranks, "tutorials/resnet50_tutorial.toml", *items, *more)
        return [event["loss"] for event in events["step"]]

    layout = [word for word in words if not word.startswith("device.")]
    threads = max(2, len(os.sched_getaffinity(0)) // ranks)
    result = {"gpu": losses("gpu", *words, "device.kind=cuda", "device.share_gpu=true"),
              "cpu": losses("cpu", *layout, "device.kind=cpu", f"device.threads={threads}")}
    far = differences(result["gpu"], result["cpu"])
    allowed = [TOLERANCE] * len(far)
    if by_rounding:
        again = losses("cpu again", *layout, "device.kind=cpu", f"device.threads={threads // 2}")
        noise = differences(again, result["cpu"])
        allowed = [max(TOLERANCE, 10 * max(noise[:step + 1])) for step in range(len(far))]
        result["cpu_again"] = again
    result.update(largest_difference=max(far), agrees=all(f <= a for f, a in zip(far, allowed)))
    shown = "" if math.isinf(max(far)) else f", loss {result['cpu'][0]:.4f} to {result['cpu'][-1]:.4f}"
    say(f"{title:<32} {len(result['gpu'])} steps{shown}, differ by {max(far):.1e} (allowed {max(allowed):.0e})")
    return result


def modes(part, cases):
    for title, (ranks, words) in cases.items():
        try:
            part.details[title] = hold_against_cpu(part, title, ranks, words.split(), RESNET18)
        except Failure as failure:
            say(f"{title:<32} failed: {failure}")
            part.details[title] = {"failed": str(failure), "agrees": False}
            if part.left() < 30:
                break
    bad = [title for title, result in part.details.items() if not result["agrees"]]
    missing = [title for title in cases if title not in part.details]
    if bad or missing:
        raise Failure(f"{len(bad)} of {len(cases)} failed: {'; '.join(bad)}" +
                      (f"; out of time for: {'; '.join(missing)}" if missing else ""))
    worst = max(result["largest_difference"] for result in part.details.values())
    return f"{len(cases)} cases, losses differ by at most {worst:.1e} relative"


def modes_resnet50(part):
    result = part.details["resnet50"] = hold_against_cpu(part, "resnet50", 1, [], RESNET50, by_rounding=True)
    figure = f"{len(result['gpu'])} steps, losses differ by at most {result['largest_difference']:.1e} relative"
    if not result["agrees"]:
        raise Failure(figure + ", more than rounding explains")
    return figure


PARTS = {
    "doctor": doctor, "tests": tests, "compare": compare, "quickstart": quickstart,
    "modes_data": lambda part: modes(part, MODES["data"]),
    "modes_pipeline": lambda part: modes(part, MODES["pipeline"]),
    "modes_resnet50": modes_resnet50,
    "speed_bf16": lambda part: speed(part, "bf16", [256, 512, 128, 64], ["eager", "graph"]),
    "speed_fp16": lambda part: speed(part, "fp16", [256, 512, 128, 64], ["eager", "graph"]),
    "speed_compile": lambda part: speed(part, "bf16", [256], ["compile"], compile_seconds=330),
    "speed_seed": speed_seed, "sanitizer": sanitizer,
}


# ---- One part, and the table ----------------------------------------------------------------------------------------


def load(out):
    try:
        with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return {"parts": {}}


def store(out, part, entry):
    """Adds one part to the file, which is always whole."""
    results = load(out)
    results["parts"][part] = entry
    path = os.path.join(out, "results.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)


def run_part(args):
    def stopped(_signal, _frame):
        raise Failure("out of time")

    signal.signal(signal.SIGTERM, stopped)
    os.makedirs(args.out, exist_ok=True)
    store(args.out, args.part, {"result": "failed", "figure": "ended without a result", "seconds": 0})
    start = time.monotonic()
    entry = {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds")}
    with tempfile.TemporaryDirectory(prefix="convoy-gpu-check-") as work:
        part = Part(args, work)
        try:
            entry.update(result="passed", figure=PARTS[args.part](part))
        except Failure as failure:
            entry.update(result="failed", figure=str(failure))
        except Skipped as reason:
            entry.update(result="skipped", figure=str(reason))
        except (OSError, KeyError, ValueError, IndexError) as error:
            entry.update(result="failed", figure=f"{type(error).__name__}: {error}")
        finally:
            if part.server:
                part.server.close()
        entry.update(seconds=round(time.monotonic() - start, 1), gpus=gpus()[0], details=part.details)
    store(args.out, args.part, entry)
    say(f"{args.part}: {entry['result']}: {entry['figure']}")
    return 1 if entry["result"] == "failed" else 0


def table(args):
    parts = load(args.out)["parts"]
    say(f"\n{'part':<15} {'result':<8} {'s':>5}  figure")
    for part in args.parts:
        entry = parts.get(part, {"result": "failed", "seconds": 0, "figure": "no result"})
        say(f"{part:<15} {entry['result']:<8} {entry['seconds']:>5.0f}  {entry['figure']}")
    return int(any(parts.get(part, {}).get("result", "failed") == "failed" for part in args.parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("gpus")
    one = commands.add_parser("run")
    one.add_argument("part", choices=PARTS)
    one.add_argument("--convoy", required=True)
    one.add_argument("--seconds", type=float, default=480)
    all_parts = commands.add_parser("table")
    all_parts.add_argument("parts", nargs="+", choices=PARTS)
    for command in (one, all_parts):
        command.add_argument("--out", required=True)
    args = parser.parse_args()
    if args.command == "gpus":
        names, reason = gpus()
        say("\n".join(names) or reason)
        return 0 if names else 2
    return run_part(args) if args.command == "run" else table(args)


if __name__ == "__main__":
    sys.exit(main())
