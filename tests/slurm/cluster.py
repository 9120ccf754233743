# SPDX-License-Identifier: Apache-2.0
"""A Slurm of two nodes, n1 and n2, on this machine, for as long as a `with Cluster():` lasts.

Stands on root, unshare(1) and Debian's slurm-wlm and munge. A node is a slurmd in namespaces of its own: host name,
processes (the node is killed as one, and nothing of it outlives it), /dev/shm and the folder for temporary files, so
that ranks of different nodes can share no memory by mistake. Every daemon dies with this process, whatever ends it.
"""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "unshare")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
NODES = ("n1", "n2")

SLURM_CONF = """\
ClusterName=convoy
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits until its old credentials have expired: 2 minutes by default.
AuthInfo=socket={base}/munge.socket,cred_expire={requeue_delay}
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/%n/spool
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/%n/slurmd.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/%n/slurmd.log
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=5
InactiveLimit=0
KillWait=5
MessageTimeout=20
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
GresTypes=gpu
NodeName=n1 NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 Gres=gpu:2 State=UNKNOWN
NodeName=n2 NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 Gres=gpu:2 State=UNKNOWN
# Jobs of the second partition push those of the first one aside, after a grace.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""

# $0 is the node, $1 the cluster's folder. bash stays, as the first process of the node, to collect orphans. The spool
# begins empty: sockets of a node that died would refuse the same step of the same job (Slurm's PMIx plugin).
NODE = """\
hostname "$0"
rm -rf "$1/$0/spool"
mkdir "$1/$0/spool"
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs "$1/tmp"
slurmd -D -N "$0" -f "$1/slurm.conf" &
wait
"""


def reason_not_here():
    """Why this machine cannot have such a cluster; None when it can."""
    if os.geteuid() != 0:
        return "the two-node Slurm needs root"
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        return f"no {', '.join(missing)} here (scripts/install_deps.sh --tests)"
    isolated = ["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child", "true"]
    if subprocess.run(isolated, capture_output=True, timeout=30).returncode != 0:
        return "unshare is not allowed here (a container without CAP_SYS_ADMIN?)"
    return None


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    def __init__(self, requeue_delay=5):
        # Sockets are in it, whose paths may have 107 characters; and it must not be under what nodes have of their own.
        self.base = tempfile.mkdtemp(prefix="convoy-slurm-", dir="/var/tmp")
        self.requeue_delay = requeue_delay
        self.daemons = {}
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("SLURM_", "SBATCH_", "SRUN_", "PMIX_", "OMPI_", "PMI_"))}
        self.environment.update({
            "PATH": PATH, "SLURM_CONF": self.file("slurm.conf"), "TMPDIR": self.file("tmp"),
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # More ranks than cores: a rank that waits lets others work.
            "OMPI_MCA_mpi_yield_when_idle": "1"})

    def file(self, *parts):
        return os.path.join(self.base, *parts)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in reversed(list(self.daemons)):
            self.kill(name)
        shutil.rmtree(self.base, ignore_errors=True)

    def start(self):
        os.chmod(self.base, 0o755)
        for folder in ("state", "tmp", *NODES):
            os.makedirs(self.file(folder))
        files = {"slurm.conf": SLURM_CONF.format(base=self.base, ports=free_ports(3), requeue_delay=self.requeue_delay),
                 "gres.conf": f"Name=gpu File={self.file('gpu[0-1]')}\n",  # Slurm counts them; nothing opens them
                 "gpu0": "", "gpu1": "",
                 "mpi.conf": f"PMIxCliTmpDirBase={self.file('tmp')}\n",
                 "cgroup.conf": "",
                 "munge.key": os.urandom(128)}
        for name, content in files.items():
            with open(self.file(name), "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
            os.chmod(self.file(name), 0o600 if name == "munge.key" else 0o644)
        self.daemon("munged", "munged", "--foreground", "--force", "--key-file", self.file("munge.key"),
                    "--socket", self.file("munge.socket"), "--pid-file", self.file("munged.pid"),
                    "--log-file", self.file("munged.log"), "--seed-file", self.file("munged.seed"))
        self.wait("munged's socket", lambda: os.path.exists(self.file("munge.socket")), 10)
        self.daemon("slurmctld", "slurmctld", "-D", "-f", self.file("slurm.conf"))
        for node in NODES:
            self.start_node(node)
        self.wait("idle nodes", lambda: all(self.node_state(node) == "idle" for node in NODES), 30)

    def start_node(self, node):
        self.daemon(node, "unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child",
                    "bash", "-c", NODE, node, self.base)

    def daemon(self, name, *command):
        with open(self.file(name + ".out"), "ab") as out:
            self.daemons[name] = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                                                  stderr=out, start_new_session=True, preexec_fn=die_with_parent)

    def kill(self, name):
        """Ends a daemon at once; of a node, all that runs on it."""
        process = self.daemons.pop(name)
        process.kill()
        process.wait()

    def wait(self, what, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited {seconds} s for {what}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        text = ""
        for name in ("munged.out", "slurmctld.log", "n1.out", "n2.out"):
            if os.path.exists(self.file(name)):
                with open(self.file(name), errors="replace") as file:
                    text += f"--- {name}\n" + "".join(file.readlines()[-25:])
        return text

    # -- Slurm's commands

    def run(self, *command, timeout=60, cwd=None, **variables):
        """Runs one of Slurm's commands (or any other) as a user of the cluster would."""
        return subprocess.run(command, env={**self.environment, **variables}, cwd=cwd, timeout=timeout,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def node_state(self, node):
        return self.run("sinfo", "-h", "-N", "-n", node, "-p", "all", "-o", "%T").stdout.strip()

    def show(self, job):
        """What `scontrol show job` says, as a dictionary."""
        text = self.run("scontrol", "show", "job", "-o", str(job)).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)
