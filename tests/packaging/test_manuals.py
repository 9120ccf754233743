# SPDX-License-Identifier: Apache-2.0
"""The man pages that the build has generated: they render without warnings, and have every command, option and key of
`--help`.
"""
import glob
import os
import re
import shutil
import subprocess

import pytest

from programs import BUILD, CONVOY

MAN = os.path.join(BUILD, "packaging", "share", "man")
PAGES = sorted(glob.glob(os.path.join(MAN, "man?", "*.?")))


def help_of(*words):
    return subprocess.run([CONVOY, *words, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout


COMMANDS = re.findall(r"^  (\w+) ", help_of().split("Subcommands:\n")[1], flags=re.M)


def plain(name, section=1):
    """The page as text, one space between words, without groff's hyphenation."""
    if not shutil.which("man"):
        pytest.skip("no man (Debian: man-db)")
    path = os.path.join(MAN, f"man{section}", f"{name}.{section}")
    text = subprocess.run(["man", "-l", path], capture_output=True, text=True, timeout=60, check=True,
                          env={**os.environ, "MANWIDTH": "1000", "LC_ALL": "C.UTF-8"}).stdout
    return " ".join(re.sub(".\b", "", text).split())


def test_a_page_for_each_command():
    names = {os.path.basename(path) for path in PAGES}
    assert len(COMMANDS) >= 11
    assert names == {"convoy.1", "convoy-config.5"} | {f"convoy-{command}.1" for command in COMMANDS}


@pytest.mark.parametrize("path", PAGES, ids=os.path.basename)
def test_man_has_no_warnings(path):
    if not shutil.which("man"):
        pytest.skip("no man (Debian: man-db)")
    result = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True, timeout=60,
                            env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
    assert result.returncode == 0 and not result.stderr and len(result.stdout) > 200


@pytest.mark.parametrize("path", PAGES, ids=os.path.basename)
def test_mandoc_has_no_errors(path):
    if not shutil.which("mandoc"):
        pytest.skip("no mandoc")
    result = subprocess.run(["mandoc", "-T", "lint", "-W", "error", path], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout


def test_commands_in_the_first_page():
    text = plain("convoy")
    for command in COMMANDS:
        assert f" convoy-{command}(1)" in text
    assert " quickstart " in text and " tutorials/toy_ddp " in text and "--version" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_help(command):
    text = plain(f"convoy-{command}")
    lines = help_of(command).split("\nConfig keys")[0]
    names = re.findall(r"(?<=[\s,])(--?[a-z][a-z-]*)\b", "\n".join(re.findall(r"^  (?:-\S+)", lines, flags=re.M)))
    assert "--help" in names
    for name in names:
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text.split(" OPTIONS ")[1]), name
    for positional in re.findall(r"^  ([A-Z]+) ", lines, flags=re.M):
        assert positional in text.split(" ARGUMENTS ")[1].split(" OPTIONS ")[0]


def test_every_key_with_its_text():
    text = plain("convoy-config", 5)
    keys = re.findall(r"^  (\w+)(?: \((.*?)\))?: (.*)$", help_of("check").split("Config keys")[1], flags=re.M)
    assert len(keys) > 80
    for name, fallback, rest in keys:
        tagged = f" {name} ({fallback}) {rest}" if fallback else f" {name} {rest}"
        assert " ".join(tagged.split()) in text
