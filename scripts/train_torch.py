#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains in PyTorch what a convoy run trained, so that `convoy report` and scripts/plot.py draw both curves into one
picture: the network, data file, batch size, augmentation, optimizer and learning rates of RUN/config.toml, in
PyTorch's own order of samples and from its own start. Writes OUT/metrics.jsonl as convoy does.

For ResNets on /images of HDF5 files with SGD, on the CPU: crops, flips, cosine and polynomial schedules with warm-up,
label smoothing, the average of the weights. Needs torch, h5py and Python 3.11.

  train_torch.py RUN OUT [--threads N] [--seed N]
"""
import argparse
import contextlib
import json
import math
import os
import time
import tomllib

import h5py
import torch
import torch_models


def refuse(problem):
    raise SystemExit(f"train_torch: {problem}")


def read_images(path):
    with h5py.File(path, "r") as file:
        return torch.from_numpy(file["images"][:]), torch.from_numpy(file["labels"][:])


def read_config(run):
    with open(os.path.join(run, "config.toml"), "rb") as file:
        config = tomllib.load(file)
    for key, value in {("model", "name"): "resnet9 resnet18 resnet34 resnet50", ("data", "kind"): "hdf5",
                       ("data", "sampler"): "shuffle", ("optimizer", "name"): "sgd",
                       ("lr_schedule", "name"): "cosine polynomial", ("train", "loss"): "cross_entropy",
                       ("train", "precision"): "fp32 bf16"}.items():
        if config[key[0]][key[1]] not in value.split():
            refuse(f"{'.'.join(key)}: {config[key[0]][key[1]]} is not for this (only {value})")
    if others := set(config["data"]["augment"]) - {"crop", "flip"}:
        refuse(f"data.augment: {', '.join(sorted(others))} is not for this (only crop and flip)")
    for key in ("no_decay", "clip_norm"):
        if config["optimizer"][key]:
            refuse(f"optimizer.{key} is not for this")
    return config


def learning_rate(config, step, steps_per_epoch, total):
    """That of a step, counted from 0: a straight line up, then convoy's curve down."""
    schedule, lr = config["lr_schedule"], config["optimizer"]["lr"]
    warmup = schedule["warmup_steps"] or round(schedule["warmup_epochs"] * steps_per_epoch)
    if step < warmup:
        return lr * (step + 1) / warmup
    time, last = (step - warmup) / max(1, total - warmup), schedule["final_lr"]
    if schedule["name"] == "cosine":
        return last + (lr - last) * 0.5 * (1 + math.cos(math.pi * time))
    return last + (lr - last) * (1 - time) ** schedule["power"]


def build(config, seed):
    """As torchvision starts a ResNet: convolutions normal with 2 / fan-out, the rest as PyTorch does."""
    torch.manual_seed(seed)
    model = torch_models.build(torch, config["model"]["name"], config["model"]["classes"],
                               stem=config["model"].get("stem"))
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model.to(memory_format=torch.channels_last)


class Images:
    """Batches as the network takes them: [N, 3, H, W], normalised."""

    def __init__(self, config):
        data = config["data"]
        self.mean = torch.tensor(data["mean"]).view(1, -1, 1, 1) * 255
        self.std = torch.tensor(data["std"]).view(1, -1, 1, 1) * 255
        self.padding = data["crop_padding"] if "crop" in data["augment"] else 0
        self.flip = "flip" in data["augment"]

    def normal(self, pixels):
        images = pixels.permute(0, 3, 1, 2).float().sub(self.mean).div(self.std)
        return images.contiguous(memory_format=torch.channels_last)

    def augmented(self, pixels, generator):
        """torchvision's RandomCrop(size, padding) with black borders, and RandomHorizontalFlip."""
        size, pad = pixels.shape[1], self.padding
        out = torch.empty_like(pixels)
        wide = torch.nn.functional.pad(pixels, (0, 0, pad, pad, pad, pad))
        places = torch.randint(0, 2 * pad + 1, (len(pixels), 2), generator=generator).tolist()
        flips = torch.rand(len(pixels), generator=generator) < 0.5
        for i, (top, left) in enumerate(places):
            image = wide[i, top:top + size, left:left + size]
            out[i] = image.flip(1) if self.flip and flips[i] else image
        return self.normal(out)


def evaluate(model, images, pixels, labels, autocast):
    model.eval()
    loss = top1 = top5 = 0.0
    with torch.no_grad(), autocast():
        for first in range(0, len(labels), 256):
            logits = model(images.normal(pixels[first:first + 256])).float()
            targets = labels[first:first + 256]
            loss += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
            best = logits.topk(5).indices == targets.view(-1, 1)
            top1, top5 = top1 + best[:, 0].sum().item(), top5 + best.sum().item()
    model.train()
    return loss / len(labels), top1 / len(labels), top5 / len(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    config = read_config(args.run)
    pixels, labels = read_images(config["data"]["train"])
    held_pixels, held_labels = read_images(config["data"]["validation"])
    images, batch, epochs = Images(config), config["train"]["global_batch_size"], config["train"]["epochs"]
    model, o = build(config, args.seed), config["optimizer"]
    optimizer = torch.optim.SGD(model.parameters(), lr=o["lr"], momentum=o["momentum"], nesterov=o["nesterov"],
                                weight_decay=o["weight_decay"])
    average, decay = None, config["train"]["ema_decay"]
    if decay > 0:
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay), use_buffers=True)
    steps, generator = len(labels) // batch, torch.Generator().manual_seed(args.seed)
    bf16 = config["train"]["precision"] == "bf16"

    def autocast():
        return torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext()

    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "metrics.jsonl"), "w", encoding="utf-8") as file:
        def write(**event):
            print(json.dumps(event), file=file, flush=True)

        write(event="start", step=0, ranks=1, replicas=1, stages=1, device=f"PyTorch {torch.__version__}",
              total_steps=steps * epochs)
        for epoch in range(epochs):
            order = torch.randperm(len(labels), generator=generator)
            for i in range(steps):
                began, step = time.perf_counter(), epoch * steps + i
                optimizer.param_groups[0]["lr"] = learning_rate(config, step, steps, steps * epochs)
                chosen = order[i * batch:(i + 1) * batch]
                optimizer.zero_grad(set_to_none=True)
                with autocast():
                    loss = torch.nn.functional.cross_entropy(model(images.augmented(pixels[chosen], generator)),
                                                             labels[chosen],
                                                             label_smoothing=config["train"]["label_smoothing"])
                loss.backward()
                optimizer.step()
                if average is not None:
                    average.update_parameters(model)
                write(event="step", step=step + 1, epoch=epoch, position=i * batch, samples=batch, loss=loss.item(),
                      lr=optimizer.param_groups[0]["lr"], images_per_second=batch / (time.perf_counter() - began),
                      data_wait_s=0)
            began = time.perf_counter()
            loss, top1, top5 = evaluate(model, images, held_pixels, held_labels, autocast)
            scores = {"loss": loss, "top1": top1, "top5": top5}
            if average is not None:
                scores["ema_loss"], scores["ema_top1"], _ = evaluate(average.module, images, held_pixels, held_labels,
                                                                     autocast)
            write(event="eval", step=(epoch + 1) * steps, epoch=epoch + 1, **scores, samples=len(held_labels),
                  seconds=time.perf_counter() - began)
        write(event="end", step=steps * epochs, reason="finished")


if __name__ == "__main__":
    main()
