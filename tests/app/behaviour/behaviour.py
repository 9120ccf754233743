# SPDX-License-Identifier: Apache-2.0
"""What the behaviour tests share: configs, starting convoy on N ranks, killing it, reading what it leaves.

Standard library only; h5py is used where it is there (`h5py` is None elsewhere). Every run is in a folder of its own
below that of the test.
"""
import copy
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time

from programs import CONVOY, DIGITS, MPI_ENVIRONMENT, MPIRUN

try:
    import h5py
except ImportError:
    h5py = None

USAGE, FAILURE = 2, 1  # exit codes
ENVIRONMENT = {**os.environ, **MPI_ENVIRONMENT, "OMP_NUM_THREADS": "1"}

# Convolutions, batch norm, a residual block and dropout: everything that has state, and quick. 42,000 parameters.
SMALL_NET = {
    "name": "sequential",
    "layers": [
        {"type": "conv2d", "name": "conv", "out_channels": 16, "kernel_size": 3, "padding": 1, "bias": False},
        {"type": "batch_norm2d", "name": "bn"},
        {"type": "relu"},
        {"type": "basic_block", "name": "block", "channels": 32, "stride": 2},
        {"type": "global_avg_pool"},
        {"type": "dropout", "probability": 0.1},
        {"type": "linear", "name": "fc", "out_features": 10},
    ],
}
MLP = {"name": "mlp", "hidden": [64]}


def config(model=None, **sections):
    """Small, quick, reproducible; `sections` change or add keys."""
    result = {
        "run": {"name": "run", "seed": 3},
        "device": {"kind": "cpu", "threads": 1},
        "model": copy.deepcopy(model or MLP),
        "data": {"kind": "hdf5", "train": DIGITS + ":/train", "validation": DIGITS + ":/validation"},
        "train": {"steps": 20, "global_batch_size": 32},
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4},
        "checkpoint": {"keep": 1000},
        "log": {"progress": "off", "every_steps": 1, "tensorboard": False},
    }
    for section, keys in sections.items():
        result.setdefault(section, {}).update(keys)
    return result


def toml(sections):
    text = ""
    for section, keys in sections.items():
        tables = [(key, value) for key, value in keys.items() if isinstance(value, list) and value
                  and isinstance(value[0], dict)]
        text += f"[{section}]\n"
        for key, value in keys.items():
            if (key, value) not in tables and value is not None:
                text += f"{key} = {json.dumps(value)}\n"  # JSON's scalars and lists of them are TOML's
        for key, rows in tables:
            for row in rows:
                text += f"[[{section}.{key}]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in row.items())
    return text


class Folder:
    """A fresh folder with run.toml in it; its run is runs/run."""

    def __init__(self, name, sections):
        self.path = os.path.abspath(name)
        shutil.rmtree(self.path, ignore_errors=True)
        os.makedirs(self.path)
        self.configure(sections)

    def configure(self, sections):
        with open(self.file("run.toml"), "w") as file:
            file.write(toml(sections))

    def file(self, *parts):
        return os.path.join(self.path, *parts)

    def copy(self, name):
        other = copy.copy(self)
        other.path = os.path.abspath(name)
        shutil.rmtree(other.path, ignore_errors=True)
        shutil.copytree(self.path, other.path)
        return other

    # -- running

    def command(self, ranks, *arguments, wrapper=()):
        words = [*wrapper, CONVOY, *(arguments or ("train", "run.toml"))]
        if ranks > 1:
            words = [MPIRUN, "-n", str(ranks), *words]
        return words

    def start(self, ranks, *arguments, wrapper=()):
        out, err = open(self.file("stdout.txt"), "w"), open(self.file("stderr.txt"), "w")
        with out, err:
            return subprocess.Popen(self.command(ranks, *arguments, wrapper=wrapper), cwd=self.path, env=ENVIRONMENT,
                                    stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)

    def run(self, ranks, *arguments, timeout=60, **options):
        """The exit code, or None when it had to be killed; outputs are in self.stdout and self.stderr."""
        code = wait_or_kill(self.start(ranks, *arguments, **options), timeout)
        self.read_outputs()
        return code

    def train(self, ranks=1, **options):
        code = self.run(ranks, **options)
        assert code == 0, f"{os.path.basename(self.path)}: exit code {code} on {ranks} ranks\n{self.stderr[-2000:]}"

    def read_outputs(self):
        self.stdout, self.stderr = (open(self.file(name), errors="replace").read()
                                    for name in ("stdout.txt", "stderr.txt"))

    # -- what a run leaves

    def events(self, kind, parse_float=float):
        """The lines of metrics.jsonl of one kind (a name, or several). A line cut by a kill is left out."""
        entries, kinds = [], (kind,) if isinstance(kind, str) else kind
        try:
            lines = open(self.file("runs", "run", "metrics.jsonl")).read().split("\n")
        except FileNotFoundError:
            return entries
        for line in lines:
            try:
                entry = json.loads(line, parse_float=parse_float)
            except ValueError:
                continue
            if entry.get("event") in kinds:
                entries.append(entry)
        return entries

    def losses(self, parse_float=float):
        """Loss by step; where a step was run twice, what counts is that both agree."""
        series = {}
        for entry in self.events("step", parse_float):
            before = series.setdefault(entry["step"], entry["loss"])
            if parse_float is str:
                assert before == entry["loss"], f"step {entry['step']} was run twice, with different losses"
        return series

    def checkpoints(self):
        folder = self.file("runs", "run", "checkpoints")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return [os.path.join(folder, name) for name in names if re.fullmatch(r"step-\d{8}\.h5", name)]

    def drop_checkpoints_after(self, step):
        """As if the run had been killed before it wrote them."""
        for path in self.checkpoints():
            if int(os.path.basename(path)[5:13]) > step:
                os.remove(path)


def descendants(pid):
    """The processes below this one."""
    parents = process_parents()
    below, found = set(), {pid}
    while found:
        found = {child for child, parent in parents.items() if parent in found and child not in below}
        below |= found
    return below


def kill_tree(process):
    """SIGKILL to the process and all its descendants (mpirun puts ranks into groups of their own)."""
    def kill(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    doomed = {process.pid, *descendants(process.pid)}
    for pid in sorted(doomed, reverse=True):
        kill(pid)
    process.wait()
    deadline = time.time() + 10
    while any(os.path.exists(f"/proc/{pid}") and not zombie(pid) for pid in doomed) and time.time() < deadline:
        time.sleep(0.01)


def wait_or_kill(process, seconds):
    """The exit code; None when the process had to be killed, with all below it."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        kill_tree(process)
        return None


def error_lines(text):
    """The lines of stderr that say why the program ended."""
    return [line for line in text.splitlines() if line.startswith("convoy: error:")]


def process_stat(pid):
    """State and parent, as /proc says; None for a process that has gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, parent = file.read().rsplit(")", 1)[1].split()[:2]
        return state, int(parent)
    except (OSError, IndexError, ValueError):
        return None


def zombie(pid):
    """A zombie, or gone."""
    stat = process_stat(pid)
    return stat is None or stat[0] == "Z"


def process_parents():
    """The parent of every process, zombies among them."""
    stats = {int(entry): process_stat(entry) for entry in os.listdir("/proc") if entry.isdigit()}
    return {pid: stat[1] for pid, stat in stats.items() if stat}


def processes_in(path):
    """Processes whose working directory is `path`: all ranks of a run there, and their launcher."""
    found = []
    for pid in process_parents():
        try:
            if os.readlink(f"/proc/{pid}/cwd") == path and not zombie(pid):
                found.append(pid)
        except OSError:
            pass
    return found


def rank_of(pid):
    """The world rank that mpirun gave the process; None for other processes."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(item.split(b"=", 1) for item in file.read().split(b"\0") if b"=" in item)
        return int(variables[b"PMI_RANK" if b"PMI_RANK" in variables else b"OMPI_COMM_WORLD_RANK"])
    except (OSError, KeyError, ValueError):
        return None


def ranks_among(pids):
    """The ranks among these processes: pid by world rank."""
    ranks = {rank_of(pid): pid for pid in pids}
    ranks.pop(None, None)
    return ranks


def rank_processes(process):
    """The ranks below mpirun, by world rank."""
    return ranks_among(descendants(process.pid))


def datasets(path):
    """Every data set of a checkpoint as bytes with its shape, and the attributes that say where the run stood."""
    values = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: values.update({name: (item.shape, item[()].tobytes())})
                        if isinstance(item, h5py.Dataset) else None)
        for name in ("step", "epoch", "samples_seen", "lr_step", "seed"):
            values["attribute " + name] = int(file.attrs[name])
    return values


def same_checkpoint(what, actual, expected):
    if h5py is None:
        return
    a, e = datasets(actual), datasets(expected)
    different = sorted(name for name in set(a) | set(e) if a.get(name) != e.get(name))
    assert not different, f"{what}: {os.path.basename(actual)} differs in {different[:5]}"


def same_series(what, actual, expected):
    different = [step for step in sorted(set(actual) | set(expected)) if actual.get(step) != expected.get(step)]
    assert not different, (f"{what}: losses differ from step {different[:1]} on: "
                           f"{[(actual.get(s), expected.get(s)) for s in different[:3]]}")


def close_series(what, actual, expected, tolerance):
    assert set(actual) == set(expected), f"{what}: some steps are not in both"
    worst = max((abs(actual[s] - expected[s]) / abs(expected[s]) for s in set(actual) & set(expected)), default=math.inf)
    assert worst <= tolerance, f"{what}: losses differ by {worst:.1e} relative > {tolerance:.0e}"


def part_of(folder, group, count):
    """The first digits of "train" or "validation" as a data file; the whole group without h5py."""
    if h5py is None:
        return f"{DIGITS}:/{group}"
    path = Folder(folder, {}).file(f"{group}.h5")
    with h5py.File(DIGITS, "r") as source, h5py.File(path, "w") as file:
        for name in ("images", "labels"):
            file[name] = source[group][name][:count]
    return path
