#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table, README.md and the picture from the bench_cpu.json that scripts/bench_cpu.py writes.

Nothing here is a result: all numbers come from the file. A ratio is convoy's images/s over those of PyTorch's faster
variant in the same repeat, above 1 where convoy is faster.

Usage: bench_cpu_report.py [FOLDER]     (default docs/results/cpu; draws FOLDER/bench_cpu.json again)
"""
import json
import os
import statistics
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    matplotlib = None

TICKS = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100]
LOOKS = [("#0072B2", ""), ("#56B4E9", "//"), ("#E69F00", ".."), ("#009E73", "xx"), ("#CC79A7", "\\\\"),
         ("#D55E00", ""), ("#F0E442", "//"), ("#000000", "..")]  # Okabe and Ito's colours


# ---- What the figures mean ------------------------------------------------------------------------------------------


def rate(figures):
    return statistics.median(figures["images_per_second"])


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ratio_text(ratio):
    return f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"


def variants_text(result):
    """"37.1 (compile; eager 35.0)": the faster one first, then what became of the other."""
    best = result["best_variant"]
    others = []
    for name, figures in result["torch"].items():
        if name != best:
            others.append(f"{name} {number(rate(figures)) if 'error' not in figures else 'failed'}"
                          if figures.get("error") != "left out" else f"without {name}")
    return f"{number(rate(result['torch'][best]))} ({'; '.join([best, *others])})"


def memory_text(figures):
    return f"{figures['peak_memory_bytes'] / 2**20:,.0f}"


def sentence(entry):
    """One point, as it is measured."""
    if "threads" not in entry:
        return f"two ranks over one: {ratio_text(entry['ratio'])}"
    return f"convoy {number(rate(entry['convoy']))} images/s, PyTorch {variants_text(entry)}, " \
           f"ratio {ratio_text(entry['ratio'])}"


COLUMNS = ["workload", "precision", "threads", "convoy images/s", "PyTorch images/s", "ratio (spread)", "convoy MiB",
           "PyTorch MiB", "of the convolution bound: direct", "own"]


def rows(figures):
    found = []
    for each in figures["results"]:
        shares = [each.get(f"share_of_{bound}") for bound in ("direct_convolution_bound", "convolution_bound")]
        found.append([each["title"], each["precision"], str(each["threads"]), number(rate(each["convoy"])),
                      variants_text(each), ratio_text(each["ratio"]), memory_text(each["convoy"]),
                      memory_text(each["torch"][each["best_variant"]]),
                      *(f"{100 * share:.0f} %" if share else "-" for share in shares)])
    return found


SCALING_COLUMNS = ["workload", "precision", "batch per rank", "1 rank images/s", "2 ranks images/s", "ratio (spread)",
                   "two processes over one", "in step"]


def scaling_rows(figures):
    return [[each["title"], each["precision"], str(each["batch_per_rank"]),
             *(number(statistics.median(each["images_per_second"][ranks])) for ranks in ("1", "2")),
             *(ratio_text(each[name]) if name in each else "-"
               for name in ("ratio", "processes_ratio", "processes_in_step_ratio"))] for each in figures["scaling"]]


def aligned(columns, lines):
    widths = [max(len(line[i]) for line in [columns, *lines]) for i in range(len(columns))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
                     for line in [columns, *lines])


def table(figures):
    """For the terminal."""
    parts = []
    if figures["results"]:
        parts.append(aligned(COLUMNS, rows(figures)))
    if figures["scaling"]:
        parts.append(aligned(SCALING_COLUMNS, scaling_rows(figures)))
    return "\n" + ("\n\n".join(parts) or "nothing measured")


# ---- Files ----------------------------------------------------------------------------------------------------------


def draw(figures, folder):
    """Ratios with their spread, one group of bars for each workload; the files written."""
    results = figures["results"]
    workloads = list(dict.fromkeys(each["title"] for each in results))
    kinds = list(dict.fromkeys((each["precision"], each["threads"]) for each in results))
    plt.rcParams.update({"font.size": 9, "axes.grid": True, "axes.grid.axis": "x", "grid.color": "#DDDDDD",
                         "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
                         "hatch.linewidth": 0.6, "svg.hashsalt": "convoy", "savefig.dpi": 160})
    figure, axis = plt.subplots(figsize=(7.6, 1.6 + 0.22 * (len(kinds) + 1) * len(workloads)), layout="constrained")
    height = 0.8 / len(kinds)
    for place, (precision, threads) in enumerate(kinds):
        mine = [each for each in results if (each["precision"], each["threads"]) == (precision, threads)]
        colour, hatch = LOOKS[place % len(LOOKS)]
        label = f"{precision}, {threads} thread{'s' if threads > 1 else ''}"
        for each in mine:
            y = workloads.index(each["title"]) + (place - (len(kinds) - 1) / 2) * height
            middle, low, high = (each["ratio"][name] for name in ("median", "lowest", "highest"))
            axis.barh(y, middle - 1, height, left=1, color=colour, hatch=hatch, edgecolor="white",
                      xerr=[[middle - low], [high - middle]], error_kw={"elinewidth": 0.8, "capsize": 2},
                      label=label if each is mine[0] else None)
            axis.annotate(f"{middle:.2f}", (max(high, 1), y), xytext=(4, 0), textcoords="offset points", va="center",
                          fontsize=7)
    axis.axvline(1, color="black", linewidth=1)
    axis.set_xscale("log")
    low = 0.85 * min(1, *(each["ratio"]["lowest"] for each in results))
    high = 1.3 * max(1, *(each["ratio"]["highest"] for each in results))
    axis.set_xlim(low, high)
    axis.minorticks_off()
    ticks = [tick for tick in TICKS if low < tick < high]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_yticks(range(len(workloads)), [title.replace(", ", "\n", 1) for title in workloads])
    axis.invert_yaxis()
    axis.set_xlabel(f"images/s of convoy over those of PyTorch {figures['versions']['pytorch'].get('torch', '')}\n"
                    "(median and spread over repeats)")
    figure.suptitle(f"Training steps on the CPU: {figures['machine']['cpu']}", fontsize=10)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncol=min(4, len(kinds)), fontsize=7.5, frameon=False,
                columnspacing=1.2)
    written = [os.path.join(folder, f"bench_cpu.{ending}") for ending in ("png", "svg")]
    figure.savefig(written[0])
    figure.savefig(written[1], metadata={"Date": None})
    plt.close(figure)
    return written


def markdown(columns, lines):
    return ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|",
            *("| " + " | ".join(line) + " |" for line in lines), ""]


def readme(figures, drawn):
    machine, versions = figures["machine"], figures["versions"]
    before = [torch["memory_before_bytes"] for each in figures["results"] for torch in each["torch"].values()
              if "memory_before_bytes" in torch]
    libraries = f" ({statistics.median(before) / 2**20:,.0f} MiB before the first step)" if before else ""
    lines = ["# convoy beside PyTorch on the CPU", "",
             "Written by `scripts/bench_cpu.sh` from [bench_cpu.json](bench_cpu.json). Images per second of training "
             "(forward, loss, backward, SGD with momentum and weight decay); the two sides in turn on the same cores, "
             f"{figures['repeats']} repeats of about {figures['seconds_per_measurement']} s. A ratio is of the same "
             "repeat: median (lowest to highest), above 1 where convoy is faster. PyTorch's faster variant counts. "
             "convoy's steps include its data loader, PyTorch's batch stays in memory. Memory is the process's largest "
             f"resident size; PyTorch's includes Python and its libraries{libraries}, not what compiling took.", ""]
    if figures["quick"]:
        lines += ["A quick run, to see that everything works: its figures are no measurement.", ""]
    if figures["results"]:
        lines += markdown(COLUMNS, rows(figures))
        lines += ["The convolution bound is the time of the step's convolutions when each runs alone "
                  "(`convoy bench --profile`), over the step's time: by oneDNN's direct algorithm, channels-last, and as "
                  "convoy runs them (Winograd's, products over columns). More than 100 % of the first is less time than "
                  "those direct convolutions alone.", ""]
    if drawn:
        lines += ["![ratios](bench_cpu.svg)", ""]
    if figures["scaling"]:
        lines += ["## Two ranks beside one", "",
                  "One thread a rank, the same batch for each rank (weak scaling). Two processes are two programs of one "
                  "thread each that have nothing to do with each other, at the same time: what the machine leaves to two "
                  "ranks; in step: what it would leave if at each step both waited for the slower one, as ranks do, and "
                  "did nothing else together.", ""]
        lines += markdown(SCALING_COLUMNS, scaling_rows(figures))
    if "without_scaling" in figures:
        lines += [f"Two ranks were not measured: {figures['without_scaling']}.", ""]
    failed = [f"{each['title']}, {each['precision']}, threads: {each['threads']}: torch {name}: {torch['error']}"
              for each in figures["results"] for name, torch in each["torch"].items()
              if torch.get("error") not in (None, "left out")]
    if failed or figures["failures"]:
        lines += ["## What failed", "", *(f"- {text}" for text in [*figures["failures"], *failed]), ""]
    pytorch = versions["pytorch"]
    lines += ["## How it was measured", "",
              f"{figures['date']}, {machine['cpu']}, {machine['cores']} cores, "
              f"{machine['memory_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}, load before it "
              f"{machine['load_before']:.2f}. convoy {versions['convoy'].get('convoy', '?')} "
              f"({versions['convoy'].get('CPU', '?')})"
              + (f"; PyTorch {pytorch['torch']} (oneDNN {pytorch.get('onednn', '?')})." if pytorch else "."), "",
              "```console", f"$ {figures['command']}", "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def write(figures, folder, say):
    """README.md and the picture; the files written."""
    written = []
    if figures["results"] and matplotlib:
        written += draw(figures, folder)
    elif figures["results"]:
        say(f"no picture: {sys.executable} has no matplotlib (apt-get install python3-matplotlib)")
    path = os.path.join(folder, "README.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write(readme(figures, bool(written)))
    return [*written, path]


if __name__ == "__main__":
    FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "docs", "results", "cpu")
    try:
        with open(os.path.join(FOLDER, "bench_cpu.json"), encoding="utf-8") as source:
            print("\n".join(f"wrote {path}" for path in write(json.load(source), FOLDER, print)))
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"bench_cpu_report: {type(error).__name__}: {error}")
