# SPDX-License-Identifier: Apache-2.0
"""Ranks that stop, hang or vanish: the others end within the deadline, one report names the rank, nothing is left."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import behaviour
from behaviour import MPIRUN, Folder, check, config, kill_tree, main

TIMEOUT = 3  # parallel.timeout of these runs, in seconds
PATIENCE = TIMEOUT + 10  # for all to end


def endless(name, **sections):
    return Folder(name, config(train={"steps": 10_000_000}, parallel={"timeout": TIMEOUT, **sections},
                               checkpoint={"every_epochs": 0}))


def ranks_of(folder):
    """Process numbers of the ranks that run in this folder, by world rank: those of no other run."""
    def runs_convoy(pid):
        try:
            return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(behaviour.CONVOY)
        except OSError:
            return False

    return behaviour.ranks_among(filter(runs_convoy, behaviour.processes_in(folder.path)))


def wait_for(condition, seconds):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def in_training(folder, ranks, least=5):
    return wait_for(lambda: len(ranks_of(folder)) == ranks and len(folder.events("step")) >= least, 60)


def end_of(folder, process):
    """The exit code and how long it took, once no rank is left; everything is killed when that takes too long."""
    start = time.time()
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        code = None
    seconds = time.time() - start
    gone = wait_for(lambda: not ranks_of(folder), 3)
    check(gone, f"{folder.path}: ranks {sorted(ranks_of(folder))} are left")
    for pid in ranks_of(folder).values():
        os.kill(pid, signal.SIGKILL)
    kill_tree(process)
    folder.read_outputs()
    return code, seconds


def one_report(what, folder, code, seconds):
    print(f"--- {what}: exit code {code} after {seconds:.1f} s\n{folder.stderr}", flush=True)
    check(code == 1, f"{what}: exit code {code}, not 1, after {seconds:.1f} s")
    check(seconds >= TIMEOUT - 0.5, f"{what}: ended after {seconds:.1f} s, before the deadline")
    reports = folder.stderr.count("convoy: error:")
    check(reports == 1, f"{what}: {reports} reports, not 1:\n{folder.stderr}")


def stop(name, ranks, victim, **sections):
    folder = endless(name, **sections)
    process = folder.start(ranks)
    if not check(in_training(folder, ranks), f"{name}: no training"):
        kill_tree(process)
        return
    pid = ranks_of(folder)[victim]
    os.kill(pid, signal.SIGSTOP)
    code, seconds = end_of(folder, process)
    one_report(name, folder, code, seconds)
    line = rf"world rank {victim} \(\S+, pid {pid}\)( has not come)?: it is stopped \(SIGSTOP\); last: .+"
    check(re.search(line, folder.stderr), f"{name}: no line about world rank {victim} ({pid}):\n{folder.stderr}")
    check(f"kill -CONT {pid}" in folder.stderr, f"{name}: no remedy:\n{folder.stderr}")
    named = set(re.findall(r"world rank (\d+) \(\S+, pid \d+\)[^\n]*it is stopped", folder.stderr))
    check(named == {str(victim)}, f"{name}: called stopped: {sorted(named)}")


def stopped_rank():
    """Also rank 0, which speaks otherwise; and a stage that others wait for through a third one."""
    stop("hang-1-of-2", 2, 1)
    stop("hang-0-of-2", 2, 0)
    stop("hang-2-of-4", 4, 2)
    stop("hang-stage", 2, 1, mode="pipeline", stages=2, microbatches=2)


def suspended_job():
    """All ranks stopped for longer than the timeout, then let go: nobody is late."""
    folder = endless("hang-suspended")
    process = folder.start(2)
    if not check(in_training(folder, 2), "no training"):
        kill_tree(process)
        return
    pids = ranks_of(folder).values()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(TIMEOUT + 2)
    steps = len(folder.events("step"))
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    goes_on = wait_for(lambda: len(folder.events("step")) > steps + 20, 20)
    check(goes_on and process.poll() is None, "a suspended job did not go on")
    kill_tree(process)
    folder.read_outputs()
    check("is late" not in folder.stderr, f"a suspended job was called late:\n{folder.stderr}")


def launcher_gone():
    """After mpirun was killed no rank is left: not one that computes, and not one that is stopped."""
    for stopped in (False, True):
        folder = endless(f"hang-no-launcher-{stopped}")
        process = folder.start(2)
        if not check(in_training(folder, 2), "no training"):
            kill_tree(process)
            return
        if stopped:
            for pid in ranks_of(folder).values():
                os.kill(pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGKILL)
        start = time.time()
        process.wait()
        gone = wait_for(lambda: not ranks_of(folder), 3)
        print(f"--- launcher killed, ranks stopped: {stopped}: gone after {time.time() - start:.2f} s", flush=True)
        check(gone, f"ranks {sorted(ranks_of(folder))} outlive their launcher (stopped: {stopped})")
        for pid in ranks_of(folder).values():
            os.kill(pid, signal.SIGKILL)


ENTER_HOST = """#!/bin/sh
# Stands for ssh: a host of its own name, memory and temporary files, on this machine.
host=$1; shift; mkdir -p "{folder}/$host"
exec unshare -m -u -- sh -c 'hostname "$0"; mount -t tmpfs t /dev/shm; mount --bind "{folder}/$0" /tmp; export TMPDIR=/tmp
cd /; exec sh -c "$*"' "$host" "$@"
"""


def two_hosts():
    """The late rank asks the other host; its other rank describes the stopped one. Then nobody of that host answers."""
    probe = subprocess.run(["unshare", "-m", "-u", "--", "sh", "-c", "mount -t tmpfs t /dev/shm"], capture_output=True)
    if not shutil.which("unshare") or probe.returncode != 0:
        return "unshare and mount are not allowed here"
    if os.path.realpath(os.getcwd()).startswith("/tmp"):
        return "the hosts have a /tmp of their own, so the test cannot run below it"
    place = tempfile.mkdtemp(prefix="hosts-", dir=os.getcwd())
    script = os.path.join(place, "enter_host.sh")
    with open(script, "w") as file:
        file.write(ENTER_HOST.format(folder=place))
    os.chmod(script, 0o755)
    for name, victims in (("hang-neighbour", [3]), ("hang-silent", [2, 3])):
        folder = endless(name)
        command = [MPIRUN, "--oversubscribe", "--bind-to", "none", "--host", "nodea:2,nodeb:2", "-n", "4", "--wdir",
                   folder.path, behaviour.CONVOY, "train", "run.toml"]
        environment = {**behaviour.ENVIRONMENT, "OMPI_MCA_plm_rsh_agent": script}
        with open(folder.file("stdout.txt"), "w") as out, open(folder.file("stderr.txt"), "w") as err:
            process = subprocess.Popen(command, cwd=folder.path, env=environment, stdout=out, stderr=err,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        if not check(in_training(folder, 4), f"{name}: no training"):
            kill_tree(process)
            folder.read_outputs()
            print(folder.stderr)
            continue
        pids = ranks_of(folder)
        for victim in victims:
            os.kill(pids[victim], signal.SIGSTOP)
        code, seconds = end_of(folder, process)
        one_report(name, folder, code, seconds)
        if len(victims) == 1:
            line = rf"world rank 3 \(nodeb, pid {pids[3]}\)( has not come)?: it is stopped \(SIGSTOP\)"
        else:
            line = r"world ranks 2, 3 \(nodeb\): no word from nodeb at all"
        check(re.search(line, folder.stderr), f"{name}: {line} is not in\n{folder.stderr}")
    shutil.rmtree(place, ignore_errors=True)
    return None


main([stopped_rank, suspended_job, launcher_gone, two_hosts])
