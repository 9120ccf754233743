#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parts of the check of a GPU machine; scripts/gpu_check.sh runs them one after another, each under a time limit.

  gpu_check.py run PART --out DIR --convoy PROGRAM --seconds N    one part: its result goes to DIR/results.json, what its
                                                                  commands print to DIR/log.txt
  gpu_check.py gpus                                               names the GPUs, or says why there are none and ends with 2
  gpu_check.py table PART... --out DIR                            the results; ends with 1 if one failed

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

from gpu_session import CONFIGS, Failure, Session, Skipped, ending, gpus, last_line, say, settings
from gpu_speed import speed, speed_seed

TOLERANCE = 1e-3  # of losses on the GPU against the CPU, relative
COMPARE_CASES = "*agree*"  # of test_cuda: with the CPU, operation by operation
LONG_CASES = "*ResNet*"    # of test_cuda: too long under a sanitizer


# ---- What works ---------------------------------------------------------------------------------------------------


def doctor(session):
    text = session.must("convoy doctor", [session.program, "doctor"])
    lines = text.splitlines()
    session.details = {"doctor": lines, "gpus": gpus()[0], "version": session.run([session.program, "--version"])[1]}
    if shutil.which("nvidia-smi"):
        session.run(["nvidia-smi"])
    for line in lines:
        if not line.startswith("ok"):
            say(line)
    return "; ".join(session.details["gpus"]) or "no GPU"


def tests(session):
    """Every test program, those of several ranks on 1, 2 and 4; the comparisons of test_cuda are a part of their own."""
    results = session.details
    for name, path in sorted(session.programs().items()):
        plain = [path]
        if name == "test_cuda":
            plain += [f"--test-case-exclude={COMPARE_CASES}"]
        if name == "test_app" and session.in_bundle:  # it looks where it was built
            plain += ["--test-case-exclude=the examples are good configs"]
        if name == "mpi_abort_test":
            runs = [(f"{name} {how}", session.ranks(2) + [path, how]) for how in ("throws", "hangs")]
        elif name.startswith("mpi_") or "nccl" in name:
            runs = [(f"{name} on {ranks}", session.ranks(ranks) + plain) for ranks in (1, 2, 4)]
        else:
            runs = [] if name == "io_files" else [(name, plain)]
        for title, command in runs:
            start = time.monotonic()
            code, text = session.run(command)
            good = "aborted in time" in text and "too late" not in text if name == "mpi_abort_test" else code == 0
            result = "passed" if good else "skipped" if code == 77 else f"failed: {ending(code)}: {last_line(text)}"
            results[title] = {"result": result, "seconds": round(time.monotonic() - start, 1)}
            say(f"{title:<28} {results[title]['seconds']:>6} s  {result}")
    failed = [title for title, each in results.items() if each["result"].startswith("failed")]
    if failed:
        raise Failure(f"{len(failed)} of {len(results)} failed: {', '.join(failed)}")
    return f"{len(results)} runs, {sum(each['result'] == 'skipped' for each in results.values())} skipped"


def compare(session):
    code, text = session.run([session.test_cuda(), f"--test-case={COMPARE_CASES}"])
    if code == 77:
        raise Skipped(last_line(text))
    if code != 0:
        raise Failure(f"{ending(code)}: {last_line(text)}")
    summary = re.findall(r"test cases:.*", text)
    if not summary or re.search(r"test cases:\s+0\b", summary[-1]):
        raise Failure("test_cuda has no case that compares")
    return re.sub(r"\s+", " ", summary[-1])


def sanitizer(session):
    path = os.environ.get("PATH", "") + ":" + os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
    tool = shutil.which("compute-sanitizer", path=path)
    if not tool:
        raise Skipped("compute-sanitizer is not on this machine")
    program, results = session.test_cuda(), session.details
    for name, share in (("memcheck", 0.5), ("racecheck", 0.6), ("initcheck", 1)):  # of the time that is left
        code, text = session.run([tool, "--tool", name, "--target-processes", "all", "--error-exitcode", "99", program,
                                f"--test-case-exclude={LONG_CASES}"], (session.left() - 20) * share)
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


def train(session, name, ranks, config, *items):
    """Trains in a new run folder; the events of its metrics.jsonl by kind."""
    folder = os.path.join(session.work, "runs", name)
    shutil.rmtree(folder, ignore_errors=True)
    common = (f"run.dir={os.path.dirname(folder)}", f"run.name={name}", "log.tensorboard=false", "log.progress=off",
              "log.every_steps=1")
    session.must(name, [*session.ranks(ranks), session.program, "train", os.path.join(CONFIGS, config),
                        *settings(*common, *items)])
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    shutil.rmtree(folder)  # its checkpoints are large
    return {kind: [e for e in events if e["event"] == kind] for kind in ("start", "step", "eval", "end")}


def quickstart(session):
    start = time.monotonic()
    events = train(session, "quickstart", 1, "quickstart.toml", "device.kind=cuda")
    seconds = time.monotonic() - start
    session.details = {"events": events, "seconds": seconds}
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


def hold_against_cpu(session, cases, config, *common):
    """Each case on the GPU and on the CPU; the losses of each step must agree."""
    bad = []
    for title, (ranks, words) in cases.items():
        name = re.sub(r"\W+", "-", title)
        items = [*common, *words.split()]
        threads = max(1, len(os.sched_getaffinity(0)) // ranks)
        on_gpu = [*items, "device.kind=cuda", "device.share_gpu=true"]
        on_cpu = [*(item for item in items if not item.startswith("device.")), "device.kind=cpu",
                  f"device.threads={threads}"]
        try:
            losses = [[event["loss"] for event in train(session, f"{name}-{kind}", ranks, config, *each)["step"]]
                      for kind, each in (("gpu", on_gpu), ("cpu", on_cpu))]
        except Failure as failure:
            say(f"{title:<32} failed: {failure}")
            bad.append(title)
            session.details[title] = {"failed": str(failure)}
            if session.left() < 30:
                break
            continue
        same_steps = 0 < len(losses[0]) == len(losses[1])
        worst = max(abs(gpu - cpu) / abs(cpu) for gpu, cpu in zip(*losses)) if same_steps else math.inf
        if not worst <= TOLERANCE:  # not a number is far off, too
            bad.append(title)
        session.details[title] = {"largest_relative_difference": worst, "gpu": losses[0], "cpu": losses[1]}
        shown = f"loss {losses[1][0]:.4f} to {losses[1][-1]:.4f}, differ by {worst:.1e}" if same_steps else "differ"
        say(f"{title:<32} {len(losses[0])} steps, {shown}")
    missing = [title for title in cases if title not in session.details]
    if bad or missing:
        raise Failure(f"{len(bad)} of {len(cases)} failed: {', '.join(bad)}" +
                      (f"; out of time for {', '.join(missing)}" if missing else ""))
    worst = max(each["largest_relative_difference"] for each in session.details.values())
    return f"{len(cases)} cases, losses differ by at most {worst:.1e} relative"


# A gentle rate: at the usual ones rounding alone grows tenfold a step in a ResNet.
GENTLE = ["optimizer.lr=0.001", "lr_schedule.name=constant", "lr_schedule.warmup_epochs=0", "train.eval_every_epochs=0",
          "checkpoint.every_epochs=0"]


def modes(session, kind):
    return hold_against_cpu(session, MODES[kind], "quickstart.toml", "train.steps=10", "train.global_batch_size=48",
                            *GENTLE)


def modes_resnet50(session):
    return hold_against_cpu(session, {"resnet50, 1 rank": (1, "")}, "resnet50_synthetic.toml", "train.steps=20",
                            "train.global_batch_size=16", "data.image_size=64", "data.samples=320", *GENTLE)


PARTS = {
    "doctor": doctor, "tests": tests, "compare": compare, "quickstart": quickstart,
    "modes_data": lambda session: modes(session, "data"),
    "modes_pipeline": lambda session: modes(session, "pipeline"),
    "modes_resnet50": modes_resnet50,
    "speed_bf16": lambda session: speed(session, "bf16", [256, 512, 128, 64], ["eager", "graph"]),
    "speed_fp16": lambda session: speed(session, "fp16", [256, 512, 128, 64], ["eager", "graph"]),
    "speed_compile": lambda session: speed(session, "bf16", [256], ["compile"], compile_seconds=330),
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
        session = Session(args, work)
        try:
            entry.update(result="passed", figure=PARTS[args.part](session))
        except Failure as failure:
            entry.update(result="failed", figure=str(failure))
        except Skipped as reason:
            entry.update(result="skipped", figure=str(reason))
        except (OSError, KeyError, ValueError, IndexError) as error:
            entry.update(result="failed", figure=f"{type(error).__name__}: {error}")
        finally:
            if session.server:
                session.server.close()
        entry.update(seconds=round(time.monotonic() - start, 1), gpus=gpus()[0], details=session.details)
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
