# SPDX-License-Identifier: Apache-2.0
"""A run whose checkpoints cannot be used never starts over by itself: it stops, says why, and changes nothing.

Reading errors are real ones: EISDIR from a folder, EIO from /proc/self/mem, ENOENT behind a link, EACCES for another user.
"""
import os
import shutil
import stat

import pytest

from behaviour import FAILURE, SMALL_NET, USAGE, Folder, config, error_lines, same_checkpoint, same_series

SECTIONS = config(SMALL_NET, train={"steps": 30}, checkpoint={"every_steps": 10, "every_epochs": 0})
LONGER = config(SMALL_NET, train={"steps": 40}, checkpoint={"every_steps": 10, "every_epochs": 0})
NOBODY = 65534


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with checkpoints of steps 10, 20, 30 and 40."""
    folder = Folder(tmp_path_factory.mktemp("whole") / "run", LONGER)
    folder.train()
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 30 steps that is now to train 40."""
    folder = Folder(tmp_path_factory.mktemp("trained") / "run", SECTIONS)
    folder.train()
    folder.configure(LONGER)
    return folder


@pytest.fixture
def run(trained):
    return trained.copy("run")


def content(folder, *names):
    """Every file and link below, and what is in it."""
    found = {}
    for where, _, files in os.walk(folder.file("runs")):
        for name in files:
            path = os.path.join(where, name)
            if os.path.islink(path):
                found[path] = os.readlink(path)
            else:
                with open(path, "rb") as file:
                    found[path] = file.read()
    return found


def stops(folder, code, *words, ranks=1, **options):
    """The start fails with one line that has these words, and changes nothing."""
    before = content(folder)
    actual = folder.run(ranks, **options)
    lines = error_lines(folder.stderr)
    assert (actual, len(lines)) == (code, 1), folder.stdout[-500:] + folder.stderr[-1500:]
    for word in words:
        assert word in lines[0], lines[0]
    assert content(folder) == before, "a start that was refused changed files"
    return lines[0]


def completes(folder, whole):
    """The same command continues where the run stood."""
    folder.train()
    assert folder.events("start")[-1]["step"] == 30
    same_series("continued", folder.losses(str), whole.losses(str))
    same_checkpoint("continued", folder.checkpoints()[-1], whole.checkpoints()[-1])


def replace_by_folder(path):
    os.mkdir(path)


def replace_by_unreadable_memory(path):
    os.symlink("/proc/self/mem", path)


def replace_by_link_to_nowhere(path):
    os.symlink("/nowhere/step.h5", path)


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("damage, reason", (
    (replace_by_folder, "Is a directory"), (replace_by_unreadable_memory, "Input/output error"),
    (replace_by_link_to_nowhere, "No such file or directory")))
def test_checkpoints_that_cannot_be_read_stop_the_run(run, whole, damage, reason, ranks):
    """All of them, as on a file system that fails: then they are there again."""
    paths = run.checkpoints()
    for path in paths:
        os.rename(path, path + ".kept")
        damage(path)
    stops(run, FAILURE, "cannot read runs/run/checkpoints/step-00000030.h5", reason, "nothing was changed", ranks=ranks)
    for path in paths:
        os.rmdir(path) if os.path.isdir(path) else os.remove(path)
        os.rename(path + ".kept", path)
    completes(run, whole)


def test_an_unreadable_newest_checkpoint_is_not_passed_over(run, whole):
    """The older one is used only if the user names it, and the start after that continues."""
    newest, older = run.checkpoints()[-1], "runs/run/checkpoints/step-00000020.h5"
    os.rename(newest, run.file("kept.h5"))
    os.mkdir(newest)
    line = stops(run, FAILURE, "step-00000030.h5", "name an older one with checkpoint.resume: " + older)
    assert "step-00000010.h5" in line
    assert run.run(1, "eval", "run.toml", "--checkpoint", "newest") == FAILURE
    assert "step-00000030.h5" in error_lines(run.stderr)[0]
    named = {**LONGER, "checkpoint": {**LONGER["checkpoint"], "resume": older}}
    run.configure(named)
    run.train()
    assert run.events("start")[-1]["resumed_from"] == older
    same_series("from the named one", run.losses(str), whole.losses(str))
    assert os.path.isdir(newest + ".superseded"), "it was replaced"


def test_an_unreadable_checkpoint_for_lack_of_rights(run, whole):
    wrapper = ()
    if os.geteuid() == 0:
        wrapper = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        for where, folders, files in os.walk(run.path):
            for name in (".", *folders, *files):
                os.chown(os.path.join(where, name), NOBODY, NOBODY)
        if not shutil.which("setpriv") or run.run(1, "check", "run.toml", wrapper=wrapper) != 0:
            pytest.skip("this folder cannot be used by another user: " + getattr(run, "stderr", "no setpriv")[-300:])
    for path in run.checkpoints():
        os.chmod(path, 0)
    os.chmod(run.file("runs", "run", "checkpoints"), stat.S_IRWXU)
    before = sorted(content(run)) if os.geteuid() == 0 else None
    assert run.run(1, wrapper=wrapper) == FAILURE, run.stderr
    assert "step-00000030.h5: Permission denied" in error_lines(run.stderr)[0], run.stderr
    assert before is None or sorted(content(run)) == before
    for path in run.checkpoints():
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
    assert run.run(1, wrapper=wrapper) == 0, run.stderr
    same_series("continued", run.losses(str), whole.losses(str))


def test_a_folder_of_checkpoints_that_has_gone_stops_the_run(run, whole):
    """As when its file system is not mounted. Both witnesses are enough alone: run.json, and the metrics."""
    folder = run.file("runs", "run", "checkpoints")
    os.rename(folder, run.file("elsewhere"))
    stops(run, FAILURE, "runs/run/checkpoints: has no checkpoint, but this run has written some: the last was ",
          "step-00000030.h5 (step 30)", "to start over, delete runs/run or choose another run.name")
    os.mkdir(folder)
    stops(run, FAILURE, "has no checkpoint, but this run has written some")
    for witness in ("run.json", "metrics.jsonl"):
        os.rename(run.file("runs", "run", witness), run.file(witness))
        stops(run, FAILURE, "has no checkpoint, but this run has written some")
        os.rename(run.file(witness), run.file("runs", "run", witness))
    os.rmdir(folder)
    os.rename(run.file("elsewhere"), folder)
    completes(run, whole)


def test_an_unmounted_checkpoint_dir_stops_the_run(whole):
    sections = {**SECTIONS, "checkpoint": {**SECTIONS["checkpoint"], "dir": "disk/checkpoints"}}
    run = Folder("run", sections)
    run.train()
    run.configure({**LONGER, "checkpoint": sections["checkpoint"]})
    os.rename(run.file("disk"), run.file("unmounted"))
    stops(run, FAILURE, "disk/checkpoints: is not there, but this run has written checkpoints to it")
    assert not os.path.exists(run.file("disk")), "made in place of what is to be mounted"
    os.makedirs(run.file("disk", "checkpoints"))
    stops(run, FAILURE, "disk/checkpoints: has no checkpoint, but this run has written some",
          "delete runs/run and disk/checkpoints")
    shutil.rmtree(run.file("disk"))
    os.rename(run.file("unmounted"), run.file("disk"))
    run.train()
    assert run.events("start")[-1]["step"] == 30
    same_series("mounted again", run.losses(str), whole.losses(str))


@pytest.mark.parametrize("ranks", (1, 2))
def test_damaged_checkpoints_alone_stop_the_run_for_good(run, ranks):
    for path in run.checkpoints():
        os.truncate(path, 100)
    line = stops(run, USAGE, "runs/run/checkpoints: no checkpoint is valid, and the run does not start over by itself",
                 "to start over, delete runs/run or choose another run.name", ranks=ranks)
    for step in (10, 20, 30):
        assert f"step-{step:08}.h5: truncated" in line
    shutil.rmtree(run.file("runs"))
    run.train()
    assert [start["step"] for start in run.events("start")] == [0]


def test_a_record_of_the_run_that_is_damaged_or_cannot_be_read_stops_it(run, whole):
    record = run.file("runs", "run", "run.json")
    os.rename(record, run.file("kept.json"))
    for text in ("", "{", "[]", '{"id": ""}', '{"id": 3, "created": "", "resumed_file": "", "checkpoints": ""}'):
        with open(record, "w") as file:
            file.write(text)
        stops(run, USAGE, "runs/run/run.json: is not the record of a run", "remove it")
    os.remove(record)
    os.mkdir(record)
    stops(run, FAILURE, "cannot read runs/run/run.json")
    os.rmdir(record)
    completes(run, whole)  # with the identity in its checkpoints
