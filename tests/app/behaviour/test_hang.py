# SPDX-License-Identifier: Apache-2.0
"""Ranks that stop, hang or vanish: the others end within the deadline, one report names the rank, nothing is left."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from behaviour import CONVOY, ENVIRONMENT, MPIRUN, Folder, config, kill_tree, processes_in, ranks_among
from programs import hosts_option, remote_shell_environment

TIMEOUT = 3  # parallel.timeout of these runs, in seconds
PATIENCE = TIMEOUT + 10  # for all to end


def endless(name, **sections):
    return Folder(name, config(train={"steps": 10_000_000}, parallel={"timeout": TIMEOUT, **sections},
                               checkpoint={"every_epochs": 0}))


def ranks_of(folder):
    """Process numbers of the ranks that run in this folder, by world rank: those of no other run."""
    def runs_convoy(pid):
        try:
            return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(CONVOY)
        except OSError:
            return False

    return ranks_among(filter(runs_convoy, processes_in(folder.path)))


def wait_for(condition, seconds):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def wait_for_training(folder, process, ranks, least=5):
    """Until all ranks are there and some steps are done."""
    if not wait_for(lambda: len(ranks_of(folder)) == ranks and len(folder.events("step")) >= least, 60):
        kill_tree(process)
        folder.read_outputs()
        pytest.fail(f"no training\n{folder.stderr}")


def kill_ranks(folder):
    for pid in ranks_of(folder).values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end_of(folder, process):
    """The exit code and how long it took, once no rank is left; everything is killed when that takes too long."""
    start = time.time()
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        code = None
    seconds = time.time() - start
    wait_for(lambda: not ranks_of(folder), 3)
    left = sorted(ranks_of(folder))
    kill_ranks(folder)
    kill_tree(process)
    folder.read_outputs()
    assert not left, "these ranks are left"
    return code, seconds


def one_report(folder, code, seconds):
    print(f"exit code {code} after {seconds:.1f} s\n{folder.stderr}", flush=True)
    assert code == 1
    assert seconds >= TIMEOUT - 0.5, "ended before the deadline"
    assert folder.stderr.count("convoy: error:") == 1


@pytest.mark.parametrize("ranks, victim, parallel", (
    pytest.param(2, 1, {}, id="1_of_2"),
    pytest.param(2, 0, {}, id="0_of_2"),  # it speaks otherwise
    pytest.param(4, 2, {}, id="2_of_4"),
    # A stage that others wait for through a third one.
    pytest.param(2, 1, {"mode": "pipeline", "stages": 2, "microbatches": 2}, id="stage")))
def test_stopped_rank_is_named_with_a_remedy(ranks, victim, parallel):
    folder = endless("run", **parallel)
    process = folder.start(ranks)
    wait_for_training(folder, process, ranks)
    pid = ranks_of(folder)[victim]
    os.kill(pid, signal.SIGSTOP)
    code, seconds = end_of(folder, process)
    one_report(folder, code, seconds)
    line = rf"world rank {victim} \(\S+, pid {pid}\)( has not come)?: it is stopped \(SIGSTOP\); last: .+"
    assert re.search(line, folder.stderr), folder.stderr
    assert f"kill -CONT {pid}" in folder.stderr
    named = set(re.findall(r"world rank (\d+) \(\S+, pid \d+\)[^\n]*it is stopped", folder.stderr))
    assert named == {str(victim)}, "called stopped"


def test_suspended_job_goes_on():
    """All ranks stopped for longer than the timeout, then let go: nobody is late."""
    folder = endless("run")
    process = folder.start(2)
    wait_for_training(folder, process, 2)
    pids = ranks_of(folder).values()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(TIMEOUT + 2)
    steps = len(folder.events("step"))
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    resumed = wait_for(lambda: len(folder.events("step")) > steps + 20, 20)
    ended = process.poll()
    kill_tree(process)
    folder.read_outputs()
    assert resumed and ended is None, "a suspended job did not go on"
    assert "timed out" not in folder.stderr


@pytest.mark.parametrize("stopped", (False, True))
def test_no_rank_outlives_its_launcher(stopped):
    """After mpirun was killed: not one that computes, and not one that is stopped."""
    folder = endless("run")
    process = folder.start(2)
    wait_for_training(folder, process, 2)
    if stopped:
        for pid in ranks_of(folder).values():
            os.kill(pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGKILL)
    start = time.time()
    process.wait()
    gone = wait_for(lambda: not ranks_of(folder), 3)
    print(f"gone after {time.time() - start:.2f} s", flush=True)
    left = sorted(ranks_of(folder))
    kill_ranks(folder)
    assert gone, f"ranks {left} outlive their launcher"


# ---- two hosts

ENTER_HOST = """#!/bin/sh
# Stands for ssh: a host of its own name, memory and temporary files, on this machine.
host=$1; shift; mkdir -p "{folder}/$host"
exec unshare -m -u -- sh -c 'hostname "$0"; mount -t tmpfs t /dev/shm; mount --bind "{folder}/$0" /tmp; export TMPDIR=/tmp
cd /; exec sh -c "$*"' "$host" "$@"
"""


@pytest.fixture
def remote_shell():
    """A script for Open MPI to start its daemons with."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare here")
    probe = subprocess.run(["unshare", "-m", "-u", "--", "sh", "-c", "mount -t tmpfs t /dev/shm"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("unshare and mount are not allowed here")
    if os.path.realpath(os.getcwd()).startswith("/tmp"):
        pytest.skip("the hosts have a /tmp of their own, so the test cannot run below it (choose another --basetemp)")
    place = tempfile.mkdtemp(prefix="hosts-", dir=os.getcwd())
    script = os.path.join(place, "enter_host.sh")
    with open(script, "w") as file:
        file.write(ENTER_HOST.format(folder=place))
    os.chmod(script, 0o755)
    yield script
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.root
@pytest.mark.parametrize("victims", (pytest.param([3], id="neighbour"), pytest.param([2, 3], id="silent_host")))
def test_stopped_rank_on_another_host_is_described(remote_shell, victims):
    """The late rank asks the other host; its other rank describes the stopped one. Then nobody of that host answers."""
    folder = endless("run")
    command = [MPIRUN, *hosts_option("nodea:2,nodeb:2"), "-n", "4", "-wdir", folder.path, CONVOY, "train", "run.toml"]
    environment = {**ENVIRONMENT, **remote_shell_environment(remote_shell)}
    with open(folder.file("stdout.txt"), "w") as out, open(folder.file("stderr.txt"), "w") as err:
        process = subprocess.Popen(command, cwd=folder.path, env=environment, stdout=out, stderr=err,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
    wait_for_training(folder, process, 4)
    pids = ranks_of(folder)
    for victim in victims:
        os.kill(pids[victim], signal.SIGSTOP)
    code, seconds = end_of(folder, process)
    one_report(folder, code, seconds)
    if len(victims) == 1:
        line = rf"world rank 3 \(nodeb, pid {pids[3]}\)( has not come)?: it is stopped \(SIGSTOP\)"
    else:
        line = r"world ranks 2, 3 \(nodeb\): no word from nodeb at all"
    assert re.search(line, folder.stderr), folder.stderr
