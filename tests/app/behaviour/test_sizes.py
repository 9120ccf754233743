# SPDX-License-Identifier: Apache-2.0
"""Training images that change their size between epochs: the same losses in every layout and after a resume, on JPEGs
with evaluation at a size of its own, and on synthetic images.

ResNet-18 in all layouts is compared bit for bit where sums have one order (see test_modes.py), else to rounding with a
small net.
"""
import functools
import re

import pytest

from behaviour import SMALL_NET, USAGE, Folder, close_series, config, error_lines, same_checkpoint, same_series
from pictures import pictures

RESNET = {"name": "resnet18", "stem": "small", "classes": 3}
SIZES, MILESTONES = [8, 16, 12], [1, 2]
SAMPLES, BATCH = 24, 8  # three steps an epoch


def settings(model, mode="data", epochs=4, **parallel):
    net = dict(model, layers=[dict(layer) for layer in model["layers"]]) if "layers" in model else model
    if "layers" in net:
        net["layers"][-1]["out_features"] = 3
    return config(net, data={"kind": "image_folder", "train": "pictures", "validation": "pictures", "image_size": 20,
                             "augment": ["crop", "flip"], "train_sizes": SIZES, "size_milestones": MILESTONES},
                  train={"steps": None, "epochs": epochs, "global_batch_size": BATCH},
                  optimizer={"lr": 1e-3}, checkpoint={"every_epochs": 0}, parallel={"mode": mode, **parallel})


def train(name, ranks, model=RESNET, **options):
    folder = Folder(name, settings(model, **options))
    pictures(folder, SAMPLES)
    folder.train(ranks, timeout=300)
    wanted = [SIZES[min(epoch, 2)] for epoch in range(options.get("epochs", 4)) for _ in range(SAMPLES // BATCH)]
    assert [step.get("image_size") for step in folder.events("step")] == wanted
    return folder


@functools.lru_cache(maxsize=None)
def one_rank(microbatches=1):
    """Several cases are compared with these runs."""
    return train("one", 1, microbatches=microbatches)


@functools.lru_cache(maxsize=None)
def two_ranks(**parallel):
    return train("two", 2, **parallel)


def evaluations(folder):
    return [[entry[key] for key in ("step", "samples", "top1", "top5", "loss")] for entry in folder.events("eval", str)]


def same_run(actual, expected):
    same_series("losses", actual.losses(str), expected.losses(str))
    seen, wanted = evaluations(actual), evaluations(expected)
    assert seen == wanted and len(wanted) == 4
    same_checkpoint("last", actual.checkpoints()[-1], expected.checkpoints()[-1])


def test_losses_change():
    assert len(set(one_rank().losses().values())) == 12, "is there anything in the pictures?"


@pytest.mark.parametrize("ranks", (2, 4))
def test_model_parallel_gives_the_same_bits(ranks):
    same_run(train("model", ranks, mode="model"), one_rank())


@pytest.mark.parametrize("schedule", ("1f1b", "zero_bubble", "interleaved"))
def test_pipeline_gives_the_same_bits(schedule):
    same_run(train("pipeline", 2, mode="pipeline", schedule=schedule, microbatches=2), one_rank(2))


def test_data_parallel_gives_the_same_bits():
    same_run(two_ranks(), one_rank(2))


def test_scatter_gives_the_same_bits():
    same_run(train("scatter", 2, mode="scatter"), two_ranks())


def test_hybrid_gives_the_same_bits():
    same_run(train("hybrid", 4, mode="pipeline", stages=2, microbatches=1), two_ranks())


def test_sync_batch_norm_gives_the_same_bits():
    same_run(train("sync", 4, mode="model", stages=2, sync_batch_norm=True), two_ranks(sync_batch_norm=True))


def test_four_ranks_agree_to_rounding():
    """Sums of four parts."""
    one = train("one", 1, SMALL_NET, microbatches=4)
    close_series("4 ranks", train("four", 4, SMALL_NET).losses(), one.losses(), 1e-5)


def test_frozen_units_and_a_smaller_last_batch():
    """Frozen units keep no inputs, and a last batch may be smaller."""
    runs = []
    for name, ranks, keys in (("one", 1, {"microbatches": 2}),
                              ("two", 2, {"mode": "pipeline", "schedule": "zero_bubble", "microbatches": 2})):
        sections = settings({**RESNET, "freeze": ["layer2", "layer3.1"]}, epochs=3, **keys)
        sections["train"]["global_batch_size"] = 10
        sections["data"]["drop_last"] = False
        folder = Folder(name, sections)
        pictures(folder, SAMPLES)
        folder.train(ranks)
        runs.append(folder.losses(str))
    assert len(runs[0]) == 9
    same_series("frozen", runs[1], runs[0])


# ---- resumed

@functools.lru_cache(maxsize=None)
def whole():
    return train("whole", 1, SMALL_NET, microbatches=2)


@functools.lru_cache(maxsize=None)
def with_every_checkpoint():
    sections = settings(SMALL_NET, microbatches=2)
    sections["checkpoint"]["every_steps"] = 1
    folder = Folder("every", sections)
    pictures(folder, SAMPLES)
    folder.train()
    return folder


@pytest.mark.parametrize("step", (3, 4, 5, 7))
def test_resume_at_any_size_goes_on(step):
    """From the last step of a size, from the first of the next."""
    again = with_every_checkpoint().copy("again")
    again.drop_checkpoints_after(step)
    again.train()
    assert again.events("start")[-1]["step"] == step
    same_series("resumed", again.losses(str), whole().losses(str))
    same_checkpoint("resumed", again.checkpoints()[-1], whole().checkpoints()[-1])


def test_resume_in_a_pipeline_goes_on():
    again = with_every_checkpoint().copy("again")
    again.drop_checkpoints_after(5)
    again.configure(settings(SMALL_NET, mode="pipeline", microbatches=2))
    again.train(2)
    same_series("resumed in a pipeline", again.losses(str), whole().losses(str))


# ---- what a person sees

@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run; what it printed is in .printed."""
    folder = train(tmp_path_factory.mktemp("sizes") / "run", 1, SMALL_NET)
    folder.printed = folder.stdout
    return folder


def test_each_change_of_size_is_one_line(trained):
    wanted = [("1", "16"), ("2", "12")]
    assert re.findall(r"after epoch (\d): training images of (\d+)x\d+", open(trained.file("runs/run/log.txt")).read()) == wanted
    assert re.findall(r"after epoch (\d): training images of (\d+)x", trained.printed) == wanted


@pytest.mark.parametrize("words, arguments", (
    pytest.param(["uint8 [3, 8, 8]", "uint8 [3, 20, 20]", "1: images of 16x16", "2: images of 12x12"],
                 ["inspect", "run.toml"], id="inspect"),
    pytest.param(["grid.png"], ["inspect", "run.toml", "--images", "3"], id="inspect_images"),
    pytest.param(["[8, 3, 16, 16]"], ["train", "run.toml", "--dry-run", "--set", "checkpoint.resume=never"], id="dry_run"),
    pytest.param(["24 samples"], ["eval", "run.toml", "--checkpoint", "LAST"], id="eval"),
    pytest.param(["data.train"], ["eval", "run.toml", "--checkpoint", "LAST", "--set", 'data.validation=""'],
                 id="eval_on_training_data"),
    pytest.param(["samples/s", "conv2d 3x3 3 -> 16, [8, 3, 16, 16]"],
                 ["bench", "run.toml", "--steps", "5", "--warmup", "1", "--profile"], id="bench"),
    pytest.param(["report.html"], ["report", "runs/run"], id="report"),
    pytest.param(["samples/s"], ["plan", "run.toml", "--ranks", "2", "--calibrate"], id="plan"),
    pytest.param(["train_sizes = [8, 16, 12]", "# stage 1"],
                 ["check", "run.toml", "--set", "parallel.mode=model", "--set", "parallel.stages=2"], id="check")))
def test_commands_know_the_sizes(trained, words, arguments):
    arguments = [trained.checkpoints()[-1] if word == "LAST" else word for word in arguments]
    code = trained.run(1, *arguments, timeout=300)  # measuring takes its time on a busy machine
    assert code == 0, trained.stderr
    for word in words:
        assert word in trained.stdout


@pytest.mark.parametrize("changes, words", (
    pytest.param({"train_sizes": [32, 2, 24]}, ["data.train_sizes: 2: conv: kernel_size 5 is larger than its input of 2x2"], id="too_small"),
    pytest.param({"image_size": 2}, ["data.image_size: 2: conv: kernel_size 5 is larger than its input of 2x2"], id="validation_too_small"),
    pytest.param({"augment": [], "resize": 30, "train_sizes": [48, 2, 3]}, ["data.resize: 30", "data.train_sizes, 48"],
                 id="resize"),
    pytest.param({"kind": "hdf5", "train": config()["data"]["train"], "validation": "", "image_size": None, "augment": []},
                 ["data.train_sizes: is ignored with", "not encoded images"], id="no_jpegs")))
def test_wrong_sizes_are_a_usage_error(changes, words):
    sections = settings(SMALL_NET)
    sections["model"]["layers"][0].update(kernel_size=5)
    sections["data"].update(changes)
    folder = Folder("refused", sections)
    pictures(folder, SAMPLES)
    code = folder.run(2)
    errors = error_lines(folder.stderr)
    assert code == USAGE and len(errors) == 1 and all(word in errors[0] for word in words), folder.stderr


def test_synthetic_images_change_their_size():
    def run(ranks, **parallel):
        sections = config({**RESNET}, train={"epochs": 3, "steps": None, "global_batch_size": BATCH},
                          optimizer={"lr": 1e-3}, parallel=parallel)
        sections["data"] = {"kind": "synthetic", "samples": SAMPLES, "train_sizes": SIZES,
                            "size_milestones": MILESTONES}
        folder = Folder(f"synthetic-{ranks}", sections)
        folder.train(ranks)
        return folder
    one, two = run(1), run(2, mode="model")
    assert len(one.losses()) == 9
    same_series("synthetic", two.losses(str), one.losses(str))
