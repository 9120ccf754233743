#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cuts the power after every write, sync and rename of a command, and runs the command again on what the disk may hold.

    tests/faults/power_loss.py [--scenario train|resume|pack] [--every N] [--jobs N] [--build DIR] [--folder DIR]

The preloaded library records what the command does to files; disk.py says which states the disk may be in after each
operation. From every state the same command must end with exit code 0 and the bits of the undisturbed run. A checkpoint
whose folder had been synced must be resumed from, or a later one. Prints the states that fail, and a count; exit code 0 when
there is none. States that are equal are tried once.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import os
import re
import shutil
import sys

from disk import Disk, lay_out, read_record
from io_faults import RIGHT, SCENARIOS, is_known, short
import programs


class PowerLoss:
    def __init__(self, scenario, folder):
        self.scenario, self.folder = scenario, os.path.abspath(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.template, undisturbed = os.path.join(self.folder, "template"), os.path.join(self.folder, "undisturbed")
        os.makedirs(self.template)
        scenario.prepare(self.template)
        shutil.copytree(self.template, undisturbed)
        self.disk = Disk(undisturbed)  # whose inodes are those of the record
        record = os.path.join(self.folder, "record")
        code, stderr = scenario.run(undisturbed, CONVOY_FAULT_RECORD=record)
        assert code == 0, stderr
        self.operations = read_record(record)
        self.expected = scenario.results(undisturbed)

    def states(self):
        """(where the power was cut, files, step of the newest checkpoint that is safe, folders), each once."""
        seen = set()
        for number, operation in enumerate([None, *self.operations]):
            if operation:
                self.disk.apply(operation)
            for name, state in self.disk.states().items():
                digest = hashlib.sha256(repr(sorted((path, hashlib.sha256(content).digest())
                                                    for path, content in state.items())).encode()).digest()
                if digest in seen:
                    continue
                seen.add(digest)
                where = f"after operation {number}" + (f" ({operation.kind} {operation.path})" if operation else "")
                yield f"{where}: {name}", state, self.safe_step(), set(self.disk.folders)

    def safe_step(self):
        names = [re.fullmatch(r".*/step-(\d{8})\.h5", path) for path, file in self.disk.safe_names.items() if not file.unsafe]
        return max((int(match.group(1)) for match in names if match), default=0)

    def judge(self, where, state, safe_step, folders, name):
        root = os.path.join(self.folder, name)
        shutil.rmtree(root, ignore_errors=True)
        lay_out(state, folders, root)
        if self.scenario.is_refused(root, self.expected):
            return RIGHT, ""
        before = self.scenario.progress(root)
        code, stderr = self.scenario.run(root, preload=False)
        if code != 0:
            return ("hang" if code is None else f"exit code {code}" if code > 0 else f"signal {-code}"), stderr
        if safe_step > 0:
            starts = [event["step"] for event in self.scenario.events(root) if event["event"] == "start"][before[0]:]
            if starts and starts[0] < safe_step:  # none: it had finished
                return f"resumed from step {starts[0]} though step {safe_step} was safe", stderr
        difference = self.scenario.difference(root, self.expected)
        return (f"other bits: {difference}" if difference else RIGHT), stderr

    def run(self, states, jobs=1, report=print):
        """(number of states by ending, the failed ones)."""
        counts, failed = collections.Counter(), []
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for start in range(0, len(states), jobs):
                several = states[start:start + jobs]
                work = [pool.submit(self.judge, *one, f"state-{number}") for number, one in enumerate(several)]
                for one, future in zip(several, work):
                    ending, stderr = future.result()
                    known = ending != RIGHT and is_known(self.scenario, one[0], ending)
                    counts["known: " + ending if known else ending] += 1
                    if ending != RIGHT and not known:
                        failed.append((one[0], ending, stderr))
                        report(f"FAILED {self.scenario.name}: {one[0]}: {ending}: {short(stderr)}")
        return counts, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", choices=("train", "resume", "pack"), help="default: all")
    parser.add_argument("--every", type=int, default=1, help="only every Nth state")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="states at a time")
    parser.add_argument("--folder", default="power_loss", help="where to run; it is emptied first")
    parser.add_argument("--build", help="the build folder (default: build)")
    options = parser.parse_args()
    programs.configure(options.build, None, None, None)
    failures = 0
    for name in options.scenario or ("train", "resume", "pack"):
        test = PowerLoss(SCENARIOS[name], os.path.join(options.folder, name))
        states = list(test.states())
        counts, failed = test.run(states[::options.every], options.jobs, lambda text: print(text, flush=True))
        failures += len(failed)
        print(f"{name}: power cut after each of {len(test.operations)} operations: {len(states)} states of the disk, "
              f"{sum(counts.values())} tried: " + ", ".join(f"{count} {ending}" for ending, count in sorted(counts.items())),
              flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
