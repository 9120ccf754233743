# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of convoy in torchvision: the same names, shapes and types, loaded with strict=True, and the same logits.

Usage: test_checkpoint.py CONVOY
"""
import os
import sys

from interop import (Mlp, Report, Toy, as_input, base_config, h5py, last_checkpoint, make_images, np, read_group, resnet,
                     run_convoy, temporary_folder, torch, write_config, write_images)


def check_model(report, program, name, model, model_keys, images, labels):
    """Trains two steps, then loads what was written."""
    with temporary_folder() as folder:
        data_file = os.path.join(folder, "data.h5")
        write_images(data_file, images, labels)
        config = base_config({**model_keys, "classes": 10},
                             {"kind": "hdf5", "train": data_file, "mean": [0.45], "std": [0.25]},
                             {"steps": 2, "global_batch_size": len(labels) // 2},
                             {"name": "sgd", "lr": 0.001, "momentum": 0.9})
        write_config(os.path.join(folder, "run.toml"), config)
        run_convoy(program, ["train", "run.toml"], folder)
        path = last_checkpoint(folder)
        values = read_group(path, "model")
        expected = model.state_dict()
        report.check(set(values) == set(expected), f"{name}: names differ: {sorted(set(values) ^ set(expected))}")
        for key in set(values) & set(expected):
            report.check(values[key].shape == expected[key].shape and values[key].dtype == expected[key].dtype,
                         f"{name} {key}: {values[key].dtype} {tuple(values[key].shape)}, torchvision has"
                         f" {expected[key].dtype} {tuple(expected[key].shape)}")
        model.load_state_dict(values, strict=True)
        slots = read_group(path, "optimizer/momentum")
        parameters = {key for key, _ in model.named_parameters()}
        report.check(set(slots) == parameters, f"{name}: momentum: {sorted(set(slots) ^ parameters)}")
        with h5py.File(path, "r") as file:
            attributes = dict(file.attrs)
            report.check(attributes["format"] in ("convoy-checkpoint", b"convoy-checkpoint"), f"{name}: {attributes}")
            report.check(attributes["step"] == 2 and attributes["complete"] == 1, f"{name}: attributes {attributes}")
            unprotected = []
            file.visititems(lambda key, item: unprotected.append(key) if isinstance(item, h5py.Dataset) and item.shape
                            and not item.fletcher32 else None)
            report.check(not unprotected, f"{name}: no checksum on {unprotected}")
        # What torchvision computes from the checkpoint is what convoy evaluates.
        model.eval()
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(as_input(images)), torch.from_numpy(labels)).item()
        text = run_convoy(program, ["eval", "run.toml", "--checkpoint", path], folder)
        own = float(next(line.split()[1] for line in text.splitlines() if line.startswith("loss")))
        report.close(f"{name}: loss of the loaded checkpoint", own, loss, 1e-4)
        print(f"{name}: {len(values)} tensors, strict=True")


def check_toy(report, program):
    with temporary_folder() as folder:
        data_file = os.path.join(folder, "data.h5")
        with h5py.File(data_file, "w") as file:
            file["inputs"] = np.random.RandomState(1).randn(20, 10).astype(np.float32)
            file["targets"] = np.random.RandomState(2).randn(20, 5).astype(np.float32)
        config = base_config({"name": "toy"}, {"kind": "hdf5", "train": data_file},
                             {"steps": 2, "global_batch_size": 10, "loss": "mse"}, {"name": "sgd", "lr": 0.01})
        write_config(os.path.join(folder, "run.toml"), config)
        run_convoy(program, ["train", "run.toml"], folder)
        Toy().load_state_dict(read_group(last_checkpoint(folder), "model"), strict=True)
    report.check(True, "toy")


def main():
    program, report = sys.argv[1], Report()
    check_toy(report, program)
    digits, labels = make_images(32, 8, 1)
    check_model(report, program, "mlp", Mlp(64, [32, 16], 10), {"name": "mlp", "hidden": [32, 16]}, digits, labels)
    check_model(report, program, "resnet18 small", resnet("resnet18", "small", 1), {"name": "resnet18", "stem": "small"},
                digits, labels)
    images, labels = make_images(8, 64, 3)
    for name in ("resnet18", "resnet50"):
        check_model(report, program, name, resnet(name, "imagenet", 3), {"name": name}, images, labels)
    report.finish()


if __name__ == "__main__":
    main()
