# SPDX-License-Identifier: Apache-2.0
"""Damaged checkpoints: the run goes on from the one before, says so, and ends where the undamaged run ended."""
import os
import time

from behaviour import SMALL_NET, Folder, check, config, h5py, kill_tree, main, same_checkpoint, same_series

SECTIONS = config(SMALL_NET, train={"steps": 30}, checkpoint={"every_steps": 10, "every_epochs": 0})


def finished():
    """A run with checkpoints of steps 10, 20 and 30."""
    folder = Folder("damage", SECTIONS)
    folder.train()
    names = [os.path.basename(path) for path in folder.checkpoints()]
    check(names == [f"step-{step:08d}.h5" for step in (10, 20, 30)], f"checkpoints: {names}")
    return folder


def goes_on(whole, folder, damaged, from_step, ranks):
    """The run after `damaged` checkpoints: each named once in a warning, then the same end."""
    what = f"{os.path.basename(folder.path)} on {ranks} ranks"
    code = folder.run(ranks)
    check(code == 0, f"{what}: exit code {code}\n{folder.stderr[-1500:]}")
    said = folder.stdout + folder.stderr
    for path in damaged:
        lines = [line for line in said.splitlines() if "warning" in line and os.path.basename(path) in line]
        check(len(lines) == 1, f"{what}: {os.path.basename(path)} is in {len(lines)} warnings:\n{said[-1500:]}")
    source = folder.events("start")[-1]["resumed_from"]
    check(f"{from_step:08d}" in source if from_step else not source, f"{what}: resumed from {source!r}, not {from_step}")
    if ranks == 1:
        same_series(what, folder.losses(str), whole.losses(str))
        same_checkpoint(what, folder.checkpoints()[-1], whole.checkpoints()[-1])


def truncated():
    whole = finished()
    for name, size in (("half", 0.5), ("short", 0.999), ("empty", 0)):
        folder = whole.copy(f"damage-truncated-{name}")
        newest = folder.checkpoints()[-1]
        os.truncate(newest, int(os.path.getsize(newest) * size))
        goes_on(whole, folder, [newest], 20, 1)
    folder = whole.copy("damage-truncated-two")
    for path in folder.checkpoints()[-2:]:
        os.truncate(path, os.path.getsize(path) // 2)
    goes_on(whole, folder, folder.checkpoints()[-2:], 10, 2)


def flip(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


def flipped_byte():
    """In the elements of a weight, of a statistic and of the optimizer's state."""
    if h5py is None:
        return "no h5py"
    whole = finished()
    for name in ("model/conv/weight", "model/block/bn1/running_var", "optimizer/momentum/fc/weight"):
        folder = whole.copy("damage-flipped-" + name.replace("/", "-"))
        newest = folder.checkpoints()[-1]
        with h5py.File(newest, "r") as file:
            chunk = file[name].id.get_chunk_info(0)
        flip(newest, chunk.byte_offset + chunk.size // 2)
        goes_on(whole, folder, [newest], 20, 1)


def all_damaged():
    """Nothing whole is left: the run says so and starts anew."""
    whole = finished()
    folder = whole.copy("damage-all")
    for path in folder.checkpoints():
        os.truncate(path, 100)
    goes_on(whole, folder, folder.checkpoints(), 0, 1)


def killed_while_writing():
    """kill -9 while a checkpoint is being written leaves a temporary file behind, and no run takes it for a checkpoint."""
    # 4.3 million parameters: 34 MB a checkpoint, long enough to be caught.
    sections = config({"name": "mlp", "hidden": [2048, 2048]}, train={"steps": 12},
                      checkpoint={"every_steps": 2, "every_epochs": 0, "keep": 3})
    whole = Folder("damage-kill-whole", sections)
    whole.train()
    caught = 0
    folder = Folder("damage-kill", sections)
    checkpoints = folder.file("runs", "run", "checkpoints")
    for attempt in range(3):
        process = folder.start(1)
        partial = []
        while process.poll() is None and not partial:
            names = set(os.listdir(checkpoints)) if os.path.isdir(checkpoints) else set()
            # The first checkpoint is left alone, so that there is one to go on from.
            if any(name.endswith(".h5") for name in names):
                partial = [name for name in names if not name.endswith(".h5")]
            time.sleep(0.0005)
        kill_tree(process)
        caught += bool(partial) and any(not name.endswith(".h5") for name in os.listdir(checkpoints))
    check(caught > 0, "no checkpoint was caught in the middle")
    folder.train()
    same_series("killed while writing", folder.losses(str), whole.losses(str))
    same_checkpoint("killed while writing", folder.checkpoints()[-1], whole.checkpoints()[-1])
    check(all(name.endswith(".h5") for name in os.listdir(checkpoints)), f"left behind: {os.listdir(checkpoints)}")


main([truncated, flipped_byte, all_damaged, killed_while_writing])
