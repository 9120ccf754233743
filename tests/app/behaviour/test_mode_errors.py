# SPDX-License-Identifier: Apache-2.0
"""Parallel modes outside one quiet run: resumed in another mode, misused, killed, stopped, timed, traced."""
import functools
import json
import os
import signal
import time

import pytest

from behaviour import (MLP, SMALL_NET, USAGE, Folder, close_series, config, error_lines, kill_tree, rank_processes,
                       same_series, zombie)
from programs import mpi_kind

TIMEOUT = 40  # seconds until a run counts as hanging
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


# ---- a checkpoint of each mode resumes in each

def in_mode(mode, steps):
    return config(DEEP_MLP, train={"steps": steps}, optimizer={"lr": 0.01}, parallel=MODES[mode][1],
                  checkpoint={"every_epochs": 0})


@functools.lru_cache(maxsize=None)
def whole_losses():
    folder = Folder("whole", in_mode("single", 16))
    folder.train()
    return folder.losses()


@functools.lru_cache(maxsize=None)
def half(mode):
    folder = Folder(f"half-{mode}", in_mode(mode, 8))
    folder.train(MODES[mode][0])
    return folder


@pytest.mark.parametrize("target", MODES)
@pytest.mark.parametrize("source", MODES)
def test_resume_in_another_mode(source, target):
    ranks, _, mesh = MODES[target]
    folder = half(source).copy("resumed")
    folder.configure(in_mode(target, 16))
    folder.train(ranks)
    start = folder.events("start")[-1]
    assert start["resumed_from"].endswith("step-00000008.h5")
    assert (start["replicas"], start["stages"]) == mesh
    close_series("resumed", folder.losses(), whole_losses(), 1e-5)


# ---- what is refused

def refused(ranks, words, parallel, model=None, **sections):
    """Exit code 2, and one line `convoy: error:` that holds all `words`: the key, what is wrong, what would be right."""
    folder = Folder("refused", config(model or DEEP_MLP, parallel=parallel, **sections))
    code = folder.run(ranks, timeout=TIMEOUT)
    assert code is not None, f"still running after {TIMEOUT} s\n{folder.stderr[-1500:]}"
    assert code == USAGE, folder.stderr[-1500:]
    lines = error_lines(folder.stderr)
    assert len(lines) == 1, folder.stderr[-2500:]
    for word in words:
        assert word in lines[0]
    assert not folder.events("step")


@pytest.mark.parametrize("ranks, words, parallel, model", (
    pytest.param(4, ["parallel.stages", "4 stages", "at most 2"], {"mode": "model"}, MLP, id="too_many_stages"),
    pytest.param(2, ["parallel.stages", "8 units", "at most 1 stage"], {**PIPELINE, "schedule": "interleaved", "chunks": 4},
                 DEEP_MLP, id="too_many_chunks"),
    pytest.param(3, ["parallel.stages", "3 ranks", "2 stages"], {**PIPELINE, "stages": 2}, DEEP_MLP, id="ranks"),
    pytest.param(2, ["parallel.stages", "2 ranks", "4 stages"], {**PIPELINE, "stages": 4}, DEEP_MLP,
                 id="more_stages_than_ranks")))
def test_stages_that_do_not_fit_the_ranks_are_a_usage_error(ranks, words, parallel, model):
    refused(ranks, words, parallel, model)


@pytest.mark.parametrize("ranks, words, stages", (
    pytest.param(2, ["train.global_batch_size", "32", "30", "33"], {}, id="pipeline"),
    pytest.param(4, ["train.global_batch_size", "32", "30", "for one replica"], {"stages": 2}, id="hybrid")))
def test_batch_that_microbatches_do_not_divide_is_a_usage_error(ranks, words, stages):
    refused(ranks, words, {"mode": "pipeline", "microbatches": 3, **stages})


@pytest.mark.parametrize("stages", ({}, {"stages": 2}), ids=("all", "given"))
def test_interleaved_microbatches_that_stages_do_not_divide_are_a_usage_error(stages):
    refused(2, ["parallel.microbatches", "multiple of the 2 stages", "not 3", "2 or 4"],
            {"mode": "pipeline", "microbatches": 3, "schedule": "interleaved", **stages},
            train={"global_batch_size": 30})


@pytest.mark.parametrize("key, words, parallel", (
    ("microbatches", ['"model"', "data", "pipeline"], {"mode": "model", "microbatches": 2}),
    ("schedule", ['"data"', "pipeline"], {"mode": "data", "schedule": "gpipe"}),
    ("schedule", ['"model"', "pipeline"], {"mode": "model", "schedule": "gpipe"}),
    ("stages", ['"data"', "model", "pipeline"], {"stages": 2}),
    ("partition", ['"scatter"', "model"], {"mode": "scatter", "partition": ["fc1", "fc2"]}),
    ("stage_memory_gb", ['"data"', "model"], {"stage_memory_gb": 1.0}),
    ("bucket_mb", ['"scatter"', "data"], {"mode": "scatter", "bucket_mb": 1.0}),
    ("chunks", ['"1f1b"', "interleaved"], {**PIPELINE, "schedule": "1f1b", "chunks": 3})))
def test_key_of_another_mode_is_a_usage_error(key, words, parallel):
    """The message says whose it is."""
    refused(2, ["run.toml:", "parallel." + key, "is ignored with", *words], parallel)


@pytest.mark.parametrize("words, parallel, data", (
    pytest.param(["run.toml:", "parallel.mode", "pipelin", "pipeline", "scatter"], {"mode": "pipelin"}, {}, id="mode"),
    pytest.param(["run.toml:", "parallel.schedule", "1f1", 'did you mean "1f1b"'], {**PIPELINE, "schedule": "1f1"}, {},
                 id="schedule"),
    pytest.param(["run.toml:", "parallel.schedule", 'did you mean "zero_bubble"'],
                 {**PIPELINE, "schedule": "zero-bubble"}, {}, id="schedule_hyphen"),
    pytest.param(["run.toml:", "parallel.chunks", "from 2"], {**PIPELINE, "schedule": "interleaved", "chunks": 1}, {},
                 id="chunks"),
    pytest.param(["run.toml:", "data.drop_last", "scatter", "true", 'parallel.mode = "data"'], {"mode": "scatter"},
                 {"drop_last": False}, id="scatter_drop_last"),
    pytest.param(["parallel.stage_memory_gb", "1e-05 GB", "more stages", "higher limit"],
                 {**PIPELINE, "stage_memory_gb": 1e-5}, {}, id="stage_memory")))
def test_wrong_value_is_a_usage_error(words, parallel, data):
    refused(2, words, parallel, data=data)


@pytest.mark.parametrize("ranks, words, partition", (
    pytest.param(2, ["no unit", '"layer9.0"', "stem, layer1.0", "head"], ["stem", "layer9.0"], id="unknown"),
    pytest.param(3, ['"layer1.0" does not come after "layer2.0"', "stem, layer1.0"], ["stem", "layer2.0", "layer1.0"],
                 id="order"),
    pytest.param(2, ['"stem" does not come after "stem"'], ["stem", "stem"], id="twice"),
    pytest.param(2, ['begins with "layer1.0"', 'must begin with the first unit, "stem"'], ["layer1.0", "layer2.0"],
                 id="not_first"),
    pytest.param(2, ['begins with "layer2.0"', 'must begin with the first unit, "stem"'], ["layer2.0", "stem"],
                 id="backwards"),
    pytest.param(3, ["names 2 units for 3 stages", "3"], ["stem", "layer2.0"], id="too_few"),
    pytest.param(2, ["names 3 units for 2 stages", "2"], ["stem", "layer2.0", "layer3.0"], id="too_many"),
    pytest.param(2, ["names one unit"], ["stem"], id="one"),
    pytest.param(2, ['"auto"', "list of unit names"], "stem", id="word")))
def test_wrong_partition_is_a_usage_error(ranks, words, partition):
    refused(ranks, ["parallel.partition", *words], {"mode": "model", "partition": partition}, RESNET)


def test_partition_of_other_stages_is_a_usage_error():
    refused(2, ["run.toml:", "parallel.partition", "names 3 units for 2 stages"],
            {"mode": "model", "stages": 2, "partition": ["stem", "layer2.0", "layer3.0"]}, RESNET)


def test_partition_of_other_chunks_is_a_usage_error():
    refused(2, ["parallel.partition", "names 2 units", "2 stages", "4"],
            {**PIPELINE, "schedule": "zb_v", "partition": ["stem", "layer2.0"]}, RESNET)


# ---- where layers are cut changes no bit

def partitioned(name, ranks, **parallel):
    folder = Folder(name, config(RESNET, train={"steps": 3, "eval_every_epochs": 0}, checkpoint={"every_epochs": 0},
                                 parallel={"microbatches": 2, **parallel}))
    folder.train(ranks)
    return folder


@functools.lru_cache(maxsize=None)
def losses_of_one_rank():
    return partitioned("single", 1).losses(str)


def stage_lines(folder):
    return [line for line in folder.stdout.splitlines() if line.startswith("stage ")]


@pytest.mark.parametrize("stages, keys", (
    pytest.param(["stem to layer1.1 (3 units", "layer2.0 to head (7 units"], {"partition": ["stem", "layer2.0"]}, id="1f1b"),
    pytest.param(["stem (1 unit", "layer1.0 to head (9 units"], {"partition": ["stem", "layer1.0"]}, id="uneven"),
    pytest.param(["stem to layer1.1 (3 units", "; layer3.0 to layer4.0 (3 units",
                  "layer2.0 to layer2.1 (2 units", "; layer4.1 to head (2 units"],
                 {"schedule": "interleaved", "partition": ["stem", "layer2.0", "layer3.0", "layer4.1"]}, id="interleaved"),
    pytest.param(["stem to layer1.1 (3 units", "; layer4.1 to head (2 units",
                  "layer2.0 to layer2.1 (2 units", "; layer3.0 to layer4.0 (3 units"],
                 {"schedule": "zb_v", "partition": ["stem", "layer2.0", "layer3.0", "layer4.1"]}, id="zb_v")))
def test_explicit_partition(stages, keys):
    """`train` says which layers each stage has."""
    folder = partitioned("cut", 2, mode="pipeline", **keys)
    same_series("partition", folder.losses(str), losses_of_one_rank())
    lines = stage_lines(folder)
    assert [line.split()[1] for line in lines] == ["0", "1"]
    each = len(stages) // 2
    for rank, line in enumerate(lines):
        for words in stages[rank * each:(rank + 1) * each]:
            assert words in line


def test_automatic_partition():
    folder = partitioned("auto", 2, mode="pipeline")
    same_series("partition", folder.losses(str), losses_of_one_rank())
    lines = stage_lines(folder)
    assert len(lines) == 2 and "% of the time" in lines[0]


# ---- a rank that is lost

def long_pipeline(schedule, timeout):
    """A run of two stages that has begun; almost all of its time is spent within steps."""
    folder = Folder("long", config(
        RESNET, train={"steps": 100000, "global_batch_size": 64, "eval_every_epochs": 0}, checkpoint={"every_epochs": 0},
        parallel={"mode": "pipeline", "microbatches": 4, "schedule": schedule, "timeout": timeout,
                  "partition": ["stem", "layer3.0"]}))
    process = folder.start(2)
    deadline = time.time() + 60
    while process.poll() is None and len(folder.events("step")) < 3 and time.time() < deadline:
        time.sleep(0.01)
    ranks = rank_processes(process)
    if sorted(ranks) != [0, 1] or len(folder.events("step")) < 3:
        kill_tree(process)
        folder.read_outputs()
        pytest.fail(f"did not start: {ranks}\n{folder.stderr[-1500:]}")
    return folder, process, ranks


def ends_with_an_error(folder, process, ranks, seconds):
    """Everything is gone after `seconds` at the latest."""
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
    print(f"over after {time.time() - start:.1f} s, exit code {code}\n{folder.stderr[-1500:]}", flush=True)
    assert code is not None and not left, f"after {seconds} s"
    assert code != 0


@pytest.mark.parametrize("rank", (0, 1))
def test_killed_rank(rank):
    folder, process, ranks = long_pipeline("1f1b", 600)
    os.kill(ranks[rank], signal.SIGKILL)
    ends_with_an_error(folder, process, ranks, 20)
    if mpi_kind() == "hydra":  # it names no rank
        assert f"PID {ranks[rank]} RUNNING AT" in folder.stdout + folder.stderr
    else:
        assert f"rank {rank}" in folder.stderr


@pytest.mark.parametrize("rank, schedule", ((0, "1f1b"), (1, "1f1b"), (1, "zero_bubble")))
def test_stopped_rank(rank, schedule):
    """A rank that hangs: the other says what it waited for, and for whom."""
    folder, process, ranks = long_pipeline(schedule, 3)
    os.kill(ranks[rank], signal.SIGSTOP)
    ends_with_an_error(folder, process, ranks, 20)
    lines = error_lines(folder.stderr)
    assert len(lines) == 1, folder.stderr[-1500:]
    # A message within the step, or, between steps, the exchange of losses, which has no partner.
    message = [f"{verb} rank {rank} '{what} of microbatch" for verb, what in
               (("receive from", "activation"), ("receive from", "gradient"), ("send to", "activation"),
                ("send to", "gradient"))]
    assert any(words in lines[0] for words in (*message, "all_reduce 'step loss'")), lines[0]
    assert f"timed out: world rank {1 - rank} " in lines[0] and "waited 3 s" in lines[0]


# ---- trace

@pytest.mark.parametrize("ranks, parallel, actions, chunks", (
    pytest.param(2, {"microbatches": 2}, "FB", 1, id="data"),
    pytest.param(2, {"mode": "model"}, "FB", 1, id="model"),
    pytest.param(2, {"mode": "pipeline", "microbatches": 4}, "FB", 1, id="1f1b"),
    pytest.param(2, {**PIPELINE, "schedule": "zero_bubble"}, "FIW", 1, id="zero_bubble"),
    pytest.param(2, {**PIPELINE, "schedule": "interleaved"}, "FB", 2, id="interleaved"),
    pytest.param(4, {**PIPELINE, "stages": 2}, "FB", 1, id="hybrid")))
def test_trace(ranks, parallel, actions, chunks):
    """One process for each rank, and in its row `compute` every action of the schedule, each step."""
    steps = 4
    folder = Folder("trace", config(DEEP_MLP, train={"steps": steps}, parallel=parallel, log={"trace": True}))
    folder.train(ranks)
    with open(folder.file("runs", "run", "trace.json")) as file:
        events = json.load(file)["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert sorted(processes) == list(range(ranks)) and all(processes[r].startswith(f"rank {r}") for r in processes)
    wanted = sorted(f"{action}{m}" + (f".{chunk}" if chunk else "") for action in actions
                    for m in range(parallel.get("microbatches", 1)) for chunk in range(chunks))
    for rank in range(ranks):
        for step in range(1, steps + 1):
            seen = sorted(e["name"] for e in events if e["ph"] == "X" and e["pid"] == rank and
                          e["cat"] == "compute" and e["args"]["step"] == step and e["name"][0] in "FBIW" and
                          e["name"][1:2].isdigit())
            assert seen == wanted, f"rank {rank}, step {step}"
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events if e["ph"] == "X")
