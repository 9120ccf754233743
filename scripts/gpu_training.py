# SPDX-License-Identifier: Apache-2.0
"""Trainings on the GPU: the quickstart to its accuracy, and every parallel mode, with ranks that share the GPU, against
the same numbers on the CPU. Checks of scripts/gpu_check.py.
"""
import json
import math
import os
import re
import shutil
import statistics
import time

from gpu_session import CONFIGS, Failure, say, settings

TOLERANCE = 1e-3  # of losses on the GPU against the CPU, relative


def train(check, name, ranks, config, *items):
    """Trains in a new run folder; the events of its metrics.jsonl by kind."""
    folder = os.path.join(check.session.work, "runs", name)
    shutil.rmtree(folder, ignore_errors=True)
    common = (f"run.dir={os.path.dirname(folder)}", f"run.name={name}", "log.tensorboard=false", "log.progress=off",
              "log.every_steps=1")
    check.must(name, [*check.ranks(ranks), check.program, "train", os.path.join(CONFIGS, config),
                      *settings(*common, *items)])
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    shutil.rmtree(folder)  # its checkpoints are large
    return {kind: [e for e in events if e["event"] == kind] for kind in ("start", "step", "eval", "end")}


def quickstart(check):
    start = time.monotonic()
    events = train(check, "quickstart", 1, "quickstart.toml", *check.device())
    seconds = time.monotonic() - start
    check.record("events", events)
    check.record("seconds", seconds)
    top1 = events["eval"][-1]["top1"]
    rate = statistics.median(event["images_per_second"] for event in events["step"])
    figure = f"top-1 {100 * top1:.1f} % after {len(events['step'])} steps, {seconds:.0f} s, {rate:.0f} images/s"
    if top1 < 0.97:
        raise Failure(f"{figure} (97 % was to be reached)")
    return figure


PIPELINE = "parallel.mode=pipeline parallel.microbatches=4"
# On the CPU a run has the bits of one with as many replicas and microbatches on one stage, whatever its schedule is: so
# one run there is the reference of several (ranks, settings).
ONE, MICROBATCHES_4 = (1, ""), (1, "parallel.microbatches=4")
MODES = {  # title: (ranks, settings, reference)
    "data, 1 rank": (*ONE, ONE),
    "data, 1 rank, without graphs": (1, "device.graphs=false", ONE),
    "data, 1 rank, deterministic": (1, "device.deterministic=true", ONE),
    "data, 1 rank, 2 microbatches": (1, "parallel.microbatches=2", (1, "parallel.microbatches=2")),
    "data, 2 ranks": (2, "", (2, "")),
    "data, 4 ranks": (4, "", (4, "")),
    "data, 2 ranks, sync_batch_norm": (2, "parallel.sync_batch_norm=true", (2, "parallel.sync_batch_norm=true")),
    "model, 2 ranks": (2, "parallel.mode=model", ONE),
    "2 replicas of 2 stages": (4, f"{PIPELINE} parallel.stages=2", (2, "parallel.microbatches=4")),
    **{f"{name}, 2 ranks": (2, f"{PIPELINE} parallel.schedule={name}", MICROBATCHES_4)
       for name in ("gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v")},
    **{f"{name}, 4 ranks": (4, f"{PIPELINE} parallel.schedule={name}", MICROBATCHES_4)
       for name in ("1f1b", "interleaved", "zb_v")},
    "scatter, 2 ranks": (2, "parallel.mode=scatter", (2, "parallel.mode=scatter")),
}

# A batch that a small ResNet learns by heart in gentle steps: the losses fall by a third, and rounding alone (another
# number of threads) moves them by 6e-5. On the 8x8 digits at the usual rates it moves them by 1e-2 after five steps.
GENTLE = ["model.stem=small", "model.classes=10", "train.loss=cross_entropy", "optimizer.lr=0.001",
          "optimizer.momentum=0.9"]
RESNET18 = ["model.name=resnet18", "data.image_size=16", "data.samples=128", "train.global_batch_size=128",
            "train.steps=10", *GENTLE]
RESNET50 = ["data.image_size=32", "data.samples=64", "train.global_batch_size=64", "train.steps=20", *GENTLE]


def losses(check, title, ranks, *items):
    events = train(check, re.sub(r"\W+", "-", title), ranks, "tutorials/resnet50_tutorial.toml", *items)
    return [event["loss"] for event in events["step"]]


def on_cpu(check, title, ranks, threads, *items):
    return losses(check, title, ranks, *items, "device.kind=cpu", f"device.threads={threads}")


def on_device(check, title, ranks, *items):
    if check.session.rehearse:  # what is said of the GPU means nothing there
        items = [item for item in items if not item.startswith("device.")]
    else:
        items = [*items, "device.share_gpu=true"]
    return losses(check, title, ranks, *items, *check.device())


def differences(mine, reference):
    """Of each step, relative; one infinite number where the steps are not the same."""
    if not 0 < len(mine) == len(reference):
        return [math.inf]
    return [abs(a - b) / abs(b) for a, b in zip(mine, reference)]


def threads_of(ranks):
    return max(2, len(os.sched_getaffinity(0)) // ranks)


def modes(check):
    references = {}
    for title, (ranks, words, reference) in MODES.items():
        if check.left() < 30:
            break
        try:
            if reference not in references:
                count, layout = reference
                references[reference] = on_cpu(check, f"{title} cpu", count, threads_of(count), *RESNET18,
                                               *layout.split())
            mine, theirs = on_device(check, title, ranks, *RESNET18, *words.split()), references[reference]
            far = max(differences(mine, theirs))
            check.record(title, {"gpu": mine, "cpu": theirs, "largest_difference": far, "agrees": far <= TOLERANCE})
            say(f"{title:<32} {len(mine)} steps, loss {theirs[0]:.4f} to {theirs[-1]:.4f}, differ by {far:.1e} "
                f"(allowed {TOLERANCE:.0e})")
        except Failure as failure:
            say(f"{title:<32} failed: {failure}")
            check.record(title, {"failed": str(failure), "agrees": False})
    bad = [title for title, result in check.details.items() if not result["agrees"]]
    missing = [title for title in MODES if title not in check.details]
    if bad or missing:
        raise Failure("; ".join([*([f"{len(bad)} of {len(MODES)} failed: {', '.join(bad)}"] if bad else []),
                                 *([f"out of time for: {', '.join(missing)}"] if missing else [])]))
    worst = max(result["largest_difference"] for result in check.details.values())
    return f"{len(MODES)} cases, losses differ by at most {worst:.1e} relative"


def modes_resnet50(check):
    """ResNet-50: by rounding, within ten times of what another number of threads has changed on the CPU so far."""
    threads = threads_of(1)
    mine = on_device(check, "resnet50", 1, *RESNET50)
    theirs = on_cpu(check, "resnet50 cpu", 1, threads, *RESNET50)
    noise = differences(on_cpu(check, "resnet50 cpu again", 1, max(1, threads // 2), *RESNET50), theirs)
    far = differences(mine, theirs)
    agrees = all(f <= max(TOLERANCE, 10 * max(noise[:step + 1])) for step, f in enumerate(far))
    check.record("resnet50", {"gpu": mine, "cpu": theirs, "differences": far, "noise": noise, "agrees": agrees})
    figure = f"{len(mine)} steps, losses differ by at most {max(far):.1e} relative"
    if not agrees:
        raise Failure(figure + ", more than rounding explains")
    return figure
