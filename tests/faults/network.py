# SPDX-License-Identifier: Apache-2.0
"""Several hosts on this machine with a network between them that can be cut. Needs root, unshare, nsenter and ip.

As launching.Hosts, and each host has a network namespace: an interface on a bridge, which is in the namespace of the host
from which launch is started ("head"). The machine's own network is not touched. All namespaces end with this process's
children.
"""
import shutil
import subprocess

from launching import Hosts

HEAD = "10.77.0.1"


class Network(Hosts):
    # As there, but within the host's network namespace.
    REMOTE_SHELL = Hosts.REMOTE_SHELL.replace("exec unshare -m", 'exec nsenter -t "$(cat "{folder}/$host.pid")" -n unshare -m')

    @staticmethod
    def missing():
        reason = Hosts.missing()
        if reason:
            return reason
        absent = [name for name in ("ip", "nsenter") if not shutil.which(name)]
        if absent:
            return f"no {', '.join(absent)} here"
        tried = subprocess.run(["unshare", "-n", "sh", "-c", "ip link add bridge0 type bridge && ip link add veth0 type veth peer name veth1"],
                               check=False, capture_output=True, text=True, timeout=20)
        return "" if tried.returncode == 0 else "no networks of one's own here: " + tried.stderr.strip()

    def __init__(self, folder, names):
        super().__init__(folder)
        self.namespaces = {}
        try:
            head = self._namespace("head")
            self._ip("head", f"ip link add bridge0 type bridge; ip link set bridge0 up; ip addr add {HEAD}/24 dev bridge0")
            for number, name in enumerate(names, 2):
                pid = self._namespace(name)
                self._ip("head", f"ip link add {name} type veth peer name eth0 netns {pid}; ip link set {name} master bridge0 up")
                self._ip(name, f"ip addr add 10.77.0.{number}/24 dev eth0; ip link set eth0 up")
            self.wrapper = ("nsenter", "-t", str(head), "-n")
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for name in self.namespaces:
            for pid, _ in self.processes(name):
                subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)
        self.end()

    def end(self):
        for process in self.namespaces.values():
            process.kill()
            process.wait()

    def _namespace(self, name):
        process = subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up && echo && exec sleep infinity"],
                                   stdout=subprocess.PIPE)
        self.namespaces[name] = process
        process.stdout.readline()
        with open(self.folder.file("hosts", name + ".pid"), "w") as file:
            file.write(str(process.pid))
        return process.pid

    def _ip(self, name, commands):
        subprocess.run(["nsenter", "-t", str(self.namespaces[name].pid), "-n", "sh", "-ec", commands], check=True, timeout=20)

    def cut(self, name):
        """Packets from and to the host are lost; nobody is told."""
        self._ip("head", f"ip link set {name} nomaster")

    def join(self, name):
        self._ip("head", f"ip link set {name} master bridge0")
