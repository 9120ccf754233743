# SPDX-License-Identifier: Apache-2.0
"""The speed of training steps on a GPU: `convoy bench` and PyTorch (scripts/gpu_bench_torch.py) in turn, with data of
the same shapes, the same optimizer and the same precision. convoy's steps are timed by the host, which waits for each;
data comes from its loader. PyTorch's are timed on the stream, and its data stays on the GPU. Then where the time goes:
each kind of operation, and the plans of the convolutions. Checks of scripts/gpu_check.py.
"""
import json
import os
import statistics
import time

from gpu_session import CONFIGS, Failure, ending, last_line, say, settings
from torch_server import TorchError

WARMUP = 5  # steps before those that are timed: algorithms are chosen, graphs recorded
SYNTHETIC = "resnet50_synthetic.toml"
SMALL = {"batch": 4, "image": 64}  # of a rehearsal


def side_by_side(check, title, config, cases, requests, sizes, turns=2, steps=20, compile_seconds=60):
    """Every case of convoy, then every request of PyTorch, in turn; a sentence on the fastest of each."""
    if check.session.rehearse:
        sizes, steps = SMALL, 2
    points = {name: {"step_seconds": []} for name in [*cases, *requests]}
    for _ in range(turns):
        time_convoy(check, config, cases, sizes, steps, points)
        for name, request in requests.items():
            if "error" not in points[name]:
                time_torch(check, request, sizes, steps, points[name], compile_seconds)
        for point in points.values():
            if point["step_seconds"]:
                point["images_per_second"] = sizes["batch"] / statistics.median(point["step_seconds"])
        check.record(title, points)
    for name, point in points.items():
        text = point.get("error", "nothing measured")
        if point["step_seconds"]:
            text = (f"{point['images_per_second']:>9.1f} images/s {1e3 * statistics.median(point['step_seconds']):>9.2f} ms "
                    f"{point['memory_bytes'] / 2**30:>7.2f} GiB")
            if "phases" in point:
                text += f", of it {1e3 * point['phases']['data_wait']:.2f} ms waiting for data"
        say(f"{title:<10} {name:<26} {text}")
    return sum_up(title, points, cases, requests)


def bench(check, config, sizes, steps, output, *words):
    """`convoy bench` of steps on random images; its JSON, or what is wrong."""
    batch = sizes["batch"]
    threads = max(1, min(8, len(os.sched_getaffinity(0)) - 2))
    items = (f"train.global_batch_size={batch}", f"data.image_size={sizes['image']}", f"data.samples={4 * batch}",
             f"data.loader_threads={threads}", *check.device())
    code, text = check.run([check.program, "bench", os.path.join(CONFIGS, config), *settings(*items),
                            "--steps", str(steps), "--warmup", str(WARMUP), "--json", output, *words])
    if code != 0:
        return None, f"{ending(code)}: {last_line(text)}"
    with open(output, encoding="utf-8") as file:
        return json.load(file), ""


def time_convoy(check, config, cases, sizes, steps, points):
    output = os.path.join(check.session.work, "bench.json")
    answer, problem = bench(check, config, sizes, steps, output,
                            *(word for case in cases.values() for word in ("--case", case)))
    if answer is None:
        for name in cases:
            points[name]["error"] = problem
        return
    for name, result in zip(cases, answer["results"]):
        points[name]["step_seconds"] += result["step_seconds"]
        points[name]["memory_bytes"] = max(result["backend_memory_bytes"])
        points[name]["phases"] = result["phases"]


def time_torch(check, request, sizes, steps, point, compile_seconds):
    if check.left() < 15:
        point["error"] = "out of time"
        return
    try:
        limit = max(5, min(compile_seconds, check.left() - 10))
        server = check.session.torch(min(90, check.left() - 10))
        answer = server.measure(limit, steps=steps, warmup=WARMUP, device=check.session.device, **sizes, **request)
        point["step_seconds"] += answer["step_seconds"]
        point["memory_bytes"] = answer["peak_memory_bytes"]
    except TorchError as error:
        point["error"] = str(error)


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


def speed(check, precision, batches, variants, without_graphs=False, compile_seconds=60, turns=2):
    """ResNet-50 in this precision, at each of these batch sizes as long as there is time."""
    precision = check.precision(precision)
    cases = {"convoy": f"train.precision={precision} train.label_smoothing=0"}
    if without_graphs and not check.session.rehearse:
        cases["convoy without graphs"] = cases["convoy"] + " device.graphs=false"
    requests = {f"torch {variant}": {"precision": precision, "variant": variant} for variant in variants}
    if check.session.rehearse:
        batches = [SMALL["batch"]]
    figures, failures, longest = [], [], 0.0
    for batch in batches:
        if check.left() < 1.2 * longest:
            figures.append(f"out of time for batches {batches[batches.index(batch):]}")
            break
        start = time.monotonic()
        try:
            figures.append(side_by_side(check, f"{precision} {batch}", SYNTHETIC, cases, requests,
                                        {"batch": batch, "image": 224}, turns, compile_seconds=compile_seconds))
        except Failure as failure:
            failures.append(str(failure))
        longest = max(longest, time.monotonic() - start)
    if failures:
        raise Failure("; ".join(failures + figures))
    return "; ".join(figures)


def speed_seed(check):
    """The network of PyTorch's tutorial: ResNet-50 at 128x128, batch 120, in float32 and TF32."""
    seed = {"loss": "mse", "lr": 0.001, "momentum": 0.0, "weight_decay": 0.0, "precision": "fp32", "variant": "eager"}
    return "; ".join(
        side_by_side(check, f"seed {precision}", "tutorials/resnet50_tutorial.toml",
                     {"convoy": f"train.precision={check.precision(precision)}"},
                     {f"torch eager{name}": {**seed, "tf32": precision == "tf32", "channels_last": last}
                      for name, last in (("", False), (" channels-last", True))},
                     {"batch": 120, "image": 128})
        for precision in ("fp32", "tf32"))


def kernels(check):
    """Where the time of a step goes, and which plans cuDNN's convolutions have."""
    sizes = SMALL if check.session.rehearse else {"batch": 256, "image": 224}
    output = os.path.join(check.session.work, "profile.json")
    answer, problem = bench(check, SYNTHETIC, sizes, 5, output, "--profile", "--case",
                            "train.precision=bf16 train.label_smoothing=0")
    if answer is None:
        raise Failure(problem)
    profile = answer["results"][0]["profile"]
    check.record("profile", profile)
    for operation in profile["operations"]:
        of_bound = operation.get("of_bound") or 0
        say(f"{operation['name']:<30} {operation['calls']:>5} calls {1e3 * operation['seconds']:>9.3f} ms "
            f"{1e-9 * operation['bytes_per_second']:>8.1f} GB/s {100 * of_bound:>5.0f} % of bound")
    plans = {}
    for name in sorted(os.listdir(check.session.plans)):
        with open(os.path.join(check.session.plans, name), encoding="utf-8") as file:
            plans[name] = [line.split("\t")[1:] for line in file.read().splitlines()]
        for convolution, plan, milliseconds in plans[name]:
            say(f"{float(milliseconds):>9.4f} ms  {convolution}: {plan}")
    check.record("plans", plans)
    count = sum(len(lines) for lines in plans.values())
    return f"{len(profile['operations'])} kinds of operations, {1e3 * profile['step_seconds']:.1f} ms a step, {count} plans"
