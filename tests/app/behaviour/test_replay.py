# SPDX-License-Identifier: Apache-2.0
"""run.replay_every: the results of a run without it, bit for bit; a bit that is flipped in the memory of a rank ends the run
before the next checkpoint, with rank, host and tensor."""
import re

import pytest

from behaviour import (FAILURE, MLP, SMALL_NET, USAGE, Folder, config, datasets, error_lines, h5py, rank_processes,
                       same_series, wait_or_kill)
from stopping import LONG, wait_for_step

LAYOUTS = {
    "data": {"mode": "data", "microbatches": 2},
    "data_synchronised": {"mode": "data", "sync_batch_norm": True},
    "pipeline": {"mode": "pipeline", "microbatches": 4, "partition": "auto"},
    "hybrid": {"mode": "pipeline", "stages": 2, "microbatches": 2, "schedule": "gpipe"},
}


@pytest.mark.parametrize("ranks,layout", [(1, "data"), (2, "data"), (2, "pipeline"), (4, "hybrid"), (4, "data_synchronised")])
def test_replay_changes_no_bit(ranks, layout):
    """Losses and every array of the checkpoint: batch norm, dropout, optimizer state."""
    results = []
    for every in (0, 1, 3):
        folder = Folder("replay", config(SMALL_NET, run={"replay_every": every}, train={"steps": 7, "ema_decay": 0.9},
                                         parallel=LAYOUTS[layout],
                                         optimizer={"name": "adamw", "momentum": None, "clip_norm": 0.5, "no_decay": ["norm"]}))
        folder.train(ranks)
        assert len(folder.losses()) == 7
        results.append((folder.losses(str), datasets(folder.checkpoints()[-1]) if h5py else None))
    for every, result in zip((1, 3), results[1:]):
        same_series(f"replay_every = {every}", result[0], results[0][0])
        assert result[1] == results[0][1], f"replay_every = {every}: the checkpoint"


def test_replay_in_scatter_mode_is_refused():
    folder = Folder("scatter", config(MLP, run={"replay_every": 2}, parallel={"mode": "scatter"}))
    assert folder.run(2) == USAGE
    assert re.search(r"run\.replay_every: 2 does not work with parallel\.mode = \"scatter\"", error_lines(folder.stderr)[0])


def flip_bits(pid, pattern):
    """A bit in every place of the process's memory that holds these bytes. The number of places."""
    places = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps:
            first, last = (int(word, 16) for word in line.split()[0].split("-"))
            if not line.split()[1].startswith("rw") or "[v" in line:
                continue
            try:
                memory.seek(first)
                content = memory.read(last - first)
            except (OSError, ValueError):
                continue
            at = content.find(pattern)
            while at >= 0:
                places.append(first + at)
                at = content.find(pattern, at + 1)
        for place in places:
            memory.seek(place + 1)
            memory.write(bytes([pattern[1] ^ 0x10]))
    return len(places)


@pytest.mark.skipif(h5py is None, reason="needs h5py")
@pytest.mark.parametrize("ranks", (1, 2))
def test_bit_flipped_in_memory_is_found_and_not_saved(ranks):
    """A parameter that never changes, so that a test can find it in the memory of the last rank."""
    sections = config({**MLP, "freeze": ["fc1"]}, run={"replay_every": 1}, train={"steps": 5},
                      checkpoint={"every_steps": 5, "every_epochs": 0})
    folder = Folder("flipped", sections)
    folder.train(ranks)
    with h5py.File(folder.checkpoints()[-1], "r") as file:
        values = file["model/fc1/bias"][:].tobytes()
    sections["train"]["steps"] = 100 * LONG  # to look through the memory takes seconds
    sections["checkpoint"]["every_steps"] = LONG
    folder.configure(sections)
    process = folder.start(ranks)
    wait_for_step(folder, process, 10)
    pid = process.pid if ranks == 1 else rank_processes(process)[1]
    assert flip_bits(pid, values) > 0, "the parameter was not found in memory"
    code = wait_or_kill(process, 30)
    folder.read_outputs()
    assert code == FAILURE, folder.stderr
    error = error_lines(folder.stderr)[0]
    assert re.search(rf"step \d+: rank {ranks - 1} on \S+: bits of fc1\.bias have changed in memory", error), error
    assert [path[-11:] for path in folder.checkpoints()] == ["00000005.h5"], "a checkpoint was written after it"
    assert folder.events("end")[-1]["reason"] == "error" and "fc1.bias" in folder.events("end")[-1]["message"]
