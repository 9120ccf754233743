# SPDX-License-Identifier: Apache-2.0
"""`convoy report`, `scripts/plot.py` and `convoy inspect --images`: what they make of real runs, and of bad input."""
import html.parser
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import time
import zlib

from behaviour import DIGITS, Folder, check, config, h5py, main

PLOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3, "scripts", "plot.py")
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
    check(not found.problems, f"{path}: {found.problems[:5]}")
    check("script" not in found.tags, f"{path}: it has a script")
    outside = text.replace("http://www.w3.org/2000/svg", "")
    check("http" not in outside and "url(" not in outside and "@import" not in outside, f"{path}: names the network")
    return found


def trained(name, **sections):
    folder = Folder(name, config(**sections))
    folder.train()
    return folder


def two_runs():
    folder = trained("report-two", train={"steps": 90}, checkpoint={"every_steps": 30})
    first = folder.file("runs", "run")
    shutil.move(first, folder.file("runs", "slow"))
    folder.configure(config(optimizer={"lr": 0.015625}, train={"steps": 150}))
    folder.train(2)
    shutil.move(first, folder.file("runs", "<script>alert(1) & 'x'"))
    runs = ["runs/slow", "runs/<script>alert(1) & 'x'"]
    check(folder.run(1, "report", *runs, "-o", "both.html") == 0, f"report: {folder.stderr}")
    check(folder.stdout == "both.html\n", f"report printed {folder.stdout!r}")
    found = page(folder.file("both.html"))
    for word in ("slow", "<script>alert(1) & 'x'", "optimizer.lr", "0.015625", "0.05", "train.steps", "finished",
                 "2\xa0=\xa02\xa0\xd7\xa01", "Stragglers", "Validation accuracy"):
        check(word in found.text, f"the page has no {word!r}")
    check("optimizer.momentum" not in found.text, "a key that does not differ is among those that do")
    check(found.tags.count("figure") == 7, f"{found.tags.count('figure')} figures")

    check(folder.run(1, "report", "runs/slow/metrics.jsonl") == 0, f"report of a file: {folder.stderr}")
    check(folder.stdout == "runs/slow/report.html\n", f"report printed {folder.stdout!r}")
    text = page(folder.file("runs", "slow", "report.html")).text
    last = folder_losses(folder.file("runs", "slow"))[-1]
    check(f"{last:.4g}" in text, f"the page lacks the last loss {last:.4g}")

    if importlib.util.find_spec("matplotlib"):
        done = subprocess.run([sys.executable, PLOT, *runs, "-o", "plots"], cwd=folder.path, capture_output=True, text=True)
        names = ("loss", "accuracy", "learning_rate", "speed", "ranks", "checkpoints")
        expected = [f"plots/{name}.{ending}" for name in names for ending in ("png", "svg")]
        check(done.returncode == 0 and done.stdout.split() == expected, f"plot.py: {done.stdout} {done.stderr}")
        check(all(os.path.getsize(folder.file(path)) > 5000 for path in expected), "plot.py: empty pictures")
        for bad in (["nowhere"], ["both.html"], ["runs/slow", "-o", "both.html/x"]):
            done = subprocess.run([sys.executable, PLOT, *bad], cwd=folder.path, capture_output=True, text=True)
            check(done.returncode == 2 and done.stderr.startswith("plot: ") and done.stderr.count("\n") == 1,
                  f"plot.py {bad}: {done.returncode} {done.stderr}")


def folder_losses(run):
    return [entry["loss"] for entry in map(json.loads, open(os.path.join(run, "metrics.jsonl"))) if entry["event"] == "step"]


def damaged_runs():
    folder = trained("report-damaged", train={"steps": 12}, checkpoint={"every_steps": 4})
    metrics = open(folder.file("runs", "run", "metrics.jsonl")).read()
    lines = metrics.splitlines()

    def report(name, text, *words, with_config=False):
        os.makedirs(folder.file(name), exist_ok=True)
        if with_config:
            shutil.copy(folder.file("runs", "run", "config.toml"), folder.file(name, "config.toml"))
        with open(folder.file(name, "metrics.jsonl"), "w") as file:
            file.write(text)
        code = folder.run(1, "report", name)
        if check(code == 0, f"{name}: exit code {code}: {folder.stderr}"):
            text = page(folder.file(name, "report.html")).text
            missing = [word for word in words if word not in text]
            check(not missing, f"{name}: the page has no {missing}")

    report("cut", metrics[:len(metrics) // 2], "broke off", "the last line is cut", "no config to show")
    report("young", lines[0] + "\n", "no step has been logged yet", "broke off", with_config=True)
    report("unknown", metrics + '{"event":"dance","step":3}\n', "1 line of an event that this version does not know")
    report("nulls", metrics.replace('"loss":', '"loss":null,"was":'), "12 steps have a loss that is no finite number")
    report("rubbish", "\x00\x01\n" + metrics + "[1]\n", "2 lines that are no events were passed over", "finished")

    def refused(what, *arguments):
        code = folder.run(1, "report", *arguments)
        one = folder.stderr.startswith("convoy: error: ") and folder.stderr.count("\n") == 1
        check(code == 2 and one and not folder.stdout, f"report {what}: {code}, {folder.stdout!r}, {folder.stderr!r}")

    for name, text in (("empty", ""), ("other", "this is a letter\n"), ("binary.bin", "\x7fELF\x00\x00")):
        with open(folder.file(name), "w") as file:
            file.write(text)
        refused(name, name)
    os.makedirs(folder.file("hollow"))
    refused("a folder without metrics", "hollow")
    refused("no run", "nowhere")
    refused("no run beside a good one", "runs/run", "nowhere")
    refused("a device", "/dev/zero")
    refused("unwritable", "runs/run", "-o", "nowhere/report.html")
    refused("onto a folder", "runs/run", "-o", "hollow")
    check(not [name for name in os.listdir(folder.path) if name.endswith(".tmp")], "a temporary file is left")


def running():
    """The report of a run that is under way does not disturb it."""
    folder = Folder("report-running", config(train={"steps": 200000}, log={"every_steps": 100}))
    process = folder.start(1)
    try:
        while len(folder.events("step")) < 3 and process.poll() is None:
            time.sleep(0.01)
        done = subprocess.run(folder.command(1, "report", "runs/run"), cwd=folder.path, capture_output=True, text=True)
        check(done.returncode == 0, f"report of a running run: {done.stderr}")
        check("running (" in page(folder.file("runs", "run", "report.html")).text, "the page does not say that it runs")
        check(process.poll() is None, "the run has ended")
    finally:
        process.terminate()
        process.wait()


def decode(path):
    """Width, height, channels and rows of a PNG without filters."""
    data = open(path, "rb").read()
    check(data[:8] == b"\x89PNG\r\n\x1a\n", f"{path} is no PNG")
    at, chunks = 8, {}
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        check(zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0], f"{kind}: CRC")
        chunks[kind] = body
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    channels = {0: 1, 2: 3}[colour]
    rows, stride = zlib.decompress(chunks[b"IDAT"]), width * channels + 1
    check(depth == 8 and len(rows) == height * stride, f"{path}: {len(rows)} bytes for {width}x{height}")
    return width, height, channels, [rows[y * stride + 1:(y + 1) * stride] for y in range(height)]


def images():
    # Without shuffling, the first samples of epoch 0 are the first of the file, enlarged 7 times: 8x8 becomes 56x56.
    folder = Folder("report-images", config(data={"shuffle": False}))
    check(folder.run(1, "inspect", "--images", "5", "run.toml") == 0, f"inspect --images: {folder.stderr}")
    check(folder.stdout == "grid.png: the first 5 training samples of epoch 0\n", folder.stdout)
    width, height, channels, rows = decode(folder.file("grid.png"))
    check((width, height, channels) == (6 + 3 * 62, 6 + 2 * 73, 1), f"grid of {width}x{height}x{channels}")
    if h5py:
        with h5py.File(DIGITS) as file:
            expected = file["train/images"][:5, :, :, 0]
        for i in range(5):
            left, top = 6 + i % 3 * 62, 6 + i // 3 * 73
            found = [list(rows[top + 7 * y + 3][left + 3:left + 56:7]) for y in range(8)]
            check(found == expected[i].tolist(), f"sample {i} of the grid is {found}")
    synthetic, ten = {"kind": "synthetic", "train": None, "validation": None}, {"name": "mlp", "classes": 10}
    folder.configure(config(model=ten, data={**synthetic, "image_size": 9, "channels": 3}))
    code = folder.run(1, "inspect", "--images", "4", "run.toml", "-o", "c.png")
    check(code == 0 and decode(folder.file("c.png"))[2] == 3, f"a colour picture: {folder.stderr}")
    folder.configure(config())
    check(folder.run(1, "inspect", "run.toml") == 0 and "1437 samples" in folder.stdout, f"inspect: {folder.stdout}")

    def refused(word, *arguments):
        code = folder.run(1, "inspect", *arguments)
        one = folder.stderr.startswith("convoy: error: ") and folder.stderr.count("\n") == 1 and word in folder.stderr
        check(code == 2 and one, f"inspect {arguments}: {code}, {folder.stderr!r}")

    folder.configure(config(model=ten, data={**synthetic, "features": 20}))
    refused("vectors", "--images", "4", "run.toml")
    folder.configure(config(model=ten, data={**synthetic, "image_size": 9, "channels": 4}))
    refused("channels", "--images", "4", "run.toml")
    folder.configure(config(model=ten, data={**synthetic, "image_size": 500, "samples": 1000000}))
    refused("too many", "--images", "1000000", "run.toml")
    folder.configure(config())
    refused("no config", "--images", "4", DIGITS)
    refused("nowhere.toml", "--images", "4", "nowhere.toml")
    refused("nowhere/x.png", "--images", "4", "run.toml", "-o", "nowhere/x.png")
    refused("optimiser", "--images", "4", "run.toml", "--set", "optimiser.lr=1")


if __name__ == "__main__":
    main([two_runs, damaged_runs, running, images])
