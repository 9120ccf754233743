# SPDX-License-Identifier: Apache-2.0
"""parallel.shard_head: the last linear layer and its softmax are divided over the replicas by classes, and the run is the
one without.

Losses and weights differ by rounding: sums over the classes have as many parts as there are replicas. After eight steps of
small nets that is below 1e-6 of the losses, and 1e-5 of the weights' largest. Without h5py only losses are compared.
"""
import functools
import json

import pytest

from behaviour import ENVIRONMENT, MLP, SMALL_NET, USAGE, Folder, close_series, config, error_lines, h5py

STEPS = 8
CHANGES = {
    "sgd": {},
    "adamw": {"optimizer": {"name": "adamw", "lr": 1e-3, "momentum": None}},
    "clipped": {"optimizer": {"clip_norm": 0.5}},
    "smoothed": {"train": {"label_smoothing": 0.1, "ema_decay": 0.5}, "parallel": {"microbatches": 2}},
}


@functools.lru_cache(maxsize=None)
def train(ranks, sharded, change="sgd", net="mlp", classes=10):
    """10 classes on 4 replicas are shards of 3, 3, 3 and 1. The validation's last batch leaves some replicas without a
    sample, and the last of an epoch of training has a different number of samples on each."""
    model = {**MLP, "classes": classes} if net == "mlp" else SMALL_NET
    sections = config(model, train={"steps": STEPS, "eval_every_epochs": 0}, data={"drop_last": False},
                      checkpoint={"every_epochs": 0, "every_steps": 4}, parallel={"shard_head": sharded})
    for section, keys in CHANGES[change].items():
        sections[section].update(keys)
    folder = Folder(f"{ranks}-{'sharded' if sharded else 'whole'}-{change}-{net}-{classes}", sections)
    folder.train(ranks)
    assert len(folder.losses()) == STEPS
    return folder


def values(path):
    tensors = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: tensors.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return tensors


def close_runs(actual, expected):
    close_series(actual.path, actual.losses(), expected.losses(), 1e-6)
    assert len(actual.checkpoints()) == len(expected.checkpoints()) == 2
    if h5py is None:
        return
    for a, e in zip(map(values, actual.checkpoints()), map(values, expected.checkpoints())):
        assert {name: tensor.shape for name, tensor in a.items()} == {name: tensor.shape for name, tensor in e.items()}
        for name, tensor in a.items():
            assert abs(tensor - e[name]).max() <= 1e-5 * abs(e[name]).max() + 1e-8, name


@pytest.mark.parametrize("change", CHANGES)
def test_four_replicas_give_the_run_of_one(change):
    close_runs(train(4, True, change), train(1, False, change))


@pytest.mark.parametrize("ranks, net, classes", ((2, "small_net", 10), (2, "mlp", 37)), ids=("batch_norm", "more_classes"))
def test_two_replicas(ranks, net, classes):
    close_runs(train(ranks, True, net=net, classes=classes), train(ranks, False, net=net, classes=classes))


def test_one_replica_has_the_whole():
    actual, expected = train(1, True), train(1, False)
    assert actual.losses(str) == expected.losses(str)


def evaluate(folder, ranks, *more):
    code = folder.run(ranks, "eval", "run.toml", "--checkpoint", "newest", "--json", "eval.json", *more)
    assert code == 0, folder.stderr
    with open(folder.file("eval.json")) as file:
        return json.load(file)


def test_evaluations_of_any_layout_agree():
    folder = train(4, True, "smoothed")
    expected = evaluate(folder, 1)
    for ranks, more in ((4, ()), (2, ()), (2, ("--set", "parallel.shard_head=false"))):
        actual = evaluate(folder, ranks, *more)
        assert actual["samples"] == expected["samples"]
        for score in ("top1", "top5", "ema_top1"):
            assert actual[score] == expected[score]
        for loss in ("loss", "ema_loss"):
            assert actual[loss] == pytest.approx(expected[loss], rel=1e-6)


@pytest.mark.parametrize("before, after, sharded", ((4, 2, True), (1, 4, True), (4, 1, False)))
def test_resume_in_another_layout(before, after, sharded):
    """AdamW has two slots; what the second half gives is what one rank gives."""
    folder = train(before, before > 1, "adamw").copy(f"resumed-{before}-{after}")
    folder.drop_checkpoints_after(4)
    sections = config({**MLP, "classes": 10}, train={"steps": STEPS, "eval_every_epochs": 0}, data={"drop_last": False},
                      optimizer=CHANGES["adamw"]["optimizer"], checkpoint={"every_epochs": 0, "every_steps": 4},
                      parallel={"shard_head": sharded})
    folder.configure(sections)
    folder.train(after)
    assert folder.events("start")[-1]["resumed_from"].endswith("step-00000004.h5")
    close_runs(folder, train(1, False, "adamw"))


@pytest.mark.parametrize("reset", (False, True))
def test_weights_of_another_run(reset):
    weights = train(4, True).checkpoints()[-1]
    sections = {"train": {"steps": 1, "eval_every_epochs": 0}, "parallel": {"shard_head": True}}
    model = {**MLP, "classes": 10, "weights": weights, "reset_head": reset}
    folders = [Folder(f"from-{ranks}-{reset}", config(model, **sections)) for ranks in (1, 4)]
    for folder, ranks in zip(folders, (1, 4)):
        folder.train(ranks)
    close_series("weights", folders[1].losses(), folders[0].losses(), 1e-6)


@pytest.mark.skipif(h5py is None, reason="no h5py")
def test_weights_that_are_not_finite_are_refused():
    folder = train(4, True).copy("nan")
    with h5py.File(folder.checkpoints()[-1], "r+") as file:
        file["model/fc2/bias"][9] = float("nan")  # of the last shard
    model = {**MLP, "classes": 10, "weights": folder.checkpoints()[-1]}
    folder.configure(config(model, run={"name": "other"}, parallel={"shard_head": True}))
    assert folder.run(4) == USAGE, folder.stderr
    assert len(error_lines(folder.stderr)) == 1 and "fc2.bias has values that are not finite" in folder.stderr


def test_one_layer_and_fewer_classes_than_ranks():
    """Shards of 2, 2, 1 and 0 classes; nothing but the head learns, and no gradient goes further back."""
    folders = []
    for ranks in (1, 4):
        layers = [{"type": "linear", "name": "fc", "out_features": 5}]
        folder = Folder(f"one-layer-{ranks}", config(
            {"name": "sequential", "classes": 5, "layers": layers}, train={"steps": 3, "eval_every_epochs": 0},
            data={"kind": "synthetic", "train": None, "validation": None, "features": 10, "samples": 128},
            checkpoint={"every_steps": 2}, parallel={"shard_head": True}))
        folder.train(ranks)
        folders.append(folder)
    close_runs(folders[1], folders[0])


def test_bfloat16_recomputed_head():
    """A head that is computed again in backward exchanges again. Rounding to 8 bits is 4e-3 of an output; losses are means."""
    runs = []
    for sharded in (False, True):
        model = {**MLP, "classes": 10, "recompute": ["fc1", "fc2"]}
        folder = Folder(f"bf16-{sharded}", config(
            model, train={"steps": STEPS, "precision": "bf16", "eval_every_epochs": 0}, data={"drop_last": False},
            parallel={"shard_head": sharded, "microbatches": 2}))
        folder.train(2)
        runs.append(folder)
    close_series("bf16", runs[1].losses(), runs[0].losses(), 4e-3)


def test_plan_lists_layouts_of_data_parallelism():
    folder = Folder("plan", config({**MLP, "classes": 10}, parallel={"shard_head": True}))
    assert folder.run(1, "plan", "run.toml", "--machine", "a100_40gb_4x", "--ranks", "4", "--json", "plan.json") == 0, folder.stderr
    with open(folder.file("plan.json")) as file:
        assert {layout["stages"] for layout in json.load(file)["layouts"]} == {1}


@pytest.mark.parametrize("instructions", ["ALL", "AVX2"])
def test_no_rank_holds_the_whole_head(instructions, monkeypatch):
    """Of weight and momentum (gradients are in shared memory) a quarter; of the outputs a quarter for all rows: as much.
    Where oneDNN has no AVX-512, the weight has a second format, for input gradients."""
    monkeypatch.setitem(ENVIRONMENT, "ONEDNN_MAX_CPU_ISA", instructions)
    folder = Folder("memory", config({"name": "mlp", "hidden": [128], "classes": 40000}))
    code = folder.run(4, "bench", "run.toml", "--steps", "1", "--warmup", "1", "--json", "bench.json",
                      "--sweep", "parallel.shard_head=false,true")
    assert code == 0, folder.stderr
    with open(folder.file("bench.json")) as file:
        whole, sharded = (max(result["backend_memory_bytes"]) for result in json.load(file)["results"])
    head = 4 * 128 * 40000
    copies = whole // head
    assert copies in (2, 3)
    rest = whole - copies * head
    assert rest < 0.3 * head
    assert sharded < copies * head / 4 + rest + (1 << 20)  # one MiB for what the pool rounds up


def test_checkpoints_verify():
    folder = train(2, True, net="mlp", classes=37)
    assert folder.run(1, "verify", "runs/run") == 0, folder.stderr


def refused(words, sections, ranks, *command):
    folder = Folder("refused", config(**{**sections, "parallel": {**sections.get("parallel", {}), "shard_head": True}}))
    assert folder.run(ranks, *command) == USAGE, folder.stderr
    lines = error_lines(folder.stderr)
    assert len(lines) == 1 and all(word in lines[0] for word in words), folder.stderr


@pytest.mark.parametrize("words, sections", (
    pytest.param(["parallel.shard_head", "is ignored with", "pipeline"], {"parallel": {"mode": "pipeline"}}, id="pipeline"),
    pytest.param(["parallel.shard_head", "parallel.shard_optimizer"], {"parallel": {"shard_optimizer": True}}, id="optimizer"),
    pytest.param(["parallel.shard_head", "mse"], {"train": {"loss": "mse"}}, id="loss"),
    pytest.param(["parallel.shard_head", "lars"], {"optimizer": {"name": "lars"}}, id="lars"),
    pytest.param(["parallel.shard_head", "mixup"], {"data": {"augment": ["mixup"]}}, id="mixup"),
    pytest.param(["run.replay_every", "parallel.shard_head"], {"run": {"replay_every": 2}}, id="replay")))
def test_what_does_not_go_together_is_a_usage_error(words, sections):
    refused(words, sections, 1, "check", "run.toml")


@pytest.mark.parametrize("word, model", (("frozen", {**MLP, "freeze": ["fc2"]}), ("linear", {"name": "resnet9"})))
def test_a_layer_that_cannot_be_divided_is_a_usage_error(word, model):
    refused(["parallel.shard_head", word], {"model": model}, 2)


@pytest.mark.parametrize("arguments", (("predict", "runs/run", "x.h5"), ("eval", "runs/run", "--confusion", "c.csv")))
def test_outputs_of_a_sample_are_nowhere_together(arguments):
    folder = train(4, True)
    assert folder.run(2, *arguments) == USAGE, folder.stderr
    assert len(error_lines(folder.stderr)) == 1 and "--set parallel.shard_head=false" in folder.stderr
