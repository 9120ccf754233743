# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of convoy in torchvision: the same names, shapes and types, loaded with strict=True, and the same logits."""
import collections
import os

import pytest

from interop import (Mlp, Toy, as_input, assert_close, base_config, h5py, last_checkpoint, make_images, np, read_group,
                     resnet, run_convoy, temporary_folder, torch, write_config, write_images)

MODELS = {  # PyTorch's model, convoy's keys, images and labels
    "mlp": lambda: (Mlp(64, [32, 16], 10), {"name": "mlp", "hidden": [32, 16]}, make_images(32, 8, 1)),
    "resnet18_small": lambda: (resnet("resnet18", "small", 1), {"name": "resnet18", "stem": "small"}, make_images(32, 8, 1)),
    "resnet18": lambda: (resnet("resnet18", "imagenet", 3), {"name": "resnet18"}, make_images(8, 64, 3)),
    "resnet50": lambda: (resnet("resnet50", "imagenet", 3), {"name": "resnet50"}, make_images(8, 64, 3)),
}
Trained = collections.namedtuple("Trained", ("model", "folder", "path", "images", "labels"))


@pytest.fixture(scope="module", params=MODELS)
def trained(request):
    """A checkpoint of two steps."""
    model, model_keys, (images, labels) = MODELS[request.param]()
    with temporary_folder() as folder:
        data_file = os.path.join(folder, "data.h5")
        write_images(data_file, images, labels)
        config = base_config({**model_keys, "classes": 10},
                             {"kind": "hdf5", "train": data_file, "mean": [0.45], "std": [0.25]},
                             {"steps": 2, "global_batch_size": len(labels) // 2},
                             {"name": "sgd", "lr": 0.001, "momentum": 0.9})
        write_config(os.path.join(folder, "run.toml"), config)
        run_convoy(["train", "run.toml"], folder)
        yield Trained(model, folder, last_checkpoint(folder), images, labels)


def test_model_has_torchvisions_names_shapes_and_types(trained):
    values, expected = read_group(trained.path, "model"), trained.model.state_dict()
    assert set(values) == set(expected)
    for key in expected:
        assert values[key].shape == expected[key].shape and values[key].dtype == expected[key].dtype, key


def test_momentum_has_the_names_of_parameters(trained):
    assert set(read_group(trained.path, "optimizer/momentum")) == {key for key, _ in trained.model.named_parameters()}


def test_attributes(trained):
    with h5py.File(trained.path, "r") as file:
        attributes = dict(file.attrs)
    assert attributes["format"] in ("convoy-checkpoint", b"convoy-checkpoint")
    assert attributes["step"] == 2 and attributes["complete"] == 1


def test_checksum_trailer_is_the_last_line(trained):
    with open(trained.path, "rb") as file:
        assert file.read().splitlines()[-1].startswith(b"convoy-seal ")


def test_torchvision_computes_what_convoy_evaluates(trained):
    trained.model.load_state_dict(read_group(trained.path, "model"), strict=True)
    trained.model.eval()
    with torch.no_grad():
        logits = trained.model(as_input(trained.images))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(trained.labels)).item()
    text = run_convoy(["eval", "run.toml", "--checkpoint", trained.path], trained.folder)
    own = float(next(line.split()[1] for line in text.splitlines() if line.startswith("loss")))
    assert_close("loss of the loaded checkpoint", own, loss, 1e-4)


def test_toy_loads_strictly(tmp_path):
    data_file = str(tmp_path / "data.h5")
    with h5py.File(data_file, "w") as file:
        file["inputs"] = np.random.RandomState(1).randn(20, 10).astype(np.float32)
        file["targets"] = np.random.RandomState(2).randn(20, 5).astype(np.float32)
    config = base_config({"name": "toy"}, {"kind": "hdf5", "train": data_file},
                         {"steps": 2, "global_batch_size": 10, "loss": "mse"}, {"name": "sgd", "lr": 0.01})
    write_config(tmp_path / "run.toml", config)
    run_convoy(["train", "run.toml"], tmp_path)
    Toy().load_state_dict(read_group(last_checkpoint(tmp_path), "model"), strict=True)
