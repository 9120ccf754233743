# SPDX-License-Identifier: Apache-2.0
"""Ten training steps of ResNet-18 against PyTorch's, five on images of 24 x 24 and five of 32 x 32, then an evaluation
at 40 x 40: the losses and the model within the tolerances of test_training.py. Pictures are JPEGs of random sizes; both
sides train on the same random crops, which convoy's reader gives out one epoch at a time.
"""
import os
import types

import pytest

from interop import (as_input, assert_close, base_config, last_checkpoint, np, read_group, read_metrics, run_convoy,
                     temporary_folder, torch, write_config, write_weights)
from jpegs import Image, draw, read_samples
from reference import CASES, DEFAULTS, STEPS, make_loss, make_model, same_losses, same_model, same_slots, train_torch

SIZES, EVALUATED = [24, 32], 40
CASE = {**DEFAULTS, **CASES["resnet18_small"], "lr": 3e-4}  # at 5e-3 the loss rises, and rounding grows with it
SEED = 1  # of base_config()
CLASSES = 10


def make_pictures(folder):
    """As many as an epoch has samples: half of the steps."""
    for i in range(STEPS // len(SIZES) * CASE["batch"]):
        path = os.path.join(folder, f"class-{i % CLASSES}")
        os.makedirs(path, exist_ok=True)
        Image.fromarray(draw(40 + i % 13, 36 + i % 17, i)).save(os.path.join(path, f"{i:03}.jpg"), quality=95)


def pixels(size, *words):
    bytes_read = np.frombuffer(read_samples(*words), np.uint8)
    return bytes_read.reshape(-1, size, size, 3)


class Steps:
    """Batches of several shapes behind the slices that train_torch() asks for."""

    def __init__(self, epochs):
        self.batches = [batch for images in epochs for batch in as_input(images).split(CASE["batch"])]

    def __getitem__(self, samples_of_step):
        return self.batches[samples_of_step.start // CASE["batch"]]


def train_convoy(folder, model):
    write_weights(os.path.join(folder, "weights.h5"), model.state_dict())
    config = base_config(
        {"name": CASE["model"], "stem": CASE["stem"], "weights": "weights.h5", "classes": CLASSES},
        {"kind": "image_folder", "train": "pictures", "validation": "pictures", "image_size": EVALUATED,
         "augment": ["crop", "flip"], "train_sizes": SIZES, "size_milestones": [1], "shuffle": False,
         "mean": [0.45], "std": [0.25]},
        {"steps": STEPS, "global_batch_size": CASE["batch"], "eval_every_epochs": 0},
        {"name": "sgd", "lr": CASE["lr"], "momentum": CASE["momentum"], "weight_decay": CASE["weight_decay"]})
    write_config(os.path.join(folder, "run.toml"), config)
    run_convoy(["train", "run.toml"], folder)
    steps = read_metrics(folder, "step")
    sizes = [step["image_size"] for step in steps]
    assert sizes == [size for size in SIZES for _ in range(STEPS // len(SIZES))]
    return [step["loss"] for step in steps], last_checkpoint(folder), read_metrics(folder, "eval")[-1]["loss"]


@pytest.fixture(scope="module")
def trained():
    """Both trainings, and both evaluations of what each has trained."""
    with temporary_folder() as folder:
        pictures = os.path.join(folder, "pictures")
        make_pictures(pictures)
        labels = [int(line.split("\t")[1]) for line in read_samples("list", pictures).decode().splitlines()]
        truth = torch.tensor(labels)
        epochs = [pixels(size, "train", pictures, size, SEED, epoch) for epoch, size in enumerate(SIZES)]
        resize = round(EVALUATED * 256 / 224)
        evaluated = as_input(pixels(EVALUATED, "eval", pictures, EVALUATED, resize))

        model = make_model(CASE)
        losses, checkpoint, loss = train_convoy(folder, model)
        expected, expected_slots = train_torch(model, CASE, Steps(epochs), truth.repeat(len(SIZES)))
        slots = {slot: read_group(checkpoint, f"optimizer/{slot}") for slot in expected_slots}
        values = read_group(checkpoint, "model")
    model.eval()
    with torch.no_grad():
        reference = make_loss(CASE)(model(evaluated), truth).item()
    return types.SimpleNamespace(losses=losses, values=values, slots=slots, evaluation=loss, expected_losses=expected,
                                 expected_values=model.state_dict(), expected_slots=expected_slots,
                                 expected_evaluation=reference)


def test_losses(trained):
    same_losses(trained.losses, trained.expected_losses)


def test_model(trained):
    same_model(trained.values, trained.expected_values)


def test_optimizer_state(trained):
    same_slots(CASE, trained.slots, trained.expected_slots)


def test_evaluation_at_another_size(trained):
    """The model's own tolerance: running statistics are part of it."""
    assert_close(f"evaluation at {EVALUATED} pixels", trained.evaluation, trained.expected_evaluation, 1e-3)
