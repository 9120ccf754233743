# SPDX-License-Identifier: Apache-2.0
"""A program that was built with the CUDA backend, on a machine without a GPU: where a GPU is asked for it says in one
line that there is none; otherwise it takes the CPU, says so, and gives the same numbers as when told to.
"""
import os

import pytest

from behaviour import USAGE, Folder, config, error_lines, same_series

without_gpu = pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU")


@without_gpu
@pytest.mark.parametrize("ranks", (1, 2))
def test_cuda_is_refused_in_one_line(ranks):
    folder = Folder("cuda", config(device={"kind": "cuda"}))
    assert folder.run(ranks) == USAGE
    lines = error_lines(folder.stderr)
    assert len(lines) == 1 and "device.kind" in lines[0], folder.stderr
    assert not folder.checkpoints(), "a run that was refused left a checkpoint"


@without_gpu
def test_auto_takes_the_cpu_and_says_so():
    automatic, told = (Folder(kind, config(device={"kind": kind})) for kind in ("auto", "cpu"))
    automatic.train()
    told.train()
    assert "cpu, oneDNN" in automatic.stdout
    same_series("auto and cpu", automatic.losses(str), told.losses(str))


def test_doctor_speaks_of_cuda_and_gpus():
    folder = Folder("doctor", config())
    folder.run(1, "doctor")
    assert "CUDA" in folder.stdout and "GPU" in folder.stdout
