# SPDX-License-Identifier: Apache-2.0
"""`convoy bench` on one rank and several: the profile, points of other numbers of ranks, the reduction, the memory, and
the bytes of a model."""
import json
import os
import statistics

import pytest

from behaviour import SMALL_NET, USAGE, Folder, config

DEEP_MLP = {"name": "mlp", "hidden": [64, 64, 64]}
CASES = ("ranks=1", "ranks=2 parallel.mode=pipeline parallel.microbatches=2")


def bench(folder, ranks, *arguments):
    code = folder.run(ranks, "bench", "run.toml", "--json", "bench.json", "--warmup", "1", *arguments, timeout=240)
    assert code == 0, folder.stderr[-1500:]
    with open(folder.file("bench.json")) as file:
        return json.load(file)["results"]


def cases(*names):
    return [word for name in names for word in ("--case", name)]


@pytest.mark.parametrize("ranks", (1, 2))
def test_profile(ranks):
    """Every operation of a step, with its unit; on two ranks the first one's."""
    folder = Folder("profile", config(SMALL_NET))
    profile = bench(folder, ranks, "--steps", "4", "--profile")[0]["profile"]
    names = {line["name"]: line for line in profile["operations"]}
    # Four convolutions, of which the first needs no input gradient.
    assert names["conv2d_forward"]["calls"] == 4 and names["conv2d_backward_input"]["calls"] == 3
    assert 0 <= names["between operations"]["seconds"] < profile["step_seconds"]
    assert names["sgd_update"]["calls"] == 1
    assert {"conv", "bn", "block"} <= {line["unit"] for line in profile["layers"]}
    assert profile["convolution_bound_s"] > 0 and profile["matrix_flops_per_second"] > 0
    assert profile["direct_convolution_bound_s"] > 0
    assert "convolution bound:" in folder.stdout


def test_cases_of_other_numbers_of_ranks():
    folder = Folder("cases", config(DEEP_MLP))
    results = bench(folder, 2, "--steps", "4", *cases(*CASES))
    assert [(r["case"], r["ranks"]) for r in results] == [(CASES[0], 1), (CASES[1], 2)]
    for r in results:
        assert len(r["step_seconds"]) == 4 and r["images_per_second"] > 0, r["case"]
        for key in ("peak_memory_bytes", "backend_memory_bytes"):
            assert len(r[key]) == r["ranks"] and min(r[key]) > 0, f"{r['case']}: {key}"
        for peak, held in zip(r["peak_memory_bytes"], r["backend_memory_bytes"]):
            assert peak >= held, f"{r['case']}: peak, and what of it the backend holds"
    assert results[-1]["overrides"] == {"parallel.mode": "pipeline", "parallel.microbatches": "2"}


def test_processes_train_alone_at_the_same_time():
    """Each has the whole batch, and none waits for another: the rate is the sum of theirs."""
    sections = config(DEEP_MLP)
    folder = Folder("processes", sections)
    alone, both, after = bench(folder, 2, "--steps", "5", *cases("ranks=1", "processes=2", "ranks=2"))
    assert both["processes"] == 2 and both["ranks"] == 1 and "reduction" not in both
    assert both["predicted_backend_memory_bytes"] == alone["predicted_backend_memory_bytes"]
    own = both["step_seconds_of_processes"]
    assert [len(seconds) for seconds in own] == [5, 5] and both["step_seconds"] == [max(pair) for pair in zip(*own)]
    rate = sum(sections["train"]["global_batch_size"] / statistics.median(seconds) for seconds in own)
    assert abs(both["images_per_second"] / rate - 1) < 1e-9  # the same sum in another order of roundings
    assert after["ranks"] == 2 and after["reduction"]["bytes"] > 0


def test_what_fails_in_one_process_ends_all():
    """A batch larger than the data, cases that cannot be profiled or are none: one message, no rank left behind."""
    folder = Folder("alone", config(DEEP_MLP))
    for words, problem in ((("--case", "processes=2 train.global_batch_size=100000"), "train.global_batch_size"),
                           (("--profile", "--case", "processes=2"), "--profile"),
                           (("--case", "ranks=2 processes=2"), "one of ranks=N and processes=N, once")):
        code = folder.run(2, "bench", "run.toml", *words, timeout=40)
        assert code == USAGE and folder.stderr.count("convoy: error:") == 1 and problem in folder.stderr, folder.stderr


def test_case_of_too_many_ranks_is_a_usage_error():
    folder = Folder("many", config(DEEP_MLP))
    code = folder.run(2, "bench", "run.toml", "--case", "ranks=3", timeout=40)
    assert code == USAGE and "--case" in folder.stderr and "mpirun -n 3" in folder.stderr, folder.stderr


def test_reduction():
    """Replicas that keep gradients say how fast these are summed: all of them, by 2 (n - 1) / n; one rank and stages of
    one replica have nothing to sum."""
    folder = Folder("reduction", config(DEEP_MLP))
    hybrid = "ranks=4 parallel.mode=pipeline parallel.stages=2 parallel.microbatches=2"
    alone, pair, hybrid = bench(folder, 4, "--steps", "2", *cases("ranks=1", "ranks=2", hybrid))
    assert "reduction" not in alone
    speed = pair["reduction"]
    assert speed["bytes"] >= 4 * sum(a * b + b for a, b in ((64, 64), (64, 64), (64, 64), (64, 10)))
    assert abs(speed["bus_bytes_per_second"] * speed["seconds"] / speed["bytes"] - 1) < 1e-9, "2 (2 - 1) / 2 is 1"
    assert speed["copy_seconds"] > 0 and 0 <= speed["hidden"] <= 1
    assert "summed in" in folder.stdout and "GB/s on the bus" in folder.stdout
    assert 0 < hybrid["reduction"]["bytes"] < speed["bytes"] and "hidden" not in hybrid["reduction"]


def test_memory_of_schedules():
    """gpipe holds the activations of all 8 microbatches on both stages; 1f1b those of 2 on the first, 1 on the second."""
    sections = config({"name": "resnet18", "stem": "small", "classes": 10}, train={"global_batch_size": 64},
                      parallel={"mode": "pipeline", "microbatches": 8, "partition": ["stem", "layer2.0"]})
    sections["data"] = {"kind": "synthetic", "samples": 256, "image_size": 32, "channels": 3}
    results = bench(Folder("memory", sections), 2, "--steps", "1", "--sweep", "parallel.schedule=gpipe,1f1b")
    held = {r["overrides"]["parallel.schedule"]: r["backend_memory_bytes"] for r in results}
    print("bytes held by the backend of each rank:", held, flush=True)
    assert sorted(held) == ["1f1b", "gpipe"]
    assert held["1f1b"][0] < 0.5 * held["gpipe"][0]
    assert held["1f1b"][1] < held["gpipe"][1]


def notes(folder):
    return [line for line in folder.stderr.splitlines() if line.startswith("convoy: note: ")]


def test_sweeps_over_what_other_keys_belong_to():
    """Each point sets aside the keys of the file that it makes meaningless, and says so once, whatever the repeats."""
    pipeline = {"mode": "pipeline", "stages": 2, "microbatches": 4, "schedule": "interleaved", "chunks": 2}
    folder = Folder("modes", config(DEEP_MLP, parallel=pipeline, train={"global_batch_size": 32}))
    results = bench(folder, 2, "--steps", "1", "--repeat", "2", "--sweep", "parallel.mode=data,model,pipeline,scatter")
    assert [r["overrides"]["parallel.mode"] for r in results] == 2 * ["data", "model", "pipeline", "scatter"]
    start = "convoy: note: run.toml: set aside, since they mean nothing with --set parallel.mode="
    assert notes(folder) == [start + "data: parallel.stages, parallel.schedule",
                             start + "model: parallel.microbatches, parallel.schedule",
                             start + "scatter: parallel.stages, parallel.microbatches, parallel.schedule"]

    step = {"name": "step", "milestones": [1]}
    folder = Folder("others", config(SMALL_NET, lr_schedule=step, data={"augment": ["flip"]}, optimizer={"momentum": 0.8}))
    words = {"data.kind": "data.train, data.validation, data.augment", "model.name": "model.layers",
             "optimizer.name": "optimizer.momentum", "lr_schedule.name": "lr_schedule.milestones"}
    values = {"data.kind": "synthetic model.classes=10 data.image_size=8 data.channels=1", "model.name": "mlp",
              "optimizer.name": "adamw", "lr_schedule.name": "cosine"}
    results = bench(folder, 1, "--steps", "1", *cases(*(f"{key}={value}" for key, value in values.items())))
    assert len(results) == len(notes(folder)) == 4
    for note, (key, keys) in zip(notes(folder), words.items()):
        assert f" {key}=" in note and note.endswith(": " + keys), note


def test_example_on_synthetic_data():
    """An example whose data is not here."""
    folder = Folder("example", config())
    example = os.path.join(os.path.dirname(__file__), "..", "..", "..", "app", "configs", "imagenet_resnet50_90.toml")
    arguments = ("--set", "data.kind=synthetic", "--set", "train.global_batch_size=8")
    code = folder.run(1, "bench", example, *arguments, "--set", "data.image_size=32", "--steps", "1", "--warmup", "0",
                      timeout=240)
    assert code == 0, folder.stderr
    assert len(notes(folder)) == 1 and notes(folder)[0].endswith(
        " --set data.kind=synthetic: data.train, data.validation, data.augment, data.resize")
    assert folder.run(1, "check", example, *arguments, timeout=60) == 0
    assert len(notes(folder)) == 1
    for absent in ("data/imagenet", "augment", "resize"):
        assert absent not in folder.stdout
    # Not what the override has made meaningless, but what it says itself.
    assert folder.run(1, "check", example, *arguments, "--set", "data.resize=300", timeout=60) == USAGE
    assert "--set: data.resize: is ignored with data.kind" in folder.stderr


MODEL_BYTES = ("--model-bytes", "--set", "train.global_batch_size=256")


def model_bytes(precision, *arguments):
    """The count of an ImageNet ResNet-50, which needs neither GPU nor memory."""
    folder = Folder("bytes", config())
    example = os.path.join(os.path.dirname(__file__), "..", "..", "..", "app", "configs", "resnet50_synthetic.toml")
    code = folder.run(1, "bench", example, *MODEL_BYTES, "--set", f"train.precision={precision}", "--json", "bytes.json",
                      *arguments, timeout=60)
    assert code == 0, folder.stderr
    print(folder.stdout, flush=True)
    with open(folder.file("bytes.json")) as file:
        return folder, json.load(file)


@pytest.mark.parametrize("precision, most", (("bf16", 300e6), ("fp16", 283e6)))
def test_model_bytes(precision, most):
    """What a step of 256 images moves where batch norms are fused: the bounds that the GPU backend is built for."""
    folder, result = model_bytes(precision)
    assert folder.stdout.startswith("CUDA backend, ") and "fused batch norms" in folder.stdout.splitlines()[0]
    assert result["least_bytes_per_image"] < result["bytes_per_image"] <= most
    assert result["graph_nodes"] <= 350


def test_model_bytes_apart():
    """In passes of their own batch norms read and write everything several times, as docs/gpu.md counts by hand."""
    folder, result = model_bytes("bf16", "--set", "device.deterministic=true")
    assert "batch norms apart" in folder.stdout.splitlines()[0]
    assert abs(result["bytes_per_image"] - 394e6) < 3e6
    by_kind = {line["kind"]: line["forward_bytes"] + line["backward_bytes"] for line in result["kinds"]}
    for kind, mb in (("convolutions, linear layers", 130), ("batch norm: statistics", 22), ("batch norm: apply", 56),
                     ("batch norm: backward reduce", 59), ("batch norm: backward apply", 81), ("sums of two gradients", 42)):
        assert abs(by_kind[kind] - 1e6 * mb) < 1e6, kind
    assert 0.75e9 < result["gradient_cast_bytes_per_step"] + result["optimizer_bytes_per_step"] < 0.85e9
    assert [line["unit"] for line in result["units"]][:2] == ["stem", "layer1.0"]
    for name in ("forward", "backward"):
        total = sum(line[f"{name}_bytes"] for line in result["units"])
        assert abs(total - sum(line[f"{name}_bytes"] for line in result["kinds"])) < 1
    nodes = sum(line["forward_nodes"] + line["backward_nodes"] for line in result["units"])
    assert nodes < result["graph_nodes"] <= nodes + 2  # and those of the weight gradients


def test_model_bytes_of_any_config_and_wrong_calls():
    folder = Folder("small", config(SMALL_NET, device={"kind": "cpu"}))
    assert folder.run(1, "bench", "run.toml", "--model-bytes", "--bandwidth", "1000") == 0, folder.stderr
    assert "float32, batch norms apart" in folder.stdout and "at 1000 GB/s these bytes take" in folder.stdout
    assert folder.run(1, "bench", "run.toml", "--model-bytes", "--set", "parallel.microbatches=2") == 0, folder.stderr
    for words in (("--profile",), ("--data",), ("--sweep", "run.seed=1,2"), ("--case", "ranks=1"), ("--steps", "3")):
        assert folder.run(1, "bench", "run.toml", "--model-bytes", *words) == USAGE, words
        assert len(folder.stderr.splitlines()) == 1 and words[0] in folder.stderr, folder.stderr
    assert folder.run(1, "bench", "run.toml", "--bandwidth", "1000") == USAGE and "--model-bytes" in folder.stderr
    assert folder.run(2, "bench", "run.toml", "--model-bytes") == USAGE and "one rank" in folder.stderr
    assert folder.run(1, "bench", "run.toml", "--model-bytes", "--set", "parallel.mode=scatter") == USAGE


def test_training_notes_once_on_all_ranks():
    folder = Folder("training", config(train={"steps": 2}, optimizer={"momentum": 0.8}))
    assert folder.run(2, "train", "run.toml", "--set", "optimizer.name=adamw", timeout=120) == 0, folder.stderr
    assert len(notes(folder)) == 1 and notes(folder)[0].endswith("optimizer.name=adamw: optimizer.momentum")
    with open(folder.file("runs", "run", "config.toml")) as file:
        assert "momentum" not in file.read()
