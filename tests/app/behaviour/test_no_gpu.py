# SPDX-License-Identifier: Apache-2.0
"""A program that was built with the CUDA backend, on a machine without a GPU: where a GPU is asked for it says in one
line that there is none; otherwise it takes the CPU, says so, and gives the same numbers as when told to.
Usage: test_no_gpu.py CONVOY DIGITS.h5 MPIRUN [CASE...]"""
import os

from behaviour import Folder, check, config, main, same_series

HAS_GPU = os.path.exists("/dev/nvidia0")


def asked_for():
    if HAS_GPU:
        return "there is a GPU"
    for ranks in (1, 2):
        folder = Folder(f"asked_{ranks}", config(device={"kind": "cuda"}))
        check(folder.run(ranks) == 2, f"{ranks} ranks: device.kind = cuda without a GPU must end with exit code 2")
        lines = [line for line in folder.stderr.splitlines() if line.startswith("convoy: error:")]
        check(len(lines) == 1 and "device.kind" in lines[0], f"{ranks} ranks: one line must say why: {folder.stderr}")
        check(not folder.checkpoints(), "a run that was refused left a checkpoint")


def automatic():
    if HAS_GPU:
        return "there is a GPU"
    automatic, told = (Folder(kind, config(device={"kind": kind})) for kind in ("auto", "cpu"))
    automatic.train()
    told.train()
    check("cpu, oneDNN" in automatic.stdout, f"auto must say that it takes the CPU: {automatic.stdout[:500]}")
    same_series("auto and cpu", automatic.losses(str), told.losses(str))


def doctor():
    folder = Folder("doctor", config())
    folder.run(1, "doctor")
    check("CUDA" in folder.stdout and "GPU" in folder.stdout, f"doctor must speak of CUDA and GPUs: {folder.stdout}")


main([asked_for, automatic, doctor])
