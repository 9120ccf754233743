# SPDX-License-Identifier: Apache-2.0
"""Damaged checkpoints: the run resumes from the one before, says so, and ends where the undamaged run ended."""
import os
import time

import pytest

from behaviour import SMALL_NET, Folder, config, h5py, kill_tree, same_checkpoint, same_series

SECTIONS = config(SMALL_NET, train={"steps": 30}, checkpoint={"every_steps": 10, "every_epochs": 0})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with checkpoints of steps 10, 20 and 30."""
    folder = Folder(tmp_path_factory.mktemp("whole") / "run", SECTIONS)
    folder.train()
    names = [os.path.basename(path) for path in folder.checkpoints()]
    assert names == [f"step-{step:08d}.h5" for step in (10, 20, 30)]
    return folder


def resumes(whole, folder, damaged, from_step, ranks):
    """The run after `damaged` checkpoints: each named once in a warning, then the same end."""
    code = folder.run(ranks)
    assert code == 0, folder.stderr[-1500:]
    output = folder.stdout + folder.stderr
    for path in damaged:
        lines = [line for line in output.splitlines() if "warning" in line and os.path.basename(path) in line]
        assert len(lines) == 1, f"warnings that name {os.path.basename(path)}:\n{output[-1500:]}"
    source = folder.events("start")[-1]["resumed_from"]
    assert f"{from_step:08d}" in source, f"resumed from {source!r}, not {from_step}"
    if ranks == 1:
        same_series("resumed", folder.losses(str), whole.losses(str))
        same_checkpoint("resumed", folder.checkpoints()[-1], whole.checkpoints()[-1])


@pytest.mark.parametrize("share", (0.5, 0.999, 0))
def test_truncated_checkpoint_is_passed_over(whole, share):
    folder = whole.copy("damaged")
    newest = folder.checkpoints()[-1]
    os.truncate(newest, int(os.path.getsize(newest) * share))
    resumes(whole, folder, [newest], 20, 1)


def test_two_truncated_checkpoints_are_passed_over_on_two_ranks(whole):
    folder = whole.copy("damaged")
    for path in folder.checkpoints()[-2:]:
        os.truncate(path, os.path.getsize(path) // 2)
    resumes(whole, folder, folder.checkpoints()[-2:], 10, 2)


def flip(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


@pytest.mark.skipif(h5py is None, reason="no h5py")
@pytest.mark.parametrize("name", ("model/conv/weight", "model/block/bn1/running_var", "optimizer/momentum/fc/weight"))
def test_flipped_byte_is_noticed(whole, name):
    """In the elements of a weight, of a statistic and of the optimizer's state."""
    folder = whole.copy("damaged")
    newest = folder.checkpoints()[-1]
    with h5py.File(newest, "r") as file:
        data = file[name].id
        middle = data.get_offset() + data.get_storage_size() // 2
    flip(newest, middle)
    resumes(whole, folder, [newest], 20, 1)


def test_kill_while_writing_leaves_no_partial_checkpoint():
    """kill -9 while a checkpoint is being written leaves a temporary file behind, and no run takes it for a checkpoint."""
    # 4.3 million parameters: 34 MB a checkpoint, long enough to be caught.
    sections = config({"name": "mlp", "hidden": [2048, 2048]}, train={"steps": 12},
                      checkpoint={"every_steps": 2, "every_epochs": 0, "keep": 3})
    uninterrupted = Folder("uninterrupted", sections)
    uninterrupted.train()
    caught = 0
    folder = Folder("killed", sections)
    checkpoints = folder.file("runs", "run", "checkpoints")
    for _ in range(3):
        process = folder.start(1)
        partial = []
        while process.poll() is None and not partial:
            names = set(os.listdir(checkpoints)) if os.path.isdir(checkpoints) else set()
            # The first checkpoint is left alone, so that there is one to resume from.
            if any(name.endswith(".h5") for name in names):
                partial = [name for name in names if not name.endswith(".h5")]
            time.sleep(0.0005)
        kill_tree(process)
        caught += bool(partial) and any(not name.endswith(".h5") for name in os.listdir(checkpoints))
    assert caught > 0, "no checkpoint was caught in the middle"
    folder.train()
    same_series("killed while writing", folder.losses(str), uninterrupted.losses(str))
    same_checkpoint("killed while writing", folder.checkpoints()[-1], uninterrupted.checkpoints()[-1])
    assert all(name.endswith(".h5") for name in os.listdir(checkpoints)), f"left behind: {os.listdir(checkpoints)}"
