# SPDX-License-Identifier: Apache-2.0
"""What a recipe adds to the optimizer and the loss, ten steps against PyTorch: weight decay without norms and biases,
clipping by the global norm, LAMB, the average of the weights, class weights; each of them with convolution, batch norm,
layer norm and biases.

Losses agree to 1e-5 and parameters to 1e-4 (relative; norm of the difference over the norm): float32 rounds at 6e-8, and
the net is small, so that ten steps amplify that a few dozen times.
"""
import collections
import copy

import pytest

from interop import (as_input, assert_close, assert_same_tensors, read_group, read_metrics, run_convoy, temporary_folder,
                     torch)
from optimizers import make_average
from reference import DEFAULTS, make_data, make_model, same_losses, same_model, train_convoy, train_torch
from test_weights import run_script

NET = [
    {"type": "conv2d", "name": "conv", "out_channels": 12, "kernel_size": 3, "padding": 1},
    {"type": "relu", "name": "relu1"},  # so that the gradient of the bias before it is not 0 but for rounding
    {"type": "batch_norm2d", "name": "bn"},
    {"type": "flatten", "name": "flatten"},
    {"type": "linear", "name": "fc1", "out_features": 30},
    {"type": "layer_norm", "name": "ln"},
    {"type": "relu", "name": "relu2"},
    {"type": "linear", "name": "fc2", "out_features": 10},
]
ADAMW = dict(optimizer="adamw", lr=1e-3, weight_decay=0.5)
CASES = {
    "sgd_norm": dict(weight_decay=0.5, no_decay=["norm"]),
    "sgd_bias": dict(weight_decay=0.5, no_decay=["bias"], nesterov=True),
    "adamw_both": dict(**ADAMW, no_decay=["norm", "bias"]),
    "sgd_clipped": dict(clip_norm=0.5, lr=0.05),
    "adamw_clipped": dict(**ADAMW, clip_norm=0.1, microbatches=2),
    "clipped_at_times": dict(clip_norm=1.8, freeze=["fc1"]),
    "lamb": dict(optimizer="lamb", lr=0.01, weight_decay=0.1),
    "lamb_no_decay": dict(optimizer="lamb", lr=0.01, weight_decay=0.1, no_decay=["norm", "bias"], clip_norm=1.0),
    "ema": dict(ema_decay=0.9, lr=0.05),
    "ema_frozen": dict(**ADAMW, ema_decay=0.8, freeze=["conv"], no_decay=["norm"]),
}
CLASS_WEIGHTS = [0.1, 0.5, 1.0, 2.0, 5.0, 0.2, 3.0, 0.7, 1.5, 10.0]
CASES["class_weights"] = dict(class_weights=CLASS_WEIGHTS, lr=0.05)
CASES["class_weights_smoothed"] = dict(class_weights=CLASS_WEIGHTS, smoothing=0.1, lr=0.05, microbatches=2)
LOSS, WEIGHTS = 1e-5, 1e-4
Pair = collections.namedtuple("Pair", ("case", "actual", "expected"))
Result = collections.namedtuple("Result", ("losses", "norms", "values", "average", "slots", "evaluation"))


def floats_of(module):
    return {name: value for name, value in module.state_dict().items() if value.is_floating_point()}


def reference(case, model, x, labels):
    average, norms = make_average(model, case), []
    losses, slots = train_torch(model, case, x, labels, average, norms)
    evaluation = None
    if average is not None:
        with torch.no_grad():
            evaluation = torch.nn.functional.cross_entropy(average.module.eval()(x), labels).item()
    return Result(losses, norms, model.state_dict(), floats_of(average.module) if average else {}, slots, evaluation)


def convoy(case, start, inputs, targets):
    with temporary_folder() as folder:
        losses, checkpoint = train_convoy(folder, case, start, inputs, targets)
        norms = [step["grad_norm"] for step in read_metrics(folder, "step") if "grad_norm" in step]
        slots = ("momentum",) if case["optimizer"] == "sgd" else ("exp_avg", "exp_avg_sq")
        evaluation = None
        if case["ema_decay"]:
            text = run_convoy(["eval", "run.toml", "--checkpoint", checkpoint], folder)
            evaluation = float(text.split("of the average of the weights")[1].split("loss")[1].split()[0])
            converted = run_script(folder, "--ema", checkpoint, "averaged.h5")  # for others to use
            assert converted.returncode == 0, converted.stderr
            again = run_convoy(["eval", "run.toml", "--checkpoint", "averaged.h5"], folder)
            assert float(again.split("loss")[1].split()[0]) == evaluation
        return Result(losses, norms, read_group(checkpoint, "model"),
                      read_group(checkpoint, "ema") if case["ema_decay"] else {},
                      {slot: read_group(checkpoint, f"optimizer/{slot}") for slot in slots}, evaluation)


@pytest.fixture(scope="module", params=list(CASES))
def trained(request):
    case = {**DEFAULTS, "model": "sequential", "layers": NET, "channels": 3, "lr": 0.01, **CASES[request.param]}
    inputs, targets = make_data(case)
    model = make_model(case)
    # Norms do not begin at 1 and 0, so that decay and clipping of them show.
    for module in (model.bn, model.ln):
        for parameter in module.parameters():
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    start = copy.deepcopy(model)
    expected = reference(case, model, as_input(inputs), torch.from_numpy(targets))
    return Pair(case, convoy(case, start, inputs, targets), expected)


def test_losses(trained):
    same_losses(trained.actual.losses, trained.expected.losses, LOSS)


def test_model(trained):
    same_model(trained.actual.values, trained.expected.values, WEIGHTS)


def test_optimizer_state(trained):
    for slot, tensors in trained.expected.slots.items():
        assert_same_tensors(slot, trained.actual.slots[slot], tensors, 10 * WEIGHTS)  # differences of weights, so to say


def test_norms_of_gradients(trained):
    actual, expected = trained.actual.norms, trained.expected.norms
    assert len(actual) == len(expected) == (10 if trained.case["clip_norm"] else 0)
    for step, (a, e) in enumerate(zip(actual, expected)):
        assert_close(f"norm of step {step + 1}", a, e, WEIGHTS)


def test_average(trained):
    assert_same_tensors("average", trained.actual.average, trained.expected.average, WEIGHTS)
    if trained.case["ema_decay"]:
        assert_close("evaluation of the average", trained.actual.evaluation, trained.expected.evaluation, LOSS)


def test_clipping_takes_place(trained):
    if trained.case["clip_norm"]:
        assert any(norm > trained.case["clip_norm"] for norm in trained.actual.norms)
