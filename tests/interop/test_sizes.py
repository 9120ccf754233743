# SPDX-License-Identifier: Apache-2.0
"""Ten training steps of ResNet-18 against PyTorch's, five on images of 24 x 24 and five of 32 x 32, then an evaluation
at 40 x 40: the losses and the model within the tolerances of test_training.py. Pictures are JPEGs of random sizes; both
sides train on the same random crops, which convoy's reader gives out one epoch at a time.
Usage: test_sizes.py CONVOY IMAGE_SAMPLES
"""
import os
import sys

from interop import (Report, as_input, base_config, last_checkpoint, np, read_group, read_metrics, run_convoy,
                     temporary_folder, torch, write_config, write_weights)
from test_images import draw, samples
from test_training import CASES, DEFAULTS, STEPS, compare, make_loss, make_model, train_torch

from PIL import Image

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


def pixels(program, size, *words):
    bytes_read = np.frombuffer(samples(program, *words), np.uint8)
    return bytes_read.reshape(-1, size, size, 3)


class Steps:
    """Batches of several shapes behind the slices that train_torch() asks for."""

    def __init__(self, epochs):
        self.batches = [batch for images in epochs for batch in as_input(images).split(CASE["batch"])]

    def __getitem__(self, samples_of_step):
        return self.batches[samples_of_step.start // CASE["batch"]]


def train_convoy(program, folder, model):
    write_weights(os.path.join(folder, "weights.h5"), model.state_dict())
    config = base_config(
        {"name": CASE["model"], "stem": CASE["stem"], "weights": "weights.h5", "classes": CLASSES},
        {"kind": "image_folder", "train": "pictures", "validation": "pictures", "image_size": EVALUATED,
         "augment": ["crop", "flip"], "train_sizes": SIZES, "size_milestones": [1], "shuffle": False,
         "mean": [0.45], "std": [0.25]},
        {"steps": STEPS, "global_batch_size": CASE["batch"], "eval_every_epochs": 0},
        {"name": "sgd", "lr": CASE["lr"], "momentum": CASE["momentum"], "weight_decay": CASE["weight_decay"]})
    write_config(os.path.join(folder, "run.toml"), config)
    run_convoy(program, ["train", "run.toml"], folder)
    steps = read_metrics(folder, "step")
    sizes = [step["image_size"] for step in steps]
    if sizes != [size for size in SIZES for _ in range(STEPS // len(SIZES))]:
        sys.exit(f"FAILED: image_size of the steps: {sizes}")
    return [step["loss"] for step in steps], last_checkpoint(folder), read_metrics(folder, "eval")[-1]["loss"]


def main():
    program, image_samples = map(os.path.abspath, sys.argv[1:3])
    with temporary_folder() as folder:
        pictures = os.path.join(folder, "pictures")
        make_pictures(pictures)
        labels = [int(line.split("\t")[1]) for line in samples(image_samples, "list", pictures).decode().splitlines()]
        truth = torch.tensor(labels)
        epochs = [pixels(image_samples, size, "train", pictures, size, SEED, epoch) for epoch, size in enumerate(SIZES)]
        resize = round(EVALUATED * 256 / 224)
        evaluated = as_input(pixels(image_samples, EVALUATED, "eval", pictures, EVALUATED, resize))

        model = make_model(CASE)
        losses, checkpoint, loss = train_convoy(program, folder, model)
        expected, slots = train_torch(model, CASE, Steps(epochs), truth.repeat(len(SIZES)))
        compare(CASE, losses, read_group(checkpoint, "model"),
                {slot: read_group(checkpoint, f"optimizer/{slot}") for slot in slots}, expected, model.state_dict(), slots)
        model.eval()
        with torch.no_grad():
            reference = make_loss(CASE)(model(evaluated), truth).item()
        report = Report()
        # The model's own tolerance: running statistics are part of it.
        report.close(f"evaluation at {EVALUATED} pixels", loss, reference, 1e-3)
        report.finish()


if __name__ == "__main__":
    main()
