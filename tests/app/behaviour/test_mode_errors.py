# SPDX-License-Identifier: Apache-2.0
"""Parallel modes outside one quiet run: resumed in another mode, misused, killed, stopped, timed, traced."""
import json
import os
import signal
import time

from behaviour import (MLP, SMALL_NET, Folder, check, close_series, config, kill_tree, main, rank_processes, same_series,
                       zombie)

TIMEOUT = 40  # seconds until a run counts as hanging
USAGE = 2
RESNET = {"name": "resnet18", "stem": "small"}
PIPELINE = {"mode": "pipeline", "microbatches": 2}

# No batch norm: how a batch is cut changes rounding only.
DEEP_MLP = {"name": "mlp", "hidden": [64, 64, 64]}
MODES = {  # ranks, [parallel], (replicas, stages)
    "single": (1, {}, (1, 1)),
    "data": (2, {}, (2, 1)),
    "pipeline": (2, {**PIPELINE, "schedule": "1f1b"}, (1, 2)),
    "hybrid": (4, {**PIPELINE, "stages": 2}, (2, 2)),
}


def resume_in_other_modes():
    """A checkpoint of each mode goes on in each."""
    def sections(mode, steps):
        return config(DEEP_MLP, train={"steps": steps}, optimizer={"lr": 0.01}, parallel=MODES[mode][1],
                      checkpoint={"every_epochs": 0})

    whole = Folder("mode-errors-resume-whole", sections("single", 16))
    whole.train()
    for source, (ranks, _, _) in MODES.items():
        half = Folder(f"mode-errors-resume-{source}", sections(source, 8))
        half.train(ranks)
        for target, (other_ranks, _, mesh) in MODES.items():
            what = f"from {source} to {target}"
            folder = half.copy(f"mode-errors-resume-{source}-{target}")
            folder.configure(sections(target, 16))
            folder.train(other_ranks)
            start = folder.events("start")[-1]
            check(start["resumed_from"].endswith("step-00000008.h5"), f"{what}: {start}")
            check((start["replicas"], start["stages"]) == mesh, f"{what}: {start}")
            close_series(what, folder.losses(), whole.losses(), 1e-5)


# ---- what is refused

def refused(name, ranks, words, parallel, model=None, **sections):
    """Exit code 2, and one line `convoy: error:` that holds all `words`: the key, what is wrong, what would be right."""
    folder = Folder(f"mode-errors-{name}", config(model or DEEP_MLP, parallel=parallel, **sections))
    code = folder.run(ranks, timeout=TIMEOUT)
    if not check(code is not None, f"{name}: still running after {TIMEOUT} s; stderr:\n{folder.stderr[-1500:]}"):
        return
    check(code == USAGE, f"{name}: exit code {code}, not {USAGE}; stderr:\n{folder.stderr[-1500:]}")
    lines = [line for line in folder.stderr.splitlines() if line.startswith("convoy: error:")]
    if check(len(lines) == 1, f"{name}: {len(lines)} lines `convoy: error:` on stderr:\n{folder.stderr[-2500:]}"):
        missing = [word for word in words if word not in lines[0]]
        check(not missing, f"{name}: {missing} not in: {lines[0]}")
    check(not folder.events("step"), f"{name}: trained {len(folder.events('step'))} steps")


def stages_and_ranks():
    refused("too-many-stages", 4, ["parallel.stages", "4 stages", "at most 2"], {"mode": "model"}, MLP)
    refused("too-many-stretches", 2, ["parallel.stages", "8 units", "at most 1 stage"],
            {**PIPELINE, "schedule": "interleaved", "chunks": 4})
    refused("ranks", 3, ["parallel.stages", "3 ranks", "2 stages"], {**PIPELINE, "stages": 2})
    refused("more-stages-than-ranks", 2, ["parallel.stages", "2 ranks", "4 stages"], {**PIPELINE, "stages": 4})


def microbatches():
    refused("batch", 2, ["train.global_batch_size", "32", "30", "33"], {"mode": "pipeline", "microbatches": 3})
    refused("batch-hybrid", 4, ["train.global_batch_size", "32", "30", "for one replica"],
            {"mode": "pipeline", "microbatches": 3, "stages": 2})
    for name, stages in (("all", {}), ("given", {"stages": 2})):
        refused(f"interleaved-{name}", 2, ["parallel.microbatches", "multiple of the 2 stages", "not 3", "2 or 4"],
                {"mode": "pipeline", "microbatches": 3, "schedule": "interleaved", **stages},
                train={"global_batch_size": 30})


def keys_of_other_modes():
    """A key that the mode has no use for is a mistake, and the message says whose it is."""
    for name, words, parallel in (
            ("model-microbatches", ["microbatches", '"model"', "data", "pipeline"], {"mode": "model", "microbatches": 2}),
            ("data-schedule", ["schedule", '"data"', "pipeline"], {"mode": "data", "schedule": "1f1b"}),
            ("model-schedule", ["schedule", '"model"', "pipeline"], {"mode": "model", "schedule": "gpipe"}),
            ("data-stages", ["stages", '"data"', "model", "pipeline"], {"stages": 2}),
            ("scatter-partition", ["partition", '"scatter"', "model"], {"mode": "scatter", "partition": ["fc1", "fc2"]}),
            ("data-memory", ["stage_memory_gb", '"data"', "model"], {"stage_memory_gb": 1.0}),
            ("scatter-buckets", ["bucket_mb", '"scatter"', "data"], {"mode": "scatter", "bucket_mb": 1.0}),
            ("1f1b-chunks", ["chunks", '"1f1b"', "interleaved"], {**PIPELINE, "schedule": "1f1b", "chunks": 2})):
        refused(name, 2, ["run.toml:", "parallel." + words[0], "means nothing with", *words[1:]], parallel)


def values():
    refused("mode", 2, ["run.toml:", "parallel.mode", "pipelin", "pipeline", "scatter"], {"mode": "pipelin"})
    refused("schedule", 2, ["run.toml:", "parallel.schedule", "1f1", 'did you mean "1f1b"'],
            {**PIPELINE, "schedule": "1f1"})
    refused("schedule-hyphen", 2, ["run.toml:", "parallel.schedule", 'did you mean "zero_bubble"'],
            {**PIPELINE, "schedule": "zero-bubble"})
    refused("chunks", 2, ["run.toml:", "parallel.chunks", "from 2"],
            {**PIPELINE, "schedule": "interleaved", "chunks": 1})
    refused("scatter-drop-last", 2, ["run.toml:", "data.drop_last", "scatter", "true", 'parallel.mode = "data"'],
            {"mode": "scatter"}, data={"drop_last": False})
    refused("stage-memory", 2, ["parallel.stage_memory_gb", "1e-05 GB", "more stages", "higher limit"],
            {**PIPELINE, "stage_memory_gb": 1e-5})


def partitions():
    for name, words, cuts in (
            ("unknown", ["no unit", '"layer9.0"', "stem, layer1.0", "head"], ["stem", "layer9.0"]),
            ("order", ['"layer1.0" does not come after "layer2.0"', "stem, layer1.0"], ["stem", "layer2.0", "layer1.0"]),
            ("twice", ['"stem" does not come after "stem"'], ["stem", "stem"]),
            ("not-first", ['begins with "layer1.0"', 'must begin with the first unit, "stem"'], ["layer1.0", "layer2.0"]),
            ("backwards", ['begins with "layer2.0"', 'must begin with the first unit, "stem"'], ["layer2.0", "stem"]),
            ("too-few", ["names 2 units for 3 stages", "3"], ["stem", "layer2.0"]),
            ("too-many", ["names 3 units for 2 stages", "2"], ["stem", "layer2.0", "layer3.0"]),
            ("one", ["names one unit"], ["stem"]),
            ("word", ['"auto"', "list of unit names"], "stem")):
        ranks = {"order": 3, "too-few": 3}.get(name, 2)
        refused(f"partition-{name}", ranks, ["parallel.partition", *words], {"mode": "model", "partition": cuts}, RESNET)
    refused("partition-stages", 2, ["run.toml:", "parallel.partition", "names 3 units for 2 stages"],
            {"mode": "model", "stages": 2, "partition": ["stem", "layer2.0", "layer3.0"]}, RESNET)
    refused("partition-chunks", 2, ["parallel.partition", "names 2 units", "2 stages", "4"],
            {**PIPELINE, "schedule": "zb_v", "partition": ["stem", "layer2.0"]}, RESNET)


def explicit_partition():
    """`train` says which layers each stage has, and where they are cut changes no bit."""
    def run(name, ranks, **parallel):
        folder = Folder(f"mode-errors-partition-{name}",
                        config(RESNET, train={"steps": 3, "eval_every_epochs": 0}, checkpoint={"every_epochs": 0},
                               parallel={"microbatches": 2, **parallel}))
        folder.train(ranks)
        return folder

    expected = run("single", 1).losses(str)
    for name, stages, keys in (
            ("1f1b", ["stem to layer1.1 (3 units", "layer2.0 to head (7 units"], {"partition": ["stem", "layer2.0"]}),
            ("uneven", ["stem (1 unit", "layer1.0 to head (9 units"], {"partition": ["stem", "layer1.0"]}),
            ("interleaved", ["stem to layer1.1 (3 units", "; layer3.0 to layer4.0 (3 units",
                             "layer2.0 to layer2.1 (2 units", "; layer4.1 to head (2 units"],
             {"schedule": "interleaved", "partition": ["stem", "layer2.0", "layer3.0", "layer4.1"]}),
            ("zb_v", ["stem to layer1.1 (3 units", "; layer4.1 to head (2 units",
                      "layer2.0 to layer2.1 (2 units", "; layer3.0 to layer4.0 (3 units"],
             {"schedule": "zb_v", "partition": ["stem", "layer2.0", "layer3.0", "layer4.1"]})):
        folder = run(name, 2, mode="pipeline", **keys)
        same_series(f"partition, {name}", folder.losses(str), expected)
        lines = [line for line in folder.stdout.splitlines() if line.startswith("stage ")]
        each = len(stages) // 2
        good = [line.split()[1] for line in lines] == ["0", "1"] and all(
            words in line for rank, line in enumerate(lines) for words in stages[rank * each:(rank + 1) * each])
        check(good, f"partition, {name}: {lines}")
    automatic = run("auto", 2, mode="pipeline")
    same_series("partition, auto", automatic.losses(str), expected)
    lines = [line for line in automatic.stdout.splitlines() if line.startswith("stage ")]
    check(len(lines) == 2 and "% of the time" in lines[0], f"partition, auto: {lines}")


# ---- a rank that is lost

def long_pipeline(name, schedule, timeout):
    """A run of two stages that has begun; almost all of its time is spent within steps."""
    folder = Folder(f"mode-errors-{name}", config(
        RESNET, train={"steps": 100000, "global_batch_size": 64, "eval_every_epochs": 0}, checkpoint={"every_epochs": 0},
        parallel={"mode": "pipeline", "microbatches": 4, "schedule": schedule, "timeout": timeout,
                  "partition": ["stem", "layer3.0"]}))
    process = folder.start(2)
    deadline = time.time() + 60
    while process.poll() is None and len(folder.events("step")) < 3 and time.time() < deadline:
        time.sleep(0.01)
    ranks = rank_processes(process)
    if not check(sorted(ranks) == [0, 1] and len(folder.events("step")) >= 3, f"{name}: did not start: {ranks}"):
        kill_tree(process)
        folder.read_outputs()
        print(folder.stderr[-1500:])
        return None
    return folder, process, ranks


def ends(name, folder, process, ranks, seconds):
    """Everything is gone after `seconds` at the latest; then says whether it ended with an error."""
    start = time.time()
    while time.time() < start + seconds and (process.poll() is None or not all(zombie(pid) for pid in ranks.values())):
        time.sleep(0.05)
    code, left = process.poll(), [rank for rank, pid in ranks.items() if not zombie(pid)]
    kill_tree(process)
    for rank in left:  # orphans, should mpirun have left them behind
        try:
            os.kill(ranks[rank], signal.SIGKILL)
        except ProcessLookupError:
            pass
    folder.read_outputs()
    print(f"{name}: over after {time.time() - start:.1f} s, exit code {code}", flush=True)
    check(code is not None and not left, f"{name}: after {seconds} s ranks {left} were left, mpirun ended with {code}\n"
          f"{folder.stderr[-1500:]}")
    check(code != 0, f"{name}: exit code {code}")


def killed_rank():
    for rank in (0, 1):
        name = f"killed-rank-{rank}"
        started = long_pipeline(name, "1f1b", 600)
        if not started:
            continue
        folder, process, ranks = started
        os.kill(ranks[rank], signal.SIGKILL)
        ends(name, folder, process, ranks, 20)
        check(f"rank {rank}" in folder.stderr, f"{name}: stderr does not name it:\n{folder.stderr[-1500:]}")


def stopped_rank():
    """A rank that hangs: the other says what it waited for, and for whom."""
    for rank, schedule in ((0, "1f1b"), (1, "1f1b"), (1, "zero_bubble")):
        name = f"stopped-rank-{rank}-{schedule}"
        started = long_pipeline(name, schedule, 3)
        if not started:
            continue
        folder, process, ranks = started
        os.kill(ranks[rank], signal.SIGSTOP)
        ends(name, folder, process, ranks, 20)
        lines = [line for line in folder.stderr.splitlines() if line.startswith("convoy: error:")]
        if not check(len(lines) == 1, f"{name}: {len(lines)} lines `convoy: error:`:\n{folder.stderr[-1500:]}"):
            continue
        print(f"{name}: {lines[0]}", flush=True)
        # A message within the step, or, between steps, the exchange of losses, which has no partner.
        message = [f"{verb} rank {rank} '{what} of microbatch" for verb, what in
                   (("receive from", "activation"), ("receive from", "gradient"), ("send to", "activation"),
                    ("send to", "gradient"))]
        check(any(words in lines[0] for words in (*message, "all_reduce 'step loss'")),
              f"{name}: neither the operation nor the partner is in: {lines[0]}")
        check(f"is late: world rank {1 - rank} " in lines[0] and "waited 3 s" in lines[0],
              f"{name}: who waited is not in: {lines[0]}")


# ---- bench and trace

def bench(folder, ranks, *arguments):
    code = folder.run(ranks, "bench", "run.toml", "--json", "bench.json", "--warmup", "1", *arguments, timeout=240)
    if not check(code == 0, f"bench: exit code {code}\n{folder.stderr[-1500:]}"):
        return []
    with open(folder.file("bench.json")) as file:
        return json.load(file)["results"]


def bench_profile():
    """Every operation of a step, with its unit; on two ranks the first one's."""
    folder = Folder("mode-errors-profile", config(SMALL_NET))
    for ranks in (1, 2):
        result = bench(folder, ranks, "--steps", "4", "--profile")[0]
        profile = result["profile"]
        names = {line["name"]: line for line in profile["operations"]}
        back = [names[name]["calls"] for name in ("conv2d_backward_input", "conv2d_backward_input_add")]
        check(names["conv2d_forward"]["calls"] == 4 and back == [2, 1],
              f"four convolutions, of which the first needs no input gradient and one is in a shortcut: {names}")
        check(0 <= names["between operations"]["seconds"] < profile["step_seconds"], f"{names} of {profile}")
        check(names["sgd_update"]["calls"] == 1, f"{list(names)}")
        units = {line["unit"] for line in profile["layers"]}
        check({"conv", "bn", "block"} <= units, f"units: {units}")
        check(profile["convolution_bound_s"] > 0 and profile["matrix_flops_per_second"] > 0, f"{profile}")
        check(profile["direct_convolution_bound_s"] > 0, f"{profile}")
        check("convolution bound:" in folder.stdout, folder.stdout)


def bench_cases():
    """Points of other numbers of ranks in one run."""
    folder = Folder("mode-errors-bench", config(DEEP_MLP))
    cases = ("ranks=1", "ranks=2 parallel.mode=pipeline parallel.microbatches=2")
    results = bench(folder, 2, "--steps", "4", *(word for case in cases for word in ("--case", case)))
    check([(r["case"], r["ranks"]) for r in results] == [(cases[0], 1), (cases[1], 2)], f"bench: {results}")
    for r in results:
        check(len(r["step_seconds"]) == 4 and r["images_per_second"] > 0, f"bench, {r['case']}: {r}")
        for key in ("peak_memory_bytes", "backend_memory_bytes"):
            check(len(r[key]) == r["ranks"] and min(r[key]) > 0, f"bench, {r['case']}: {key} {r[key]}")
        for peak, held in zip(r["peak_memory_bytes"], r["backend_memory_bytes"]):
            check(peak >= held, f"bench, {r['case']}: peak {peak}, of which {held} the backend's")
    check(results and results[-1]["overrides"] == {"parallel.mode": "pipeline", "parallel.microbatches": "2"},
          f"bench: overrides {results[-1:]}")
    code = folder.run(2, "bench", "run.toml", "--case", "ranks=3", timeout=TIMEOUT)
    check(code == USAGE and "--case" in folder.stderr and "mpirun -n 3" in folder.stderr,
          f"bench, too many ranks: exit code {code}, {folder.stderr}")


def bench_reduction():
    """Replicas that keep gradients say how fast these are summed: all of them, by 2 (n - 1) / n; one rank and stages of
    one replica have nothing to sum."""
    folder = Folder("mode-errors-reduction", config(DEEP_MLP))
    cases = ("ranks=1", "ranks=2", "ranks=4 parallel.mode=pipeline parallel.stages=2 parallel.microbatches=2")
    alone, pair, hybrid = bench(folder, 4, "--steps", "2", *(word for case in cases for word in ("--case", case)))
    check("reduction" not in alone, f"one rank: {alone}")
    speed = pair["reduction"]
    check(speed["bytes"] >= 4 * sum(a * b + b for a, b in ((64, 64), (64, 64), (64, 64), (64, 10))), f"{speed}")
    check(abs(speed["bus_bytes_per_second"] * speed["seconds"] / speed["bytes"] - 1) < 1e-9, f"2 (2 - 1) / 2 is 1: {speed}")
    check(speed["copy_seconds"] > 0 and 0 <= speed["hidden"] <= 1, f"{speed}")
    check("summed in" in folder.stdout and "GB/s on the bus" in folder.stdout, folder.stdout)
    check(0 < hybrid["reduction"]["bytes"] < speed["bytes"] and "hidden" not in hybrid["reduction"], f"{hybrid}")


def bench_memory():
    """gpipe holds the activations of all 8 microbatches on both stages; 1f1b those of 2 on the first, 1 on the second."""
    sections = config({**RESNET, "classes": 10}, train={"global_batch_size": 64},
                      parallel={"mode": "pipeline", "microbatches": 8, "partition": ["stem", "layer2.0"]})
    sections["data"] = {"kind": "synthetic", "samples": 256, "image_size": 32, "channels": 3}
    results = bench(Folder("mode-errors-memory", sections), 2, "--steps", "1", "--sweep", "parallel.schedule=gpipe,1f1b")
    held = {r["overrides"]["parallel.schedule"]: r["backend_memory_bytes"] for r in results}
    print("bytes held by the backend of each rank:", held, flush=True)
    if check(sorted(held) == ["1f1b", "gpipe"], f"bench: {results}"):
        check(held["1f1b"][0] < 0.5 * held["gpipe"][0], f"memory of rank 0: {held}")
        check(held["1f1b"][1] < held["gpipe"][1], f"memory of rank 1: {held}")


def trace():
    """One process for each rank, and in its row `compute` every action of the schedule, each step."""
    def expected(actions, microbatches, chunks):
        return sorted(f"{action}{m}" + (f".{chunk}" if chunk else "") for action in actions for m in range(microbatches)
                      for chunk in range(chunks))

    steps = 4
    for name, ranks, parallel, actions, chunks in (
            ("data", 2, {"microbatches": 2}, "FB", 1),
            ("model", 2, {"mode": "model"}, "FB", 1),
            ("1f1b", 2, {"mode": "pipeline", "microbatches": 4}, "FB", 1),
            ("zero_bubble", 2, {**PIPELINE, "schedule": "zero_bubble"}, "FIW", 1),
            ("interleaved", 2, {**PIPELINE, "schedule": "interleaved"}, "FB", 2),
            ("hybrid", 4, {**PIPELINE, "stages": 2}, "FB", 1)):
        folder = Folder(f"mode-errors-trace-{name}", config(DEEP_MLP, train={"steps": steps}, parallel=parallel,
                                                            log={"trace": True}))
        folder.train(ranks)
        try:
            with open(folder.file("runs", "run", "trace.json")) as file:
                events = json.load(file)["traceEvents"]
        except (OSError, ValueError, KeyError) as problem:
            check(False, f"trace, {name}: {problem!r}")
            continue
        processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
        check(sorted(processes) == list(range(ranks)) and all(processes[r].startswith(f"rank {r}") for r in processes),
              f"trace, {name}: processes {processes}")
        wanted = expected(actions, parallel.get("microbatches", 1), chunks)
        for rank in range(ranks):
            for step in range(1, steps + 1):
                seen = sorted(e["name"] for e in events if e["ph"] == "X" and e["pid"] == rank and
                              e["cat"] == "compute" and e["args"]["step"] == step and e["name"][0] in "FBIW" and
                              e["name"][1:2].isdigit())
                if not check(seen == wanted, f"trace, {name}: rank {rank} did {seen} in step {step}, not {wanted}"):
                    break
        check(all(e["dur"] >= 0 and e["ts"] >= 0 for e in events if e["ph"] == "X"), f"trace, {name}: negative times")


main([resume_in_other_modes, stages_and_ranks, microbatches, keys_of_other_modes, values, partitions, explicit_partition,
      killed_rank, stopped_rank, bench_profile, bench_cases, bench_reduction, bench_memory, trace])
