# SPDX-License-Identifier: Apache-2.0
"""Metrics for other programs: log.prometheus, and scripts/log_to.py with modules that record what they are told."""
import json
import os
import re
import subprocess
import sys

import pytest

from behaviour import MLP, USAGE, Folder, config, error_lines
from programs import ROOT

LOG_TO = os.path.join(ROOT, "scripts", "log_to.py")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    os.chdir(tmp_path_factory.mktemp("finished"))
    folder = Folder("finished", config(MLP, log={"prometheus": "metrics/run.prom"},
                                       train={"steps": 20, "global_batch_size": 32, "eval_every_epochs": 0}))
    os.mkdir(folder.file("metrics"))
    folder.train()
    return folder


# ---- Prometheus

def metrics_of(path):
    """{name: value}; every line must be of the text format, each metric with its help and type."""
    values, announced = {}, set()
    with open(path) as file:
        for line in file.read().splitlines():
            comment = re.fullmatch(r"# (HELP|TYPE) (convoy_[a-z0-9_]+) (.+)", line)
            if comment:
                announced.add((comment[1], comment[2]))
                continue
            name, label, value = re.fullmatch(r'(convoy_[a-z0-9_]+)\{run="((?:[^"\\]|\\.)*)"\} (\S+)', line).groups()
            assert {("HELP", name), ("TYPE", name)} <= announced and name not in values
            values[name] = float(value)
    return values, label


def test_prometheus(finished):
    values, label = metrics_of(finished.file("metrics", "run.prom"))
    last, evaluation = finished.events("step")[-1], finished.events("eval")[-1]
    assert label == "run" and values["convoy_running"] == 0 and values["convoy_total_steps"] == 20
    for name, value in (("step", last["step"]), ("epoch", last["epoch"]), ("loss", last["loss"]), ("learning_rate", last["lr"]),
                        ("images_per_second", last["images_per_second"]), ("evaluation_step", evaluation["step"]),
                        ("evaluation_loss", evaluation["loss"]), ("evaluation_top1", evaluation["top1"])):
        assert values["convoy_" + name] == pytest.approx(value, rel=1e-8), name  # metrics.jsonl has 9 digits
    assert abs(values["convoy_timestamp_seconds"] - os.path.getmtime(finished.file("metrics", "run.prom"))) < 5
    assert os.listdir(finished.file("metrics")) == ["run.prom"]


@pytest.mark.parametrize("path, words", (("missing/run.prom", "log.prometheus: cannot write missing/run.prom.tmp"),
                                         ("run.txt", "log.prometheus: \"run.txt\" does not end in .prom")))
@pytest.mark.parametrize("ranks", (1, 2))
def test_a_file_for_prometheus_that_cannot_be(path, words, ranks):
    folder = Folder("run", config(MLP, log={"prometheus": path}))
    assert folder.run(ranks) == USAGE
    assert len(error_lines(folder.stderr)) == 1 and words in folder.stderr


# ---- MLflow and W&B, recorded by modules of these names

RECORDER = """
import json
def write(*words):
    with open("calls.jsonl", "a") as file:
        file.write(json.dumps(words) + "\\n")
"""
MLFLOW = RECORDER + """
def set_tracking_uri(uri): write("uri", uri)
def set_experiment(name): write("experiment", name)
class start_run:
    def __init__(self, run_name): write("run", run_name)
    def __enter__(self): return self
    def __exit__(self, *words): write("end")
def log_params(values): write("params", values)
def set_tags(values): write("tags", values)
def log_metrics(values, step): write("metrics", step, values)
"""
WANDB = RECORDER + """
import os
class Run:
    def log(self, values, step): write("metrics", step, values)
    def finish(self): write("end")
def init(project, name, dir, config, mode): write("run", name, config, mode); return Run()
"""


@pytest.mark.parametrize("name, text", (("mlflow", MLFLOW), ("wandb", WANDB)), ids=("mlflow", "wandb"))
def test_log_to(finished, name, text):
    folder = Folder("calls", {})
    with open(folder.file(name + ".py"), "w") as file:
        file.write(text)
    subprocess.run([sys.executable, LOG_TO, name, finished.file("runs", "run")], cwd=folder.path, check=True,
                   env={**os.environ, "PYTHONPATH": folder.path}, capture_output=True)
    with open(folder.file("calls.jsonl")) as file:
        calls = [json.loads(line) for line in file]
    steps = {call[1]: call[2] for call in calls if call[0] == "metrics"}
    assert calls[-1] == ["end"] and sorted(steps) == list(range(1, 21))
    for event in finished.events("step"):
        assert steps[event["step"]]["train/loss"] == event["loss"] and steps[event["step"]]["train/lr"] == event["lr"]
    assert steps[20]["eval/top1"] == finished.events("eval")[-1]["top1"]
    values = next(call for call in calls if call[0] == ("params" if name == "mlflow" else "run"))
    assert (values[1] if name == "mlflow" else values[2])["optimizer.lr"] == 0.05


def test_log_to_what_is_not_there(finished):
    for words in (["mlflow", "missing"], ["other", finished.file("runs", "run")]):
        result = subprocess.run([sys.executable, LOG_TO, *words], capture_output=True, text=True, check=False)
        assert result.returncode == 2 and result.stderr
