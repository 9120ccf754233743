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
PHASES = [("data_wait", GREY, ""), ("scatter", ORANGE, "//"), ("broadcast", YELLOW, "\\\\"), ("forward", SKY, ""),
          ("gather", PINK, "xx"), ("loss", BLACK, ""), ("scatter_gradients", ORANGE, ".."), ("backward", BLUE, ""),
          ("reduce", GREEN, "//"), ("communication_wait", RED, "\\\\"), ("optimizer", GREEN, "")]


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


# ---- What the figures mean ------------------------------------------------------------------------------------------


def by_key(experiment):
    return {point["key"]: point for point in experiment["points"]}


def splits_of(experiment):
    return sorted(int(key.split()[1]) for key in by_key(experiment) if key.startswith("split"))


def schedules_of(experiment, splits):
    """", interleaved (zero_bubble at 8, 40)": the most frequent schedule, then the others with their splits."""
    points, by_name = by_key(experiment), {}
    for split in splits:
        words = dict(word.split("=", 1) for word in points[f"split {split}"]["case"].split())
        by_name.setdefault(words["parallel.schedule"], []).append(str(split))
    (first, _), *others = sorted(by_name.items(), key=lambda item: -len(item[1]))
    exceptions = "; ".join(f"{name} at {', '.join(at)}" for name, at in others)
    return f", {first}" + (f" ({exceptions})" if exceptions else "")


def usual_split(experiment):
    """The tutorial's 20, or the largest below it that divides the batch; None without pipelines."""
    return max((s for s in splits_of(experiment) if s <= 20), default=None)


def fastest_split(experiment):
    points = by_key(experiment)
    return min(splits_of(experiment), key=lambda s: points[f"split {s}"]["mean"], default=None)


def where(experiment):
    """The machine and the sizes in a sentence."""
    settings, machine = experiment["settings"], experiment["machine"]
    return (f"{machine['device']}; batch {settings['batch']}, {settings['image']}×{settings['image']}, "
            f"{settings['repeats']} repeats of {settings['steps']} batches")


def ratio_text(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def comparable(experiment):
    """Whether the sizes are the tutorial's; only then do its figures stand beside ours."""
    return (experiment["settings"]["batch"], experiment["settings"]["image"]) == (120, 128)


def single_over(experiment, key):
    """Times of single over those of another case, repeat by repeat: its speed-up."""
    if key == "single":
        return [1.0] * experiment["settings"]["repeats"]
    if f"single / {key}" in experiment["ratios"]:
        return experiment["ratios"][f"single / {key}"]["per_repeat"]
    return [1 / each for each in experiment["ratios"][f"{key} / single"]["per_repeat"]]


def pretty(name):
    return name.replace("_", " ")


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


def mean_phases(point):
    """Seconds of each phase of a step (rank 0), mean of the repeats, and of the rest of the step."""
    names = [name for name, _, _ in PHASES]
    names += sorted({name for phases in point["phases"] for name in phases} - set(names))
    means = {name: statistics.mean(phases.get(name, 0.0) for phases in point["phases"]) for name in names}
    step = statistics.mean(second for seconds in point["step_seconds"] for second in seconds)
    means["rest"] = max(0.0, step - sum(means.values()))
    return means


def time_text(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def draw_phases(experiment, folder, written):
    points = [by_key(experiment)[key] for key in ("data", "scatter") if key in by_key(experiment)]
    means = [mean_phases(point) for point in points]
    looks = {name: (color, hatch) for name, color, hatch in PHASES}
    figure, axis = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    base = [0.0] * len(points)
    for name in means[0]:
        values = [each[name] for each in means]
        if not any(values):
            continue
        color, hatch = looks.get(name, ("white", ""))
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


# ---- README ---------------------------------------------------------------------------------------------------------


def toy_lines(toy, tutorial):
    lines = ["## a. The toy network", "",
             "| run | replicas x stages | steps | last loss | largest relative difference to 1 rank |",
             "|---|---|---|---|---|"]
    for each in toy["runs"]:
        starts = ", ".join("from the start" if not s["step"] else f"resumed after {s['step']}" for s in each["starts"])
        mesh = f"{each['starts'][0]['replicas']} x {each['starts'][0]['stages']}"
        lines.append(f"| {pretty(each['name'])} | {mesh} | {each['steps'][0]} to {each['steps'][-1]} ({starts}) "
                     f"| {each['losses'][-1]:.9g} | {each['largest_relative_difference']:.1e} |")
    bitwise = "are bitwise" if toy["resumed_equals_unstopped_bitwise"] else "are **not** bitwise"
    agree = "agree" if toy["agree"] else "**do not agree**"
    return lines + ["", f"The losses {agree} to {toy['tolerance']:g}. Those of the run that was stopped and resumed "
                    f"{bitwise} those of the run that was not. The tutorial ({tutorial['ddp']}) reports no figures.",
                    "", "![losses](a_toy_losses.svg)", ""]


def resnet_lines(experiment, tutorial):
    steps = experiment["settings"]["steps"]
    theirs = {"single": tutorial["single_seconds"], "model": tutorial["model_seconds"]}
    theirs.update({f"split {k}": v for k, v in tutorial["pipeline_seconds"].items()})
    lines = ["## b, c, d. ResNet-50 on two ranks", "", where(experiment) + ".", "",
             f"| case | seconds for {steps} batches | speed-up over single, by repeats | tutorial's speed-up |",
             "|---|---|---|---|"]
    for point in experiment["points"]:
        key = point["key"]
        speedup = "1" if key == "single" else ratio_text(single_over(experiment, key))
        cited = f"{theirs['single'] / theirs[key]:.2f}" if key in theirs and comparable(experiment) else ""
        name = f"pipeline, {key}" if key.startswith("split") else key
        lines.append(f"| {name} | {point['mean']:.3g} ± {point['deviation']:.2g} | {speedup} | {cited} |")
    lines.append("")
    if "model / single" in experiment["ratios"]:
        more = 100 * (experiment["ratios"]["model / single"]["median"] - 1)
        cited = 100 * (theirs["model"] / theirs["single"] - 1)
        lines.append(f"Cut in two without pipelining, a step takes {more:+.1f} % time against single"
                     + (f"; the tutorial reports {cited:+.0f} %." if comparable(experiment) else "."))
    if len(splits_of(experiment)) > 1:
        lines.append(f"The fastest split size measured is {fastest_split(experiment)}"
                     + (f"; the tutorial's is {tutorial['fastest_split']}." if comparable(experiment) else "."))
    if experiment["dropped"]:
        lines.append(experiment["dropped"])
    page = tutorial["model_parallel"]
    lines.append(f"The tutorial's figures ({page}) are of its authors' two GPUs, for 3 batches of 120 images of 128×128"
                 + ("." if comparable(experiment) else ", so they are not set beside these."))
    return lines + [""]


def scatter_lines(experiment):
    means = {key: mean_phases(point) for key, point in by_key(experiment).items()}
    lines = ["## e. Scatter mode against data mode", "", where(experiment) + ".", "",
             "| milliseconds of a step, rank 0 | " + " | ".join(means) + " |", "|---|" + "---|" * len(means)]
    for name in next(iter(means.values())):
        if any(each[name] for each in means.values()):
            times = " | ".join(f"{1e3 * each[name]:.4g}" for each in means.values())
            lines.append(f"| {pretty(name)} | {times} |")
    lines.append("| all | " + " | ".join(f"{1e3 * sum(each.values()):.4g}" for each in means.values()) + " |")
    ratios = experiment["ratios"]["scatter / data"]["per_repeat"]
    lines += ["", f"Time of scatter over data, by repeats: {ratio_text(ratios)}.", "",
              "![phases](e_scatter_phases.svg)", ""]
    return lines


def write_readme(figures, folder, written):
    experiments, tutorial = figures["experiments"], figures["tutorial"]
    lines = ["# PyTorch's parallelism tutorials, with convoy", "",
             "Written by `scripts/reproduce_tutorials.sh` from [figures.json](figures.json), which has all step times. "
             "± is the standard deviation over repeats. Ratios are of the same repeat: median (lowest to highest).", ""]
    if "toy" in experiments:
        lines += toy_lines(experiments["toy"], tutorial)
    if "resnet50" in experiments:
        lines += resnet_lines(experiments["resnet50"], tutorial)
        for name, what in (("b_model_parallel", "model"), ("c_pipeline", "pipeline"), ("d_split_size", "splits")):
            if os.path.join(folder, f"{name}.svg") in written:
                lines += [f"![{what}]({name}.svg)", ""]
    if "scatter" in experiments:
        lines += scatter_lines(experiments["scatter"])
    lines += ["## How it was measured", ""]
    for name, each in experiments.items():
        machine = f" on {each['machine']['host']}: {each['machine']['device']}; {each['machine']['binding']}; " \
                  f"{each['machine']['mpi']}; convoy {each['program_version']}" if "machine" in each else ""
        lines += [f"{name}, {each['date']}{machine}:", "", "```console",
                  *(f"$ {command}" for command in each["commands"]), "```", ""]
    path = os.path.join(folder, "README.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines).rstrip() + "\n")
    written.append(path)


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
