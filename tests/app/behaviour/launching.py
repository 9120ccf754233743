# SPDX-License-Identifier: Apache-2.0
"""What the tests of `convoy launch` share: starting it, finding its processes, several hosts on this machine.

Relies on behaviour.py and on /proc. Invariant: every wait has a limit, and a launch that a test leaves is killed with
all that it started.
"""
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import time

import pytest

from behaviour import CONVOY, ENVIRONMENT, MPIRUN, kill_tree, process_parents, zombie
from programs import MPIRUN_NAMES, remote_shell_environment

LIMIT = 60  # seconds for anything to happen
LAUNCH_ENVIRONMENT = {**ENVIRONMENT, "PATH": os.path.dirname(MPIRUN) + ":" + os.environ["PATH"]}


def wait_for(what, condition, limit=LIMIT):
    """The condition's value, once it is true."""
    deadline = time.time() + limit
    while time.time() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    pytest.fail(f"{what}: not within {limit} s")


def processes():
    """(pid, parent, words) of all processes that are no zombies."""
    found = []
    for pid, parent in process_parents().items():
        if zombie(pid):
            continue
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            found.append((pid, parent, file.read().decode(errors="replace").split("\0")[:-1]))
    return found


def kill(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Launch:
    """One `convoy launch` in a test's folder; its config's path tells its processes from those of other tests."""

    def __init__(self, folder, *options, name="launch", environment=None, alone=True, wrapper=()):
        """alone: no other launch of this folder has ranks that must live on when this one is left."""
        self.folder, self.name, self.config, self.alone = folder, name, folder.file("run.toml"), alone
        words = [*wrapper, CONVOY, "launch", *options, "--", "train", self.config]
        with open(folder.file(name + ".out"), "a") as out, open(folder.file(name + ".err"), "a") as err:
            self.process = subprocess.Popen(words, cwd=folder.path, env={**LAUNCH_ENVIRONMENT, **(environment or {})},
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        kill_tree(self.process)
        for pid in self.ranks() if self.alone else ():
            kill(pid)

    def wait(self, limit=LIMIT):
        """The exit code, or None when it goes on."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return None

    def stderr(self):
        with open(self.folder.file(self.name + ".err"), errors="replace") as file:
            return file.read()

    def ends_with(self, code, limit=LIMIT):
        assert self.wait(limit) == code, self.stderr()[-2500:]

    # -- its processes

    def ranks(self):
        return [pid for pid, _, words in processes() if words[:3] == [CONVOY, "train", self.config]]

    def mpi_files(self):
        """Patterns of what Open MPI leaves of the ranks that run now: names in /dev/shm, and mpirun's folder."""
        patterns = []
        for pid in self.ranks():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
                values = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
                if values.get(b"PMIX_NAMESPACE", b"").isdigit():
                    patterns += [f"/dev/shm/*.{int(values[b'PMIX_NAMESPACE']):x}.*",
                                 values[b"PMIX_SERVER_TMPDIR"].decode()]
        return sorted(set(patterns))

    def mpirun(self):
        """Of the generation, not of a look at a host."""
        found = [pid for pid, _, words in processes()
                 if words and os.path.basename(words[0]) in MPIRUN_NAMES and self.config in words]
        return found[0] if found else None

    def nothing_left(self, limit=15):
        def left():
            return [words for _, _, words in processes() if self.config in words]
        deadline = time.time() + limit
        while left() and time.time() < deadline:
            time.sleep(0.02)
        assert not left(), "still running"

    # -- what it leaves

    def reached(self, step):
        """Waits until the generation at work has done the step."""
        return wait_for(f"{self.folder.path}: step {step} (stderr: {self.stderr()[-800:]})",
                        lambda: self._progress()[1] >= step)

    def _progress(self):
        """(generations begun, last step that the newest of them has done itself: -1 before the first)."""
        begun, step = 0, -1
        for event in self.folder.events(("start", "step")):
            begun, step = (begun + 1, -1) if event["event"] == "start" else (begun, event["step"])
        return begun, step

    def state(self):
        try:
            with open(self.folder.file("runs", "run", "launch", "state.json")) as file:
                return json.load(file)
        except (OSError, ValueError):
            return {"generations": [], "restarts": 0, "status": "none"}

    def generation(self, number):
        """Waits until generation `number`, or a later one, has done a step after its start."""
        def there():
            begun, step = self._progress()
            return begun >= number and step >= 0
        return wait_for(f"{self.folder.path}: generation {number} (stderr: {self.stderr()[-800:]})", there)


class Hosts:
    """Several "hosts" on this machine: namespaces with a name, /tmp and /dev/shm of their own. Needs root."""

    REMOTE_SHELL = """#!/bin/bash
# Runs a command on a "host": {script} HOST COMMAND...
host=$1
shift
[[ -e "{folder}/$host.down" ]] && exit 255
export CONVOY_TEST_HOST="{folder}/$host"
[[ "$(cat "{folder}/$host.silent" 2>/dev/null)" == now ]] && exec sleep 600
[[ -e "{folder}/$host.silent" ]] && echo now >"{folder}/$host.silent"
mkdir -p "{folder}/$host"
exec unshare -m -u -- bash -c 'hostname "$0" && mount -t tmpfs t /dev/shm || exit 97
mount --bind "{folder}/$0" /tmp || exit 97
export TMPDIR=/tmp
cd /
exec sh -c "$*"' "$host" "$@"
"""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder.file("hosts"), exist_ok=True)
        self.remote_shell = folder.file("remote_shell.sh")
        with open(self.remote_shell, "w") as file:
            file.write(self.REMOTE_SHELL.format(script=self.remote_shell, folder=folder.file("hosts")))
        os.chmod(self.remote_shell, stat.S_IRWXU)

    @staticmethod
    def missing():
        """Why there can be none here; empty when there can."""
        if os.geteuid() != 0 or not shutil.which("unshare"):
            return "hosts of their own need root and unshare"
        if os.getcwd().startswith("/tmp/"):
            return "hosts with a /tmp of their own do not see this build, which is under /tmp"
        tried = subprocess.run(["unshare", "-m", "-u", "--", "mount", "-t", "tmpfs", "t", "/dev/shm"], check=False,
                               capture_output=True, text=True, timeout=20)
        return "" if tried.returncode == 0 else "unshare or mount is not allowed here: " + tried.stderr.strip()

    def environment(self):
        return remote_shell_environment(self.remote_shell)

    def processes(self, host):
        """What runs on the host, by a variable that it inherits."""
        mark = ("CONVOY_TEST_HOST=" + self.folder.file("hosts", host)).encode()
        found = []
        for pid, _, words in processes():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append((pid, words))
        return found

    def crash(self, host):
        """Nothing can be started there any more, and all that ran there is gone."""
        with open(self.folder.file("hosts", host + ".down"), "w"):
            pass
        for pid, _ in self.processes(host):
            kill(pid)

    def silence_after_next(self, host):
        """What is started there after the next command, which is launch trying the host, gives no sign of life."""
        with open(self.folder.file("hosts", host + ".silent"), "w"):
            pass

    def repair(self, host):
        os.remove(self.folder.file("hosts", host + ".down"))

    def list(self, text):
        """A new hosts file, put in place whole."""
        with open(self.folder.file("hosts.new"), "w") as file:
            file.write(text)
        os.rename(self.folder.file("hosts.new"), self.folder.file("hosts.txt"))
