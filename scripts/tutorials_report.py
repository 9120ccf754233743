# SPDX-License-Identifier: Apache-2.0
"""What the figures.json of scripts/tutorials.py say, and the README.md about them; plot_tutorials.py draws them."""
import os
import statistics

PHASES = ("data_wait", "scatter", "broadcast", "forward", "gather", "loss", "scatter_gradients", "backward", "reduce",
          "communication_wait", "optimizer")  # of a step, in their order


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


def mean_phases(point):
    """Seconds of each phase of a step (rank 0), mean of the repeats, and of the rest of the step."""
    names = [*PHASES, *sorted({name for phases in point["phases"] for name in phases} - set(PHASES))]
    means = {name: statistics.mean(phases.get(name, 0.0) for phases in point["phases"]) for name in names}
    step = statistics.mean(second for seconds in point["step_seconds"] for second in seconds)
    means["rest"] = max(0.0, step - sum(means.values()))
    return means


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
             f"| case | seconds for {steps} batches | speed-up over single, by repeats | of two processes' | tutorial's "
             "speed-up |", "|---|---|---|---|---|"]
    for point in experiment["points"]:
        key = point["key"]
        speedup = "1" if key == "single" else ratio_text(single_over(experiment, key))
        cited = f"{theirs['single'] / theirs[key]:.2f}" if key in theirs and comparable(experiment) else ""
        name = {"processes": "two processes"}.get(key, f"pipeline, {key}" if key.startswith("split") else key)
        share = experiment["ratios"].get(f"processes / {key}")
        of_bound = ratio_text(share["per_repeat"]) if share else ""
        lines.append(f"| {name} | {point['mean']:.3g} ± {point['deviation']:.2g} | {speedup} | {of_bound} | {cited} |")
    lines.append("")
    if "processes" in by_key(experiment):
        in_step = [a / b for a, b in zip(by_key(experiment)["single"]["seconds"],
                                         by_key(experiment)["processes"]["in_step_seconds"])]
        lines.append("Two processes each train alone, at the same time, and the seconds are for as many batches in all: what "
                     "the machine leaves to two ranks. If at every step both waited for the slower one, as ranks do, they "
                     f"would reach {ratio_text(in_step)}.")
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
    return lines + [""] + cause_lines(experiment)


def cause_lines(experiment):
    """Where two ranks lose time against two processes, phase by phase."""
    points = by_key(experiment)
    if "processes" not in points:
        return []
    shown = [key for key in ("processes", "data", f"split {fastest_split(experiment)}") if key in points]
    means = {key: mean_phases(points[key]) for key in shown}
    means["processes"] = {name: value / points["processes"]["processes"] for name, value in means["processes"].items()}
    names = {"processes": "a process, half a batch", "data": "data"}
    return ["### Where the time of two ranks goes", "",
            "The first column is half of what a batch takes one of two processes; the others do a batch with two ranks.", "",
            *phase_table({names.get(key, f"pipeline, {key}"): each for key, each in means.items()}), ""]


def phase_table(means):
    """Rows of the phases that occur; a column for each case."""
    lines = ["| milliseconds of a step, rank 0 | " + " | ".join(means) + " |", "|---|" + "---|" * len(means)]
    for name in dict.fromkeys(name for each in means.values() for name in each):
        if any(each.get(name) for each in means.values()):
            times = " | ".join(f"{1e3 * each.get(name, 0):.4g}" for each in means.values())
            lines.append(f"| {pretty(name)} | {times} |")
    return [*lines, "| all | " + " | ".join(f"{1e3 * sum(each.values()):.4g}" for each in means.values()) + " |"]


def scatter_lines(experiment):
    means = {key: mean_phases(point) for key, point in by_key(experiment).items()}
    lines = ["## e. Scatter mode against data mode", "", where(experiment) + ".", "", *phase_table(means)]
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
