# SPDX-License-Identifier: Apache-2.0
"""The built program from outside: exit codes, one line on stderr, output that is input again."""
import os
import pathlib
import subprocess

import pytest

from programs import CONVOY, ROOT

CONFIGS = pathlib.Path(ROOT, "app", "configs")
TOY, DIGITS = CONFIGS / "toy.toml", CONFIGS / "mlp_digits.toml"


def run(*words):
    return subprocess.run([CONVOY, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)


def succeeds(*words):
    """What it prints on stdout."""
    result = run(*words)
    assert result.returncode == 0 and not result.stderr, f"exit {result.returncode}: {result.stderr}"
    return result.stdout


def refused(start, *words):
    """Exit 2, nothing on stdout, and one line on stderr that begins with `start`."""
    result = run(*words)
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("convoy: error: " + start), result.stderr
    assert result.returncode == 2 and not result.stdout, result.stdout


@pytest.fixture(scope="module")
def version():
    result = run("--version")
    assert result.returncode == 0
    return result.stdout


@pytest.fixture(scope="module")
def with_cuda(version):
    return "CUDA     off" not in version


# ---- help and version

@pytest.mark.parametrize("command", ("train", "eval", "predict", "watch", "bench", "launch", "check", "inspect", "verify", "pack", "report", "doctor"))
def test_help_of_a_command(command):
    assert command in succeeds(command, "--help")


def test_help():
    result = run("--help")
    assert result.returncode == 0 and "inspect" in result.stdout


@pytest.mark.parametrize("word", ("convoy", "MPI", "HDF5", "oneDNN", "CUDA     "))
def test_version(version, word):
    assert word in version


def test_version_with_cuda(version, with_cuda):
    assert not with_cuda or all(word in version for word in ("cuDNN", "cuBLAS", "NCCL"))


# ---- usage errors

@pytest.mark.parametrize("start, words", (
    pytest.param("no command given", [], id="no_command"),
    pytest.param('unknown command "tran" (did you mean "train"?)', ["tran"], id="unknown_command"),
    pytest.param("", ["train", "x.toml", "--fast"], id="unknown_option"),
    pytest.param("nowhere.toml: the config cannot be opened", ["check", "nowhere.toml"], id="no_config"),
    pytest.param("", ["inspect", "nowhere.h5"], id="no_file_to_inspect"),
    pytest.param("generate: /proc/no/man/man1/convoy.1 cannot be written", ["generate", "/proc/no"], id="generate_nowhere"),
    pytest.param('unknown command "generate"', ["generate"], id="generate_without_a_folder"),
    pytest.param("--set: optimizer.lr: is a string", ["check", TOY, "--set", "optimizer.lr=fast"], id="bad_override"),
    pytest.param("--set: data.train: there is no file",
                 ["check", CONFIGS / "quickstart.toml", "--set", "data.train=no.h5"], id="missing_data"),
    pytest.param('--set: model.freeze: no unit "fc4", did you mean "fc1"? (units: fc1, fc2, fc3)',
                 ["check", DIGITS, "--set", 'model.freeze=["fc4"]'], id="freeze_of_an_unknown_unit"),
    pytest.param("--set: model.freeze: names every unit",
                 ["check", DIGITS, "--set", 'model.freeze=["fc1", "fc2", "fc3"]'], id="freeze_of_all"),
    pytest.param('--set: model.recompute: unknown name "block" (did you mean "blocks"? must be "none", "blocks" or a list '
                 'of unit names)', ["check", DIGITS, "--set", "model.recompute=block"], id="recompute_of_a_wrong_word"),
    pytest.param("--set: model.recompute: is an integer", ["check", DIGITS, "--set", "model.recompute=2"],
                 id="recompute_of_a_number"),
    pytest.param('--set: model.recompute: no unit "fc4", did you mean "fc1"? (units: fc1, fc2, fc3)',
                 ["check", DIGITS, "--set", 'model.recompute=["fc2", "fc4"]'], id="recompute_of_an_unknown_unit"),
    pytest.param('--set: model.recompute: names the unit "layer1.0" twice',
                 ["check", CONFIGS / "resnet50_synthetic.toml", "--set", 'model.recompute=["layer1", "layer1.0"]'],
                 id="recompute_twice"),
    pytest.param('--case: "foo=1" is not an override', ["bench", TOY, "--case", "foo=1"], id="case_without_a_section"),
    pytest.param("--case: train.stepz: unknown key", ["bench", TOY, "--case", "train.stepz=1"], id="case_of_no_key"),
    pytest.param('--sweep: "nope=1" is not an override', ["bench", TOY, "--sweep", "nope=1"], id="sweep_without_a_section"),
    pytest.param("--set: run.name.x: unknown key", ["check", TOY, "--set", "run.name.x=1"], id="key_of_a_key")))
def test_usage_error(start, words):
    refused(start, *words)


def test_unknown_key():
    bad = pathlib.Path("bad.toml")
    bad.write_text(TOY.read_text() + "\n[checkpoint]\nkeeep = 3\n")
    line = bad.read_text().splitlines().index("keeep = 3") + 1
    refused(f"bad.toml:{line}:1: checkpoint.keeep: unknown key (did you mean checkpoint.keep?)", "check", bad)


# ---- check

@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_check_prints_a_config_that_says_the_same(config):
    # Data that cannot be in the tree: `check` only looks whether it is there.
    for folder in ("mnist", "cifar-10-batches-bin", "imagenet/train", "imagenet/val"):
        os.makedirs(os.path.join("data", folder))
    first = succeeds("check", config)
    again = pathlib.Path("again.toml")
    again.write_text(first)
    second = run("check", again)
    assert second.returncode == 0, second.stderr
    values = [[line.split("  #")[0] for line in text.splitlines()] for text in (first, second.stdout)]
    assert values[0] == values[1]


def test_check_names_the_source_of_a_value():
    lines = run("check", TOY, "--set", "optimizer.lr=0.5").stdout.splitlines()
    assert any(line.startswith("lr = 0.5 ") and line.endswith("# --set") for line in lines)


def test_check_of_frozen_units():
    result = run("check", CONFIGS / "resnet50_synthetic.toml", "--set", 'model.freeze=["stem", "layer1", "layer2.3"]',
                 "--set", 'model.recompute=["layer1", "layer3.0"]')
    assert result.returncode == 0 and 'freeze = ["stem", "layer1", "layer2.3"]' in result.stdout, result.stderr
    assert 'recompute = ["layer1", "layer3.0"]' in result.stdout


def test_check_of_a_config_for_gpus(with_cuda):
    """A config may be looked at where its GPU is not, by a build that has the backend."""
    if with_cuda:
        result = run("check", TOY, "--set", "device.kind=cuda", "--set", "train.precision=fp16")
        assert result.returncode == 0 and 'kind = "cuda"' in result.stdout, result.stderr
    else:
        refused("--set: device.kind: this build has no CUDA backend", "check", TOY, "--set", "device.kind=cuda")


# ---- inspect and doctor

def test_inspect():
    result = run("inspect", CONFIGS / "digits.h5")
    assert result.returncode == 0 and "/train/images" in result.stdout and "10 different, 0 to 9" in result.stdout


def test_inspect_of_another_file():
    pathlib.Path("text.h5").write_text("this is no HDF5 file")
    refused("text.h5", "inspect", "text.h5")


def test_doctor():
    result = run("doctor")
    verdicts = {line.split()[0] for line in result.stdout.splitlines()}
    assert result.returncode in (0, 1) and verdicts <= {"ok", "warn", "fail"} and "ok" in verdicts, result.stdout
