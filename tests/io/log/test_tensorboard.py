# SPDX-License-Identifier: Apache-2.0
"""Reads an event file back with TensorBoard's own reader.

Usage: test_tensorboard.py IO_FILES. Exit code 77 when the package tensorboard is missing."""
import os
import shutil
import subprocess
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(f"skipped: {missing} (pip install tensorboard)")
    sys.exit(77)


def main():
    shutil.rmtree("events", ignore_errors=True)
    os.mkdir("events")
    subprocess.run([sys.argv[1], "events", "events"], check=True)
    events = EventAccumulator("events", size_guidance={"scalars": 0})
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["eval/top1", "train/loss"], events.Tags()
    losses = events.Scalars("train/loss")
    assert [event.step for event in losses] == list(range(1, 181)), len(losses)
    for event in losses:
        assert abs(event.value * event.step - 1) < 1e-6, event
    assert [(event.step, event.value) for event in events.Scalars("eval/top1")] == [(180, 0.75)]
    print("event file reads well with tensorboard")


main()
