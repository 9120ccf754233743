# SPDX-License-Identifier: Apache-2.0
"""Ten training steps of convoy against PyTorch's, from the same weights on the same batches in the same order.

Every loss must agree to 1e-4 (relative); every parameter and buffer after the last step to 1e-3 (norm of the difference
over the norm), and so must the optimizer's state; in ResNets that to 1e-2, since a unit on ReLU's edge moves a gradient
more than a weight. With --pytorch-itself, PyTorch is compared with itself in another memory layout and number of
threads, which shows how much of the tolerance rounding alone takes.
"""
import collections
import copy

import pytest

from interop import as_input, read_group, temporary_folder, torch
from reference import (CASES, DEFAULTS, QUICK, frozen_modules, make_data, make_model, same_losses, same_model,
                       same_slots, train_convoy, train_torch)

Result = collections.namedtuple("Result", ("losses", "values", "slots"))
Pair = collections.namedtuple("Pair", ("case", "start", "actual", "expected"))  # start: values before the first step


@pytest.fixture(scope="module", params=[pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES])
def trained(request):
    """One case, trained by both."""
    case = {**DEFAULTS, **CASES[request.param]}
    inputs, targets = make_data(case)
    model = make_model(case)
    start = copy.deepcopy(model)
    x, truth = torch.from_numpy(inputs) if case["model"] == "toy" else as_input(inputs), torch.from_numpy(targets)
    losses, slots = train_torch(model, case, x, truth)
    expected = Result(losses, model.state_dict(), slots)
    run = pytorch_itself if request.config.getoption("--pytorch-itself") else convoy
    return Pair(case, copy.deepcopy(start.state_dict()), run(case, start, inputs, targets, x, truth), expected)


def convoy(case, start, inputs, targets, x, truth):
    with temporary_folder() as folder:
        losses, checkpoint = train_convoy(folder, case, start, inputs, targets)
        names = ("exp_avg", "exp_avg_sq") if case["optimizer"] in ("adamw", "lamb") else ("momentum",)
        return Result(losses, read_group(checkpoint, "model"),
                      {slot: read_group(checkpoint, f"optimizer/{slot}") for slot in names})


def pytorch_itself(case, start, inputs, targets, x, truth):
    if x.dim() == 4:
        start, x = start.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    losses, slots = train_torch(start, case, x, truth)
    torch.set_num_threads(threads)
    return Result(losses, start.state_dict(), slots)


def test_losses(trained):
    same_losses(trained.actual.losses, trained.expected.losses)


def test_model(trained):
    same_model(trained.actual.values, trained.expected.values)


def test_optimizer_state(trained):
    same_slots(trained.case, trained.actual.slots, trained.expected.slots)


def test_frozen_parameters_keep_every_bit(trained):
    frozen = tuple(f"{module}." for module in frozen_modules(trained.case))
    for name, value in trained.start.items():
        if name.startswith(frozen):
            assert torch.equal(trained.actual.values[name], value), name
