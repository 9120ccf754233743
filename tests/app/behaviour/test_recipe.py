# SPDX-License-Identifier: Apache-2.0
"""What a recipe adds to the optimizer and the loss, in every mode and after a resume: weight decay without norms and
biases, clipping by the global norm, LAMB, the average of the weights, class weights, early stops."""
import functools
import os
import re

import pytest

from behaviour import (DIGITS, MLP, SMALL_NET, USAGE, Folder, close_series, config, datasets, error_lines, h5py,
                       same_checkpoint, same_series)

STEPS = 8
OPTIMIZERS = {
    "sgd": {"lr": 0.02, "weight_decay": 0.1, "no_decay": ["norm"], "clip_norm": 0.8},
    "adamw": {"name": "adamw", "lr": 1e-3, "momentum": None, "no_decay": ["norm", "bias"], "clip_norm": 0.8},
    "lamb": {"name": "lamb", "lr": 1e-2, "momentum": None, "no_decay": ["bias"], "clip_norm": 0.8},
}


@functools.lru_cache(maxsize=None)
def train(ranks, optimizer, mode="data", **parallel):
    words = [optimizer, mode, str(ranks), *(f"{key}-{value}" for key, value in parallel.items())]
    folder = Folder("-".join(words), config(SMALL_NET, train={"steps": STEPS, "eval_every_epochs": 0, "ema_decay": 0.9},
                                            optimizer=OPTIMIZERS[optimizer], parallel={"mode": mode, **parallel}))
    folder.train(ranks)
    assert len(norms(folder)) == STEPS
    return folder


def norms(folder, parse_float=float):
    return {entry["step"]: entry["grad_norm"] for entry in folder.events("step", parse_float)}


def same_run(actual, expected):
    """Bitwise: losses, norms, evaluations, and every array of the checkpoint."""
    what = f"{os.path.basename(actual.path)} and {os.path.basename(expected.path)}"
    same_series(what, actual.losses(str), expected.losses(str))
    same_series(what, norms(actual, str), norms(expected, str))
    keys = ("step", "loss", "top1", "ema_loss", "ema_top1")
    seen, wanted = ([[entry[key] for key in keys] for entry in folder.events("eval", str)] for folder in (actual, expected))
    assert seen == wanted and len(seen) == 1, what
    same_checkpoint(what, actual.checkpoints()[-1], expected.checkpoints()[-1])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", ("1f1b", "zb_v"))
def test_pipeline_gives_the_same_bits(optimizer, schedule):
    same_run(train(2, optimizer, "pipeline", microbatches=4, schedule=schedule), train(1, optimizer, microbatches=4))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_replicas_of_two_stages(optimizer):
    """The bits of two ranks with the whole model each; the norms of one rank to 1e-6: it adds four parts in another order,
    and eight steps amplify these roundings."""
    hybrid = train(4, optimizer, "pipeline", stages=2, microbatches=2)
    same_run(hybrid, train(2, optimizer, microbatches=2))
    first = {1: norms(hybrid)[1]}
    close_series("norm of the first step", first, {1: norms(train(1, optimizer, microbatches=4))[1]}, 1e-6)
    assert any(norm > 0.8 for norm in norms(hybrid).values()), "nothing is clipped"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_scatter_gives_the_same_bits_on_two_ranks(optimizer):
    same_run(train(2, optimizer, "scatter"), train(2, optimizer))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resumed_run_gives_the_same_bits(optimizer):
    """Also on another layout."""
    sections = config(SMALL_NET, train={"steps": 60, "ema_decay": 0.9}, optimizer=OPTIMIZERS[optimizer],
                      checkpoint={"every_steps": 23}, lr_schedule={"name": "cosine", "warmup_steps": 30})
    whole = Folder("whole", sections)
    whole.train()
    for ranks, parallel in ((1, {}), (2, {"mode": "model"})):
        again = whole.copy(f"again-{ranks}")
        again.drop_checkpoints_after(23)
        again.configure({**sections, "parallel": parallel})
        again.train(ranks)
        same_series("resumed", again.losses(str), whole.losses(str))
        same_series("resumed", norms(again, str), norms(whole, str))
        same_checkpoint("resumed", again.checkpoints()[-1], whole.checkpoints()[-1])
        evaluations = [(e["step"], e["ema_loss"], e["ema_top1"]) for e in again.events("eval", str)]
        assert evaluations == [(e["step"], e["ema_loss"], e["ema_top1"]) for e in whole.events("eval", str)]


def test_average_is_evaluated_and_starts_from_weights():
    """It is of this run's parameters, evaluated as convoy eval does it; a checkpoint without one begins it."""
    folder = Folder("average", config(SMALL_NET, train={"steps": 45}))
    folder.train()
    assert "ema_loss" not in folder.events("eval")[-1]
    plain = folder.checkpoints()[-1]
    if h5py:
        with h5py.File(plain) as file:
            assert "ema" not in file
    folder.configure(config(SMALL_NET, train={"steps": 60, "ema_decay": 0.5, "eval_every_epochs": 0}))
    folder.train()
    log = open(folder.file("runs", "run", "log.txt")).read()
    assert "step-00000045.h5 holds no average of the weights, which starts from its weights" in log
    evaluation = folder.events("eval")[-1]
    assert evaluation["ema_loss"] != evaluation["loss"]
    assert "of the average of the weights" in folder.stdout
    last = folder.checkpoints()[-1]
    assert folder.run(1, "eval", "run.toml", "--checkpoint", last) == 0
    of_model, of_average = folder.stdout.split("of the average of the weights")
    for text, prefix in ((of_model, ""), (of_average, "ema_")):
        assert float(re.search(r"loss\s+(\S+)", text)[1]) == pytest.approx(evaluation[prefix + "loss"], rel=1e-8)
        assert float(re.search(r"top-1\s+(\S+) %", text)[1]) == pytest.approx(100 * evaluation[prefix + "top1"], abs=1e-4)
    if h5py:
        averaged, model = ({name.replace("ema/", "", 1) if group == "ema" else name.replace("model/", "", 1)
                            for name in datasets(last) if name.startswith(group + "/")} for group in ("ema", "model"))
        assert averaged == {name for name in model if "num_batches" not in name}
        # Of an earlier version, without running statistics: those of the model take their place.
        older = folder.copy("older")
        with h5py.File(older.checkpoints()[-1], "r+") as file:
            names = []
            file["ema"].visit(names.append)
            for name in names:
                if name.endswith(("running_mean", "running_var")):
                    del file["ema"][name]
        assert older.run(1, "eval", "run.toml", "--checkpoint", older.checkpoints()[-1]) == 0, older.stderr
        older.configure(config(SMALL_NET, train={"steps": 61, "ema_decay": 0.5, "eval_every_epochs": 0}))
        older.train()
        assert "ema_loss" in older.events("eval")[-1]
    # Without the key the run goes on, and its checkpoints have no average.
    folder.configure(config(SMALL_NET, train={"steps": 61, "eval_every_epochs": 0}))
    folder.train()
    assert "ema_loss" not in folder.events("eval")[-1]
    assert folder.run(2, "eval", "run.toml", "--checkpoint", folder.checkpoints()[-1]) == 0
    assert "of the average" not in folder.stdout


WEIGHTED_STEPS = 47  # two more than an epoch, whose last batch is smaller


def weighted(name, ranks, steps=WEIGHTED_STEPS, data=None, **parallel):
    data = {"drop_last": False, "class_weights": [0.5 + k for k in range(10)], **(data or {})}
    train = {"steps": steps, "label_smoothing": 0.1, "eval_every_epochs": 0}
    folder = Folder(name, config(MLP, data=data, train=train, parallel=parallel, checkpoint={"every_epochs": 0}))
    folder.train(ranks)
    return folder


def same_weighted(actual, expected):
    same_series("losses", actual.losses(str), expected.losses(str))
    same_checkpoint("weights", actual.checkpoints()[-1], expected.checkpoints()[-1])


@pytest.mark.parametrize("data", ({}, {"sampler": "balanced"}, {"augment": ["flip", "repeated"]}),
                         ids=("shuffle", "balanced", "repeated"))
def test_class_weights_give_the_same_bits_on_two_ranks(data):
    same_weighted(weighted("two", 2, data=data), weighted("one", 1, data=data, microbatches=2))


def test_class_weights_give_the_same_bits_in_every_mode():
    one = weighted("one", 1, microbatches=4)
    same_weighted(weighted("pipeline", 2, mode="pipeline", microbatches=4), one)
    assert weighted("plain", 1, data={"class_weights": []}, microbatches=4).losses() != one.losses()
    full = {"drop_last": True}
    same_weighted(weighted("scatter", 2, mode="scatter", data=full), weighted("data", 2, data=full))
    begun = weighted("begun", 1, steps=20, microbatches=4)
    begun.configure(config(MLP, data={"drop_last": False, "class_weights": [0.5 + k for k in range(10)]},
                           train={"steps": WEIGHTED_STEPS, "label_smoothing": 0.1, "eval_every_epochs": 0},
                           parallel={"microbatches": 4}))
    begun.train()
    same_weighted(begun, one)


def test_evaluations_are_not_weighted():
    folder = weighted("plain", 1, steps=2, data={"class_weights": []})
    shown = []
    for weights in ("[]", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"):
        code = folder.run(1, "eval", "run.toml", "--checkpoint", "newest", "--set", f"data.class_weights={weights}")
        assert code == 0, folder.stderr
        shown.append(folder.stdout)
    assert shown[0] == shown[1] and "loss" in shown[0]


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_class_weights_need_class_labels():
    folder = Folder("targets", config(MLP, data={"train": "data.h5", "validation": None, "class_weights": [1.0, 2.0]}))
    with h5py.File(folder.file("data.h5"), "w") as file:
        file["inputs"], file["targets"] = [[0.0] * 4] * 40, [[0.25, 0.75]] * 40
    assert folder.run(1) == USAGE
    assert error_lines(folder.stderr)[0].endswith(
        "data.class_weights: needs class labels, but data.h5 has float targets (leave it out)"), folder.stderr


STUCK = {"lr": 1e-30}  # nothing improves


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("metric", ("top1", "loss"))
def test_early_stop(ranks, metric):
    """After the first evaluation and two without improvement; counted over starts of the run."""
    train = {"steps": None, "early_stop_epochs": 2, "early_stop_metric": metric, "global_batch_size": 256}
    folder = Folder("early", config(MLP, train={**train, "epochs": 2}, optimizer=STUCK))
    folder.train(ranks)
    assert folder.events("end")[-1]["reason"] == "finished"
    folder.configure(config(MLP, train={**train, "epochs": 20}, optimizer=STUCK))
    folder.train(ranks)
    assert [e["epoch"] for e in folder.events("eval")] == [1, 2, 3]
    assert folder.events("end")[-1]["reason"] == "early_stop"
    assert "stopped early after step 15: 2 evaluations" in folder.stdout
    before = open(folder.file("runs", "run", "metrics.jsonl")).read()
    folder.train(ranks)
    assert "already finished" in folder.stdout and "train.early_stop_epochs has ended it" in folder.stdout
    assert before == open(folder.file("runs", "run", "metrics.jsonl")).read()
    folder.configure(config(MLP, train={**train, "early_stop_epochs": 3, "epochs": 20}, optimizer=STUCK))
    folder.train(ranks)
    assert [e["epoch"] for e in folder.events("eval")] == [1, 2, 3, 4]


def test_evaluations_of_another_past_do_not_count_for_an_early_stop():
    """A run goes on from a checkpoint of another one. Its own evaluations, of the same steps, are of another past: that of
    the checkpoint's step is made again, and is the first."""
    train = {"steps": None, "early_stop_epochs": 2, "early_stop_metric": "loss", "global_batch_size": 256}
    own, other = (Folder(name, config(MLP, train={**train, "epochs": 2}, optimizer=STUCK)) for name in ("own", "other"))
    own.train()
    other.train()
    resumed = {"resume": other.checkpoints()[-1]}
    for epochs, reason in ((3, "finished"), (20, "early_stop")):  # the second from its own checkpoint
        own.configure(config(MLP, train={**train, "epochs": epochs}, optimizer=STUCK, checkpoint=resumed))
        own.train()
        assert own.events("end")[-1]["reason"] == reason
    assert [e["step"] for e in own.events("eval")] == [5, 10, 10, 15, 20]
    assert [e["continues"] for e in own.events("start")] == [False, False, True]


def test_no_early_stop_while_it_improves():
    folder = Folder("improves", config(MLP, train={"steps": None, "epochs": 4, "early_stop_epochs": 1,
                                                   "early_stop_metric": "loss"}, optimizer={"lr": 0.01}))
    folder.train()
    assert len(folder.events("eval")) == 4 and folder.events("end")[-1]["reason"] == "finished"


@pytest.mark.parametrize("sections, message", (
    ({"train": {"early_stop_epochs": 2}, "data": {"validation": None}},
     "train.early_stop_epochs: needs an evaluation (set data.validation)"),
    ({"train": {"early_stop_epochs": 2, "eval_every_epochs": 0}},
     "train.early_stop_epochs: needs evaluations before the end (set train.eval_every_epochs above 0)"),
    ({"data": {"class_weights": [1.0, 2.0]}},
     "data.class_weights: 2 weights for 10 classes (give one for each class)"),
    ({"optimizer": {"clip_norm": -0.5}}, "optimizer.clip_norm: -0.5 is out of range"),
    ({"lr_schedule": {"warmup_epochs": 1, "warmup_steps": 1}},
     "lr_schedule.warmup_steps: given together with lr_schedule.warmup_epochs (give one of the two)")))
def test_what_means_nothing_is_refused_in_one_line(sections, message):
    folder = Folder("refused", config(MLP, **sections))
    assert folder.run(2) == USAGE
    lines = error_lines(folder.stderr)
    assert len(lines) == 1 and message in lines[0], folder.stderr


def test_gradients_that_are_not_finite_end_the_run():
    """As without clipping."""
    folder = Folder("nonfinite", config(MLP, optimizer={"lr": 1e30, "momentum": 0.0, "clip_norm": 1.0}))
    assert folder.run(1) == 1
    assert re.search(r"step \d+: the loss is .*try a smaller optimizer\.lr", error_lines(folder.stderr)[0])
