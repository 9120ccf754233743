# SPDX-License-Identifier: Apache-2.0
"""The speed of training steps on a GPU: `convoy bench` and PyTorch (scripts/gpu_bench_torch.py) in turn, with data of
the same shapes, the same optimizer and the same precision. convoy's steps are timed by the host, which waits for each;
data comes from its loader. PyTorch's are timed on the stream, and its data stays on the GPU. Parts of
scripts/gpu_check.py.
"""
import json
import os
import statistics
import time

from gpu_part import CONFIGS, Failure, ending, last_line, say, settings
from torch_server import TorchError

WARMUP = 5  # steps before those that are timed: algorithms are chosen, graphs recorded


def side_by_side(part, title, config, cases, requests, sizes, turns=2, steps=20, compile_seconds=60):
    """Every case of convoy, then every request of PyTorch, in turn; a sentence on the fastest of each."""
    points = {name: {"step_seconds": []} for name in [*cases, *requests]}
    part.details[title] = points
    for _ in range(turns):
        time_convoy(part, config, cases, sizes, steps, points)
        for name, request in requests.items():
            if "error" in points[name]:
                continue
            try:
                limit = max(5, min(compile_seconds, part.left() - 20))
                answer = part.torch().measure(limit, steps=steps, warmup=WARMUP, **sizes, **request)
                points[name]["step_seconds"] += answer["step_seconds"]
                points[name]["memory_bytes"] = answer["peak_memory_bytes"]
            except TorchError as error:
                points[name]["error"] = str(error)
    for name, point in points.items():
        text = point.get("error", "nothing measured")
        if point["step_seconds"]:
            step = statistics.median(point["step_seconds"])
            point["images_per_second"] = sizes["batch"] / step
            text = (f"{sizes['batch'] / step:>9.1f} images/s {1e3 * step:>9.2f} ms "
                    f"{point['memory_bytes'] / 2**30:>7.2f} GiB")
            if "phases" in point:
                text += f", of it {1e3 * point['phases']['data_wait']:.2f} ms waiting for data"
        say(f"{title:<10} {name:<26} {text}")
    return sum_up(title, points, cases, requests)


def time_convoy(part, config, cases, sizes, steps, points):
    batch, output = sizes["batch"], os.path.join(part.work, "bench.json")
    threads = max(1, min(8, len(os.sched_getaffinity(0)) - 2))
    items = (f"train.global_batch_size={batch}", f"data.image_size={sizes['image']}", f"data.samples={4 * batch}",
             f"data.loader_threads={threads}", "device.kind=cuda")
    code, text = part.run([part.program, "bench", os.path.join(CONFIGS, config), *settings(*items),
                              "--steps", str(steps), "--warmup", str(WARMUP), "--json", output,
                              *(word for case in cases.values() for word in ("--case", case))])
    if code != 0:
        for name in cases:
            points[name]["error"] = f"{ending(code)}: {last_line(text)}"
        return
    with open(output, encoding="utf-8") as file:
        results = json.load(file)["results"]
    for name, result in zip(cases, results):
        points[name]["step_seconds"] += result["step_seconds"]
        points[name]["memory_bytes"] = max(result["backend_memory_bytes"])
        points[name]["phases"] = result["phases"]


def sum_up(title, points, cases, requests):
    """"bf16 256: 3000 images/s, 1.20 x torch graph": the fastest of each, by medians of all their steps."""
    mine, theirs = ({name: points[name]["images_per_second"] for name in names if "images_per_second" in points[name]}
                    for names in (cases, requests))
    if not mine:
        raise Failure(f"{title}: {points[next(iter(cases))].get('error', 'nothing measured')}")
    best = max(mine.values())
    for name, speed_of_it in theirs.items():
        points[name]["convoy_is_faster_by"] = best / speed_of_it
    text = f"{title}: {best:.0f} images/s"
    if not theirs:
        return text + " (no PyTorch beside it)"
    rival = max(theirs, key=theirs.get)
    return text + f", {best / theirs[rival]:.2f} x {rival}"


def speed(part, precision, batches, variants, compile_seconds=60):
    figures, failures = [], []
    for batch in batches:
        start = time.monotonic()
        try:
            figures.append(side_by_side(
                part, f"{precision} {batch}", "resnet50_synthetic.toml",
                {f"convoy{name}": f"train.precision={precision} train.label_smoothing=0 device.graphs={value}"
                 for name, value in (("", "true"), (" without graphs", "false"))},
                {f"torch {variant}": {"precision": precision, "variant": variant} for variant in variants},
                {"batch": batch, "image": 224}, compile_seconds=compile_seconds))
        except Failure as failure:
            failures.append(str(failure))
        if part.left() < 1.5 * (time.monotonic() - start) and batch != batches[-1]:
            figures.append(f"out of time for batches {batches[batches.index(batch) + 1:]}")
            break
    if failures:
        raise Failure("; ".join(failures + figures))
    return "; ".join(figures)


def speed_seed(part):
    seed = {"loss": "mse", "lr": 0.001, "momentum": 0.0, "weight_decay": 0.0, "precision": "fp32", "variant": "eager"}
    return "; ".join(
        side_by_side(part, f"seed {precision}", "tutorials/resnet50_tutorial.toml",
                     {"convoy": f"train.precision={precision}"},
                     {f"torch eager{name}": {**seed, "tf32": precision == "tf32", "channels_last": last}
                      for name, last in (("", False), (" channels-last", True))},
                     {"batch": 120, "image": 128})
        for precision in ("fp32", "tf32"))
