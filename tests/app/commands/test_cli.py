#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The built program from outside: exit codes, one line on stderr, output that is input again.

Usage: cli_test.py CONVOY CONFIGS. Runs in the current folder, which it may fill.
"""
import pathlib
import subprocess
import sys

CONVOY, CONFIGS = sys.argv[1], pathlib.Path(sys.argv[2])
failures = []


def run(*words):
    return subprocess.run([CONVOY, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)


def expect(condition, what, result):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}\n  exit {result.returncode}\n  stdout: {result.stdout[-800:]}\n  stderr: {result.stderr[-800:]}")


def refused(what, start, *words):
    """Exit 2, nothing on stdout, and one line on stderr that begins with `start`."""
    result = run(*words)
    lines = result.stderr.splitlines()
    one = len(lines) == 1 and lines[0].startswith("convoy: error: " + start)
    expect(result.returncode == 2 and one and not result.stdout, what, result)


for command in ("train", "eval", "bench", "launch", "check", "inspect", "pack", "report", "doctor"):
    result = run(command, "--help")
    expect(result.returncode == 0 and command in result.stdout and not result.stderr, f"{command} --help", result)
result = run("--help")
expect(result.returncode == 0 and "inspect" in result.stdout, "--help", result)
result = run("--version")
WITHOUT_CUDA = "CUDA     off" in result.stdout
expect(result.returncode == 0 and all(w in result.stdout for w in ("convoy", "MPI", "HDF5", "oneDNN", "CUDA     ")),
       "--version", result)
expect(WITHOUT_CUDA or all(w in result.stdout for w in ("cuDNN", "cuBLAS", "NCCL")), "--version with CUDA", result)

refused("no command", "no command given")
refused("unknown command", 'unknown command "tran" (did you mean "train"?)', "tran")
refused("unknown option", "", "train", "x.toml", "--fast")
refused("no config", "nowhere.toml: the config cannot be opened", "check", "nowhere.toml")
refused("no file to inspect", "", "inspect", "nowhere.h5")

# Data that cannot be in the tree: `check` only looks whether it is there.
for folder in ("mnist", "cifar-10-batches-bin", "imagenet/train", "imagenet/val"):
    pathlib.Path("data", folder).mkdir(parents=True, exist_ok=True)
for config in sorted(CONFIGS.glob("*.toml")):
    first = run("check", config)
    expect(first.returncode == 0 and not first.stderr, f"check {config.name}", first)
    again = pathlib.Path(f"again-{config.name}")
    again.write_text(first.stdout)
    second = run("check", again)
    values = [[line.split("  #")[0] for line in text.splitlines()] for text in (first.stdout, second.stdout)]
    expect(second.returncode == 0 and values[0] == values[1], f"check of its own output, {config.name}", second)

toy = CONFIGS / "toy.toml"
result = run("check", toy, "--set", "optimizer.lr=0.5")
expect(any(line.startswith("lr = 0.5 ") and line.endswith("# --set") for line in result.stdout.splitlines()), "--set", result)

bad = pathlib.Path("bad.toml")
bad.write_text(toy.read_text() + "\n[checkpoint]\nkeeep = 3\n")
line = bad.read_text().splitlines().index("keeep = 3") + 1
refused("unknown key", f"bad.toml:{line}:1: checkpoint.keeep: unknown key (did you mean checkpoint.keep?)", "check", bad)
refused("bad override", "--set: optimizer.lr: is a string", "check", toy, "--set", "optimizer.lr=fast")
refused("missing data", "--set: data.train: there is no file", "check", CONFIGS / "quickstart.toml", "--set", "data.train=no.h5")
digits = CONFIGS / "mlp_digits.toml"
refused("freeze of an unknown unit", "--set: model.freeze: no unit \"fc4\", did you mean \"fc1\"? (units: fc1, fc2, fc3)",
        "check", digits, "--set", 'model.freeze=["fc4"]')
refused("freeze of all", "--set: model.freeze: names every unit", "check", digits, "--set", 'model.freeze=["fc1", "fc2", "fc3"]')
result = run("check", CONFIGS / "resnet50_synthetic.toml", "--set", 'model.freeze=["stem", "layer1", "layer2.3"]')
expect(result.returncode == 0 and 'freeze = ["stem", "layer1", "layer2.3"]' in result.stdout, "freeze", result)
if WITHOUT_CUDA:
    refused("no GPU", "--set: device.kind: this build has no CUDA backend", "check", toy, "--set", "device.kind=cuda")
else:  # a config may be looked at where its GPU is not
    result = run("check", toy, "--set", "device.kind=cuda", "--set", "train.precision=fp16")
    expect(result.returncode == 0 and 'kind = "cuda"' in result.stdout, "check of a config for GPUs", result)

result = run("inspect", CONFIGS / "digits.h5")
expect(result.returncode == 0 and "/train/images" in result.stdout and "10 different, 0 to 9" in result.stdout, "inspect", result)
pathlib.Path("text.h5").write_text("this is no HDF5 file")
refused("inspect of another file", "text.h5", "inspect", "text.h5")

result = run("doctor")
verdicts = {line.split()[0] for line in result.stdout.splitlines()}
expect(result.returncode in (0, 1) and verdicts <= {"ok", "warn", "fail"} and "ok" in verdicts, "doctor", result)

print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
