#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures (PNG and SVG) and README.md from the figures.json that scripts/tutorials.py writes.

Nothing here is a result: all numbers come from the file. Colours are Okabe and Ito's, each bar has a hatch of its own
as well, so that the pictures can be told apart without colour. What an experiment did not measure is not drawn.

Usage: plot_tutorials.py [FOLDER]     (default docs/results/tutorials; draws FOLDER/figures.json again)
"""
import json
import os
import statistics
import sys
import textwrap

from tutorials_report import (by_key, comparable, fastest_split, mean_phases, pretty, schedules_of, single_over, splits_of,
                              usual_split, where, write_readme)

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
except ImportError:
    matplotlib = None

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
GREY = "#BBBBBB"
LOOKS = {"data_wait": (GREY, ""), "scatter": (ORANGE, "//"), "broadcast": (YELLOW, "\\\\"), "forward": (SKY, ""),
         "gather": (PINK, "xx"), "loss": (BLACK, ""), "scatter_gradients": (ORANGE, ".."), "backward": (BLUE, ""),
         "reduce": (GREEN, "//"), "communication_wait": (RED, "\\\\"), "optimizer": (GREEN, "")}


def what_is_missing():
    """A sentence on what to install, or "" if pictures can be drawn."""
    if matplotlib:
        return ""
    return (f"{sys.executable} has no matplotlib, which draws the pictures "
            "(apt-get install python3-matplotlib, or pip install matplotlib)")


def style():
    plt.rcParams.update({"font.size": 9, "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#DDDDDD",
                         "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
                         "hatch.linewidth": 0.6, "svg.hashsalt": "convoy", "savefig.dpi": 160})


def save(figure, folder, name, written):
    figure.savefig(os.path.join(folder, f"{name}.png"))
    figure.savefig(os.path.join(folder, f"{name}.svg"), metadata={"Date": None})
    plt.close(figure)
    written += [os.path.join(folder, f"{name}.png"), os.path.join(folder, f"{name}.svg")]


# ---- Pictures -------------------------------------------------------------------------------------------------------


def draw_toy(experiment, folder, written):
    figure, axis = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    looks = [("o", BLACK, 13, "none"), ("s", ORANGE, 10, "none"), ("D", BLUE, 7, "none"), ("x", GREEN, 6, GREEN),
             ("+", RED, 11, RED)]
    for each, (marker, color, size, face) in zip(experiment["runs"], looks):
        axis.plot(each["steps"], each["losses"], marker=marker, color=color, markersize=size, markerfacecolor=face,
                  linewidth=0.8, label=each["name"].replace("toy_", "").replace("_", " "))
    resumed = [start["step"] for each in experiment["runs"] for start in each["starts"] if start["step"]]
    for step in resumed:
        axis.axvline(step + 0.5, color="#666666", linestyle=":", linewidth=1)
        axis.annotate("stopped,\nresumed", (step + 0.56, 0.91), xycoords=("data", "axes fraction"), color="#444444",
                      fontsize=8)
    axis.set(xlabel="step", ylabel="loss (mean squared error)", title="The toy network's losses in every mode")
    axis.set_xticks(experiment["runs"][0]["steps"])
    axis.margins(y=0.12)
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, folder, "a_toy_losses", written)


def draw_bars(experiment, tutorial, bars, speedup, title, folder, name, written):
    """bars: (key, label, color, hatch, the tutorial's seconds or None). Left our seconds; right ours and the tutorial's
    speed-ups over single, or, without speedup, times against single."""
    points = by_key(experiment)
    bars = [bar if comparable(experiment) else (*bar[:4], None) for bar in bars if bar[0] in points]
    figure, (left, right) = plt.subplots(1, 2, figsize=(5.4 + 0.8 * len(bars), 4.0), layout="constrained")
    for x, (key, _, color, hatch, seconds) in enumerate(bars):
        point = points[key]
        left.bar(x, point["mean"], yerr=point["deviation"], color=color, hatch=hatch, edgecolor="black", linewidth=0.8,
                 capsize=5, width=0.62)
        label(left, x, point["mean"] + point["deviation"], f"{point['mean']:#.3g} s")
        ratios = [each if speedup else 1 / each for each in single_over(experiment, key)]
        ours = statistics.median(ratios)
        shift = 0.2 if seconds else 0.0
        right.bar(x - shift, ours, yerr=[[ours - min(ratios)], [max(ratios) - ours]], width=0.38, color=color,
                  hatch=hatch, edgecolor="black", linewidth=0.8, capsize=0 if key == "single" else 4)
        label(right, x - shift, max(ratios), f"{ours:.2f}")
        if seconds:
            theirs = tutorial["single_seconds"] / seconds if speedup else seconds / tutorial["single_seconds"]
            right.bar(x + shift, theirs, width=0.36, color="white", edgecolor=color, linewidth=1.6)
            label(right, x + shift, theirs, f"{theirs:.2f}", "#444444")
    right.axhline(1, color="black", linewidth=0.8, linestyle="--", zorder=0.9)
    for axis in (left, right):
        axis.set_xticks(range(len(bars)), [bar[1] for bar in bars], fontsize=8)
        axis.margins(y=0.14)
    left.set_ylabel(f"seconds for {experiment['settings']['steps']} batches")
    left.set_title("convoy: mean and deviation", fontsize=9)
    right.set_ylabel("speed-up over single (higher is faster)" if speedup else "time against single (lower is faster)")
    right.set_title("convoy: median and range of the repeats"
                    + ("\nempty bars: PyTorch's tutorial, two GPUs" if comparable(experiment) else ""), fontsize=9)
    figure.suptitle(title, fontsize=11)
    figure.supxlabel(textwrap.fill(where(experiment), 100), fontsize=7.5, color="#444444")
    save(figure, folder, name, written)


def label(axis, x, y, text, color="black"):
    axis.annotate(text, (x, y), xytext=(0, 4), textcoords="offset points", ha="center", color=color, fontsize=8,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.1})


def draw_modes(experiment, tutorial, folder, written):
    points = by_key(experiment)
    single = ("single", "single", GREY, "", tutorial["single_seconds"])
    model = ("model", "model\nparallel", ORANGE, "//", tutorial["model_seconds"])
    if "model" in points:
        draw_bars(experiment, tutorial, [single, model], False, "ResNet-50 whole, and cut in two", folder,
                  "b_model_parallel", written)
    usual, fastest = usual_split(experiment), fastest_split(experiment)
    if usual is None or "data" not in points:
        return
    bars = [single, model]
    looks = [(SKY, "\\\\"), (BLUE, ""), (PINK, "xx")]  # the tutorial's split size, its fastest, our fastest
    for split in dict.fromkeys([usual, tutorial["fastest_split"], fastest]):
        color, hatch = looks.pop(0)
        bars.append((f"split {split}", f"pipeline,\nsplit {split}", color, hatch,
                     tutorial["pipeline_seconds"].get(str(split))))
    bars.append(("data", "data\nparallel", GREEN, "..", None))
    draw_bars(experiment, tutorial, bars, True, "ResNet-50 with pipelining", folder, "c_pipeline", written)


def draw_splits(experiment, folder, written):
    points, splits = by_key(experiment), splits_of(experiment)
    if len(splits) < 2:
        return
    batches = experiment["settings"]["steps"]
    figure, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    axis.errorbar(splits, [points[f"split {s}"]["mean"] / batches for s in splits],
                  yerr=[points[f"split {s}"]["deviation"] / batches for s in splits], color=BLUE, marker="o",
                  capsize=4, linewidth=1.5, label="pipeline of two stages" + schedules_of(experiment, splits))
    for key, label, color, line in (("single", "single, one rank", BLACK, "--"),
                                    ("model", "model parallel, two stages", ORANGE, "-."),
                                    ("data", "data parallel, two ranks", GREEN, ":")):
        if key in points:
            mean, deviation = points[key]["mean"] / batches, points[key]["deviation"] / batches
            axis.axhline(mean, color=color, linestyle=line, linewidth=1.8, label=label)
            axis.axhspan(mean - deviation, mean + deviation, color=color, alpha=0.12, linewidth=0)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(splits))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.set_ylim(bottom=0)
    axis.set(xlabel="split size: images per microbatch", ylabel="seconds per step (mean, deviation)",
             title="Step time against split size")
    axis.legend(frameon=False, fontsize=8, ncol=2, loc="lower center")
    figure.supxlabel(textwrap.fill(where(experiment), 100), fontsize=7.5, color="#444444")
    save(figure, folder, "d_split_size", written)


def time_text(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def draw_phases(experiment, folder, written):
    points = [by_key(experiment)[key] for key in ("data", "scatter") if key in by_key(experiment)]
    means = [mean_phases(point) for point in points]
    figure, axis = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    base = [0.0] * len(points)
    for name in means[0]:
        values = [each[name] for each in means]
        if not any(values):
            continue
        color, hatch = LOOKS.get(name, ("white", ""))
        times = " | ".join(time_text(value) if value else "–" for value in values)
        axis.bar(range(len(points)), values, bottom=base, color=color, hatch=hatch, edgecolor="black", linewidth=0.5,
                 width=0.55, label=f"{pretty(name)}: {times}")
        base = [b + v for b, v in zip(base, values)]
    for x, total in enumerate(base):
        axis.annotate(time_text(total), (x, total), xytext=(0, 3), textcoords="offset points", ha="center")
    axis.set_xticks(range(len(points)), [f"{point['key']} mode" for point in points])
    axis.set(ylabel="seconds of a step, rank 0", title="Where the time of a step goes on two ranks")
    axis.margins(y=0.1)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5),
                title=" | ".join(point["key"] for point in points))
    figure.supxlabel(textwrap.fill(where(experiment), 100), fontsize=7.5, color="#444444")
    save(figure, folder, "e_scatter_phases", written)


# ---- All of it ------------------------------------------------------------------------------------------------------


def draw_all(figures, folder):
    """Draws what was measured; the files written. Pictures of what is no longer in figures.json go."""
    style()
    written, experiments = [], figures["experiments"]
    if "toy" in experiments:
        draw_toy(experiments["toy"], folder, written)
    if "resnet50" in experiments:
        draw_modes(experiments["resnet50"], figures["tutorial"], folder, written)
        draw_splits(experiments["resnet50"], folder, written)
    if "scatter" in experiments:
        draw_phases(experiments["scatter"], folder, written)
    for name in ("a_toy_losses", "b_model_parallel", "c_pipeline", "d_split_size", "e_scatter_phases"):
        for path in (os.path.join(folder, f"{name}.png"), os.path.join(folder, f"{name}.svg")):
            if path not in written and os.path.exists(path):
                os.remove(path)
    write_readme(figures, folder, written)
    return written


if __name__ == "__main__":
    FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "docs", "results", "tutorials")
    if what_is_missing():
        sys.exit(f"plot_tutorials: {what_is_missing()}")
    try:
        with open(os.path.join(FOLDER, "figures.json"), encoding="utf-8") as source:
            print("\n".join(f"wrote {path}" for path in draw_all(json.load(source), FOLDER)))
    except (OSError, ValueError) as error:
        sys.exit(f"plot_tutorials: {error}")
