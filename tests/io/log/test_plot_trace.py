# SPDX-License-Identifier: Apache-2.0
"""scripts/plot_trace.py: it draws a small trace, chooses the right step, and says in a line what is wrong with others.

Exit code 77 when matplotlib is missing."""
import json
import os
import subprocess
import sys
import tempfile

try:
    import matplotlib  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing} (Debian: python3-matplotlib)")
    sys.exit(77)

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 3))
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


def main():
    with tempfile.TemporaryDirectory() as folder:
        def at(name):
            return os.path.join(folder, name)

        good = write(at("trace.json"), trace([3, 4, 5], cut=True))
        svg, notes = draws(at("trace"), good)
        assert "Measured: step 4, 60.0 ms" in svg  # the last complete one, without the evaluation after it
        assert "3 events are missing" in notes, notes
        assert "Measured: step 3, 60.0 ms" in draws(at("out"), good, "--step", "3", "-o", at("out"))[0]
        assert "Measured: step 5" in draws(at("out"), good, "--step", "5", "-o", at("out.png"))[0]
        simulated = write(at("simulated.json"), trace([0], length=58))
        svg = draws(at("both"), good, "--simulated", simulated, "-o", at("both"))[0]
        assert "Simulated: 58.0 ms (measured takes 3.4% longer)" in svg

        is_error("No such file", at("absent.json"))
        is_error("No such file", good, "--simulated", at("absent.json"))
        is_error("has no step 9; it has 3 to 5", good, "--step", "9")
        is_error("invalid int value", good, "--step", "last")
        is_error("required", "--step", "3")
        is_error("cannot write", good, "-o", at("absent/out"))
        is_error("not JSON", write(at("text.json"), "no JSON"))
        is_error("not JSON", write(at("cut.json"), json.dumps(trace([1]))[:-100]))
        is_error("traceEvents", write(at("list.json"), []))
        is_error("traceEvents", write(at("other.json"), {"steps": 3}))
        is_error("nothing to draw", write(at("empty.json"), {"traceEvents": []}))
        right = event(0, "compute", "F0", 0, 0, 1)
        for wrong in ({"ph": "X"}, 7, {**right, "ts": "soon"}, {**right, "dur": -1}, {**right, "pid": []}):
            is_error("an event", write(at("wrong.json"), {"traceEvents": [wrong]}))
        is_error("takes no time", write(at("point.json"), {"traceEvents": [event(0, "compute", "F0", 0, 1, 1)]}))
    print("traces are drawn, and what is no trace is refused")


main()
