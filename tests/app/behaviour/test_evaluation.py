# SPDX-License-Identifier: Apache-2.0
"""The confusion matrix of eval and of a training: it is what predict says of every sample, does not depend on ranks and
mode, and the report shows it."""
import csv
import json
import os

import pytest

from behaviour import DIGITS, MLP, USAGE, Folder, config, error_lines, h5py

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(h5py is None, reason="needs h5py")
VALIDATION = DIGITS + ":/validation"
# Each computes a batch in two parts.
MODES = ((1, ["parallel.microbatches=2"]), (2, ["parallel.mode=pipeline", "parallel.microbatches=2"]), (2, ["parallel.mode=scatter"]),
         (4, ["parallel.mode=model", "parallel.stages=2"]))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    os.chdir(tmp_path_factory.mktemp("digits"))
    folder = Folder("digits", config(MLP, train={"steps": 20, "global_batch_size": 32, "eval_every_epochs": 0}))
    folder.train(2)
    return folder


def read_csv(path):
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][0] == "label" and [row[0] for row in rows[1:]] == rows[0][1:]
    return rows[0][1:], numpy.array([[int(cell) for cell in row[1:]] for row in rows[1:]])


def expected_matrix(folder):
    """From the outputs of predict."""
    assert folder.run(1, "predict", "run.toml", "--checkpoint", "newest", VALIDATION, "--out", "out.h5",
                      "--set", "parallel.microbatches=2") == 0
    with h5py.File(folder.file("out.h5"), "r") as out, h5py.File(DIGITS, "r") as data:
        predictions, labels = out["outputs"][()].argmax(axis=1), data["validation/labels"][()]
    matrix = numpy.zeros((10, 10), int)
    numpy.add.at(matrix, (labels, predictions), 1)
    return matrix


@pytest.mark.parametrize("ranks, keys", MODES)
def test_matrix_of_eval(digits, ranks, keys):
    expected = expected_matrix(digits)
    words = [word for key in keys for word in ("--set", key)]
    assert digits.run(ranks, "eval", "run.toml", "--checkpoint", "newest", "--confusion", "c.csv", "--json", "e.json", *words) == 0, digits.stderr
    names, matrix = read_csv(digits.file("c.csv"))
    assert (matrix == expected).all()
    with open(digits.file("e.json")) as file:
        result = json.load(file)
    assert result["confusion"] == matrix.tolist() and [one["class"] for one in result["classes"]] == names
    assert result["samples"] == matrix.sum() and result["top1"] == pytest.approx(matrix.trace() / matrix.sum(), rel=1e-12)
    for k, one in enumerate(result["classes"]):
        assert one["samples"] == matrix[k].sum() and one["accuracy"] == pytest.approx(matrix[k, k] / matrix[k].sum(), rel=1e-12)
    worst = names[0]
    line = next(line for line in digits.stdout.splitlines() if line.split()[:1] == [worst])
    assert line.split()[1:3] == [str(matrix[0].sum()), f"{100 * matrix[0, 0] / matrix[0].sum():.2f}"]


def test_training_leaves_the_matrix_of_its_last_evaluation_and_the_report_shows_it(digits):
    names, matrix = read_csv(digits.file("runs", "run", "confusion.csv"))
    assert (matrix == expected_matrix(digits)).all()
    assert digits.run(1, "report", "runs/run") == 0
    with open(digits.file("runs", "run", "report.html")) as file:
        page = file.read()
    assert "<h2>Confusion</h2>" in page and f">{matrix[3, 3]}</td>" in page and f"{100 * matrix[3, 3] / matrix[3].sum():.2f} %" in page
    assert digits.run(1, "verify", "runs/run") == 0 and "confusion.csv" in digits.stdout


def test_no_matrix_without_labels(digits):
    folder = Folder("regression", config(MLP, data={"kind": "synthetic", "train": None, "validation": None, "features": 4, "targets": 2,
                                                    "samples": 40}, train={"steps": 2, "global_batch_size": 20, "loss": "mse"}))
    folder.train()
    assert not os.path.exists(folder.file("runs", "run", "confusion.csv"))
    assert folder.run(2, "eval", "run.toml", "--checkpoint", "newest", "--confusion", "c.csv") == USAGE
    assert len(error_lines(folder.stderr)) == 1 and "--confusion: the data have float targets" in folder.stderr
    assert folder.run(1, "eval", "run.toml", "--checkpoint", "newest", "--json", "e.json") == 0
    with open(folder.file("e.json")) as file:
        assert sorted(json.load(file)) == ["checkpoint", "loss", "mae", "program_version", "r2", "rmse", "samples"]
