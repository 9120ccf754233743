#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws one training step of a trace that convoy wrote, as PNG and SVG.

Each rank has a row of what it computes: forwards, backwards (or their halves, the gradients of inputs and of weights)
with the number of the microbatch, the sum of gradients, the optimizer's step; the parts of these in which it waits for
another rank are hatched. Thin lines below it show what it waits for and what is under way beside it. The bubble, the
share of the ranks' time without computation, is in the title. The simulator's prediction goes below, on the same scale
of time.
Needs matplotlib (Debian: python3-matplotlib).
"""
import argparse
import collections
import json
import math
import os
import re
import sys

# Okabe and Ito's colours and tints of them, apart in lightness as well, for print without colour and colour-blind eyes.
# A kind has one per chunk, dark to light; the fourth chunk starts over.
COLORS = {
    "F": ("#2f6fb0", "#7fb2de", "#c3dcf1"),
    "B": ("#0b7a5e", "#59b397", "#b4dfd0"),
    "I": ("#0b7a5e", "#59b397", "#b4dfd0"),
    "W": ("#e0a100", "#f2c95c", "#fae7b5"),
    "Reduce": ("#b05a8c",),
    "Step": ("#4d4d4d",),
    "other": ("#d9d9d9",),
}
KINDS = {"F": "forward", "B": "backward", "I": "backward: inputs", "W": "backward: weights",
         "Reduce": "reduction of gradients", "Step": "optimizer step", "other": "other"}
STRIPS = {"wait": "#9a9a9a", "send": "#d55e00", "receive": "#882255", "reduce": "#cc79a7", "data": "#7a5c1e",
          "checkpoint": "#000000"}
STRIP_LABELS = {"wait": "waiting", "send": "send under way", "receive": "receive under way",
                "reduce": "reduction under way", "data": "reading data", "checkpoint": "checkpoint"}
NAME = re.compile(r"([FBIW])(\d+)(?:\.(\d+))?$")

COMPUTE_INCHES = 0.30  # of a row of boxes
STRIP_INCHES = 0.055   # of a thin line
GAP_INCHES = 0.13      # between ranks
WIDTH_INCHES = 11.0
MARGIN_LEFT, MARGIN_RIGHT = 1.45, 0.25
LABEL_POINTS = 7.0

Event = collections.namedtuple("Event", "rank track name step start end")  # milliseconds


class Problem(Exception):
    """One sentence for the user."""


class Trace:
    def __init__(self, path):
        self.path = path
        self.ranks = {}  # pid: name
        self.events = []
        self.dropped = 0
        order = {}
        for item in self._items(path):
            if item["ph"] not in ("M", "X"):
                continue
            pid = item["pid"]
            if item["ph"] == "M":
                if item["name"] == "process_name":
                    self.ranks[pid] = str(item["args"]["name"])
                elif item["name"] == "process_sort_index":
                    order[pid] = float(item["args"]["sort_index"])
            else:
                start, length = float(item["ts"]) / 1000, float(item["dur"]) / 1000
                if not (math.isfinite(start) and math.isfinite(length) and length >= 0):
                    raise ValueError("a time that is none")
                self.events.append(Event(pid, str(item.get("cat", "compute")), str(item["name"]),
                                         int(item.get("args", {}).get("step", 0)), start, start + length))
                self.ranks.setdefault(pid, f"rank {pid}")
        self.ranks = dict(sorted(self.ranks.items(), key=lambda rank: (order.get(rank[0], rank[0]), rank[0])))
        if not any(event.track == "compute" for event in self.events):
            raise Problem(f"{path} is a trace without compute events; nothing to draw")

    def _items(self, path):
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
        except OSError as error:
            raise Problem(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, RecursionError):
            raise Problem(f"{path} is not a trace: it is not JSON") from None
        items = content.get("traceEvents") if isinstance(content, dict) else None
        if not isinstance(items, list):
            raise Problem(f'{path} is not a trace: it has no list "traceEvents"')
        other = content.get("otherData")
        if isinstance(other, dict) and isinstance(other.get("dropped_events"), list):
            self.dropped = sum(count for count in other["dropped_events"] if isinstance(count, int))
        return items

    @classmethod
    def read(cls, path):
        try:
            return cls(path)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise Problem(f"{path} is not a trace that convoy wrote: an event lacks a part or has a wrong"
                          " one") from None


def steps_of(trace):
    """{step: {rank: compute events}}; what follows the optimizer's step (an evaluation) is not of the training step."""
    steps = collections.defaultdict(lambda: collections.defaultdict(list))
    for event in trace.events:
        if event.track == "compute":
            steps[event.step][event.rank].append(event)
    for ranks in steps.values():
        for rank, events in ranks.items():
            ends = [event.end for event in events if event.name == "Step"]
            if ends:
                events = [event for event in events if event.end <= max(ends)]
            ranks[rank] = outermost(events)
    return steps


def outermost(events):
    kept, end = [], -math.inf
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        if event.end > end or not kept:
            kept.append(event)
            end = event.end
    return kept


def last_complete(steps, path):
    """The last step in which every rank does as much as it mostly does."""
    counts = collections.defaultdict(collections.Counter)
    for ranks in steps.values():
        for rank, events in ranks.items():
            counts[rank][len(events)] += 1
    usual = {rank: max(count.items(), key=lambda item: (item[1], item[0]))[0] for rank, count in counts.items()}
    for step in sorted(steps, reverse=True):
        if all(len(steps[step].get(rank, ())) >= usual[rank] for rank in usual):
            return step
    raise Problem(f"{path} has no complete step; choose one of {span_of(steps)} with --step")


def span_of(steps):
    return f"{min(steps)} to {max(steps)}" if len(steps) > 1 else str(min(steps))


Picture = collections.namedtuple("Picture", "ranks compute strips tracks length")


def picture_of(trace, step):
    """What one step shows, from the first start of a computation to the last end, at time 0 and on."""
    steps = steps_of(trace)
    if step is None:
        step = last_complete(steps, trace.path)
    elif step not in steps:
        raise Problem(f"{trace.path} has no step {step}; it has {span_of(steps)}")
    compute = steps[step]
    zero = min(event.start for events in compute.values() for event in events)
    end = max(event.end for events in compute.values() for event in events)
    if end <= zero:
        raise Problem(f"step {step} of {trace.path} takes no time; nothing to draw")
    strips = []
    for event in trace.events:
        mine = compute.get(event.rank)
        if event.track not in STRIPS or not mine:
            continue
        here = event.end > mine[0].start and event.start < mine[-1].end
        if (event.step == step or here) and event.end > zero and event.start < end:
            strips.append(event._replace(start=max(event.start, zero) - zero, end=min(event.end, end) - zero))
    moved = {rank: [event._replace(start=event.start - zero, end=event.end - zero) for event in events]
             for rank, events in compute.items()}
    tracks = [track for track in STRIPS if any(event.track == track for event in strips)]
    ranks = {pid: name for pid, name in trace.ranks.items() if pid in moved}
    return step, Picture(ranks, moved, strips, tracks, end - zero)


def waits_within(picture, rank):
    """[(start, end)] of the parts of this rank's actions in which it waits for another rank, in order."""
    waits = sorted((event.start, event.end) for event in picture.strips if event.rank == rank and event.track == "wait")
    parts, end = [], -math.inf
    for action in picture.compute[rank]:
        for start, stop in waits:
            start, stop = max(start, action.start, end), min(stop, action.end)
            if start < stop:
                parts.append((start, stop))
                end = stop
    return parts


def bubble_of(picture):
    """The share of the ranks' time in the step in which they compute nothing."""
    busy = sum(sum(event.end - event.start for event in events) - sum(end - start for start, end in
                                                                       waits_within(picture, rank))
               for rank, events in picture.compute.items())
    return 1 - busy / (picture.length * len(picture.compute))


def kind_of(name):
    """(kind, microbatch or None, chunk)"""
    match = NAME.match(name)
    if match:
        return match[1], match[2], int(match[3] or 0)
    return (name if name in ("Reduce", "Step") else "other"), None, 0


def color_of(kind, chunk):
    return COLORS[kind][chunk % len(COLORS[kind])]


def ink_on(color):
    red, green, blue = (int(color[i:i + 2], 16) for i in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else "#222222"


def row_inches(picture):
    return COMPUTE_INCHES + STRIP_INCHES * len(picture.tracks) + GAP_INCHES


def milliseconds(time):
    return f"{time:.{max(0, 3 - len(str(int(time))))}f} ms"


def draw(axes, picture, span, title):
    """Vertical units are inches, so that rows are alike in both panels."""
    height = row_inches(picture)
    points_per_ms = (WIDTH_INCHES - MARGIN_LEFT - MARGIN_RIGHT) * 72 / span
    strips = collections.defaultdict(list)
    for event in picture.strips:
        strips[event.rank, event.track].append((event.start, event.end - event.start))
    ticks = []
    for index, pid in enumerate(picture.ranks):
        top = index * height + GAP_INCHES / 2
        ticks.append(top + (height - GAP_INCHES) / 2)
        axes.axhspan(top, top + height - GAP_INCHES, color="#f5f5f5", linewidth=0, zorder=0)
        for event in picture.compute[pid]:
            kind, microbatch, chunk = kind_of(event.name)
            color = color_of(kind, chunk)
            width = (event.end - event.start) * points_per_ms
            axes.broken_barh([(event.start, event.end - event.start)], (top, COMPUTE_INCHES), facecolor=color,
                             edgecolor="white", linewidth=min(0.6, width / 10), zorder=2)
            label = microbatch if microbatch is not None else event.name
            # Lengths of digits and letters in this font, and a little air on both sides.
            if len(label) * LABEL_POINTS * 0.62 + 2 <= width:
                axes.text((event.start + event.end) / 2, top + COMPUTE_INCHES / 2, label, ha="center",
                          va="center_baseline", fontsize=LABEL_POINTS, color=ink_on(color), zorder=3, clip_on=True,
                          parse_math=False)
        waits = [(start, end - start) for start, end in waits_within(picture, pid)]
        axes.broken_barh(waits, (top, COMPUTE_INCHES), facecolor="#ffffff", edgecolor=STRIPS["wait"], hatch="//////",
                         linewidth=0, zorder=2.5)
        for line, track in enumerate(picture.tracks):
            axes.broken_barh(strips[pid, track], (top + COMPUTE_INCHES + (line + 0.15) * STRIP_INCHES,
                                                  0.7 * STRIP_INCHES), facecolor=STRIPS[track], linewidth=0, zorder=2)
    axes.set_yticks(ticks)
    axes.set_yticklabels([name.replace(" (", "\n(", 1) for name in picture.ranks.values()], fontsize=7.5,
                         parse_math=False)
    axes.set_ylim(len(picture.ranks) * height, 0)
    axes.set_xlim(0, span)
    axes.axvline(picture.length, color="#222222", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", pad=5)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8, color="#888888")
    axes.grid(axis="x", color="#dddddd", linewidth=0.5, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#888888")


def legend_of(pictures, patch):
    found = collections.defaultdict(set)
    for picture in pictures:
        for events in picture.compute.values():
            for event in events:
                kind, _, chunk = kind_of(event.name)
                found[kind].add(chunk)
    entries = []
    for kind, text in KINDS.items():
        for chunk in sorted(found[kind])[:len(COLORS[kind])]:
            several = kind in "FBIW" and len(found[kind]) > 1
            entries.append(patch(color_of(kind, chunk), f"{text}, chunk {chunk}" if several else text))
    tracks = [track for track in STRIPS if any(track in picture.tracks for picture in pictures)]
    return entries + [patch(STRIPS[track], STRIP_LABELS[track]) for track in tracks]


def plot(measured, simulated, step, output):
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
        from matplotlib.patches import Patch
    except ImportError as error:
        raise Problem(f"drawing needs matplotlib (Debian: python3-matplotlib): {error}") from None
    matplotlib.rcParams["svg.hashsalt"] = "convoy"  # the same picture has the same bytes

    panels = [(measured, f"Measured: step {step}, {milliseconds(measured.length)}, bubble {bubble_of(measured):.1%}")]
    if simulated:
        ratio = measured.length / simulated.length - 1
        compared = f"measured takes {abs(ratio):.1%} {'longer' if ratio >= 0 else 'less'}"
        panels.append((simulated, f"Simulated: {milliseconds(simulated.length)}, bubble {bubble_of(simulated):.1%} ({compared})"))
    span = 1.005 * max(picture.length for picture, _ in panels)
    entries = legend_of([picture for picture, _ in panels],
                        lambda color, text: Patch(facecolor=color, edgecolor="none", label=text))
    columns = min(5, len(entries))
    legend_inches = 0.06 + 0.175 * math.ceil(len(entries) / columns)
    heights = [len(picture.ranks) * row_inches(picture) for picture, _ in panels]
    between, above, below = 0.55, 0.38, 0.48 + legend_inches
    total = sum(heights) + between * (len(panels) - 1) + above + below

    figure = pyplot.figure(figsize=(WIDTH_INCHES, total))
    top = total - above
    for (picture, title), height in zip(panels, heights):
        top -= height
        axes = figure.add_axes((MARGIN_LEFT / WIDTH_INCHES, top / total,
                                (WIDTH_INCHES - MARGIN_LEFT - MARGIN_RIGHT) / WIDTH_INCHES, height / total))
        draw(axes, picture, span, title)
        top -= between
    axes.set_xlabel("time since the first computation of the step (ms)", fontsize=8.5)
    figure.legend(handles=entries, loc="lower center", ncol=columns, fontsize=8, frameon=False, handlelength=1.4,
                  bbox_to_anchor=(0.5, 0.04 / total), borderaxespad=0, columnspacing=1.6)
    for path in (output + ".png", output + ".svg"):
        try:
            figure.savefig(path, dpi=min(200, 30000 / total), metadata={"Date": None} if path.endswith("svg") else None)
        except OSError as error:
            raise Problem(f"cannot write {path}: {error.strerror}") from None


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Problem(message)


def main():
    parser = Parser(prog="plot_trace", description="draws one training step of a trace as PNG and SVG")
    parser.add_argument("trace", metavar="TRACE.json", help="what convoy wrote")
    parser.add_argument("--simulated", metavar="SIMULATED.json", help="the simulator's prediction of the same step")
    parser.add_argument("--step", type=int, metavar="N", help="which step (default: the last complete one)")
    parser.add_argument("-o", "--output", metavar="OUT", help="writes OUT.png and OUT.svg (default: beside the trace)")
    arguments = parser.parse_args()
    output = arguments.output or re.sub(r"\.json$", "", arguments.trace)
    output = re.sub(r"\.(png|svg)$", "", output)

    trace = Trace.read(arguments.trace)
    step, measured = picture_of(trace, arguments.step)
    simulated = picture_of(Trace.read(arguments.simulated), None)[1] if arguments.simulated else None
    plot(measured, simulated, step, output)
    if trace.dropped:
        print(f"plot_trace: note: the recorder was full; {trace.dropped} events are missing", file=sys.stderr)
    print(f"{output}.png {output}.svg")


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        print(f"plot_trace: {problem}", file=sys.stderr)
        sys.exit(2)
