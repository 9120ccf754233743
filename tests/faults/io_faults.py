#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails each system call of a command on its files once, and judges how the command ends.

    tests/faults/io_faults.py [--scenario NAME]... [--every N] [--jobs N] [--only TEXT] [--build DIR] [--folder DIR]

A scenario is a command in a folder. It runs once undisturbed, while the preloaded library (fault_plan.h) lists its calls.
Then it runs again for every call and every way to fail. A case ends well in two ways:

    right bits    exit code 0, and results as those of the undisturbed run
    one line      one error line, exit code 1, and the same command then ends with the right bits

Everything else is a failure: a crash, a hang, another exit code, other results (silent loss), a run that starts at step 0
though checkpoints were there. Prints the failed cases and a table of counts; exit code 0 when no case failed.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import time

import h5py

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "app", "behaviour")]
import programs  # noqa: E402
from behaviour import config, error_lines, kill_tree, toml  # noqa: E402

LIMIT = 60  # seconds: of a command that takes one
STEPS, SAMPLES = 6, {"train": 96, "validation": 20}  # of the training

# How a call may fail. Those that POSIX lets a signal interrupt, and those that need room, also fail in these ways.
INTERRUPTED = {"open", "close", "read", "write", "sync", "truncate", "flock"}
NEEDS_ROOM = {"open", "close", "write", "sync", "truncate", "rename", "link", "mkdir"}
PARTIAL = {"read", "write"}

RIGHT, LINE, UNREACHED = "right bits", "one line", "not reached"


@dataclasses.dataclass(frozen=True)
class Case:
    call: str
    path: str  # a pattern
    number: int
    error: str

    def __str__(self):
        return f"{self.call} {self.path} #{self.number} {self.error}"


# Cases that are known to fail: patterns of the scenario, of the case and of how it ends. They are counted apart.
KNOWN = []


def is_known(scenario, case, ending):
    return any(all(map(fnmatch.fnmatchcase, (scenario.name, str(case), ending), known)) for known in KNOWN)


class Scenario:
    """A command in a folder, and what it makes there."""
    name = command = ""
    rank = ""
    words = ()
    launcher = ()

    def prepare(self, folder):
        """Fills the empty folder."""

    def results(self, folder):
        """What must be equal: {part: value}."""
        raise NotImplementedError

    def difference(self, folder, expected):
        """The parts that are not as expected."""
        actual = self.results(folder)
        return ", ".join(part for part in sorted({*expected, *actual}) if actual.get(part) != expected.get(part))

    def is_refused(self, folder, expected):
        """Whether the command has nothing to do in this folder, and says so: it has ended with the right bits."""
        return False

    def started_over(self, folder, before):
        """Whether a run began at step 0 though there were checkpoints; `before` is what progress() was before it."""
        return False

    def progress(self, folder):
        return None

    def run(self, folder, preload=True, **variables):
        """(exit code or None for a hang, stderr)."""
        environment = {**os.environ, **programs.MPI_ENVIRONMENT, "OMP_NUM_THREADS": "1"}
        if preload:
            environment |= {"CONVOY_FAULT_ROOT": folder, "CONVOY_FAULT_COMMAND": self.command,
                            "CONVOY_FAULT_RANK": self.rank, **variables}
            environment["LD_PRELOAD"] = programs.helper_program("faults", "libconvoy_faults.so")
        words = [*(programs.MPIRUN if word == "MPIRUN" else word for word in self.launcher), programs.CONVOY, *self.words]
        with open(folder + ".err", "w+") as err, open(folder + ".out", "w") as out:
            process = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=err, start_new_session=True)
            try:
                code = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                kill_tree(process)
                code = None
            err.seek(0)
            return code, err.read()


def few_digits(path):
    """The first of the handwritten digits, so that a run reads little."""
    with h5py.File(programs.DIGITS) as source, h5py.File(path, "w") as file:
        for group, count in SAMPLES.items():
            for name in ("images", "labels"):
                file[f"{group}/{name}"] = source[f"{group}/{name}"][:count]
            for key, value in source[group].attrs.items():
                file[group].attrs[key] = value


def checkpoint_bits(path):
    """All that the file holds, but the time of its making."""
    found = {}
    with h5py.File(path) as file:
        found.update((name, str(value)) for name, value in file.attrs.items() if name not in ("created", "run", "evaluation_due"))
        file.visititems(lambda name, item: found.__setitem__(
            name, (item.shape, item[()].tobytes()) if isinstance(item, h5py.Dataset) else None))
    return found


class Train(Scenario):
    """Six steps with three checkpoints, from staged data, and an evaluation."""
    name, command, words = "train", "train", ("train", "run.toml")

    def prepare(self, folder):
        few_digits(os.path.join(folder, "digits.h5"))
        sections = config({"name": "mlp", "hidden": [8]}, train={"steps": STEPS, "eval_every_epochs": 0},
                          data={"train": "digits.h5:/train", "validation": "digits.h5:/validation", "stage_dir": "stage"},
                          checkpoint={"every_steps": 2, "keep": 2}, log={"tensorboard": True})
        with open(os.path.join(folder, "run.toml"), "w") as file:
            file.write(toml(sections))

    @staticmethod
    def events(folder):
        """Of metrics.jsonl, but lines that a fault has cut."""
        events = []
        with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, "runs", "run", "metrics.jsonl"), "rb") as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    events.append(json.loads(line, parse_float=str))
        return events

    @staticmethod
    def checkpoints(folder):
        place = os.path.join(folder, "runs", "run", "checkpoints")
        names = sorted(os.listdir(place)) if os.path.isdir(place) else []
        return {name: os.path.join(place, name) for name in names if re.fullmatch(r"step-\d{8}\.h5", name)}

    def results(self, folder):
        """Every step once and in order, the evaluation, and the last checkpoint."""
        keys = ("step", "epoch", "position", "samples", "samples_crc32c", "loss", "lr", "top1")
        lines = {kind: [[event.get(key) for key in keys] for event in self.events(folder) if event["event"] == kind]
                 for kind in ("step", "eval")}
        last = self.checkpoints(folder).get(f"step-{STEPS:08d}.h5")
        return {"steps": lines["step"], "evaluation": lines["eval"], "checkpoint": last and checkpoint_bits(last)}

    def progress(self, folder):
        return sum(event["event"] == "start" for event in self.events(folder)), bool(self.checkpoints(folder))

    def started_over(self, folder, before):
        starts, had_checkpoints = before
        new = [event["step"] for event in self.events(folder) if event["event"] == "start"][starts:]
        place = os.path.join(folder, "runs", "run", "checkpoints")
        aside = os.path.isdir(place) and [name for name in os.listdir(place) if name.endswith(".superseded")]
        return had_checkpoints and (0 in new or bool(aside))


class Resume(Train):
    """The same, resumed from its second checkpoint, as if it had been killed then."""
    name = "resume"

    def prepare(self, folder):
        super().prepare(folder)
        code, stderr = Train.run(self, folder, preload=False)
        assert code == 0, stderr
        os.remove(self.checkpoints(folder)[f"step-{STEPS:08d}.h5"])


class Ranks(Train):
    """Rank 0 of two: the other learns of every error."""
    name, rank, launcher = "ranks", "0", ("MPIRUN", "-n", "2")


class OtherRank(Ranks):
    """Rank 1 of two."""
    name, rank = "other_rank", "1"


class Launch(Train):
    """The supervisor of the training."""
    name, command = "launch", "launch"
    words = ("launch", "--nproc-per-node", "1", "--", "train", "run.toml")


class Pack(Scenario):
    """From a data file to two shards, in a new order."""
    name, command = "pack", "pack"
    words = ("pack", "digits.h5:/train", "packed.h5", "--shards", "2", "--shuffle", "1", "--threads", "1", "--progress", "off")

    def prepare(self, folder):
        few_digits(os.path.join(folder, "digits.h5"))

    def results(self, folder):
        files = {}
        for name in sorted(os.listdir(folder)):
            if name.startswith("packed") and name.endswith(".h5"):
                with open(os.path.join(folder, name), "rb") as file:
                    files[name] = file.read()
        return files

    def is_refused(self, folder, expected):
        """A finished file is not replaced without --force."""
        return not self.difference(folder, expected)


SCENARIOS = {scenario.name: scenario for scenario in (Train(), Resume(), Pack(), Launch(), Ranks(), OtherRank())}


def pattern_of(path):
    """Without what differs from run to run: tokens and times in names."""
    path = re.sub(r"(?<=tfevents)\..*", "*", path)
    return re.sub(r"(?<=[-.])[0-9a-f]{16,24}(?=[./]|$)", lambda token: "?" * len(token.group()), path)


def ways_to_fail(call):
    return (["EIO"] + ["ENOSPC"] * (call in NEEDS_ROOM) + ["EINTR"] * (call in INTERRUPTED) + ["short"] * (call in PARTIAL))


def list_cases(calls):
    """Of the (name, path) of all calls: every one of them, in every way."""
    counts = collections.Counter((call, pattern_of(path)) for call, path in calls)
    return [Case(call, pattern, number, error) for (call, pattern), count in sorted(counts.items())
            for error in ways_to_fail(call) for number in range(1, count + 1)]


class Harness:
    """The cases of one scenario."""

    def __init__(self, scenario, folder):
        self.scenario, self.folder = scenario, os.path.abspath(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.template = self._path("template")
        os.makedirs(self.template)
        scenario.prepare(self.template)
        undisturbed, log = self._copy("undisturbed"), self._path("calls.txt")
        code, stderr = scenario.run(undisturbed, CONVOY_FAULT_LOG=log)
        assert code == 0, f"{scenario.name}, undisturbed: exit code {code}\n{stderr}"
        with open(log) as file:
            self.cases = list_cases(line.rstrip("\n").split("\t") for line in file)
        self.expected = scenario.results(undisturbed)

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _copy(self, name):
        shutil.rmtree(self._path(name), ignore_errors=True)
        shutil.copytree(self.template, self._path(name))
        return self._path(name)

    def judge(self, case, name="case"):
        """(how it ended, what stderr said)."""
        folder, fired = self._copy(name), self._path(name + ".fired")
        if os.path.exists(fired):
            os.remove(fired)
        before = self.scenario.progress(folder)
        code, stderr = self.scenario.run(
            folder, CONVOY_FAULT_CALL=case.call, CONVOY_FAULT_PATH=case.path, CONVOY_FAULT_NUMBER=str(case.number),
            CONVOY_FAULT_ERROR=case.error, CONVOY_FAULT_FIRED=fired)
        if not os.path.exists(fired):
            return (UNREACHED if code == 0 else f"exit code {code} without the fault"), stderr
        if self.scenario.started_over(folder, before):
            return "started over", stderr
        if code == 0:
            difference = self.scenario.difference(folder, self.expected)
            return (f"silent loss: {difference}" if difference else RIGHT), stderr
        if code != 1:
            return ("hang" if code is None else f"exit code {code}" if code > 0 else f"signal {-code}"), stderr
        lines = error_lines(stderr)
        if len(lines) != 1:
            return f"{len(lines)} error lines", stderr
        before = self.scenario.progress(folder)
        code, again = self.scenario.run(folder, preload=False)
        stderr += "--- again:\n" + again
        if code != 0:
            return "does not continue: " + ("hang" if code is None else f"exit code {code}"), stderr
        if self.scenario.started_over(folder, before):
            return "started over when it continued", stderr
        difference = self.scenario.difference(folder, self.expected)
        return (f"continues with other bits: {difference}" if difference else LINE), stderr

    def run(self, cases, jobs=1, report=print):
        """(number of cases by ending, the failed ones as (case, ending, stderr))."""
        counts, failed = collections.Counter(), []

        def one(numbered):
            number, case = numbered
            return case, *self.judge(case, f"case-{number}")
        # A worker's case has a folder of its own: at most `jobs` consecutive cases are at work, and their end in order.
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for start in range(0, len(cases), jobs):
                for case, ending, stderr in pool.map(one, enumerate(cases[start:start + jobs])):
                    good = ending in (RIGHT, LINE, UNREACHED)
                    known = not good and is_known(self.scenario, case, ending)
                    counts["known: " + ending if known else ending] += 1
                    if not good and not known:
                        failed.append((case, ending, stderr))
                    if not good:
                        report(f"{'known' if known else 'FAILED'} {self.scenario.name}: {case}: {ending}: {short(stderr)}")
        return counts, failed


def short(stderr):
    return " | ".join(line for line in stderr.splitlines() if line.startswith(("convoy", "---")))[:600]


def sample(cases, count):
    """About `count` of them, evenly, always the same."""
    step = max(1, round(len(cases) / count))
    return cases[step // 2::step]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="default: all")
    parser.add_argument("--every", type=int, default=1, help="only every Nth case")
    parser.add_argument("--only", default="", help="only cases that contain this text, such as 'sync runs/run'")
    parser.add_argument("--known", action="store_true", help="print the known failures, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at a time")
    parser.add_argument("--folder", default="io_faults", help="where to run; it is emptied first")
    parser.add_argument("--build", help="the build folder (default: build)")
    options = parser.parse_args()
    programs.configure(options.build, None, None, None)
    table, failures = {}, 0

    def show(text):
        if options.known or not text.startswith("known"):
            print(text, flush=True)

    for name in options.scenario or SCENARIOS:
        start = time.time()
        harness = Harness(SCENARIOS[name], os.path.join(options.folder, name))
        cases = [case for case in harness.cases if options.only in str(case)][::options.every]
        table[name], failed = harness.run(cases, options.jobs, show)
        failures += len(failed)
        print(f"{name}: {len(cases)} cases in {time.time() - start:.0f} s", flush=True)
    endings = [RIGHT, LINE] + sorted({ending for counts in table.values() for ending in counts} - {RIGHT, LINE})
    print("\n| scenario | cases | " + " | ".join(endings) + " |\n|---|" + "---:|" * (len(endings) + 1))
    for name, counts in table.items():
        print(f"| {name} | {sum(counts.values())} | " + " | ".join(str(counts[ending]) for ending in endings) + " |")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
