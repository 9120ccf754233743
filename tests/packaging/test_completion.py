# SPDX-License-Identifier: Apache-2.0
"""Completion in bash, fish and zsh, as the build has generated it. bash gets the variables that readline would set."""
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest

from programs import BUILD, CONVOY, ROOT

SHARE = os.path.join(BUILD, "packaging", "share")
BASH = os.path.join(SHARE, "bash-completion", "completions", "convoy")
ZSH = os.path.join(SHARE, "zsh", "site-functions", "_convoy")
FISH = os.path.join(SHARE, "fish", "vendor_completions.d", "convoy.fish")
CONFIGS = pathlib.Path(ROOT, "app", "configs")
EXAMPLES = {str(path.relative_to(CONFIGS))[:-5] for path in CONFIGS.rglob("*.toml") if path.parent.name != "machines"}


def help_of(*words):
    return subprocess.run([CONVOY, *words, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout


COMMANDS = re.findall(r"^  (\w+) ", help_of().split("Subcommands:\n")[1], flags=re.M)


def bash(line, breaks=" \t\n\"'><=;|&(:"):
    script = ('source "$1"; COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$3; _convoy 2>&1; '
              '((${#COMPREPLY[@]})) && printf "%s\\n" "${COMPREPLY[@]}"; true')
    result = subprocess.run(["bash", "--norc", "-c", script, "bash", BASH, line, breaks], capture_output=True, text=True,
                            timeout=60)
    assert result.returncode == 0 and not result.stderr, result.stderr
    # bash says so where compopt is called outside of a completion of its own.
    words = [word for word in result.stdout.splitlines() if "not currently executing completion function" not in word]
    assert len(words) == len(set(words))
    return set(words)


def options(*command):
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", help_of(*command), flags=re.M))


def test_bash_reads_it():
    result = subprocess.run(["bash", "-n", BASH], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and not result.stderr


def test_bash_commands():
    assert bash("convoy ") == set(COMMANDS)
    assert bash("convoy tr") == {"train"}
    assert bash("convoy --") == {"--help", "--version"}
    assert bash("convoy nothing --") == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_options_of_each_command(command):
    assert bash(f"convoy {command} --") == options(command)


def test_bash_configs():
    """Examples, .toml files and folders, and nothing once CONFIG is there."""
    pathlib.Path("quarry.toml").touch()
    pathlib.Path("quarry.txt").touch()
    os.mkdir("quarries")
    assert bash("convoy train ") == EXAMPLES | {"quarry.toml", "quarries"}
    assert bash("convoy train qu") == {"quickstart", "quarry.toml", "quarries"}
    assert bash("convoy train tutorials/t") == {"tutorials/toy_ddp"}
    assert bash("convoy inspect qua") == {"quarry.toml", "quarry.txt", "quarries"}
    assert bash("convoy train toy ") == options("train") | {"-h"}
    assert bash("convoy train --set a.b=1 toy ") == options("train") | {"-h"}
    assert bash("convoy report a ") == {"quarry.toml", "quarry.txt", "quarries"}


def test_bash_file_names_with_spaces():
    pathlib.Path("two words.toml").touch()
    assert bash("convoy train tw") == {"two words.toml"}


@pytest.mark.parametrize("start, back", (("--set ", ""), ("--set=", ""), ("--dry-run --set ", "")))
def test_bash_config_keys(start, back):
    keys = {f"{section}.{key}=" for section, body in
            re.findall(r"^\[(\w+)\](.*?)(?=^\[|\Z)", help_of("check"), flags=re.M | re.S)
            for key in re.findall(r"^  (\w+)(?: \(.*\))?: ", body, flags=re.M)}
    assert len(keys) > 70 and "optimizer.lr=" in keys
    assert bash(f"convoy train toy {start}") == keys
    assert bash(f"convoy train toy {start}optimizer.mom") == {"optimizer.momentum="}


def test_bash_values_of_keys():
    """What replaces the word behind the last "=", or all of it where "=" does not break words."""
    assert bash("convoy train toy --set data.kind=h") == {"hdf5"}
    assert bash("convoy train toy --set=data.kind=h") == {"hdf5"}
    assert bash("convoy train toy --set data.kind=h", " ") == {"data.kind=hdf5"}
    assert bash("convoy train toy --set log.trace=") == {"true", "false"}
    assert bash("convoy train toy --set train.epochs=") == set()


def test_bash_values_of_options():
    assert bash("convoy pack --kind ") == {"image_folder", "idx", "cifar10", "hdf5"}
    assert bash("convoy launch --launcher=s") == {"srun"}
    assert bash("convoy schedule --name z") == {"zero_bubble", "zb_v"}
    assert bash("convoy plan toy --machine h") == {"h200_dgx"}
    assert bash("convoy eval toy --checkpoint b") == {"best"}
    assert bash("convoy bench toy --steps ") == set()


def test_bash_behind_launch():
    assert bash("convoy launch --nodes 2 -- tr") == {"train"}
    assert bash("convoy launch -- train qu") == {"quickstart"}
    assert bash("convoy launch --no") == {"--nodes"}


def test_fish():
    if not shutil.which("fish"):
        pytest.skip("no fish")
    assert subprocess.run(["fish", "-n", FISH], timeout=60).returncode == 0

    def complete(line):
        result = subprocess.run(["fish", "--no-config", "-c", 'source $argv[1]; complete -C $argv[2]', FISH, line],
                                capture_output=True, text=True, timeout=60)
        assert result.returncode == 0 and not result.stderr, result.stderr
        return {word.split("\t")[0] for word in result.stdout.splitlines()}

    assert complete("convoy ") == set(COMMANDS)
    assert complete("convoy train ") >= EXAMPLES
    assert complete("convoy train toy --") == options("train")
    assert complete("convoy train toy --set optimizer.mom") == {"optimizer.momentum="}
    assert complete("convoy train toy --set data.kind=h") == {"data.kind=hdf5"}
    assert complete("convoy schedule --name z") == {"zero_bubble", "zb_v"}


ZSHRC = """
PS1= PS2=
fpath=({folder} $fpath)
autoload -U compinit && compinit -u -D
show() {{ print -r -- "$BUFFER" >>lines; zle .kill-whole-line; zle .redisplay }}
zle -N show
bindkey "^G" show
bindkey "^I" complete-word
zle-line-init() {{ touch ready }}
zle -N zle-line-init
"""


def zsh_lines(typed):
    """What an interactive zsh, on a terminal of its own, makes of each line and a Tab."""
    pathlib.Path(".zshrc").write_text(ZSHRC.format(folder=os.path.dirname(ZSH)))
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("zsh", ["zsh", "-d", "-i"], {**os.environ, "ZDOTDIR": os.getcwd(), "TERM": "dumb", "LC_ALL": "C.UTF-8"})
    try:
        def wait_for(done):
            end = time.monotonic() + 60
            while not done():
                assert time.monotonic() < end, "zsh does not answer"
                if select.select([terminal], [], [], 0.05)[0]:
                    os.read(terminal, 65536)  # else its terminal fills up

        lines = pathlib.Path("lines")
        lines.touch()
        wait_for(lambda: os.path.exists("ready"))
        for number, line in enumerate(typed, 1):
            os.write(terminal, (line + "\t\a").encode())
            wait_for(lambda number=number: lines.read_text().count("\n") >= number)
        return lines.read_text().splitlines()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def test_zsh():
    if not shutil.which("zsh"):
        pytest.skip("no zsh")
    result = subprocess.run(["zsh", "-n", ZSH], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and not result.stderr
    expected = {
        "convoy doc": "convoy doctor ",
        "convoy train quicks": "convoy train quickstart ",
        "convoy train toy --dry": "convoy train toy --dry-run ",
        "convoy train toy --set optimizer.mom": "convoy train toy --set optimizer.momentum=",
        "convoy train toy --set=data.kind=hd": "convoy train toy --set=data.kind=hdf5 ",
        "convoy plan toy --machine h200": "convoy plan toy --machine h200_dgx ",
        "convoy launch --launcher sr": "convoy launch --launcher srun ",
        "convoy launch -- train quicks": "convoy launch -- train quickstart ",
        "convoy inspect quicks": "convoy inspect quickstart ",
    }
    assert zsh_lines(expected) == list(expected.values())
