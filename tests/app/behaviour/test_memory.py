# SPDX-License-Identifier: Apache-2.0
"""Memory is predicted before training: what cannot fit is refused in one line within seconds, before data is read or the model
is made. `prlimit` gives a limit of address space, and a real cgroup one of memory where this machine permits it.
"""
import os
import shutil
import time

import pytest

from behaviour import MLP, USAGE, Folder, config, error_lines
from pictures import pictures

SMALL_STEM = {"name": "resnet18", "stem": "small", "classes": 10}
GIB = 1 << 30
needs_prlimit = pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit")
on_one_and_two_ranks = pytest.mark.parametrize("ranks", (1, 2))


def limited(gib):
    return ("prlimit", f"--as={int(gib * GIB)}")


def large_images(batch=24, **sections):
    """The small stem at 224 x 224: 7 GiB for a batch of 24."""
    data = {"kind": "image_folder", "train": "pictures", "validation": "pictures"}
    folder = Folder("run", config(SMALL_STEM, data=data, train={"steps": 1, "global_batch_size": batch}, **sections))
    pictures(folder, batch)
    return folder


def refused(folder, ranks, *arguments, wrapper=()):
    start = time.monotonic()
    code = folder.run(ranks, *arguments, wrapper=wrapper, timeout=60)
    assert time.monotonic() - start < 30
    assert code == USAGE, folder.stderr
    lines = error_lines(folder.stderr)
    assert len(lines) == 1, folder.stderr
    assert not os.path.exists(folder.file("runs", "run", "config.toml"))
    return lines[0]


@needs_prlimit
@on_one_and_two_ranks
@pytest.mark.parametrize("arguments", (("train", "run.toml"), ("train", "run.toml", "--dry-run"), ("bench", "run.toml")))
def test_large_images_are_refused_with_values_that_fit(ranks, arguments):
    folder = large_images()
    line = refused(folder, ranks, *arguments, wrapper=limited(3))
    for words in ("memory: rank ", " on host ", "address space (ulimit -v)", "run.allow_over_memory", "train.global_batch_size ="):
        assert words in line
    if arguments[0] == "bench":
        return
    # The value that it names is accepted.
    value = line.split("train.global_batch_size = ")[1].split()[0]
    assert folder.run(ranks, "train", "run.toml", "--dry-run", "--set", f"train.global_batch_size={value}",
                      wrapper=limited(3)) == 0, folder.stderr
    assert "memory     predicted peak " in folder.stdout and " a rank\n" in folder.stdout


@needs_prlimit
@pytest.mark.parametrize("mode", ({"mode": "model"}, {"mode": "pipeline", "microbatches": 2},
                                  {"mode": "pipeline", "microbatches": 2, "partition": ["stem", "layer3.0"]},
                                  {"mode": "pipeline", "microbatches": 4, "schedule": "zb_v"}, {"mode": "scatter"}))
def test_every_mode_refuses(mode):
    line = refused(large_images(96, parallel=mode), 2, wrapper=limited(2))
    assert "memory: rank" in line


@needs_prlimit
def test_allow_over_memory_starts_all_the_same():
    """The stacks of 60 loader threads do not fit; a start that is told to go on regardless is not refused."""
    layers = {"name": "mlp", "hidden": [4096, 4096]}
    folder = Folder("run", config(layers, train={"steps": 2, "global_batch_size": 32}, data={"loader_threads": 60}))
    assert "memory: rank 0" in refused(folder, 1, wrapper=limited(1.3))
    arguments = ("train", "run.toml", "--dry-run")
    assert "memory: rank 0" in refused(folder, 1, *arguments, wrapper=limited(1.3))
    code = folder.run(1, *arguments, "--set", "run.allow_over_memory=true", wrapper=limited(1.3))
    assert code == 0, folder.stderr
    assert "convoy: warning: memory: 1 rank needs " in folder.stderr


def test_the_key_is_a_truth_value():
    folder = Folder("run", config(run={"allow_over_memory": "yes"}))
    assert folder.run(1) == USAGE
    assert "run.allow_over_memory" in error_lines(folder.stderr)[0]


@on_one_and_two_ranks
def test_a_training_that_fits_says_what_it_needs(ranks):
    folder = Folder("run", config(MLP, train={"steps": 1}))
    folder.train(ranks)
    line, = [line for line in folder.stdout.splitlines() if line.startswith("memory ")]
    assert line.startswith("memory     predicted peak ") and line.endswith(" a rank")
    assert "warning" not in folder.stderr


def test_check_says_the_memory_of_stages():
    folder = Folder("run", config(MLP, parallel={"mode": "pipeline", "stages": 2, "microbatches": 2,
                                                 "partition": ["fc1", "fc2"]}))
    assert folder.run(1, "check", "run.toml") == 0, folder.stderr
    assert folder.stdout.count("; predicted memory ") == 2


# ---- a real cgroup

class Cgroup:
    """A memory cgroup with a limit, of either version; None in `problem` where one could be made."""

    def __init__(self, bytes_):
        self.problem, self.folder = None, None
        for base, limit, swap in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
                                  ("/sys/fs/cgroup", "memory.max", "memory.swap.max")):
            folder = os.path.join(base, f"convoy-test-{os.getpid()}")
            try:
                os.mkdir(folder)
                self.folder = folder
                with open(os.path.join(folder, limit), "w") as file:
                    file.write(str(bytes_))
                return
            except OSError as error:
                self.problem = str(error)
                self.remove()
        self.problem = self.problem or "no memory cgroup"

    def wrapper(self):
        self.problem = None
        return ("sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh")

    def remove(self):
        if self.folder:
            for _ in range(50):
                try:
                    os.rmdir(self.folder)
                    break
                except OSError:
                    time.sleep(0.1)
        self.folder = None


@pytest.fixture
def cgroup():
    group = Cgroup(700 << 20)
    if group.folder is None:
        pytest.skip(f"no cgroup can be made here: {group.problem}")
    yield group
    group.remove()


def test_the_limit_of_a_cgroup_is_respected(cgroup):
    line = refused(large_images(), 1, wrapper=cgroup.wrapper())
    assert "the memory limit of cgroup /" in line and f"convoy-test-{os.getpid()}: " in line


def test_launch_says_that_the_kernel_killed_for_memory(cgroup):
    """More than the cgroup has, and told to go on regardless: the kernel kills the rank."""
    folder = large_images(run={"name": "run", "allow_over_memory": True})
    code = folder.run(1, "launch", "--max-restarts", "0", "--", "train", "run.toml", wrapper=cgroup.wrapper(), timeout=120)
    assert code == 1, folder.stderr
    log = open(folder.file("runs", "run", "launch", "launch.log")).read()
    assert "a rank was killed by SIGKILL: out of memory, says the kernel (docs/errors/out_of_memory.md)" in log, log
