#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a training at random moments, again and again, and checks that nothing is lost.

    scripts/soak.py --kills 50 --seed 1 [--ranks 2] [--convoy build/app/convoy] [--config CONFIG] [--folder DIR]
    scripts/soak.py --ranks 4 --set parallel.mode=pipeline --set parallel.stages=2 --set parallel.microbatches=2

One training runs under `convoy launch`; `kill -9` hits a rank, mpirun or the launch itself (which is then started
again): after some steps, while ranks are starting, or in the middle of writing a checkpoint. At the end: the run has
completed, every checkpoint on disk is valid, the losses are bitwise those of a run that nobody disturbed, every sample
was seen once an epoch, nothing is left running, and nothing is left in /dev/shm and TMPDIR. Prints one line for each
kill, then how long it took until the next step of training, and its parts after the kill of a rank: until mpirun has
ended, and from there to the step. Exit code 0 when all holds. Standard library only, and /proc.
"""
import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import sample_order

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(HERE, "tests"))
from programs import MPI_ENVIRONMENT, MPIRUN_NAMES  # noqa: E402

LIMIT = 120  # seconds in which something must happen
TARGETS = ("rank", "rank", "mpirun", "launch")
MOMENTS = ("training", "starting", "checkpoint")
CONFIG = """[run]
name = "soak"
seed = 7
[device]
kind = "cpu"
threads = 1
[model]
name = "sequential"
layers = [
  {{ type = "conv2d", name = "conv", out_channels = 32, kernel_size = 3, padding = 1, bias = false }},
  {{ type = "batch_norm2d", name = "bn" }},
  {{ type = "relu" }},
  {{ type = "basic_block", name = "block", channels = 64, stride = 2 }},
  {{ type = "global_avg_pool" }},
  {{ type = "linear", name = "fc", out_features = 10 }},
]
[data]
kind = "hdf5"
train = "{data}:/train"
validation = "{data}:/validation"
[train]
steps = {steps}
global_batch_size = 96
[optimizer]
name = "sgd"
lr = 0.05
momentum = 0.9
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--targets", nargs="+", default=TARGETS, choices=sorted(set(TARGETS)), help="who is killed")
    parser.add_argument("--moments", nargs="+", default=MOMENTS, choices=MOMENTS, help="and when")
    parser.add_argument("--ranks", type=int, default=2, choices=(1, 2, 3, 4))
    parser.add_argument("--convoy", default=os.path.join(HERE, "build", "app", "convoy"))
    parser.add_argument("--config", help="a training of one's own; default: a small network on digits")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the config, as in convoy train")
    parser.add_argument("--checkpoint-steps", type=int, default=20, help="steps from one checkpoint to the next")
    parser.add_argument("--folder", default="soak", help="where to run; it is emptied first")
    return parser.parse_args()


def runs(pid):
    """Whether the process is there and has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def spread(seconds):
    seconds = sorted(seconds)
    return f"median {statistics.median(seconds):.2f} s, from {seconds[0]:.2f} to {seconds[-1]:.2f} s"


class Soak:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.convoy = os.path.abspath(options.convoy)
        self.folder = os.path.abspath(options.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        if options.config:
            self.config = os.path.abspath(options.config)
        else:
            self.config = os.path.join(self.folder, "soak.toml")
            with open(self.config, "w") as file:
                file.write(CONFIG.format(data=os.path.join(HERE, "app", "configs", "digits.h5"),
                                         steps=500 + 300 * options.kills))
        self.temporary = os.path.join(self.folder, "tmp")
        os.makedirs(self.temporary)
        self.environment = {**os.environ, **MPI_ENVIRONMENT, "OMP_NUM_THREADS": "1", "TMPDIR": self.temporary}
        self.launch = None
        self.shared_memory = set(os.listdir("/dev/shm"))
        self.problems = []
        self.seconds_to_step, self.seconds_of_rank_kills = [], []
        self.seconds_to_end, self.seconds_from_end = [], []  # of mpirun, after kills of ranks
        self.jobs = set()  # of Open MPI, as its names in /dev/shm have them
        self.kills = collections.Counter()

    # -- the training

    def train_words(self, name):
        return ["train", self.config, "--set", f"run.dir={self.folder}", "--set", f"run.name={name}", "--set",
                "log.progress=off", "--set", "log.tensorboard=false", "--set", "log.every_steps=1", "--set",
                f"checkpoint.every_steps={self.options.checkpoint_steps}",
                *(word for setting in self.options.set for word in ("--set", setting))]

    def undisturbed_words(self):
        return ["mpirun", "-n", str(self.options.ranks), self.convoy, *self.train_words("undisturbed")]

    def undisturbed(self):
        with open(os.path.join(self.folder, "undisturbed.log"), "w") as log:
            start = time.time()
            subprocess.run(self.undisturbed_words(), env=self.environment, stdout=log, stderr=log, check=True, timeout=3600)
        return self.events("undisturbed"), time.time() - start

    def start(self):
        words = [self.convoy, "launch", "--nproc-per-node", str(self.options.ranks), "--max-restarts", "1000000",
                 "--", *self.train_words("killed")]
        with open(os.path.join(self.folder, "killed.log"), "a") as log:
            self.launch = subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log, start_new_session=True)

    def events(self, name):
        with open(os.path.join(self.folder, name, "metrics.jsonl")) as file:
            return [json.loads(line, parse_float=str) for line in file]

    def progress(self):
        """(starts of trainers so far, last step, whether that was done since the last start)."""
        try:
            with open(os.path.join(self.folder, "killed", "metrics.jsonl"), "rb") as file:
                text = file.read()
        except FileNotFoundError:
            return 0, 0, False
        last = re.findall(rb'"event":"step","step":(\d+)', text[-4096:])
        starts = text.count(b'"event":"start"')
        return starts, int(last[-1]) if last else 0, text.rfind(b'"event":"step"') > text.rfind(b'"event":"start"')

    # -- killing

    def processes(self, of_launch):
        """The training's processes by kind: mpirun and ranks; those of the launch that runs now, or of all launches."""
        found = {"rank": [], "mpirun": []}
        parents = {}  # of all processes
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            parents[int(entry)] = parent
            if f"run.dir={self.folder}" in words and words[1] == "train":
                found["rank"].append(int(entry))
                self.note_job(entry)
            elif f"run.dir={self.folder}" in words and os.path.basename(words[0]) in MPIRUN_NAMES:
                found["mpirun"].append(int(entry))
        if of_launch:
            found["mpirun"] = [pid for pid in found["mpirun"] if parents[pid] == self.launch.pid]
            # A rank's parent is mpirun (Open MPI) or its proxy (MPICH).
            found["rank"] = [pid for pid in found["rank"]
                             if {parents[pid], parents.get(parents[pid])} & set(found["mpirun"])]
        return found

    def note_job(self, pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                job = re.search(rb"(?:^|\0)PMIX_NAMESPACE=(\d+)\0", file.read())
        except OSError:
            return
        if job:
            self.jobs.add(f".{int(job.group(1)):x}.")

    def wait_for(self, what, condition, limit=LIMIT):
        deadline = time.time() + limit
        while time.time() < deadline:
            if condition():
                return True
            if self.launch.poll() is not None:
                self.problems.append(f"the launch ended with exit code {self.launch.returncode} before: {what}")
                return False
            time.sleep(0.002)
        self.problems.append(f"not within {limit} s: {what}")
        return False

    def writes_checkpoint(self):
        folder = os.path.join(self.folder, "killed", "checkpoints")
        return os.path.isdir(folder) and any(name.endswith(".tmp") for name in os.listdir(folder))

    def wait_for_moment(self, moment, step):
        """Until the run has come to `step`, and further to the moment wanted there."""
        if moment == "starting":
            time.sleep(self.random.uniform(0, 1.2))
            return True
        if not self.wait_for(f"step {step}", lambda: self.progress()[1] >= step and self.progress()[2]):
            return False
        if moment == "training":
            time.sleep(self.random.uniform(0, 0.3))
            return True
        deadline = time.time() + 20
        while not self.writes_checkpoint():
            if time.time() > deadline or self.launch.poll() is not None:
                return self.launch.poll() is None
        time.sleep(self.random.uniform(0, 0.0015))
        return True

    def kill(self, target):
        """Whether somebody was hit."""
        if target == "launch":
            victim = self.launch.pid
        else:
            victims = self.processes(True)[target]
            if not victims:
                return False
            victim = self.random.choice(victims)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return False
        if target == "launch":
            self.launch.wait()
            self.start()
        return True

    def check_checkpoints(self):
        """All that are there are whole; those that rotation removes meanwhile do not count."""
        folder = os.path.join(self.folder, "killed", "checkpoints")
        names = [name for name in os.listdir(folder) if name.endswith(".h5")] if os.path.isdir(folder) else []
        for name in names:
            path = os.path.join(folder, name)
            result = subprocess.run([self.convoy, "inspect", path], capture_output=True, text=True, timeout=60,
                                    check=False)
            if result.returncode != 0 and os.path.exists(path):
                self.problems.append(f"{name} is not whole: {result.stderr.strip()}")
        return len(names)

    def soak(self, total_steps):
        self.start()
        moments = [self.random.choice(self.options.moments) for _ in range(self.options.kills)]
        for number, moment in enumerate(moments, 1):
            target = self.random.choice(self.options.targets)
            step = int(total_steps * 0.9 * (number - 1) / self.options.kills)
            if not self.wait_for_moment(moment, step):
                return
            starts, at, _ = self.progress()
            mpirun = self.processes(True)["mpirun"]
            writing = self.writes_checkpoint()
            while not self.kill(target):  # ranks that are not there yet
                time.sleep(self.random.uniform(0, 0.2))
                if self.launch.poll() is not None:
                    self.problems.append("the launch ended by itself")
                    return
            killed = time.time()
            self.kills[target] += 1
            self.kills["while a checkpoint was being written"] += writing
            self.kills["while ranks were starting"] += moment == "starting"
            print(f"kill {number}: {target}, {moment}, after step {at}{', checkpoint half written' if writing else ''}",
                  flush=True)
            if "starting" in moments[number:number + 1]:
                continue  # the next one comes while ranks are starting after this one
            ended = []

            def trains():
                if not ended and not (mpirun and runs(mpirun[0])):
                    ended.append(time.time())
                return self.progress()[0] > starts and self.progress()[2]
            if self.wait_for("the next step", trains):
                now = time.time()
                self.seconds_to_step.append(now - killed)
                if target == "rank" and mpirun and ended:
                    self.seconds_of_rank_kills.append(now - killed)
                    self.seconds_to_end.append(ended[0] - killed)
                    self.seconds_from_end.append(now - ended[0])
            self.check_checkpoints()
        try:
            code = self.launch.wait(3600)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            self.problems.append(f"the launch ended with exit code {code}")

    # -- what must hold at the end

    def left_segments(self):
        """Convoy's names in /dev/shm that were not there at the start; those of other runs go at once."""
        return sorted(name for name in set(os.listdir("/dev/shm")) - self.shared_memory if name.startswith("convoy"))

    def judge(self, expected):
        dry = subprocess.run([*self.undisturbed_words(), "--dry-run"], env=self.environment, capture_output=True, text=True,
                             timeout=120, check=True).stdout
        size = int(re.search(r"^data +(\d+) samples", dry, re.M).group(1))
        seed = int(re.search(r"^seed = (\d+)", dry, re.M).group(1))
        shuffle = re.search(r"^shuffle = (\w+)", dry, re.M).group(1) == "true"
        wanted = [event for event in expected if event["event"] == "step"]
        actual = [event for event in self.events("killed") if event["event"] == "step"]
        if [event["step"] for event in actual] != [event["step"] for event in wanted]:
            self.problems.append(f"{len(actual)} lines of steps, not each of the {len(wanted)} once in order")
        different = [a["step"] for a, w in zip(actual, wanted) if a["loss"] != w["loss"]]
        if different:
            self.problems.append(f"the losses of {len(different)} steps differ, from step {different[0]} on")
        for name, steps in (("killed", actual), ("undisturbed", wanted)):
            self.problems += [f"{name}: {text}" for text in sample_order.check_samples(steps, size, seed, shuffle)[:3]]
        files = self.check_checkpoints()
        deadline = time.time() + 5
        while (any(self.processes(False).values()) or self.left_segments()) and time.time() < deadline:
            time.sleep(0.05)
        if self.left_segments():
            self.problems.append(f"left in /dev/shm: {self.left_segments()}")
        left = {kind: pids for kind, pids in self.processes(False).items() if pids}
        if left:
            self.problems.append(f"left running: {left}")
        folder = os.path.join(self.folder, "killed")
        names = [name for name in os.listdir(os.path.join(folder, "checkpoints")) if not name.endswith(".h5")]
        names += [name for name in ("run.lock", "launch/leader.lock") if os.path.exists(os.path.join(folder, name))]
        names += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")
                  if name.startswith("convoy") or any(job in name + "." for job in self.jobs)]
        names += [os.path.join(path, name) for path, _, files in os.walk(self.temporary) for name in files]
        if names:
            self.problems.append(f"left lying: {names}")
        return files, len(actual)


def main():
    options = arguments()
    soak = Soak(options)
    expected, seconds = soak.undisturbed()
    total = max(event["step"] for event in expected if event["event"] == "step")
    print(f"undisturbed: {total} steps on {options.ranks} ranks in {seconds:.1f} s", flush=True)
    start = time.time()
    try:
        soak.soak(total)
        files, steps = soak.judge(expected)
    finally:
        if soak.launch.poll() is None:
            soak.launch.kill()
            soak.launch.wait()
    print(f"seed {options.seed}: {options.kills} kills in {time.time() - start:.1f} s: "
          + ", ".join(f"{count} {kind}" for kind, count in sorted(soak.kills.items())))
    if soak.seconds_to_step:
        print(f"from a kill to the next step of training: {spread(soak.seconds_to_step)}, "
              f"{len(soak.seconds_to_step)} kills")
    if soak.seconds_of_rank_kills:
        print(f"from the kill of a rank to the next step: {spread(soak.seconds_of_rank_kills)}, "
              f"{len(soak.seconds_of_rank_kills)} kills")
        print(f"  until mpirun has ended: {spread(soak.seconds_to_end)}")
        print(f"  from there to the step: {spread(soak.seconds_from_end)}")
    print(f"{steps} steps, {files} checkpoints on disk")
    for problem in soak.problems:
        print("FAILED: " + problem)
    if not soak.problems:
        print("completed; all checkpoints whole, losses bitwise equal, every sample once an epoch, nothing left")
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    main()
