# SPDX-License-Identifier: Apache-2.0
"""`convoy bench` on one rank and several: the profile, points of other numbers of ranks, the reduction, the memory."""
import json

import pytest

from behaviour import SMALL_NET, USAGE, Folder, config

DEEP_MLP = {"name": "mlp", "hidden": [64, 64, 64]}
CASES = ("ranks=1", "ranks=2 parallel.mode=pipeline parallel.microbatches=2")


def bench(folder, ranks, *arguments):
    code = folder.run(ranks, "bench", "run.toml", "--json", "bench.json", "--warmup", "1", *arguments, timeout=240)
    assert code == 0, folder.stderr[-1500:]
    with open(folder.file("bench.json")) as file:
        return json.load(file)["results"]


def cases(*names):
    return [word for name in names for word in ("--case", name)]


@pytest.mark.parametrize("ranks", (1, 2))
def test_profile(ranks):
    """Every operation of a step, with its unit; on two ranks the first one's."""
    folder = Folder("profile", config(SMALL_NET))
    profile = bench(folder, ranks, "--steps", "4", "--profile")[0]["profile"]
    names = {line["name"]: line for line in profile["operations"]}
    back = [names[name]["calls"] for name in ("conv2d_backward_input", "conv2d_backward_input_add")]
    # Four convolutions, of which the first needs no input gradient and one is in a shortcut.
    assert names["conv2d_forward"]["calls"] == 4 and back == [2, 1]
    assert 0 <= names["between operations"]["seconds"] < profile["step_seconds"]
    assert names["sgd_update"]["calls"] == 1
    assert {"conv", "bn", "block"} <= {line["unit"] for line in profile["layers"]}
    assert profile["convolution_bound_s"] > 0 and profile["matrix_flops_per_second"] > 0
    assert profile["direct_convolution_bound_s"] > 0
    assert "convolution bound:" in folder.stdout


def test_cases_of_other_numbers_of_ranks():
    folder = Folder("cases", config(DEEP_MLP))
    results = bench(folder, 2, "--steps", "4", *cases(*CASES))
    assert [(r["case"], r["ranks"]) for r in results] == [(CASES[0], 1), (CASES[1], 2)]
    for r in results:
        assert len(r["step_seconds"]) == 4 and r["images_per_second"] > 0, r["case"]
        for key in ("peak_memory_bytes", "backend_memory_bytes"):
            assert len(r[key]) == r["ranks"] and min(r[key]) > 0, f"{r['case']}: {key}"
        for peak, held in zip(r["peak_memory_bytes"], r["backend_memory_bytes"]):
            assert peak >= held, f"{r['case']}: peak, and what of it the backend holds"
    assert results[-1]["overrides"] == {"parallel.mode": "pipeline", "parallel.microbatches": "2"}


def test_case_of_too_many_ranks_is_a_usage_error():
    folder = Folder("many", config(DEEP_MLP))
    code = folder.run(2, "bench", "run.toml", "--case", "ranks=3", timeout=40)
    assert code == USAGE and "--case" in folder.stderr and "mpirun -n 3" in folder.stderr, folder.stderr


def test_reduction():
    """Replicas that keep gradients say how fast these are summed: all of them, by 2 (n - 1) / n; one rank and stages of
    one replica have nothing to sum."""
    folder = Folder("reduction", config(DEEP_MLP))
    hybrid = "ranks=4 parallel.mode=pipeline parallel.stages=2 parallel.microbatches=2"
    alone, pair, hybrid = bench(folder, 4, "--steps", "2", *cases("ranks=1", "ranks=2", hybrid))
    assert "reduction" not in alone
    speed = pair["reduction"]
    assert speed["bytes"] >= 4 * sum(a * b + b for a, b in ((64, 64), (64, 64), (64, 64), (64, 10)))
    assert abs(speed["bus_bytes_per_second"] * speed["seconds"] / speed["bytes"] - 1) < 1e-9, "2 (2 - 1) / 2 is 1"
    assert speed["copy_seconds"] > 0 and 0 <= speed["hidden"] <= 1
    assert "summed in" in folder.stdout and "GB/s on the bus" in folder.stdout
    assert 0 < hybrid["reduction"]["bytes"] < speed["bytes"] and "hidden" not in hybrid["reduction"]


def test_memory_of_schedules():
    """gpipe holds the activations of all 8 microbatches on both stages; 1f1b those of 2 on the first, 1 on the second."""
    sections = config({"name": "resnet18", "stem": "small", "classes": 10}, train={"global_batch_size": 64},
                      parallel={"mode": "pipeline", "microbatches": 8, "partition": ["stem", "layer2.0"]})
    sections["data"] = {"kind": "synthetic", "samples": 256, "image_size": 32, "channels": 3}
    results = bench(Folder("memory", sections), 2, "--steps", "1", "--sweep", "parallel.schedule=gpipe,1f1b")
    held = {r["overrides"]["parallel.schedule"]: r["backend_memory_bytes"] for r in results}
    print("bytes held by the backend of each rank:", held, flush=True)
    assert sorted(held) == ["1f1b", "gpipe"]
    assert held["1f1b"][0] < 0.5 * held["gpipe"][0]
    assert held["1f1b"][1] < held["gpipe"][1]
