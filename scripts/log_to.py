#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends a run's metrics to MLflow or Weights & Biases: log_to.py mlflow|wandb RUN [--project NAME] [--to FOLDER].

RUN is a run folder or its metrics.jsonl. Steps become train/*, evaluations eval/*, at their step; the keys of config.toml
become parameters. MLflow writes to its local file store (--to, mlruns), W&B in offline mode (--to, the current folder;
`wandb sync` uploads it): neither needs a network. A resumed run counts once: what lies beyond the step of a start is
another past. Relies on the Python package mlflow or wandb. The run is not changed.
"""
import argparse
import collections
import json
import os
import sys

try:
    import tomllib
except ImportError:  # before Python 3.11: no parameters
    tomllib = None

FIELDS = {"step": ("train", ("loss", "lr", "images_per_second", "data_wait_s", "grad_norm", "energy_j")),
          "eval": ("eval", ("loss", "top1", "top5", "accuracy", "exact_match", "mae", "rmse", "r2", "ema_loss", "ema_top1", "seconds"))}
MOST_PARAMETERS = 100  # that MLflow takes in one call


class Problem(Exception):
    pass


def read_metrics(path):
    """{step: {name: value}}, and the last start event."""
    steps, start = collections.defaultdict(dict), {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise Problem(f"{path}: {error.strerror} (name a run's folder, such as runs/NAME)") from None
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:  # cut by a kill
            continue
        if not isinstance(event, dict) or not isinstance(event.get("step"), int):
            continue
        if event.get("event") == "start":
            start = event
            for step in [step for step in steps if step > event["step"]]:
                del steps[step]
        elif event.get("event") in FIELDS:
            group, names = FIELDS[event["event"]]
            values = {f"{group}/{name}": event[name] for name in names if isinstance(event.get(name), (int, float))}
            steps[event["step"]].update(values)
    if not steps:
        raise Problem(f"{path}: no step and no evaluation in it")
    return dict(sorted(steps.items())), start


def flat(value, key=""):
    """{"section.key": value} of nested tables; lists of tables as section.key.0.name."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        items = enumerate(value)
    else:
        return {key: value}
    return {name: leaf for part, item in items for name, leaf in flat(item, f"{key}.{part}" if key else str(part)).items()}


def read_config(folder):
    if tomllib is None:
        return {}
    try:
        with open(os.path.join(folder, "config.toml"), "rb") as file:
            return flat(tomllib.load(file))
    except (OSError, ValueError):
        return {}


def need(module):
    try:
        return __import__(module)
    except ImportError:
        raise Problem(f"this needs the Python package {module} (pip install {module})") from None


def to_mlflow(name, steps, start, config, project, folder):
    mlflow = need("mlflow")
    mlflow.set_tracking_uri("file://" + os.path.abspath(folder or "mlruns"))
    mlflow.set_experiment(project)
    with mlflow.start_run(run_name=name):
        parameters = list(config.items())
        for first in range(0, len(parameters), MOST_PARAMETERS):
            mlflow.log_params(dict(parameters[first:first + MOST_PARAMETERS]))
        mlflow.set_tags({f"convoy.{key}": str(start[key]) for key in ("run", "ranks", "replicas", "stages", "device") if key in start})
        for step, values in steps.items():
            mlflow.log_metrics(values, step=step)


def to_wandb(name, steps, start, config, project, folder):
    wandb = need("wandb")
    more = {f"convoy.{key}": start[key] for key in ("run", "ranks", "replicas", "stages", "device") if key in start}
    run = wandb.init(project=project, name=name, dir=os.path.abspath(folder or "."), config={**config, **more}, mode="offline")
    for step, values in steps.items():
        run.log(values, step=step)
    run.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("to", choices=("mlflow", "wandb"))
    parser.add_argument("run", metavar="RUN", help="a run folder, or its metrics.jsonl")
    parser.add_argument("--project", default="convoy", help="MLflow's experiment, W&B's project (convoy)")
    parser.add_argument("--to", dest="folder", metavar="FOLDER", help="where it is written (mlflow: mlruns; wandb: the current folder)")
    arguments = parser.parse_args()
    path = os.path.join(arguments.run, "metrics.jsonl") if os.path.isdir(arguments.run) else arguments.run
    folder = os.path.dirname(os.path.abspath(path))
    send = to_mlflow if arguments.to == "mlflow" else to_wandb
    try:
        steps, start = read_metrics(path)
        send(os.path.basename(folder), steps, start, read_config(folder), arguments.project, arguments.folder)
    except Problem as error:
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        return 2
    print(f"{len(steps)} steps of {path} sent to {arguments.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
