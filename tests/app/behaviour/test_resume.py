# SPDX-License-Identifier: Apache-2.0
"""A run that is killed and started again computes what the uninterrupted run computes.

44 steps make an epoch (1,437 images in batches of 32), so most of these kills are in the middle of one.
"""
import math
import os
import shutil
import time

import pytest

from behaviour import MLP, SMALL_NET, Folder, close_series, config, kill_tree, same_checkpoint, same_series


def kill_after_step(folder, ranks, step, with_checkpoint):
    """Starts the run and kills it as soon as metrics.jsonl holds `step` (and, if wanted, a checkpoint is there: they are
    written in the background). False when it ended before."""
    process = folder.start(ranks)
    deadline = time.time() + 60
    while process.poll() is None and time.time() < deadline:
        steps = folder.events("step")
        if steps and steps[-1]["step"] >= step and (folder.checkpoints() or not with_checkpoint):
            kill_tree(process)
            return True
        time.sleep(0.002)
    ended = process.poll()
    kill_tree(process)
    folder.read_outputs()
    assert ended == 0, f"was to be killed after step {step}\n{folder.stderr[-1000:]}"
    return False


@pytest.mark.parametrize("ranks, model, steps, kills, every_steps", (
    pytest.param(1, SMALL_NET, 300, (3, 47, 131, 250), 10, id="one_rank"),
    pytest.param(2, SMALL_NET, 300, (5, 120, 230), 10, id="two_ranks"),
    pytest.param(1, {"name": "resnet18", "stem": "small"}, 16, (6,), 4, id="large_state")))
def test_killed_run_ends_as_the_uninterrupted_one(ranks, model, steps, kills, every_steps):
    sections = config(model, train={"steps": steps},
                      checkpoint={"every_steps": every_steps, "every_epochs": 1, "keep": 3})
    whole = Folder("whole", sections)
    whole.train(ranks)
    expected = whole.losses(str)
    assert sorted(expected) == list(range(1, steps + 1))
    killed = Folder("killed", sections)
    hits = [kill_after_step(killed, ranks, step, step > every_steps) for step in kills]
    assert any(hits), "the run always ended before it was killed"
    killed.train(ranks)
    same_series("killed", killed.losses(str), expected)
    starts = killed.events("start")
    assert any(start.get("resumed_from") for start in starts), "no run said what it resumed from"
    same_checkpoint("killed", killed.checkpoints()[-1], whole.checkpoints()[-1])
    evaluations = [(e["step"], e["loss"], e["top1"]) for e in killed.events("eval", str)]
    assert evaluations == [(e["step"], e["loss"], e["top1"]) for e in whole.events("eval", str)]


@pytest.mark.parametrize("optimizer", (
    pytest.param({"name": "adamw", "lr": 1e-3, "momentum": None}, id="adamw"),
    pytest.param({"name": "lars", "lr": 0.5}, id="lars"),
    pytest.param({"name": "sgd", "nesterov": True}, id="nesterov")))
def test_optimizer_state_and_learning_rate_come_back(optimizer):
    """From the middle of an epoch, with a learning rate that changes every step."""
    sections = config(SMALL_NET, train={"steps": 100}, optimizer=optimizer,
                      lr_schedule={"name": "cosine", "warmup_epochs": 1}, checkpoint={"every_steps": 37})
    whole = Folder("whole", sections)
    whole.train()
    again = whole.copy("again")
    again.drop_checkpoints_after(37)
    again.train()
    same_series("resumed", again.losses(str), whole.losses(str))
    same_checkpoint("resumed", again.checkpoints()[-1], whole.checkpoints()[-1])


def test_resume_on_other_numbers_of_ranks():
    """The samples left of an epoch are the same for every number of ranks, so the losses agree to rounding."""
    sections = config(MLP, train={"steps": 60}, optimizer={"lr": 0.01}, checkpoint={"every_steps": 23})
    whole = Folder("whole", sections)
    whole.train(2)
    for ranks in (1, 4):
        again = whole.copy(f"ranks-{ranks}")
        again.drop_checkpoints_after(23)
        again.train(ranks)
        assert again.events("start")[-1]["ranks"] == ranks
        close_series(f"from 2 ranks to {ranks}", again.losses(), whole.losses(), 1e-5)


def test_finished_run_says_so_and_changes_nothing():
    folder = Folder("finished", config())
    folder.train(2)
    before = open(folder.file("runs", "run", "metrics.jsonl")).read()
    folder.train(2)
    assert "already finished" in folder.stdout
    assert before == open(folder.file("runs", "run", "metrics.jsonl")).read()


def test_with_another_batch_the_learning_rate_follows_the_epochs():
    epochs, rate = 4, 0.002
    sections = config(train={"steps": None, "epochs": epochs}, optimizer={"lr": rate},
                      lr_schedule={"name": "cosine", "warmup_epochs": 0}, checkpoint={"every_epochs": 1})
    folder = Folder("batch", sections)
    folder.train(1)
    for path in folder.checkpoints()[2:]:
        os.remove(path)
    sections["train"]["global_batch_size"] = 64  # 22 steps an epoch
    folder.configure(sections)
    folder.train(1)
    steps = {step["step"]: step["lr"] for step in folder.events("step")}
    assert sorted(steps) == list(range(1, 2 * 44 + 2 * 22 + 1))
    for step in range(89, 133):
        passed = 2 * 22 + step - 89
        assert steps[step] == pytest.approx(rate * (1 + math.cos(math.pi * passed / (epochs * 22))) / 2, rel=1e-5)
    assert folder.events("start")[-1]["total_steps"] == 132
    assert len(folder.events("eval")) == epochs


def test_an_epoch_without_a_batch_of_the_new_size_is_done():
    folder = Folder("done", config(train={"steps": 43}))  # 1,376 of 1,437 images
    folder.train(1)
    folder.configure(config(train={"steps": None, "epochs": 1, "global_batch_size": 128}))
    folder.train(1)
    assert [step["step"] for step in folder.events("step")] == list(range(1, 44))
    assert [(event["step"], event["epoch"]) for event in folder.events("eval")][-1] == (43, 1)
    folder.configure(config(train={"steps": None, "epochs": 2, "global_batch_size": 128}))
    folder.train(1)
    assert {step["epoch"] for step in folder.events("step") if step["step"] > 43} == {1}


def test_a_run_that_resumes_needs_no_start_weights():
    first = Folder("first", config())
    first.train(1)
    folder = Folder("second", config({**MLP, "weights": "weights.h5"}))
    shutil.copy(first.checkpoints()[-1], folder.file("weights.h5"))
    folder.train(1)
    with open(folder.file("weights.h5"), "w") as file:
        file.write("no weights")
    folder.configure(config({**MLP, "weights": "weights.h5"}, train={"steps": 30}))
    folder.train(1)
    assert len(folder.events("step")) == 30
