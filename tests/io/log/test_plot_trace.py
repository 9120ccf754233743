# SPDX-License-Identifier: Apache-2.0
"""scripts/plot_trace.py: it draws a small trace, chooses the right step, and says in a line what is wrong with others.

Skipped when matplotlib is missing (Debian: python3-matplotlib).
"""
import json
import os
import subprocess
import sys

import pytest

from programs import ROOT

pytest.importorskip("matplotlib")

PLOT = os.path.join(ROOT, "scripts", "plot_trace.py")


def event(rank, track, name, step, start, end):
    return {"ph": "X", "pid": rank, "tid": 0, "cat": track, "name": name, "ts": start * 1e3, "dur": (end - start) * 1e3,
            "args": {"step": step}}


def trace(steps, cut=False, length=60):
    """Two ranks, steps of `length` ms, one evaluation after each; with `cut`, rank 1's last step lacks its end."""
    events = []
    for rank in range(2):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0,
                       "args": {"name": f"rank {rank} (\u00fcber & <{rank}> $\\frac$)"}})
    for number, step in enumerate(steps):
        at = number * 2 * length
        for rank in range(2):
            events += [event(rank, "wait", "RA0", step, at, at + 1),
                       event(rank, "compute", "F0", step, at, at + 10),
                       event(rank, "compute", "conv1", step, at + 1, at + 2),  # within F0
                       event(rank, "compute", "F0.1", step, at + 10, at + 20),
                       event(rank, "send", "SA0", step, at + 10, at + 12),
                       event(rank, "send", "SA1", step, at + 11, at + 14)]
            if cut and rank == 1 and step == steps[-1]:
                continue
            events += [event(rank, "compute", "I0.1", step, at + 20, at + 30),
                       event(rank, "compute", "W0.1", step, at + 30, at + 40),
                       event(rank, "compute", "B0", step, at + 40, at + 50),
                       event(rank, "reduce", "bucket 0", step, at + 45, at + 52),
                       event(rank, "data", "batch", step, at - 3, at + 4),
                       event(rank, "compute", "Reduce", step, at + 50, at + 55),
                       event(rank, "compute", "Step", step, at + 55, at + length),
                       event(rank, "compute", "F0", step, at + length, at + 2 * length)]
    return {"displayTimeUnit": "ms", "traceEvents": events, "otherData": {"dropped_events": [0, 3]}}


def plot(*arguments):
    return subprocess.run([sys.executable, PLOT, *arguments], capture_output=True, text=True)


def write(path, content):
    with open(path, "w", encoding="utf-8") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return path


def draws(output, *arguments):
    """Draws, and returns the text of the SVG; its glyphs are named in comments."""
    result = plot(*arguments)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{output}.png {output}.svg\n", result.stdout
    with open(output + ".png", "rb") as file:
        png = file.read()
    assert png.startswith(b"\x89PNG") and len(png) > 10000, len(png)
    with open(output + ".svg", encoding="utf-8") as file:
        svg = file.read()
    assert svg.rstrip().endswith("</svg>"), svg[-100:]
    os.remove(output + ".png")
    os.remove(output + ".svg")
    return svg, result.stderr


def is_error(part, *arguments):
    result = plot(*arguments)
    assert result.returncode == 2, (arguments, result)
    assert result.stderr.startswith("plot_trace: ") and result.stderr.count("\n") == 1, result.stderr
    assert part in result.stderr, (part, result.stderr)


@pytest.fixture
def good():
    return write("trace.json", trace([3, 4, 5], cut=True))


def test_draws_the_last_complete_step(good):
    """The last one that all ranks completed, without the evaluation after it."""
    svg, notes = draws("trace", good)
    assert "Measured: step 4, 60.0 ms" in svg
    assert "3 events are missing" in notes


def test_waits_within_actions_are_hatched_and_the_bubble_is_printed(good):
    sys.path.insert(0, os.path.dirname(PLOT))
    import plot_trace
    step, picture = plot_trace.picture_of(plot_trace.Trace(good), None)
    assert plot_trace.waits_within(picture, 0) == [(0, 1)]  # RA0, at the start of F0
    assert plot_trace.bubble_of(picture) == pytest.approx(1 / 60)  # one of 60 ms on each rank
    svg, _ = draws("trace", good)
    assert "bubble 1.7%" in svg and 'id="h' in svg  # the pattern of the hatching


def test_draws_a_chosen_step(good):
    assert "Measured: step 3, 60.0 ms" in draws("out", good, "--step", "3", "-o", "out")[0]


def test_output_with_a_suffix(good):
    assert "Measured: step 5" in draws("out", good, "--step", "5", "-o", "out.png")[0]


def test_draws_measured_and_simulated(good):
    simulated = write("simulated.json", trace([0], length=58))
    svg = draws("both", good, "--simulated", simulated, "-o", "both")[0]
    assert "Simulated: 58.0 ms, bubble 1.7% (measured takes 3.4% longer)" in svg


@pytest.mark.parametrize("words, arguments", (
    pytest.param("No such file", ["absent.json"], id="no_trace"),
    pytest.param("No such file", ["trace.json", "--simulated", "absent.json"], id="no_simulation"),
    pytest.param("has no step 9; it has 3 to 5", ["trace.json", "--step", "9"], id="no_such_step"),
    pytest.param("invalid int value", ["trace.json", "--step", "last"], id="step_is_a_word"),
    pytest.param("required", ["--step", "3"], id="no_arguments"),
    pytest.param("cannot write", ["trace.json", "-o", "absent/out"], id="no_folder")))
def test_wrong_arguments_are_an_error(good, words, arguments):
    is_error(words, *arguments)


RIGHT = event(0, "compute", "F0", 0, 0, 1)


@pytest.mark.parametrize("words, content", (
    pytest.param("not JSON", "no JSON", id="text"),
    pytest.param("not JSON", json.dumps(trace([1]))[:-100], id="cut"),
    pytest.param("traceEvents", [], id="list"),
    pytest.param("traceEvents", {"steps": 3}, id="other"),
    pytest.param("nothing to draw", {"traceEvents": []}, id="empty"),
    pytest.param("an event", {"traceEvents": [{"ph": "X"}]}, id="event_without_name"),
    pytest.param("an event", {"traceEvents": [7]}, id="event_is_a_number"),
    pytest.param("an event", {"traceEvents": [{**RIGHT, "ts": "soon"}]}, id="time_is_a_word"),
    pytest.param("an event", {"traceEvents": [{**RIGHT, "dur": -1}]}, id="negative_duration"),
    pytest.param("an event", {"traceEvents": [{**RIGHT, "pid": []}]}, id="rank_is_a_list"),
    pytest.param("takes no time", {"traceEvents": [event(0, "compute", "F0", 0, 1, 1)]}, id="no_time")))
def test_what_is_no_trace_is_an_error(words, content):
    is_error(words, write("wrong.json", content))
