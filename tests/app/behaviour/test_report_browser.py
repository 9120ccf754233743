# SPDX-License-Identifier: Apache-2.0
"""The page of `convoy report` in a real browser (chromium, headless): no console message, no request but the page's own,
charts that are drawn, light and dark, and a print of whole pages. Skipped where there is no chromium."""
import json
import os
import re
import shutil
import subprocess

import pytest

from behaviour import Folder, config

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking",
         "--no-first-run", "--window-size=1200,2400"]

pytestmark = pytest.mark.skipif(not BROWSER, reason="no chromium here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with its report in page.html."""
    folder = Folder(tmp_path_factory.mktemp("report") / "run", config(train={"steps": 150}, checkpoint={"every_steps": 50}))
    folder.train()
    assert folder.run(1, "report", "runs/run", "-o", "page.html") == 0, folder.stderr
    return folder


def browse(folder, page, *flags):
    """Runs the browser on the page in a profile of its own; what it prints."""
    words = [BROWSER, *FLAGS, f"--user-data-dir={folder.file('profile')}", *flags, "file://" + folder.file(page)]
    done = subprocess.run(words, cwd=folder.path, capture_output=True, text=True, timeout=120,
                          env={"HOME": folder.path, **os.environ})
    shutil.rmtree(folder.file("profile"), ignore_errors=True)
    assert done.returncode == 0, f"{flags}: {done.stderr[-1000:]}"
    return done


def requests_of(path):
    """The addresses that the network layer was asked for, from Chromium's own log; those of its start-up are not a page's."""
    text = open(path, errors="replace").read()
    try:
        log = json.loads(text)
    except ValueError:  # not closed when the browser ended
        log = json.loads(text.rstrip().rstrip(",") + "]}")
    kinds = {number: name for name, number in log["constants"]["logEventTypes"].items()}
    return [event["params"]["url"] for event in log["events"]
            if kinds.get(event["type"]) == "URL_REQUEST_START_JOB" and "url" in event.get("params", {})]


def test_page_logs_nothing_and_asks_for_nothing_else(folder):
    done = browse(folder, "page.html", "--dump-dom", "--enable-logging=stderr", "--v=0", "--log-net-log=net.json")
    assert "CONSOLE" not in done.stderr, f"console messages: {done.stderr[-1500:]}"
    assert done.stdout.count("</figure>") == 6, "figures in the browser's document"
    outside = [url for url in requests_of(folder.file("net.json")) if not url.startswith(("file:", "data:"))
               and not re.search(r"//[^/]*\.(google|googleapis|gstatic|gvt1|chromium)\.(com|org)", url)]  # the browser's own
    assert not outside


def test_page_is_drawn_light_and_dark(folder):
    for name, flags in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
        browse(folder, "page.html", f"--screenshot={name}.png", *flags)
    light, dark = (open(folder.file(name + ".png"), "rb").read() for name in ("light", "dark"))
    assert len(light) > 20000 and len(dark) > 20000, "the pictures are empty"
    assert light != dark


def test_page_prints_on_whole_pages(folder):
    browse(folder, "page.html", "--print-to-pdf=page.pdf", "--no-pdf-header-footer")
    pdf = open(folder.file("page.pdf"), "rb").read()
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6, "printed pages"
    # A4 in points: 595 x 842; browsers round to a point.
    boxes = {tuple(round(float(n)) for n in box.split()) for box in re.findall(rb"/MediaBox\s*\[([^\]]*)\]", pdf)}
    assert boxes and all(abs(b[2] - 595) <= 1 and abs(b[3] - 842) <= 1 for b in boxes)
