# SPDX-License-Identifier: Apache-2.0
"""`convoy report`, `scripts/plot.py` and `convoy inspect --images`: what they make of real runs, and of bad input."""
import html.parser
import json
import os
import shutil
import struct
import subprocess
import sys
import time
import zlib

import pytest

from behaviour import DIGITS, USAGE, Folder, config, h5py
from programs import ROOT

PLOT = os.path.join(ROOT, "scripts", "plot.py")
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(html.parser.HTMLParser):
    """Whether tags nest, which links leave the page, and the text outside of the style sheet."""

    def __init__(self, text):
        super().__init__()
        self.open, self.problems, self.tags, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.problems += [f"{name}={value}" for name, value in attributes
                          if (name in ("src", "href", "xlink:href", "action", "data") and not value.startswith("#"))
                          or name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def page(path):
    text = open(path, encoding="utf-8").read()
    found = Page(text)
    assert not found.problems, path
    assert "script" not in found.tags, path
    outside = text.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in outside and "url(" not in outside and "@import" not in outside, f"{path}: names the network"
    return found


def is_one_line(stderr):
    return stderr.startswith("convoy: error: ") and stderr.count("\n") == 1


# ---- good runs

STRANGE = "<script>alert(1) & 'x'"  # a run's name


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """A run of one rank and one of two ranks with another learning rate and a name that HTML must escape."""
    folder = Folder(tmp_path_factory.mktemp("two") / "report", config(train={"steps": 90}, checkpoint={"every_steps": 30}))
    folder.train()
    first = folder.file("runs", "run")
    shutil.move(first, folder.file("runs", "slow"))
    folder.configure(config(optimizer={"lr": 0.015625}, train={"steps": 150}))
    folder.train(2)
    shutil.move(first, folder.file("runs", STRANGE))
    folder.names = ["runs/slow", "runs/" + STRANGE]
    return folder


def test_report_of_two_runs_compares_them(two_runs):
    assert two_runs.run(1, "report", *two_runs.names, "-o", "both.html") == 0, two_runs.stderr
    assert two_runs.stdout == "both.html\n"
    found = page(two_runs.file("both.html"))
    for word in ("slow", STRANGE, "optimizer.lr", "0.015625", "0.05", "train.steps", "finished",
                 "2\xa0=\xa02\xa0\xd7\xa01", "Stragglers", "Validation accuracy"):
        assert word in found.text
    assert "optimizer.momentum" not in found.text, "a key that does not differ is among those that do"
    assert found.tags.count("figure") == 7


def test_report_of_a_metrics_file(two_runs):
    assert two_runs.run(1, "report", "runs/slow/metrics.jsonl") == 0, two_runs.stderr
    assert two_runs.stdout == "runs/slow/report.html\n"
    text = page(two_runs.file("runs", "slow", "report.html")).text
    with open(two_runs.file("runs", "slow", "metrics.jsonl")) as file:
        last = [entry["loss"] for entry in map(json.loads, file) if entry["event"] == "step"][-1]
    assert f"{last:.4g}" in text, "the last loss"


def plot(folder, *words):
    return subprocess.run([sys.executable, PLOT, *words], cwd=folder.path, capture_output=True, text=True)


def test_plot_draws_two_runs(two_runs):
    pytest.importorskip("matplotlib")
    done = plot(two_runs, *two_runs.names, "-o", "plots")
    names = ("loss", "accuracy", "learning_rate", "speed", "ranks", "checkpoints")
    expected = [f"plots/{name}.{ending}" for name in names for ending in ("png", "svg")]
    assert done.returncode == 0 and done.stdout.split() == expected, done.stderr
    assert all(os.path.getsize(two_runs.file(path)) > 5000 for path in expected), "empty pictures"


@pytest.mark.parametrize("words", (["nowhere"], ["text.html"], ["runs/slow", "-o", "text.html/x"]))
def test_plot_refuses_bad_input(two_runs, words):
    pytest.importorskip("matplotlib")
    with open(two_runs.file("text.html"), "w") as file:
        file.write("<html></html>\n")
    done = plot(two_runs, *words)
    assert done.returncode == 2 and done.stderr.startswith("plot: ") and done.stderr.count("\n") == 1, done.stderr


# ---- damaged and running ones

@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of 12 steps; what its metrics.jsonl holds is in .metrics."""
    folder = Folder(tmp_path_factory.mktemp("finished") / "report", config(train={"steps": 12}, checkpoint={"every_steps": 4}))
    folder.train()
    with open(folder.file("runs", "run", "metrics.jsonl")) as file:
        folder.metrics = file.read()
    return folder


@pytest.mark.parametrize("change, words, with_config", (
    pytest.param(lambda text: text[:len(text) // 2], ["broke off", "the last line is cut", "no config to show"], False,
                 id="cut"),
    pytest.param(lambda text: text.splitlines()[0] + "\n", ["no step has been logged yet", "broke off"], True, id="young"),
    pytest.param(lambda text: text + '{"event":"dance","step":3}\n',
                 ["1 line of an event unknown to this version was skipped"], False, id="unknown_event"),
    pytest.param(lambda text: text.replace('"loss":', '"loss":null,"was":'),
                 ["12 steps have a loss that is not finite"], False, id="null_losses"),
    pytest.param(lambda text: "\x00\x01\n" + text + "[1]\n",
                 ["2 lines that are not events were skipped", "finished"], False, id="rubbish")))
def test_report_says_what_is_wrong_with_the_metrics(finished, change, words, with_config):
    folder = Folder("report", {})
    os.makedirs(folder.file("damaged"))
    if with_config:
        shutil.copy(finished.file("runs", "run", "config.toml"), folder.file("damaged", "config.toml"))
    with open(folder.file("damaged", "metrics.jsonl"), "w") as file:
        file.write(change(finished.metrics))
    assert folder.run(1, "report", "damaged") == 0, folder.stderr
    text = page(folder.file("damaged", "report.html")).text
    for word in words:
        assert word in text


@pytest.mark.parametrize("words", (
    pytest.param(["empty"], id="empty_file"), pytest.param(["other"], id="other_text"),
    pytest.param(["binary.bin"], id="binary"), pytest.param(["hollow"], id="folder_without_metrics"),
    pytest.param(["nowhere"], id="no_run"), pytest.param(["runs/run", "nowhere"], id="no_run_beside_a_good_one"),
    pytest.param(["/dev/zero"], id="device"), pytest.param(["runs/run", "-o", "nowhere/report.html"], id="unwritable"),
    pytest.param(["runs/run", "-o", "hollow"], id="onto_a_folder")))
def test_report_refuses_what_is_no_run(finished, words):
    for name, text in (("empty", ""), ("other", "this is a letter\n"), ("binary.bin", "\x7fELF\x00\x00")):
        with open(finished.file(name), "w") as file:
            file.write(text)
    os.makedirs(finished.file("hollow"), exist_ok=True)
    code = finished.run(1, "report", *words)
    assert code == USAGE and is_one_line(finished.stderr) and not finished.stdout, finished.stderr
    assert not [name for name in os.listdir(finished.path) if name.endswith(".tmp")], "a temporary file is left"


def test_report_does_not_disturb_a_running_run():
    folder = Folder("running", config(train={"steps": 200000}, log={"every_steps": 100}))
    process = folder.start(1)
    try:
        while len(folder.events("step")) < 3 and process.poll() is None:
            time.sleep(0.01)
        done = subprocess.run(folder.command(1, "report", "runs/run"), cwd=folder.path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "running (" in page(folder.file("runs", "run", "report.html")).text
        assert process.poll() is None, "the run has ended"
    finally:
        process.terminate()
        process.wait()


# ---- convoy inspect --images

def decode(path):
    """Width, height, channels and rows of a PNG without filters."""
    data = open(path, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", f"{path} is no PNG"
    at, chunks = 8, {}
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0], f"{kind}: CRC"
        chunks[kind] = body
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    channels = {0: 1, 2: 3}[colour]
    rows, stride = zlib.decompress(chunks[b"IDAT"]), width * channels + 1
    assert depth == 8 and len(rows) == height * stride, path
    return width, height, channels, [rows[y * stride + 1:(y + 1) * stride] for y in range(height)]


SYNTHETIC, TEN_CLASSES = {"kind": "synthetic", "train": None, "validation": None}, {"name": "mlp", "classes": 10}


def test_grid_shows_the_first_samples():
    # Without shuffling, the first samples of epoch 0 are the first of the file, enlarged 7 times: 8x8 becomes 56x56.
    folder = Folder("images", config(data={"shuffle": False}))
    assert folder.run(1, "inspect", "--images", "5", "run.toml") == 0, folder.stderr
    assert folder.stdout == "grid.png: the first 5 training samples of epoch 0\n"
    width, height, channels, rows = decode(folder.file("grid.png"))
    assert (width, height, channels) == (6 + 3 * 62, 6 + 2 * 73, 1)
    if h5py:
        with h5py.File(DIGITS) as file:
            expected = file["train/images"][:5, :, :, 0]
        for i in range(5):
            left, top = 6 + i % 3 * 62, 6 + i // 3 * 73
            found = [list(rows[top + 7 * y + 3][left + 3:left + 56:7]) for y in range(8)]
            assert found == expected[i].tolist(), f"sample {i}"


def test_grid_shows_erased_boxes_in_the_mean_colour():
    data = {"shuffle": False, "mean": [0.37], "augment": ["erase"], "erase_probability": 1.0, "erase_area": [0.2, 0.3]}
    folder = Folder("erased", config(data=data))
    assert folder.run(1, "inspect", "--images", "4", "run.toml") == 0, folder.stderr
    rows = decode(folder.file("grid.png"))[3]
    for i in range(4):
        left, top = 6 + i % 2 * 62, 6 + i // 2 * 73
        found = [list(rows[top + 7 * y + 3][left + 3:left + 56:7]) for y in range(8)]
        erased = [(x, y) for y in range(8) for x in range(8) if found[y][x] == 94]  # round(255 * 0.37)
        columns, lines = ({place[axis] for place in erased} for axis in (0, 1))
        assert 6 <= len(erased) == len(columns) * len(lines) == (max(columns) - min(columns) + 1) * (max(lines) - min(lines) + 1)


def test_grid_of_colour_images_has_three_channels():
    folder = Folder("images", config(model=TEN_CLASSES, data={**SYNTHETIC, "image_size": 9, "channels": 3}))
    assert folder.run(1, "inspect", "--images", "4", "run.toml", "-o", "c.png") == 0, folder.stderr
    assert decode(folder.file("c.png"))[2] == 3


def test_inspect_counts_the_samples():
    folder = Folder("images", config())
    assert folder.run(1, "inspect", "run.toml") == 0 and "1437 samples" in folder.stdout


@pytest.mark.parametrize("word, sections, words", (
    pytest.param("vectors", {"model": TEN_CLASSES, "data": {**SYNTHETIC, "features": 20}}, ["4", "run.toml"], id="vectors"),
    pytest.param("channels", {"model": TEN_CLASSES, "data": {**SYNTHETIC, "image_size": 9, "channels": 4}},
                 ["4", "run.toml"], id="channels"),
    pytest.param("too many", {"model": TEN_CLASSES, "data": {**SYNTHETIC, "image_size": 500, "samples": 1000000}},
                 ["1000000", "run.toml"], id="too_many"),
    pytest.param("no config", {}, ["4", DIGITS], id="data_file"),
    pytest.param("nowhere.toml", {}, ["4", "nowhere.toml"], id="no_config"),
    pytest.param("nowhere/x.png", {}, ["4", "run.toml", "-o", "nowhere/x.png"], id="no_folder"),
    pytest.param("optimiser", {}, ["4", "run.toml", "--set", "optimiser.lr=1"], id="bad_override")))
def test_inspect_images_refuses_bad_input(word, sections, words):
    folder = Folder("images", config(**sections))
    assert folder.run(1, "inspect", "--images", *words) == USAGE
    assert is_one_line(folder.stderr) and word in folder.stderr
