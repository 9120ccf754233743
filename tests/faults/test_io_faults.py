# SPDX-License-Identifier: Apache-2.0
"""System calls that fail once (io_faults.py) and power that is cut (power_loss.py): a sample. scripts/test_faults.sh
tries all of them."""
import os

import pytest

h5py = pytest.importorskip("h5py")

import io_faults  # noqa: E402
from disk import Disk, Operation, lay_out  # noqa: E402
from power_loss import PowerLoss  # noqa: E402

QUICK = {"train": 12, "resume": 10, "pack": 12}  # of each


def fail_none(failed):
    assert not failed, "\n".join(f"{case}: {ending}: {io_faults.short(stderr)}" for case, ending, stderr in failed)


@pytest.mark.parametrize("name", QUICK)
def test_some_calls_fail(name):
    harness = io_faults.Harness(io_faults.SCENARIOS[name], "faults")
    counts, failed = harness.run(io_faults.sample(harness.cases, QUICK[name]))
    print(name, dict(counts))
    fail_none(failed)
    assert counts[io_faults.RIGHT] + counts[io_faults.LINE] > 0


@pytest.mark.parametrize("name, call, path", (
    ("resume", "open", "runs/run/metrics.jsonl"),  # was taken for an empty one: steps stood there twice
    ("pack", "write", "packed-00000-of-00002.h5.part." + 16 * "?" + ".frame"),  # labels were left out
    ("pack", "write", "packed-00001-of-00002.h5.part." + 16 * "?" + ".frame")))  # a crash at the exit
def test_calls_whose_failure_was_lost(name, call, path):
    harness = io_faults.Harness(io_faults.SCENARIOS[name], "faults")
    cases = [case for case in harness.cases if (case.call, case.path, case.error) == (call, path, "EIO")]
    assert cases
    for case in cases:
        ending, stderr = harness.judge(case)
        assert ending == io_faults.LINE, f"{case}: {ending}: {stderr}"


def test_a_config_that_cannot_be_read_is_not_an_empty_one():
    harness = io_faults.Harness(io_faults.SCENARIOS["train"], "faults")
    reads = [case for case in harness.cases if (case.call, case.path, case.error) == ("read", "run.toml", "EIO")]
    endings = [harness.judge(case) for case in reads]
    lines = [io_faults.short(stderr) for ending, stderr in endings if ending != io_faults.RIGHT]
    assert lines and all("run.toml: the config cannot be opened: Input/output error" in line for line in lines)


def test_samples_that_cannot_be_read_set_no_checkpoint_aside():
    """Under launch, an I/O error of every generation is no fault of the checkpoint from which it resumed."""
    scenario = io_faults.SCENARIOS["launch"]
    folder = os.path.abspath("unread")
    os.makedirs(folder)
    io_faults.few_digits(os.path.join(folder, "digits.h5"))

    def train(steps, run, **options):
        sections = io_faults.config({"name": "mlp", "hidden": [8]}, train={"steps": steps, "eval_every_epochs": 0},
                                    data={"train": "digits.h5:/train", "validation": "digits.h5:/validation"},
                                    checkpoint={"every_epochs": 0, "every_steps": 0})
        with open(os.path.join(folder, "run.toml"), "w") as file:
            file.write(io_faults.toml(sections))
        return run(folder, **options)

    assert train(6, io_faults.SCENARIOS["train"].run, preload=False)[0] == 0
    # More reads than the start takes, fewer than the training.
    code, stderr = train(2000, scenario.run, CONVOY_FAULT_COMMAND="train", CONVOY_FAULT_CALL="read",
                         CONVOY_FAULT_PATH="digits.h5", CONVOY_FAULT_NUMBER="1000", CONVOY_FAULT_ERROR="EIO")
    assert code == 1 and "3 restarts (--max-restarts) are used up" in stderr, stderr
    assert stderr.count("cannot read row") >= 4 and "Input/output error" in stderr, stderr
    assert list(scenario.checkpoints(folder)) == ["step-00000006.h5"], "it was set aside"


@pytest.mark.parametrize("name", QUICK)
def test_some_power_losses(name):
    loss = PowerLoss(io_faults.SCENARIOS[name], "faults")
    counts, failed = loss.run(io_faults.sample(list(loss.states()), QUICK[name]))
    print(name, dict(counts))
    fail_none(failed)


# ---- the means

def test_the_calls_of_a_training_are_seen():
    """Of every kind, on the checkpoint, its folder, the metrics and the lock."""
    harness = io_faults.Harness(io_faults.SCENARIOS["train"], "faults")
    seen = {(case.call, case.path) for case in harness.cases}
    checkpoints = "runs/run/checkpoints"
    for call in ("open", "write", "sync", "close", "rename"):
        assert (call, f"{checkpoints}/step-00000002.h5." + 16 * "?" + ".tmp") in seen
    assert {("sync", checkpoints), ("list", checkpoints), ("unlink", f"{checkpoints}/step-00000002.h5"),
            ("write", "runs/run/metrics.jsonl"), ("link", "runs/run/run.lock." + 24 * "?" + ".tmp"),
            ("unlink", "runs/run/run.lock"), ("utime", "runs/run/run.lock." + 24 * "?" + ".tmp"),
            ("write", "stage/digits.h5-" + 16 * "?" + "/.convoy-part-" + 16 * "?"), ("read", "digits.h5")} <= seen


def states(operations):
    disk = Disk("empty")
    for operation in operations:
        disk.apply(operation)
    return list(disk.states().values())


def operation(kind, path, other="", inode=1, offset=0, data=b""):
    return Operation(kind, inode, path, other, offset, data)


def test_model_of_the_disk(tmp_path):
    """A rename without syncs may leave an empty file, nothing, or zeros; with both syncs it leaves the file alone."""
    (tmp_path / "empty").mkdir()
    create, write = operation("create", "a.tmp"), operation("write", "a.tmp", data=b"text")
    rename = operation("rename", "a.tmp", "a")
    loose = states([create, write, rename])
    for state in ({}, {"a": b"text"}, {"a": b""}, {"a": b"te\0\0"}, {"a": bytes(4)}, {"a.tmp": b""}, {"a.tmp": b"text"}):
        assert state in loose
    assert states([create, write, operation("sync", "a.tmp"), rename, operation("sync", ".", inode=2)]) == [{"a": b"text"}]
    cut = states([create, write, operation("sync", "a.tmp"), operation("sync", ".", inode=2), operation("truncate", "a.tmp", offset=1)])
    assert cut == [{"a.tmp": b"t"}, {"a.tmp": b"text"}]
    lay_out({"folder/a": b"text"}, {"folder"}, tmp_path / "disk")
    assert (tmp_path / "disk" / "folder" / "a").read_bytes() == b"text"
