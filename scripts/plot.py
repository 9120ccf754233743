#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the curves of training runs as PNG and SVG: loss, accuracy, learning rate, images per second, the busy time of
the ranks and what checkpoints took.

A RUN is a run's folder or its metrics.jsonl; several are drawn into the same pictures. `convoy report` makes one page of
the same numbers without Python. Needs matplotlib (Debian: python3-matplotlib).
"""
import argparse
import json
import math
import os
import sys

COLORS = ("#0072b2", "#c74e00", "#00855f", "#a8447f", "#8f6a00", "#2b8cbe", "#4a4f57", "#7a52c7")  # as Okabe and Ito's
SPANS = 50         # a smoothed curve looks back over this part of the steps
FEW_STEPS = 100    # fewer are drawn as they are
NAME_LENGTH = 32   # of a run, in a legend
WIDE_RANGE = 50    # largest over smallest value, from which on an axis is logarithmic


class Problem(Exception):
    """One sentence for the user."""


class Run:
    """Events by kind; those of steps that a later start took again are gone."""

    def __init__(self, path):
        folder = os.path.dirname(os.path.abspath(path)) if os.path.isfile(path) else os.path.abspath(path)
        name = os.path.basename(folder)
        self.name = name if len(name) <= NAME_LENGTH else name[:NAME_LENGTH - 1] + "\u2026"
        self.path = path if os.path.isfile(path) else os.path.join(path, "metrics.jsonl")
        self.events = {"start": [], "step": [], "eval": [], "health": [], "checkpoint": []}
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    self._take(line)
        except OSError as error:
            raise Problem(f"{path}: {error.strerror} (name a run's folder, such as runs/NAME)") from error
        if not self.events["step"] and not self.events["eval"]:
            raise Problem(f"{self.path}: no step is in it; nothing to draw")

    def _take(self, line):
        try:
            event = json.loads(line)
            kind, step = event["event"], event["step"]
        except (ValueError, KeyError, TypeError):
            return  # a line cut by a kill, or one that is no event of a step
        if kind not in self.events or not isinstance(step, int):
            return
        if kind == "start":
            for name in ("step", "eval", "health", "checkpoint"):
                self.events[name] = [old for old in self.events[name] if old["step"] <= step]
            if not event.get("resumed_from"):
                self.events["start"] = []
        self.events[kind].append(event)

    def curve(self, kind, key, of=lambda value: value):
        """Steps, and the values there; what is no number is NaN, a gap."""
        def number(event):
            try:
                return float(of(event[key]))
            except (KeyError, TypeError, IndexError, ValueError):
                return math.nan
        return [event["step"] for event in self.events[kind]], [number(event) for event in self.events[kind]]


def smoothed(values):
    """pandas' ewm(span=...).mean() over a fiftieth of the values."""
    keep, total, weight, result = 1 - 2 / (max(1.0, len(values) / SPANS) + 1), 0.0, 0.0, []
    for value in values:
        if math.isfinite(value):
            total, weight = total * keep + value, weight * keep + 1
        result.append(total / weight if math.isfinite(value) else math.nan)
    return result


def draw_curve(axes, curve, label, color):
    steps, values = curve
    if len(steps) >= FEW_STEPS:
        axes.plot(steps, values, color=color, alpha=0.3, linewidth=0.7)
        values = smoothed(values)
    axes.plot(steps, values, color=color, linewidth=1.6, label=label)


def draw_second(axes, curve, label, color):
    axes.plot(*curve, color=color, linestyle="--", marker=".", linewidth=1.1, label=label)


def loss(axes, run, color):
    draw_curve(axes, run.curve("step", "loss"), f"{run.name}, training", color)
    draw_second(axes, run.curve("eval", "loss"), f"{run.name}, validation", color)


def accuracy(axes, run, color):
    steps, top1 = run.curve("eval", "top1", lambda value: 100 * value)
    if any(value > 0 for value in top1):  # a regression has no hits
        axes.plot(steps, top1, color=color, linewidth=1.6, label=f"{run.name}, top-1")
        draw_second(axes, run.curve("eval", "top5", lambda value: 100 * value), f"{run.name}, top-5", color)


def learning_rate(axes, run, color):
    axes.plot(*run.curve("step", "lr"), color=color, linewidth=1.6, label=run.name)


def speed(axes, run, color):
    draw_curve(axes, run.curve("step", "images_per_second"), run.name, color)


def ranks(axes, run, color):
    steps, low = run.curve("health", "busy_s", lambda value: value[0])
    if steps:
        high, median = (run.curve("health", "busy_s", lambda value, i=i: value[i])[1] for i in (2, 1))
        axes.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
        axes.plot(steps, median, color=color, linewidth=1.4, label=f"{run.name}, median, least to most")


def checkpoints(axes, run, color):
    if run.events["checkpoint"]:
        axes.plot(*run.curve("checkpoint", "stall_s"), color=color, linewidth=1.6, label=f"{run.name}, stood still")
        draw_second(axes, run.curve("checkpoint", "seconds"), f"{run.name}, in the background", color)


PICTURES = {"loss": (loss, "loss"), "accuracy": (accuracy, "validation accuracy, %"),
            "learning_rate": (learning_rate, "learning rate"), "speed": (speed, "images per second"),
            "ranks": (ranks, "busy seconds a step"), "checkpoints": (checkpoints, "seconds")}


def picture(plt, runs, name, folder):
    """Writes NAME.png and NAME.svg; returns their paths, none when no run has such values."""
    draw, label = PICTURES[name]
    figure, axes = plt.subplots(figsize=(8, 4.5))
    for index, run in enumerate(runs):
        draw(axes, run, COLORS[index % len(COLORS)])
    values = [float(value) for line in axes.lines for value in line.get_ydata() if math.isfinite(value)]
    paths = []
    if values:
        for index, run in enumerate(runs):
            for start in run.events["start"]:
                if start.get("resumed_from"):
                    axes.axvline(start["step"], color=COLORS[index % len(COLORS)], linestyle=":", linewidth=0.9)
        if min(values) > 0 and max(values) >= WIDE_RANGE * min(values):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(lambda value, _: "")
        elif name not in ("loss", "accuracy"):
            axes.set_ylim(bottom=0)
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncol=2, frameon=False)
        figure.tight_layout()
        for ending in ("png", "svg"):
            paths.append(os.path.join(folder, f"{name}.{ending}"))
            figure.savefig(paths[-1], dpi=130)
    plt.close(figure)
    return paths


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("runs", metavar="RUN", nargs="+", help="a run's folder, or its metrics.jsonl")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="default: the first run's folder")
    arguments = parser.parse_args()
    try:
        import matplotlib
    except ImportError as missing:
        raise Problem(f"{missing} (Debian: python3-matplotlib)") from missing
    matplotlib.use("Agg")
    matplotlib.rcParams["text.parse_math"] = False  # a $ in a run's name is a $
    from matplotlib import pyplot
    runs = [Run(path) for path in arguments.runs]
    folder = arguments.output or os.path.dirname(runs[0].path) or "."
    try:
        os.makedirs(folder, exist_ok=True)
        for name in PICTURES:
            for path in picture(pyplot, runs, name, folder):
                print(path)
    except OSError as error:
        raise Problem(f"cannot write {error.filename or folder}: {error.strerror} (-o FOLDER names another)") from error


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        print(f"plot: {problem}", file=sys.stderr)
        sys.exit(2)
