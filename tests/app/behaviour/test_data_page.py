# SPDX-License-Identifier: Apache-2.0
"""docs/data.md does what it says: its Python, its configs and its commands, one after the other in one folder."""
import os
import re
import shlex
import subprocess
import sys

import pytest

from behaviour import ENVIRONMENT, h5py
from programs import CONVOY, ROOT

PAGE = os.path.join(ROOT, "docs", "data.md")
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.S)


def blocks():
    """(kind, text, what stands before it) of each block of the page."""
    page, end, found = open(PAGE).read(), 0, []
    for match in BLOCK.finditer(page):
        found.append((match[1], match[2], page[end:match.start()]))
        end = match.end()
    return found


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_every_snippet_of_the_page_runs(tmp_path):
    outputs, kinds = {}, []
    for kind, text, before in blocks():
        kinds.append(kind)
        if kind == "python":
            subprocess.run([sys.executable, "-c", text], check=True)
        elif kind == "toml":
            name = re.findall(r"`(\w+\.toml)`", before)[-1]
            with open(name, "w") as file:
                file.write(text)
        else:
            assert kind == "console", kind
            for line in text.splitlines():
                words = shlex.split(line.removeprefix("$ "))
                assert line.startswith("$ convoy "), line
                done = subprocess.run([CONVOY, *words[1:]], env=ENVIRONMENT, capture_output=True, text=True)
                assert done.returncode == 0, f"{line}\n{done.stderr}"
                outputs[line] = done.stdout
    assert kinds.count("python") >= 3 and kinds.count("toml") >= 3 and len(outputs) >= 5
    top1 = re.search(r"top-1 +([\d.]+) %", outputs["$ convoy eval points.toml --checkpoint best"])
    assert float(top1[1]) > 80, "three classes two standard deviations apart"
    assert "top-5" not in outputs["$ convoy eval points.toml --checkpoint best"], "there are three classes"
    scores = re.findall(r"validation loss ([\d.]+), MAE ([\d.]+), RMSE [\d.]+, R2 (-?[\d.]+)", outputs["$ convoy train fields.toml"])
    assert len(scores) == 5 and float(scores[-1][2]) > float(scores[0][2]), "R2 rises"
