# SPDX-License-Identifier: Apache-2.0
"""The identity of a run: in its folder and in each checkpoint. checkpoint.resume = "never" or a file applies to one start,
and a folder of checkpoints belongs to one run.
"""
import json
import os
import re
import shutil
import signal
import time

import pytest

from behaviour import FAILURE, SMALL_NET, USAGE, Folder, config, error_lines, h5py, kill_tree, same_series, wait_or_kill

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def sections(steps, resume=None, name="run", folder=None, every=10):
    return config(SMALL_NET, run={"name": name, "seed": 3}, train={"steps": steps, "eval_every_epochs": 0},
                  data={"validation": None},
                  checkpoint={"every_steps": every, "every_epochs": 0, "resume": resume, "dir": folder})


def record(folder, name="run"):
    with open(folder.file("runs", name, "run.json")) as file:
        return json.load(file)


def starts(folder):
    return [event["step"] for event in folder.events("start")]


def identity_in(path):
    with h5py.File(path, "r") as file:
        return file.attrs["run"].decode() if isinstance(file.attrs["run"], bytes) else file.attrs["run"]


def refused(folder, *words, code=USAGE):
    actual = folder.run(1)
    lines = error_lines(folder.stderr)
    assert (actual, len(lines)) == (code, 1), folder.stdout[-500:] + folder.stderr[-1500:]
    for word in words:
        assert word in lines[0], lines[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("whole") / "run", sections(40))
    folder.train()
    return folder


def copy_of(whole, name="run"):
    """As if it had stopped at step 20, and been asked for more steps."""
    folder = whole.copy(name)
    folder.drop_checkpoints_after(20)
    return folder


# ---- the identity

def test_a_run_has_one_identity(whole):
    folder = Folder("run", sections(20))
    folder.train(2)
    identity = record(folder)["id"]
    assert re.fullmatch(UUID, identity)
    assert identity != record(whole)["id"], "two runs have one identity"
    folder.configure(sections(40))
    folder.train()
    assert record(folder)["id"] == identity
    assert [event["run"] for event in folder.events("start")] == [identity] * 2
    if h5py is not None:
        assert {identity_in(path) for path in folder.checkpoints()} == {identity}


@pytest.mark.skipif(h5py is None, reason="no h5py")
@pytest.mark.parametrize("resume", (None, "never"))
def test_checkpoints_of_an_earlier_version_are_adopted(whole, resume):
    folder = copy_of(whole)
    os.remove(folder.file("runs", "run", "run.json"))
    for path in folder.checkpoints():
        with h5py.File(path, "r+") as file:
            del file.attrs["run"]
    folder.configure(sections(40, resume))
    folder.train()
    assert starts(folder)[-1] == 20
    note = "step-00000020.h5 is of an earlier version and has none: taken for a checkpoint of this run"
    assert note in folder.stdout and note in open(folder.file("runs", "run", "log.txt")).read()
    assert identity_in(folder.checkpoints()[-1]) == record(folder)["id"]
    same_series("adopted", folder.losses(str), whole.losses(str))


def test_a_run_folder_without_its_record_has_the_identity_of_its_checkpoints(whole):
    folder = copy_of(whole)
    os.remove(folder.file("runs", "run", "run.json"))
    folder.train()
    assert starts(folder)[-1] == 20 and record(folder)["id"] == record(whole)["id"]
    assert f"identity   {record(whole)['id']}, from runs/run/checkpoints/step-00000020.h5" in folder.stdout


# ---- checkpoint.resume applies once

@pytest.mark.parametrize("ranks", (1, 2))
def test_never_is_for_the_first_start(whole, ranks):
    folder = Folder("run", sections(20, "never"))
    folder.train(ranks)
    assert "start      fresh\n" in folder.stdout
    folder.configure(sections(40, "never"))
    folder.train(ranks)
    assert starts(folder) == [0, 20]
    assert ("start      after step 20, from runs/run/checkpoints/step-00000020.h5 (this run continues: checkpoint.resume = "
            "\"never\" has been applied)\n") in folder.stdout
    if ranks == 1:
        same_series("continued", folder.losses(str), whole.losses(str))


def stop_after(folder, step):
    """SIGTERM once the step is done: exit code 75, with a checkpoint."""
    process = folder.start(1)
    deadline = time.time() + 60
    while process.poll() is None and (folder.events("step") or [{"step": 0}])[-1]["step"] < step and time.time() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    code = wait_or_kill(process, 60)
    folder.read_outputs()
    assert code == 75, folder.stderr[-1000:]


@pytest.mark.parametrize("key", ("never", "base.h5"))
def test_a_run_that_stopped_with_75_continues_with_the_same_command(whole, key):
    """Also when the file that it began from has gone."""
    folder = Folder("run", sections(100000, key, every=50))
    shutil.copy(whole.checkpoints()[1], folder.file("base.h5"))
    begin = 0 if key == "never" else 20
    stop_after(folder, begin + 30)
    if key != "never":
        os.remove(folder.file("base.h5"))
    stop_after(folder, folder.events("step")[-1]["step"] + 30)
    first, second = starts(folder)
    assert first == begin and second >= begin + 30
    steps = [event["step"] for event in folder.events("step")]
    assert steps == list(range(begin + 1, steps[-1] + 1)), "steps were done twice"


def test_a_run_killed_before_its_first_checkpoint_begins_from_the_named_file_again(whole):
    folder = Folder("run", sections(100000, "base.h5", every=90000))
    shutil.copy(whole.checkpoints()[1], folder.file("base.h5"))
    process = folder.start(1)
    deadline = time.time() + 60
    while process.poll() is None and len(folder.events("step")) < 10 and time.time() < deadline:
        time.sleep(0.005)
    kill_tree(process)
    folder.configure(sections(40, "base.h5"))
    folder.train()
    assert starts(folder) == [20, 20]
    assert "named by checkpoint.resume, since this run has no checkpoint of its own yet" in folder.stdout
    folder.configure(sections(50, "base.h5"))
    folder.train()
    assert starts(folder) == [20, 20, 40]


def test_a_file_that_was_not_named_before_applies_to_a_run_that_is_there(whole):
    """It goes back once: the next start continues. A file elsewhere is another past: no checkpoint of this one stays."""
    folder = copy_of(whole)
    shutil.copy(whole.checkpoints()[2], folder.file("other.h5"))
    folder.configure(sections(40, "runs/run/checkpoints/step-00000010.h5"))
    folder.train()
    folder.configure(sections(50, "runs/run/checkpoints/step-00000010.h5"))
    folder.train()
    assert starts(folder)[1:] == [10, 40]
    assert os.path.exists(folder.file("runs", "run", "checkpoints", "step-00000020.h5.superseded"))
    folder.configure(sections(60, "other.h5"))
    folder.train()
    assert starts(folder)[-1] == 30
    assert [os.path.basename(path) for path in folder.checkpoints()] == [f"step-{s:08}.h5" for s in (40, 50, 60)]
    assert os.path.exists(folder.file("runs", "run", "checkpoints", "step-00000010.h5.superseded"))
    folder.configure(sections(70, "other.h5"))
    folder.train()
    assert starts(folder)[-1] == 60


def test_a_file_that_is_not_there_is_refused(whole):
    folder = copy_of(whole)
    folder.configure(sections(50, "no.h5"))
    refused(folder, "run.toml:", "checkpoint.resume: there is no file \"no.h5\"")
    assert Folder("other", sections(50, "no.h5")).run(1) == USAGE


# ---- one folder of checkpoints, one run

def test_a_folder_of_checkpoints_belongs_to_one_run(whole):
    folder = Folder("run", sections(20, name="a", folder="shared"))
    folder.train()
    before = {name: open(folder.file("shared", name), "rb").read() for name in os.listdir(folder.file("shared"))}
    for resume in (None, "never", "shared/step-00000010.h5"):
        folder.configure(sections(20, resume, "b", "shared"))
        refused(folder, "shared/step-00000020.h5: is a checkpoint of another run (" + record(folder, "a")["id"] + ")",
                "give this run one of its own with checkpoint.dir")
        assert {name: open(folder.file("shared", name), "rb").read() for name in os.listdir(folder.file("shared"))} == before
        assert not os.path.exists(folder.file("runs", "b", "metrics.jsonl"))
    # A checkpoint of another run may be named, for a run with a folder of its own.
    folder.configure(sections(40, "shared/step-00000010.h5", "b", "own"))
    folder.train()
    assert "start      after step 10, from shared/step-00000010.h5\n" in folder.stdout
    names = [name for name in sorted(os.listdir(folder.file("own"))) if name.endswith(".h5")]
    assert names == ["step-00000020.h5", "step-00000030.h5", "step-00000040.h5"]
    assert record(folder, "b")["id"] != record(folder, "a")["id"]
    # Nor does the first run take those of the second.
    folder.configure(sections(50, None, "a", "own"))
    refused(folder, "own/step-00000040.h5: is a checkpoint of another run")


def test_checkpoints_of_another_run_in_the_run_folder_are_refused(whole):
    folder = copy_of(whole)
    other = Folder("other", sections(30))
    other.train()
    shutil.copy(other.checkpoints()[-1], folder.file("runs", "run", "checkpoints"))
    refused(folder, "step-00000030.h5: is a checkpoint of another run", "move it elsewhere")


def test_two_trainings_at_once_do_not_share_a_folder_of_checkpoints():
    folder = Folder("run", sections(1000000, name="a", folder="shared", every=100000))
    process = folder.start(1)
    try:
        deadline = time.time() + 60
        while not os.path.exists(folder.file("shared", "checkpoints.lock")) and time.time() < deadline:
            time.sleep(0.01)
        second = Folder("second", sections(20, name="b", folder=folder.file("shared")))
        refused(second, "checkpoint.dir: another training writes to " + folder.file("shared"),
                "give this one its own folder with --set checkpoint.dir=...", code=FAILURE)
        assert not os.path.exists(second.file("runs", "b", "metrics.jsonl"))
        assert process.poll() is None
    finally:
        kill_tree(process)
    assert not os.path.exists(folder.file("runs", "a", "checkpoints.lock"))


def test_a_folder_in_that_of_another_run_is_refused(whole):
    """That run's lock is not this one's."""
    folder = whole.copy("run")
    folder.configure(sections(20, name="b", folder="runs/run/checkpoints"))
    refused(folder, "checkpoint.dir: ", "runs/run/checkpoints lies in the folder of another run, " + folder.file("runs", "run"))


def test_a_link_to_a_folder_elsewhere_is_locked_there():
    folder = Folder("run", sections(20))
    os.makedirs(folder.file("runs", "run"))
    os.mkdir(folder.file("disk"))
    os.symlink(folder.file("disk"), folder.file("runs", "run", "checkpoints"))
    folder.train()
    second = Folder("second", sections(20, name="b", folder=folder.file("disk")))
    refused(second, "is a checkpoint of another run")
    folder.configure(sections(30))
    folder.train()
    assert starts(folder) == [0, 20]


def test_a_lost_lock_of_the_folder_of_checkpoints_ends_the_run():
    folder = Folder("run", sections(1000000, folder="shared", every=100000))
    process = folder.start(1)
    lock = folder.file("shared", "checkpoints.lock")
    try:
        deadline = time.time() + 60
        while not os.path.exists(lock) and time.time() < deadline:
            time.sleep(0.01)
        os.remove(lock)
        assert wait_or_kill(process, 30) == FAILURE
    finally:
        kill_tree(process)
    folder.read_outputs()
    assert "lock is lost" in error_lines(folder.stderr)[0]
