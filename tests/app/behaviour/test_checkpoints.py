# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints a run writes and keeps: failed rotation, values that are not finite, the best one, second copies."""
import os
import re
import shutil

import pytest

from behaviour import (DIGITS, FAILURE, MLP, SMALL_NET, USAGE, Folder, config, error_lines, h5py, same_checkpoint,
                       same_series)

RANKS = pytest.mark.parametrize("ranks", (1, 2))


def steps_in(folder):
    """Of the checkpoints in the run's folder, or in the one given."""
    return [int(os.path.basename(path)[5:13]) for path in folder.checkpoints()]


@RANKS
def test_old_checkpoint_that_cannot_be_deleted_is_one_warning(ranks):
    """A folder in its place: not even root can unlink it."""
    folder = Folder("stuck", config(train={"steps": 30}, checkpoint={"every_steps": 5, "every_epochs": 0, "keep": 2}))
    stuck = folder.file("runs", "run", "checkpoints", "step-00000005.h5")
    folder.train(ranks)
    assert steps_in(folder) == [25, 30]

    os.makedirs(os.path.join(stuck, "x"))
    folder.configure(config(train={"steps": 60}, checkpoint={"every_steps": 5, "every_epochs": 0, "keep": 2}))
    folder.train(ranks)
    assert steps_in(folder) == [5, 55, 60]
    warnings = [line for line in folder.stderr.splitlines() if "warning" in line]
    assert len(warnings) == 1, folder.stderr
    assert "old checkpoints stay: cannot remove runs/run/checkpoints/step-00000005.h5: " in warnings[0]
    assert len(folder.losses()) == 60


@pytest.mark.skipif(h5py is None, reason="no h5py")
@pytest.mark.parametrize("ranks, mode", ((1, "data"), (2, "data"), (2, "pipeline")))
@pytest.mark.parametrize("path, name", (
    ("optimizer/exp_avg_sq/fc/weight", "fc.weight (optimizer exp_avg_sq)"),
    ("model/block/bn2/running_var", "block.bn2.running_var")))
def test_value_that_is_not_finite_is_not_written(ranks, mode, path, name):
    """Of state that infinity neither leaves nor makes the loss or a weight infinite; of the last stage, too."""
    sections = config(SMALL_NET, train={"steps": 12, "eval_every_epochs": 0}, parallel={"mode": mode},
                      optimizer={"name": "adamw", "lr": 1e-3, "momentum": None},
                      checkpoint={"every_steps": 10, "every_epochs": 0})
    folder = Folder("infinite", sections)
    folder.train(ranks)
    assert steps_in(folder) == [10, 12]
    with h5py.File(folder.checkpoints()[-1], "r+") as file:
        values = file[path]
        values[(0,) * values.ndim] = float("inf")
    sections["train"]["steps"] = 30
    folder.configure(sections)
    assert folder.run(ranks) == FAILURE
    lines = error_lines(folder.stderr)
    assert len(lines) == 1, folder.stderr
    assert f"error: step 20: {name} has values that are not finite, no checkpoint is written" in lines[0]
    assert "step-00000012.h5" in lines[0]
    assert steps_in(folder) == [10, 12]


# ---- the best one

def scores(folder, key):
    """Of the evaluations by step, the higher the better, as metrics.jsonl has them."""
    return {e["step"]: e["top1"] if key == "top1" else -e["loss"] for e in folder.events("eval")}


def best_step(folder, key):
    by_step = scores(folder, key)
    return max(sorted(by_step), key=by_step.get)  # max() takes the first of equal ones


def restless(key, epochs, **checkpoint):
    """A learning rate with which scores go up and down."""
    return config(MLP, train={"steps": None, "epochs": epochs}, optimizer={"lr": 0.6},
                  checkpoint={"keep": 2, "keep_best": key, **checkpoint})


@RANKS
@pytest.mark.parametrize("key", ("top1", "loss"))
def test_best_checkpoint_is_kept_and_found(ranks, key):
    folder = Folder("best", restless(key, 9))
    folder.train(ranks)
    best, last = best_step(folder, key), 9 * 44
    assert best < last - 44, "the case needs a best one before the last two"
    assert steps_in(folder) == [best, last - 44, last]
    link = folder.file("runs", "run", "checkpoints", "best.h5")
    assert os.readlink(link) == f"step-{best:08d}.h5"

    assert folder.run(1, "eval", "runs/run", "--checkpoint", "best") == 0, folder.stderr
    assert f"step-{best:08d}.h5 on " in folder.stdout
    top1 = next(e["top1"] for e in folder.events("eval") if e["step"] == best)
    printed = float(re.search(r"top-1 +([\d.]+) %", folder.stdout)[1]) / 100  # with 4 digits of percent
    assert abs(printed - top1) < 1e-6

    folder.configure(restless(key, 11))
    folder.train(ranks)
    assert folder.events("start")[-1]["resumed_from"].endswith(f"step-{last:08d}.h5"), "the newest, not the best"
    now = best_step(folder, key)
    assert steps_in(folder) == sorted({now, last + 44, last + 88})
    assert os.readlink(link) == f"step-{now:08d}.h5"

    folder.configure(restless("", 12))
    folder.train(ranks)
    assert steps_in(folder) == [last + 88, last + 132]
    assert not os.path.lexists(link)


@RANKS
def test_new_best_is_written_where_no_checkpoint_was_due(ranks):
    """The model that was evaluated; at other evaluations nothing is written."""
    folder = Folder("caused", restless("loss", 6, every_epochs=0))
    folder.train(ranks)
    by_step = scores(folder, "loss")
    new_bests = [step for step in by_step if all(by_step[step] > by_step[before] for before in by_step if before < step)]
    assert len(by_step) == 6 and 1 < len(new_bests) < 6, "the case needs some of both"
    assert [e["step"] for e in folder.events("checkpoint")] == sorted({*new_bests, 6 * 44})
    assert folder.run(1, "eval", "runs/run", "--checkpoint", "best") == 0, folder.stderr
    loss = float(re.search(r"loss +([\d.]+)", folder.stdout)[1])
    assert abs(loss + by_step[new_bests[-1]]) < 1e-6 * loss  # summed over other numbers of ranks


def test_stopped_and_resumed_run_keeps_the_same_best():
    """At every epoch, with the scores of the run so far taken from its files."""
    whole = Folder("whole", restless("top1", 8))
    whole.train()
    pieces = Folder("pieces", restless("top1", 1))
    for epochs in range(1, 9):
        pieces.configure(restless("top1", epochs))
        pieces.train()
    assert scores(pieces, "top1") == scores(whole, "top1")
    assert steps_in(pieces) == steps_in(whole)
    assert len(steps_in(whole)) == 3, "the case needs a best one before the last two"


@pytest.mark.parametrize("sections, words", (
    ({"data": {"validation": None}, "checkpoint": {"keep_best": "top1"}},
     ("checkpoint.keep_best: needs an evaluation", "data.validation")),
    ({"checkpoint": {"keep_best": "top5"}}, ("checkpoint.keep_best", "top5", "top1", "loss"))))
def test_keep_best_that_cannot_be_is_a_usage_error(sections, words):
    folder = Folder("wrong", config(**sections))
    assert folder.run(1) == USAGE
    lines = error_lines(folder.stderr)
    assert len(lines) == 1 and "run.toml:" in lines[0], folder.stderr
    for word in words:
        assert word in lines[0]


@pytest.mark.skipif(h5py is None, reason="no h5py")
def test_top1_of_float_targets_is_a_usage_error():
    folder = Folder("targets", config())
    with h5py.File(DIGITS, "r") as source, h5py.File(folder.file("points.h5"), "w") as file:
        file["inputs"] = (source["train/images"][:64].reshape(64, -1) / 255).astype("f4")
        file["targets"] = source["train/labels"][:64].reshape(64, 1).astype("f4")
    sections = config(data={"train": "points.h5", "validation": "points.h5"}, train={"loss": "mse"},
                      checkpoint={"keep_best": "top1"})
    folder.configure(sections)
    assert folder.run(1) == USAGE
    assert 'checkpoint.keep_best: "top1" needs class labels' in error_lines(folder.stderr)[0]
    sections["checkpoint"]["keep_best"] = "loss"
    folder.configure(sections)
    folder.train()
    assert os.path.exists(folder.file("runs", "run", "checkpoints", "best.h5"))


# ---- second copies

COPIED = {"every_steps": 10, "every_epochs": 0, "keep": 2, "copy_to": "copies"}


def copied(steps, **checkpoint):
    return config(SMALL_NET, train={"steps": steps, "eval_every_epochs": 0}, checkpoint={**COPIED, **checkpoint})


def copies_of(folder):
    """The folder of copies: the only one there."""
    names = os.listdir(folder.file("copies"))
    assert len(names) == 1 and re.fullmatch(r"run-[0-9a-f]{8}", names[0]), names
    return folder.file("copies", names[0])


def copied_steps(folder):
    return sorted(int(name[5:13]) for name in os.listdir(copies_of(folder)) if re.fullmatch(r"step-\d{8}\.h5", name))


def damage_newest(folder):
    os.truncate(folder.checkpoints()[-1], 1000)


def lose_all(folder):
    shutil.rmtree(folder.file("runs", "run", "checkpoints"))


@RANKS
@pytest.mark.parametrize("harm", (damage_newest, lose_all))
def test_copy_stands_in_for_a_checkpoint(ranks, harm):
    folder = Folder("copied", copied(30))
    folder.train(ranks)
    copies = copies_of(folder)
    assert open(os.path.join(copies, "run.txt")).read() == folder.file("runs", "run") + "\n"
    events = folder.events("copy")
    assert events[-1]["step"] == 30 and not any("error" in event for event in events)
    assert "checkpoint copied in" in open(folder.file("runs", "run", "log.txt")).read()
    assert copied_steps(folder)[-1] == 30
    newest = folder.checkpoints()[-1]
    assert open(os.path.join(copies, os.path.basename(newest)), "rb").read() == open(newest, "rb").read()

    harm(folder)
    folder.configure(copied(60))
    folder.train(ranks)
    source = folder.events("start")[-1]["resumed_from"]
    assert source == os.path.relpath(copies, folder.path) + "/step-00000030.h5"
    told = [line for line in folder.stderr.splitlines() if "warning" in line and source in line]
    assert len(told) == 1, folder.stderr
    assert steps_in(folder)[-1] == copied_steps(folder)[-1] == 60
    assert len(copied_steps(folder)) == 2
    whole = Folder("whole", copied(60, copy_to=""))
    whole.train(ranks)
    same_series("from a copy", folder.losses(str), whole.losses(str))
    same_checkpoint("from a copy", folder.checkpoints()[-1], whole.checkpoints()[-1])


def test_runs_do_not_share_copies():
    """The same name in two folders, and the same DIR."""
    folder = Folder("two", copied(10))
    for parent in ("a", "b"):
        assert folder.run(1, "train", "run.toml", "--set", f"run.dir={parent}") == 0, folder.stderr
    names = sorted(os.listdir(folder.file("copies")))
    assert len(names) == 2
    runs = {open(folder.file("copies", name, "run.txt")).read() for name in names}
    assert runs == {folder.file("a", "run") + "\n", folder.file("b", "run") + "\n"}


def test_copies_of_an_abandoned_past_are_set_aside():
    """The run goes back to an earlier file of its own, which the config names."""
    folder = Folder("past", copied(20))
    folder.train()
    shutil.copy(folder.checkpoints()[0], folder.file("earlier.h5"))
    folder.configure(copied(30))
    folder.train()
    assert copied_steps(folder)[-1] == 30
    folder.configure(copied(15, resume="earlier.h5"))
    folder.train()
    assert folder.events("start")[-1]["step"] == 10
    assert "step-00000030.h5.superseded" in os.listdir(copies_of(folder))
    lose_all(folder)
    folder.configure(copied(18))
    folder.train()
    assert folder.events("start")[-1]["step"] == 15


@RANKS
def test_copy_that_fails_is_a_warning(ranks):
    """The folder of copies has become a file: the run goes on, and copies again once there is a folder."""
    folder = Folder("fails", copied(30))
    folder.train(ranks)
    copies = copies_of(folder)
    os.rename(copies, copies + ".away")
    with open(copies, "w"):
        pass
    folder.configure(copied(60))
    folder.train(ranks)
    events = [event for event in folder.events("copy") if "error" in event]
    assert events[0]["step"] == 30 and events[-1]["step"] == 60, "the newest at the start, and the last"
    assert all("Not a directory" in event["error"] for event in events)
    warnings = [line for line in folder.stderr.splitlines() if "warning" in line]
    assert len(warnings) == 2 and all("checkpoint.copy_to: " in line for line in warnings), "at the start, the first copy"
    log = open(folder.file("runs", "run", "log.txt")).read()
    assert log.count("the next checkpoint is copied again") == len(events), "the log has each"
    os.remove(copies)
    os.rename(copies + ".away", copies)
    folder.configure(copied(70))
    folder.train(ranks)
    assert copied_steps(folder)[-1] == 70 and "warning" not in folder.stderr
    assert folder.losses() and sorted(folder.losses()) == list(range(1, 71))


@RANKS
@pytest.mark.parametrize("place", ("run.toml", "no/such/parent", "/proc/convoy"))
def test_bad_folder_of_copies_is_a_usage_error(ranks, place):
    folder = Folder("bad", copied(10, copy_to=place))
    assert folder.run(ranks) == USAGE
    lines = error_lines(folder.stderr)
    assert len(lines) == 1 and "run.toml:" in lines[0] and "checkpoint.copy_to: cannot make " in lines[0], folder.stderr
    assert not folder.events("start")
