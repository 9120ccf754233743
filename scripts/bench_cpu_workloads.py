# SPDX-License-Identifier: Apache-2.0
"""The networks, sizes and losses that scripts/bench_cpu.py measures, as convoy's config and as PyTorch's side build
them (scripts/torch_models.py). Invariant: both halves of a line describe the same work.
"""
from typing import NamedTuple


class Workload(NamedTuple):
    name: str
    title: str
    batch: int
    input: list     # of a sample
    model: dict     # of torch_models.build
    loss: str
    config: str     # of app/configs, with these settings
    settings: list


def resnet50(image, batch):
    return Workload(f"resnet50_{image}_b{batch}", f"ResNet-50, {image}×{image}, batch {batch}", batch,
                    [3, image, image], {"name": "resnet50", "classes": 1000}, "cross_entropy",
                    "resnet50_synthetic.toml",
                    ["train.label_smoothing=0", "lr_schedule.warmup_epochs=0", f"data.image_size={image}"])


WORKLOADS = {each.name: each for each in (
    resnet50(128, 16), resnet50(128, 64), resnet50(224, 16), resnet50(224, 64),
    Workload("resnet18_32_b128", "ResNet-18, small stem, 32×32, batch 128", 128, [3, 32, 32],
             {"name": "resnet18", "classes": 10, "stem": "small"}, "cross_entropy", "resnet50_synthetic.toml",
             ["model.name=resnet18", "model.stem=small", "model.classes=10", "data.image_size=32",
              "train.label_smoothing=0", "lr_schedule.warmup_epochs=0"]),
    Workload("mlp_b256", "MLP 784-1024-1024-10, batch 256", 256, [1, 28, 28],
             {"name": "mlp", "classes": 10, "inputs": 784, "hidden": [1024, 1024]}, "cross_entropy",
             "resnet50_synthetic.toml",
             ["model.name=mlp", "model.hidden=[1024,1024]", "model.classes=10", "data.image_size=28",
              "data.channels=1", "train.label_smoothing=0", "lr_schedule.warmup_epochs=0"]),
    Workload("toy_b20", "toy (10-10-5), batch 20", 20, [10], {"name": "toy", "classes": 5}, "mse", "toy.toml", []))}
