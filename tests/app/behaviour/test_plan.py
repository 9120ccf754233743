# SPDX-License-Identifier: Apache-2.0
"""`convoy plan` for machines that are not here: a fit to a published ladder, the machine that it writes, the time to an
accuracy, and what is refused. Costs that were measured here, and the files that it writes."""
import json
import os

import pytest

from behaviour import MLP, SMALL_NET, USAGE, Folder, config

HEAD = "ranks,samples_per_rank,images_per_second\n"
# ResNet-50 in MLPerf Training 2.1, four A100 40 GB a node.
LADDER = HEAD + "4,204,12100\n8,204,22600\n16,204,45000\n32,102,77800\n64,204,175000\n128,128,310500\n"


def plan(folder, *arguments):
    code = folder.run(1, "plan", *arguments, "--json", "plan.json", timeout=120)
    assert code == 0, folder.stderr
    with open(folder.file("plan.json")) as file:
        return json.load(file)


def test_fit_and_plan_with_the_fitted_machine():
    folder = Folder("fit", config(MLP))
    with open(folder.file("rows.csv"), "w") as file:
        file.write(LADDER)
    fit = plan(folder, "resnet50_synthetic", "--machine", "a100_40gb_4x", "--fit", "rows.csv", "--write-machine",
               "fitted.toml", "--set", "device.kind=cuda")["fit"]
    assert [row["ranks"] for row in fit["rows"]] == [4, 8, 16, 32, 64, 128]
    for row in fit["rows"]:
        assert abs(row["predicted_images_per_second"] / row["images_per_second"] - 1) < 0.1, row
        assert abs(row["leave_one_out_images_per_second"] / row["images_per_second"] - 1) < 0.15, row
    assert {"step_seconds", "jitter", "network.bytes_per_second"} <= {p["figure"] for p in fit["parameters"]}

    arguments = ["resnet50_synthetic", "--machine", "fitted.toml", "--ranks", "64", "--samples-per-rank", "204", "--top", "1"]
    layouts = plan(folder, *arguments, "--recipe", "mlperf")["layouts"]
    own = layouts[-1]
    assert own["own_layout"] and (own["ranks"], own["stages"], own["samples_per_rank"]) == (64, 1, 204)
    assert own["images_per_second"] == pytest.approx(fit["rows"][4]["predicted_images_per_second"], rel=1e-9)
    assert own["step_ms"] == pytest.approx(1e3 * 64 * 204 / own["images_per_second"])
    assert sum(own["step_parts_ms"].values()) == pytest.approx(own["step_ms"])
    # 45 epochs of 1,281,167 images; the energy of 64 GPUs and 16 nodes.
    time = own["training"]
    assert (time["epochs"], time["steps"]) == (45, -(-45 * 1281167 // 13056))
    assert time["training_seconds"] == pytest.approx(time["steps"] * own["step_ms"] / 1e3)
    assert time["gpu_hours"] == pytest.approx(64 * time["minutes"] / 60)
    assert time["kilowatt_hours"] == pytest.approx((64 * 0.4 + 16 * 0.8) * time["minutes"] / 60)
    assert time["evaluation_seconds"] > 0 and time["checkpoint_seconds"] > 0 and time["startup_seconds"] == 60
    assert "GPU hours" in folder.stdout and "step ms: compute" in folder.stdout

    bare = plan(folder, *arguments, "--without", "fixed,jitter")["layouts"][-1]
    assert bare["step_parts_ms"]["fixed"] == bare["step_parts_ms"]["jitter"] == 0
    assert bare["step_ms"] < own["step_ms"] and "training" not in bare


@pytest.mark.parametrize("words, arguments", (
    pytest.param("rows.csv:2: images_per_second: \"nan\"", ["--fit", "rows.csv"], id="row"),
    pytest.param("one.csv has one row", ["--fit", "one.csv"], id="one_row"),
    pytest.param("none.csv cannot be opened", ["--fit", "none.csv"], id="no_file"),
    pytest.param("machine.toml:2: ranks: unknown key", ["--ranks", "8", "--machine", "machine.toml"], id="machine"),
    pytest.param("no term \"jiter\"", ["--ranks", "8", "--without", "jiter"], id="term"),
    pytest.param("no recipe \"mlpref\"", ["--ranks", "8", "--recipe", "mlpref"], id="recipe"),
    pytest.param("says nothing of a global batch of 32", ["--ranks", "8", "--recipe", "mlperf"], id="batch"),
    pytest.param("--ranks is required", [], id="ranks"),
    pytest.param("give --ranks too", ["--fit", "rows2.csv", "--epochs", "3"], id="layouts"),
    pytest.param("--write-machine", ["--ranks", "8", "--write-machine", "x.toml"], id="write"),
    pytest.param("cannot write no/x.toml", ["--fit", "rows2.csv", "--write-machine", "no/x.toml"], id="written"),
    pytest.param("\"scatter\" is not predicted", ["--fit", "rows2.csv", "--set", "parallel.mode=scatter"], id="scatter"),
    pytest.param(".: is a folder", ["--ranks", "8", "--machine", "."], id="machine_folder"),
    pytest.param("rows3.csv:3: ", ["--fit", "rows3.csv", "--set", "parallel.microbatches=4"], id="layout")))
def test_what_is_refused(words, arguments):
    """One line that says where."""
    folder = Folder("refused", config(MLP))
    for name, rows in (("rows", "4,204,nan\n"), ("one", "4,204,9\n"), ("rows2", "4,8,9\n8,8,9\n"), ("rows3", "4,8,9\n8,5,9\n")):
        with open(folder.file(name + ".csv"), "w") as file:
            file.write(HEAD + rows)
    with open(folder.file("machine.toml"), "w") as file:
        file.write("name = \"x\"\nranks = 4\n")
    machine = [] if "--machine" in arguments else ["--machine", "h200_dgx"]
    assert folder.run(1, "plan", "run.toml", *machine, *arguments) == USAGE, folder.stderr
    assert words in folder.stderr and folder.stderr.count("\n") == 1, folder.stderr


SMALL_BATCH = {"steps": 2, "global_batch_size": 4}
# Batch norm of vectors: a microbatch of one sample has one value per channel.
NORMED_MLP = {"name": "sequential", "layers": [
    {"type": "flatten"}, {"type": "linear", "name": "a", "out_features": 16}, {"type": "batch_norm2d", "name": "norm"},
    {"type": "relu"}, {"type": "linear", "name": "b", "out_features": 10}]}


def refused(folder, words, *arguments, code=USAGE):
    assert folder.run(1, *arguments) == code, folder.stdout + folder.stderr
    assert words in folder.stderr and folder.stderr.count("\n") == 1, folder.stderr


def test_costs_are_of_one_model():
    """And of one precision; the name in the file reaches the terminal without control characters."""
    folder = Folder("costs", config(MLP, train=SMALL_BATCH))
    assert folder.run(1, "plan", "run.toml", "--ranks", "1", "--calibrate") == 0, folder.stderr
    assert plan(folder, "run.toml", "--ranks", "1,2")["layouts"]
    costs = "runs/run/costs.json"
    for words, override in (("measured for a model of 2 units, and this one has 3", "model.hidden=[64, 64]"),
                            ("unit 0 is fc1 of 4160 parameters", "model.hidden=[65]"),
                            ("measured in fp32, and train.precision is bf16", "train.precision=bf16")):
        refused(folder, words, "plan", "run.toml", "--ranks", "1", "--set", override)
        assert costs in folder.stderr and "(measure again: --calibrate)" in folder.stderr, folder.stderr
    with open(folder.file(costs)) as file:
        measured = json.load(file)
    measured["name"] = "evil\x1b[2J\nforged"
    with open(folder.file(costs), "w") as file:
        json.dump(measured, file)
    assert plan(folder, "run.toml", "--ranks", "1")["machine"] == measured["name"]
    assert folder.stdout.startswith("evil\\x1b[2J\\x0aforged\n"), ascii(folder.stdout)


def test_layouts_that_the_model_refuses():
    folder = Folder("refused_layouts", config(NORMED_MLP))
    machine = ["plan", "run.toml", "--machine", "h200_dgx"]
    layouts = plan(folder, *machine[1:], "--ranks", "32", "--top", "1000")["layouts"]
    assert layouts and all(layout["samples_per_rank"] * layout["stages"] / layout["microbatches"] > 1 for layout in layouts)
    assert "  config:  norm: batch norm needs more than one value" in folder.stdout, folder.stdout
    refused(folder, "norm: batch norm needs more than one value", *machine, "--ranks", "1", "--samples-per-rank", "1")
    for command in ("check", "train"):
        refused(folder, "train.global_batch_size", command, "run.toml", "--set", "train.global_batch_size=1")
        assert "norm: batch norm needs more than one value" in folder.stderr
    assert folder.run(1, "check", "run.toml", "--set", "train.global_batch_size=2") == 0, folder.stderr
    folder.configure(config(NORMED_MLP, train=SMALL_BATCH | {"global_batch_size": 2}, parallel={"sync_batch_norm": True}))
    folder.train(2)  # two values in all


def test_trace_of_the_own_layout():
    folder = Folder("trace", config(SMALL_NET))
    machine = ["plan", "run.toml", "--machine", "h200_dgx", "--trace", "trace.json", "--ranks"]
    assert folder.run(1, *machine, "1,2,3") == 0, folder.stderr
    with open(folder.file("trace.json")) as file:
        events = json.load(file)["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["stage 0 of 1 rank (simulated)", "stage 0 of 2 ranks (simulated)"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {0, 1}
    problem = "train.global_batch_size: 32 does not divide into 3 replicas"
    assert f"  config:  {problem}" in folder.stdout, folder.stdout
    os.remove(folder.file("trace.json"))
    refused(folder, f"--trace: the config's own layout suits none of --ranks: {problem}", *machine, "3")
    refused(folder, "is not predicted", *machine, "3", "--set", "parallel.mode=scatter")
    assert not os.path.exists(folder.file("trace.json"))


def test_outputs_are_whole_or_not_there():
    """And looked at before anything is measured."""
    folder = Folder("outputs", config(MLP, train=SMALL_BATCH))
    machine = ["plan", "run.toml", "--machine", "h200_dgx", "--ranks", "1"]
    for option, command in (("--json", machine), ("--trace", machine), ("--json", ["bench", "run.toml"]),
                            ("--costs", ["plan", "run.toml", "--ranks", "1", "--calibrate"]),
                            ("--json", ["bench", "run.toml", "--model-bytes"])):
        refused(folder, f"{option}: cannot write no/x: No such file or directory", *command, option, "no/x")
        assert not folder.stdout and not os.path.exists(folder.file("no"))
        refused(folder, f"{option}: . is a folder", *command, option, ".")
    with open(folder.file("rows.csv"), "w") as file:
        file.write(HEAD + "4,8,9\n8,8,9\n")
    fit = ["plan", "run.toml", "--machine", "h200_dgx", "--fit", "rows.csv"]
    for option, command in (("--json", machine), ("--trace", machine), ("--write-machine", fit),
                            ("--costs", ["plan", "run.toml", "--ranks", "1", "--calibrate"]),
                            ("--json", ["bench", "run.toml", "--model-bytes"])):
        with open(folder.file("before"), "w") as file:
            file.write("before")
        os.link(folder.file("before"), folder.file("output"))
        assert folder.run(1, *command, option, "output") == 0, folder.stderr
        with open(folder.file("before")) as before, open(folder.file("output")) as output:
            assert before.read() == "before" and output.read()[-1] == "\n"
        os.remove(folder.file("output"))
