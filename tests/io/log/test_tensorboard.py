# SPDX-License-Identifier: Apache-2.0
"""Reads an event file back with TensorBoard's own reader. Skipped when the package tensorboard is missing."""
import os
import subprocess

import pytest

from programs import helper_program

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorboard") / "events"
    os.mkdir(folder)
    subprocess.run([helper_program("io", "io_files"), "events", folder], check=True)
    events = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def test_tags(events):
    assert sorted(events.Tags()["scalars"]) == ["eval/top1", "train/loss"]


def test_steps(events):
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 181))


def test_values(events):
    for event in events.Scalars("train/loss"):
        assert abs(event.value * event.step - 1) < 1e-6, event


def test_single_value(events):
    assert [(event.step, event.value) for event in events.Scalars("eval/top1")] == [(180, 0.75)]
