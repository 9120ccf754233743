# SPDX-License-Identifier: Apache-2.0
"""Starts of a run that is there already: what changed is said, what must not change is refused, and what a refused or
finished start leaves alone.
"""
import os
import re
import subprocess
import time

import pytest

from behaviour import CONVOY, ENVIRONMENT, FAILURE, MLP, SMALL_NET, USAGE, Folder, config, error_lines, part_of

NET = {"name": "mlp", "hidden": [16]}


def small(**sections):
    sections.setdefault("train", {}).setdefault("steps", 4)
    return config(sections.pop("model", NET), **sections)


@pytest.fixture
def trained():
    folder = Folder("run", small())
    folder.train()
    return folder


def resolved(folder):
    return open(folder.file("runs", "run", "config.toml")).read()


def log(folder):
    return open(folder.file("runs", "run", "log.txt")).read()


def refused(folder, ranks=1):
    assert folder.run(ranks) == USAGE, folder.stderr
    lines = error_lines(folder.stderr)
    assert len(lines) == 1, folder.stderr
    return lines[0].removeprefix("convoy: error: ")


@pytest.mark.parametrize("ranks", (1, 2))
def test_a_resumed_run_says_what_changed(trained, ranks):
    trained.configure(small(train={"steps": 8}, optimizer={"lr": 0.2}))
    trained.train(ranks)
    for change in ("train.steps 4 -> 8", "optimizer.lr 0.05 -> 0.2"):
        line = f"differs from the checkpoint: {change}"
        assert line in trained.stdout and line in log(trained)
    assert trained.events("start")[-1]["changes"] == ["train.steps 4 -> 8", "optimizer.lr 0.05 -> 0.2"]
    assert trained.events("start")[0]["changes"] == []


def test_another_model_is_refused_in_one_line(trained):
    before = resolved(trained)
    trained.configure(small(model=SMALL_NET, train={"steps": 8}))
    line = refused(trained)
    assert line.startswith("runs/run/checkpoints/step-00000004.h5: holds another model: model.name \"mlp\" -> "
                           "\"sequential\""), line
    assert line.endswith("; log.txt lists the tensors (give this run a folder of its own with --set run.name=..., or "
                         "delete runs/run to start over)"), line
    assert "missing: conv.weight" in log(trained)
    assert resolved(trained) == before


def test_another_loss_is_refused(trained):
    trained.configure(small(train={"steps": 8, "loss": "mse"}))
    line = refused(trained)
    assert "was written with another loss: train.loss \"cross_entropy\" -> \"mse\"" in line
    assert "or resume all the same with --set checkpoint.resume=runs/run/checkpoints/step-00000004.h5" in line


@pytest.mark.parametrize("ranks", (1, 2))
def test_other_data_is_refused_unless_the_file_is_named(trained, ranks):
    data = {"train": part_of("part", "train", 320), "validation": None}
    trained.configure(small(train={"steps": 8}, data=data))
    line = refused(trained, ranks)
    assert "was written with other training data: 1437 samples, 10 classes, labels " in line
    assert "; data.train has 320 samples, 10 classes, labels " in line
    trained.configure(small(train={"steps": 8}, data=data,
                            checkpoint={"resume": "runs/run/checkpoints/step-00000004.h5"}))
    trained.train(ranks)
    assert "differs from the checkpoint: training data: 1437 samples" in trained.stdout


def test_a_refused_start_and_a_finished_one_leave_the_config_alone(trained):
    before = resolved(trained)
    trained.configure(small(model=SMALL_NET))
    refused(trained)
    assert resolved(trained) == before
    trained.configure(small(optimizer={"lr": 0.3}))
    trained.train()
    assert "already finished" in trained.stdout
    assert resolved(trained) == before
    trained.configure(small(train={"steps": 6}, optimizer={"lr": 0.3}))
    trained.train()
    assert "lr = 0.3" in resolved(trained)


@pytest.mark.parametrize("ranks", (1, 2))
def test_a_run_that_fails_says_so_in_its_folder(ranks):
    folder = Folder("run", small(train={"steps": 50}, optimizer={"lr": 1e30}))
    assert folder.run(ranks) == FAILURE
    message = error_lines(folder.stderr)[0].removeprefix("convoy: error: ")
    end = folder.events("end")[-1]
    assert end["reason"] == "error" and end["message"] == message
    assert f"error: {message}" in log(folder)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB all but filled by `ballast`."""
    disk = tmp_path / "disk"
    os.makedirs(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    with open(disk / "ballast", "wb") as file:
        file.write(bytes(2000 << 10))
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


# 300 steps between checkpoints: time for the test to see the first failure, and to make room, on a busy machine too.
def on_disk(disk):
    return Folder("run", small(model=SMALL_NET, train={"steps": 3000}, data={"validation": None},
                               checkpoint={"dir": str(disk / "checkpoints"), "every_steps": 300, "every_epochs": 0,
                                           "keep": 2}))


def test_a_checkpoint_that_cannot_be_written_is_tried_again(small_disk):
    folder = on_disk(small_disk)
    process = folder.start(1)
    while process.poll() is None and "tries left" not in open(folder.file("stderr.txt")).read():
        time.sleep(0.01)
    os.remove(small_disk / "ballast")
    assert process.wait(60) == 0, open(folder.file("stderr.txt")).read()
    folder.read_outputs()
    assert re.search(r"convoy: warning: \S+/checkpoints has \S+ \S+ free, and 3 checkpoints take \S+ \S+ \(free space "
                     r"there, or name another folder with checkpoint.dir\)", folder.stderr), folder.stderr
    assert "convoy: warning: checkpoint of step 300: " in folder.stderr
    assert "training continues without it, 2 tries left until the run ends" in folder.stderr
    steps = [event["step"] for event in folder.events("checkpoint")]
    assert 300 not in steps and steps[-1] == 3000 and len(steps) >= 7, steps


def test_three_failed_checkpoints_in_a_row_end_the_run(small_disk):
    folder = on_disk(small_disk)
    assert folder.run(1) == FAILURE
    assert "3 checkpoints in a row could not be written" in error_lines(folder.stderr)[0]
    assert not folder.events("checkpoint")


def test_weights_that_are_not_finite_are_refused_and_shown():
    h5py = pytest.importorskip("h5py")
    folder = Folder("run", small())
    folder.train()
    assert folder.run(1, "inspect", "runs/run") == 0, folder.stderr
    assert "the checkpoint is valid" in folder.stdout
    weights = folder.file("weights.h5")
    with h5py.File(folder.checkpoints()[-1], "r") as old, h5py.File(weights, "w") as new:
        old.copy("model", new)
        new["model/fc1/weight"][0, 0] = float("nan")
    folder.configure(small(run={"name": "other"}, model={**MLP, "hidden": [16], "weights": "weights.h5"}))
    assert "weights.h5: fc1.weight has values that are not finite" in refused(folder)


def test_eval_and_inspect_take_runs_and_names_for_checkpoints():
    folder = Folder("run", small(train={"steps": None, "epochs": 3}))
    folder.train()
    best = max(folder.events("eval"), key=lambda event: (event["top1"], -event["step"]))
    for words, step in ((("run.toml", "--checkpoint", "newest"), 132), (("run.toml", "--checkpoint", "best"), best["step"]),
                        (("run.toml", "--checkpoint", "runs/run"), 132), (("runs/run",), 132),
                        (("runs/run", "--checkpoint", "best"), best["step"])):
        assert folder.run(1, "eval", *words) == 0, folder.stderr
        assert folder.stdout.startswith(f"runs/run/checkpoints/step-{step:08}.h5 on 360 samples"), folder.stdout
    assert folder.run(1, "inspect", "runs/run/best") == 0
    assert folder.stdout.startswith(f"runs/run/checkpoints/step-{best['step']:08}.h5: a checkpoint"), folder.stdout
    assert folder.run(1, "eval", "run.toml") == USAGE
    assert "eval: --checkpoint is missing (a file, newest, best, or a run's folder" in folder.stderr


def test_results_that_nobody_gets_are_an_error_and_a_training_needs_no_reader():
    folder = Folder("unread", small(train={"steps": 60}))
    training = subprocess.Popen([CONVOY, "train", "run.toml", "--set", "log.progress=lines"], cwd=folder.path,
                                env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    training.stdout.close()
    assert training.wait(60) == 0, training.stderr.read()
    assert len(folder.events("step")) == 60
    for words in (["eval", "runs/run"], ["check", "run.toml"], ["schedule", "--name", "gpipe", "--stages", "2", "--microbatches", "2"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([CONVOY, *words], cwd=folder.path, env=ENVIRONMENT, stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 1, (words, done.stderr)
        assert "convoy: error: standard output cannot be written" in done.stderr
