# SPDX-License-Identifier: Apache-2.0
"""Training images that change their size between epochs: the same losses in every layout and after a resume, on JPEGs
with evaluation at a size of its own, and on synthetic images.

ResNet-18 in all layouts is compared bit for bit where sums have one order (see test_modes.py), else to rounding with a
small net.
"""
import os
import re

from behaviour import (SMALL_NET, Folder, check, close_series, config, main, same_checkpoint, same_series)
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
    folder = Folder(f"sizes-{name}", settings(model, **options))
    pictures(folder, SAMPLES)
    folder.train(ranks, timeout=300)
    steps = folder.events("step")
    wanted = [SIZES[min(epoch, 2)] for epoch in range(options.get("epochs", 4)) for _ in range(SAMPLES // BATCH)]
    check([step.get("image_size") for step in steps] == wanted,
          f"{name}: image_size {[step.get('image_size') for step in steps]}, not {wanted}")
    return folder


def evaluations(folder):
    return [[entry[key] for key in ("step", "samples", "top1", "top5", "loss")] for entry in folder.events("eval", str)]


def same_run(actual, expected):
    what = f"{os.path.basename(actual.path)} and {os.path.basename(expected.path)}"
    same_series(what, actual.losses(str), expected.losses(str))
    seen, wanted = evaluations(actual), evaluations(expected)
    check(seen == wanted and len(wanted) == 4, f"{what}: evaluations {seen}, {wanted}")
    same_checkpoint(what, actual.checkpoints()[-1], expected.checkpoints()[-1])


def layouts():
    one, parts = train("one", 1), train("one-parts", 1, microbatches=2)
    check(len(set(one.losses().values())) == 12, "losses do not change: is there anything in the pictures?")
    for ranks in (2, 4):
        same_run(train(f"model-{ranks}", ranks, mode="model"), one)
    for schedule in ("1f1b", "zero_bubble", "interleaved"):
        same_run(train(f"pipeline-{schedule}", 2, mode="pipeline", schedule=schedule, microbatches=2), parts)
    two = train("two", 2)
    same_run(two, parts)
    same_run(train("scatter", 2, mode="scatter"), two)
    same_run(train("hybrid", 4, mode="pipeline", stages=2, microbatches=1), two)
    same_run(train("sync", 4, mode="model", stages=2, sync_batch_norm=True),
             train("sync-two", 2, sync_batch_norm=True))


def four_ranks():
    one = train("small-one", 1, SMALL_NET, microbatches=4)
    close_series("4 ranks", train("small-four", 4, SMALL_NET).losses(), one.losses(), 1e-5)  # sums of four parts


def frozen():
    """Frozen units keep no inputs, and a last batch may be smaller."""
    runs = []
    for name, ranks, keys in (("one", 1, {"microbatches": 2}),
                              ("two", 2, {"mode": "pipeline", "schedule": "zero_bubble", "microbatches": 2})):
        sections = settings({**RESNET, "freeze": ["layer2", "layer3.1"]}, epochs=3, **keys)
        sections["train"]["global_batch_size"] = 10
        sections["data"]["drop_last"] = False
        folder = Folder(f"sizes-frozen-{name}", sections)
        pictures(folder, SAMPLES)
        folder.train(ranks)
        runs.append(folder.losses(str))
    check(len(runs[0]) == 9, f"{len(runs[0])} steps, not 9")
    same_series("frozen", runs[1], runs[0])


def resumed():
    """From the last step of a size, from the first of the next, and by another layout."""
    whole = train("whole", 1, SMALL_NET, microbatches=2)
    sections = settings(SMALL_NET, microbatches=2)
    sections["checkpoint"]["every_steps"] = 1
    every = Folder("sizes-every", sections)
    pictures(every, SAMPLES)
    every.train()
    for step in (3, 4, 5, 7):
        again = every.copy(f"sizes-again-{step}")
        again.drop_checkpoints_after(step)
        again.train()
        check(again.events("start")[-1]["step"] == step, f"not resumed at {step}: {again.events('start')[-1]}")
        same_series(f"resumed after step {step}", again.losses(str), whole.losses(str))
        same_checkpoint(f"resumed after step {step}", again.checkpoints()[-1], whole.checkpoints()[-1])
    again = every.copy("sizes-again-pipeline")
    again.drop_checkpoints_after(5)
    again.configure(settings(SMALL_NET, mode="pipeline", microbatches=2))
    again.train(2)
    same_series("resumed in a pipeline", again.losses(str), whole.losses(str))


def told():
    """What a person sees: one line at each change; inspect, bench, plan and eval."""
    folder = train("told", 1, SMALL_NET)
    log = open(folder.file("runs/run/log.txt")).read()
    lines = re.findall(r"after epoch (\d): training images of (\d+)x\d+", log)
    check(lines == [("1", "16"), ("2", "12")] and lines == re.findall(r"after epoch (\d): training images of (\d+)x",
                                                                      folder.stdout), f"log: {lines}")
    def says(what, words, *arguments):
        code = folder.run(1, *arguments, timeout=300)  # measuring takes its time on a busy machine
        check(code == 0 and all(word in folder.stdout for word in words), f"{what}: {code} {folder.stdout} {folder.stderr}")
    says("inspect", ["uint8 [3, 8, 8]", "uint8 [3, 20, 20]", "1: images of 16x16", "2: images of 12x12"], "inspect", "run.toml")
    says("inspect --images", ["grid.png"], "inspect", "run.toml", "--images", "3")
    says("dry run", ["[8, 3, 16, 16]"], "train", "run.toml", "--dry-run", "--set", "checkpoint.resume=never")
    says("eval", ["24 samples"], "eval", "run.toml", "--checkpoint", folder.checkpoints()[-1])
    says("eval on training data", ["data.train"], "eval", "run.toml", "--checkpoint", folder.checkpoints()[-1],
         "--set", 'data.validation=""')
    says("bench", ["images/s", "conv2d 3x3 3 -> 16, [8, 3, 16, 16]"], "bench", "run.toml", "--steps", "5", "--warmup", "1", "--profile")
    says("report", ["report.html"], "report", "runs/run")
    says("plan", ["images/s"], "plan", "run.toml", "--ranks", "2", "--calibrate")
    says("check", ["train_sizes = [8, 16, 12]", "# stage 1"], "check", "run.toml", "--set", "parallel.mode=model",
         "--set", "parallel.stages=2")


def refused():
    for name, changes, words in (
            ("too small", {"train_sizes": [32, 2, 24]}, ["data.train_sizes: 2: conv: the image", "kernel"]),
            ("validation too small", {"image_size": 2}, ["data.image_size: 2: conv: the image"]),
            ("resize", {"augment": [], "resize": 30, "train_sizes": [48, 2, 3]}, ["data.resize: 30", "data.train_sizes, 48"]),
            ("no JPEGs", {"kind": "hdf5", "train": config()["data"]["train"], "validation": "", "image_size": None,
                          "augment": []}, ["data.train_sizes: means nothing for", "not JPEGs"])):
        sections = settings(SMALL_NET)
        sections["model"]["layers"][0].update(kernel_size=5)
        sections["data"].update(changes)
        folder = Folder("sizes-refused-" + name.replace(" ", "-"), sections)
        pictures(folder, SAMPLES)
        code = folder.run(2)
        errors = [line for line in folder.stderr.splitlines() if line.startswith("convoy: error:")]
        check(code == 2 and len(errors) == 1 and all(word in errors[0] for word in words), f"{name}: {code}, {errors}")


def synthetic():
    def run(ranks, **parallel):
        sections = config({**RESNET}, train={"epochs": 3, "steps": None, "global_batch_size": BATCH},
                          optimizer={"lr": 1e-3}, parallel=parallel)
        sections["data"] = {"kind": "synthetic", "samples": SAMPLES, "train_sizes": SIZES,
                            "size_milestones": MILESTONES}
        folder = Folder(f"sizes-synthetic-{ranks}", sections)
        folder.train(ranks)
        return folder
    one, two = run(1), run(2, mode="model")
    check(len(one.losses()) == 9, f"{len(one.losses())} steps")
    same_series("synthetic", two.losses(str), one.losses(str))


if __name__ == "__main__":
    main([layouts, four_ranks, frozen, resumed, told, refused, synthetic])
