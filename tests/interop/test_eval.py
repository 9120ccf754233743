# SPDX-License-Identifier: Apache-2.0
"""`convoy eval` on torchvision's weights against torchvision on the same images: loss, top-1 and top-5
on a number of samples that fills no whole batch.

Usage: test_eval.py CONVOY
"""
import os
import re
import sys

from interop import (Report, as_input, base_config, make_images, np, randomize_buffers, resnet, run_convoy,
                     temporary_folder, torch, write_config, write_images, write_weights)


def evaluate(program, folder, name):
    text = run_convoy(program, ["eval", name, "--checkpoint", "weights.h5"], folder)
    found = re.search(r"on (\d+) samples.*\nloss\s+(\S+)\ntop-1\s+(\S+) %\ntop-5\s+(\S+) %", text)
    if not found:
        sys.exit(f"FAILED: eval printed {text!r}")
    return [float(number) for number in found.groups()]


def check_model(report, program, name, stem, size, channels, samples):
    torch.manual_seed(4)
    model = resnet(name, stem, channels)
    randomize_buffers(model)
    model.eval()
    images, labels = make_images(samples, size, channels)
    with torch.no_grad():
        logits = model(as_input(images))
        # The labels of half of the samples are the model's own first choices and others of its first five, so that
        # the shares are neither 0 nor 1.
        order = logits.argsort(dim=1, descending=True).numpy()
        for i in range(0, samples, 2):
            labels[i] = order[i, (i // 2) % 6]
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels)).item()
    rank = np.array([list(order[i]).index(labels[i]) for i in range(samples)])
    top1, top5 = 100 * np.mean(rank < 1), 100 * np.mean(rank < 5)
    with temporary_folder() as folder:
        write_weights(os.path.join(folder, "weights.h5"), model.state_dict())
        write_images(os.path.join(folder, "images.h5"), images, labels)
        config = base_config({"name": name, "stem": stem, "classes": 10},
                             {"kind": "hdf5", "train": "images.h5", "validation": "images.h5", "mean": [0.45],
                              "std": [0.25]},
                             {"steps": 1, "global_batch_size": 8}, {"name": "sgd", "lr": 0.1})
        write_config(os.path.join(folder, "run.toml"), config)
        seen, own_loss, own_top1, own_top5 = evaluate(program, folder, "run.toml")
    what = f"{name}, {stem}"
    print(f"{what}: loss {own_loss:.6f} and {loss:.6f}, top-1 {own_top1:.2f} % and {top1:.2f} %,"
          f" top-5 {own_top5:.2f} % and {top5:.2f} %")
    report.check(seen == samples, f"{what}: {seen} samples, not {samples}")
    report.close(f"{what}: loss", own_loss, loss, 1e-4)
    report.check(abs(own_top1 - top1) < 1e-3, f"{what}: top-1 {own_top1}, torchvision {top1}")
    report.check(abs(own_top5 - top5) < 1e-3, f"{what}: top-5 {own_top5}, torchvision {top5}")


def main():
    report = Report()
    check_model(report, sys.argv[1], "resnet18", "small", 8, 1, 101)
    check_model(report, sys.argv[1], "resnet18", "imagenet", 64, 3, 37)
    check_model(report, sys.argv[1], "resnet50", "imagenet", 64, 3, 37)
    report.finish()


if __name__ == "__main__":
    main()
