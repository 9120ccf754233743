# SPDX-License-Identifier: Apache-2.0
"""Data of strange values and classes of different names: what ends the run, what is reported, what is computed."""
import os
import shutil

import pytest

from behaviour import DIGITS, FAILURE, MLP, USAGE, Folder, close_series, config, error_lines, h5py

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(h5py is None, reason="needs h5py")


def vectors(folder, inputs, targets=None, labels=None, name="data.h5", **attributes):
    with h5py.File(folder.file(name), "w") as file:
        file["inputs"] = inputs.astype("float32")
        if targets is not None:
            file["targets"] = targets.astype("float32")
        if labels is not None:
            file["labels"] = labels.astype("int64")
        for key, value in attributes.items():
            file.attrs[key] = value
    return folder.file(name)


def regression(**sections):
    return config(MLP, data={"kind": "hdf5", "train": "data.h5", "validation": None, **sections.pop("data", {})},
                  train={"steps": 6, "global_batch_size": 20, "loss": "mse"}, **sections)


def numbers(samples=64, features=5, targets=2):
    random = numpy.random.default_rng(3)
    return random.normal(size=(samples, features)), random.normal(size=(samples, targets))


def one_error(folder):
    lines = error_lines(folder.stderr)
    assert len(lines) == 1, folder.stderr
    return lines[0]


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("value, word", ((numpy.nan, "nan"), (numpy.inf, "inf"), (-numpy.inf, "-inf")))
@pytest.mark.parametrize("what", ("inputs", "targets"))
def test_a_value_that_is_not_finite_ends_the_run(ranks, value, word, what):
    folder = Folder("run", regression())
    inputs, targets = numbers()
    (inputs if what == "inputs" else targets)[3, 1] = value
    vectors(folder, inputs, targets)
    assert folder.run(ranks) == USAGE
    assert f"data.h5: sample 3: {what} [1] is {word} (repair the data, or allow it with data.allow_nonfinite = true)" \
        in one_error(folder)
    assert not folder.checkpoints()
    assert folder.events("end")[-1]["reason"] == "error"


CONVOLUTION = {"name": "sequential", "layers": [
    {"type": "conv2d", "name": "conv", "out_channels": 4, "kernel_size": 3}, {"type": "relu"},
    {"type": "global_avg_pool"}, {"type": "linear", "name": "fc", "out_features": 3}]}


def labelled_images(folder, dtype="uint8", targets=None):
    random = numpy.random.default_rng(4)
    values = random.integers(0, 256, size=(40, 8, 8, 3))
    with h5py.File(folder.file("data.h5"), "w") as file:
        file["images"] = values.astype(dtype)
        file["targets"] = random.integers(0, 2, size=(40, 3)).astype("uint8") if targets is None else targets
    return values


@pytest.mark.parametrize("parallel", ({"microbatches": 1}, {"mode": "pipeline", "microbatches": 2}), ids=str)
def test_several_labels_train_as_the_same_floats_do(parallel):
    """uint8 targets beside images, and float32 ones; on one rank and on two."""
    changed = regression(data={"augment": ["flip"]}, parallel=parallel)
    changed["model"] = CONVOLUTION
    folder = Folder("several", changed)
    labelled_images(folder)
    one = Folder("one", {**changed, "parallel": {"microbatches": 2}})
    labelled_images(one)
    with h5py.File(one.file("data.h5"), "r+") as file:
        targets = file["targets"][()]
        del file["targets"]
        file["targets"] = targets.astype("float32")
    folder.train(2)
    one.train(1)
    close_series("several labels", folder.losses(), one.losses(), 1e-5)  # sums in another order


def test_values_that_are_no_labels_end_the_run():
    changed = regression()
    changed["model"] = CONVOLUTION
    folder = Folder("run", changed)
    labelled_images(folder, targets=numpy.full((40, 3), 2, "uint8"))
    assert folder.run(1) == USAGE
    assert "has the value 2 for class 0 (uint8 targets are 0 or 1" in one_error(folder)


@pytest.mark.parametrize("dtype", ("int8", "int16", "uint32", "int64"))
def test_images_of_other_integers_are_refused(dtype):
    folder = Folder("run", regression())
    labelled_images(folder, dtype)
    assert folder.run(1) == USAGE
    assert "but images are uint8, uint16 or float32 [N, H, W, C]" in one_error(folder)


@pytest.mark.parametrize("value", (numpy.nan, numpy.inf))
def test_a_float_image_that_is_not_finite_ends_the_run(value):
    changed = regression()
    changed["model"] = CONVOLUTION
    folder = Folder("run", changed)
    values = labelled_images(folder)
    values = values.astype("float32")
    values[7, 0, 1, 2] = value
    with h5py.File(folder.file("data.h5"), "r+") as file:
        del file["images"]
        file["images"] = values
    assert folder.run(2) == USAGE
    assert "data.h5: sample 7: inputs [5] is" in one_error(folder)


def test_values_that_are_allowed_are_reported_once_and_nan_reaches_the_loss():
    folder = Folder("run", regression(data={"allow_nonfinite": True}))
    inputs, targets = numbers()
    inputs[3, 3] = numpy.nan
    vectors(folder, inputs, targets)
    assert folder.run(1) == FAILURE
    assert folder.stderr.count("convoy: warning: a value that is not finite, used as it is: ") == 1
    assert "data.h5: sample 3: inputs [3] is nan" in folder.stderr
    assert "the loss is nan (samples that are not finite were used (data.allow_nonfinite)" in one_error(folder)
    assert not folder.checkpoints()


def test_gradients_that_are_not_finite_end_the_run_before_a_checkpoint():
    """Predictions of 1e25 have squares in float64, but the gradient of a weight is beyond float32."""
    folder = Folder("run", config({"name": "mlp", "hidden": []},
                                  data={"kind": "hdf5", "train": "data.h5", "validation": None},
                                  train={"steps": 1, "global_batch_size": 16, "loss": "mse"}))
    inputs, targets = numbers()
    vectors(folder, inputs * 0 + 1e25, targets)
    assert folder.run(1) == FAILURE, folder.stdout
    assert one_error(folder).startswith("convoy: error: step 1: the loss is finite, but its gradients or the update are "
                                        "not (try a smaller optimizer.lr, ")
    assert not folder.checkpoints()


def test_mean_and_std_of_float_inputs_are_those_of_normalised_data():
    """The losses of raw data with data.mean and data.std are those of data that was normalised before."""
    inputs, targets = numbers()
    mean, std = [0.5, -1.0, 0.25, 2.0, 0.0], [2.0, 0.5, 4.0, 1.0, 0.25]  # powers of two: exact
    raw = Folder("raw", regression(data={"mean": mean, "std": std}))
    vectors(raw, inputs, targets)
    raw.train()
    plain = Folder("plain", regression())
    scaled = (inputs.astype("float32") - numpy.array(mean, "float32")) / numpy.array(std, "float32")
    vectors(plain, scaled, targets)
    plain.train()
    assert raw.losses(str) == plain.losses(str)
    ignored = Folder("ignored", regression())
    vectors(ignored, inputs, targets)
    ignored.train()
    assert raw.losses(str) != ignored.losses(str)


def test_mean_and_std_of_float_images_are_per_channel():
    random = numpy.random.default_rng(5)
    images, targets = random.normal(size=(32, 2, 4, 3)), random.normal(size=(32, 1))
    mean, std = [1.0, -2.0], [0.5, 4.0]
    raw = Folder("raw", regression(data={"mean": mean, "std": std}))
    vectors(raw, images, targets)
    raw.train()
    plain = Folder("plain", regression())
    scaled = (images.astype("float32") - numpy.array(mean, "float32")[:, None, None]) \
        / numpy.array(std, "float32")[:, None, None]
    vectors(plain, scaled, targets)
    plain.train()
    assert raw.losses(str) == plain.losses(str)


def test_a_wrong_number_of_means_is_an_error():
    folder = Folder("run", regression(data={"mean": [0.0, 1.0]}))
    vectors(folder, *numbers())
    assert folder.run(1) == USAGE
    line = one_error(folder)
    assert "data.mean: 2 values for the 5 features of " in line and "(give one for all, or one each)" in line


def test_scores_of_a_regression_are_those_of_numpy():
    folder = Folder("run", regression(data={"validation": "held_out.h5"}))  # two epochs of three steps
    vectors(folder, *numbers())
    inputs, targets = numbers(samples=37)
    vectors(folder, inputs, targets * 3 + 1, name="held_out.h5")
    folder.train(2)
    event = folder.events("eval")[-1]
    with h5py.File(folder.checkpoints()[-1], "r") as file:
        weights = {name: file["model"][name] for name in ("fc1", "fc2")}
        w1, b1, w2, b2 = (weights[layer][part][()].astype("float64") for layer in ("fc1", "fc2")
                          for part in ("weight", "bias"))
    hidden = numpy.maximum(inputs.astype("float32") @ w1.T + b1, 0)
    errors = hidden @ w2.T + b2 - (targets * 3 + 1).astype("float32")
    wanted = (targets * 3 + 1).astype("float32").astype("float64")
    spread = ((wanted - wanted.mean(axis=0)) ** 2).sum()
    # float32 against float64 over sums of 64 products
    assert event["loss"] == pytest.approx((errors ** 2).mean(), rel=1e-5)
    assert event["mae"] == pytest.approx(abs(errors).mean(), rel=1e-5)
    assert event["r2"] == pytest.approx(1 - (errors ** 2).sum() / spread, rel=1e-4)
    assert "top1" not in event


def test_images_in_the_order_of_pytorch_are_refused():
    folder = Folder("run", config(MLP, data={"train": "data.h5", "validation": None}))
    with h5py.File(folder.file("data.h5"), "w") as file:
        file["images"] = numpy.zeros((32, 3, 8, 8), "uint8")
        file["labels"] = numpy.zeros(32, "int64")
    assert folder.run(1) == USAGE
    assert "which looks like [N, C, H, W], but images are [N, H, W, C] (in h5py: images[:].transpose(0, 2, 3, 1))" \
        in one_error(folder)


# ---- signals

def signal_net(dimensions, **outputs):
    """The same network for [N, C, L] and for [N, C, 1, L]."""
    if dimensions == 1:
        def window(kernel, stride=1, padding=0):
            return {"kernel_size": kernel, "stride": stride, "padding": padding}
    else:
        def window(kernel, stride=1, padding=0):
            return {"kernel_size": [1, kernel], "stride": [1, stride], "padding": [0, padding]}
    d = f"{dimensions}d"
    return {"name": "sequential", "layers": [
        {"type": "conv" + d, "name": "conv", "out_channels": 6, **window(5, padding=2)},
        {"type": "relu"},
        {"type": "max_pool" + d, **window(2, 2)},
        {"type": "conv" + d, "name": "grouped", "out_channels": 6, "groups": 3, **window(3, 2, 1)},
        {"type": "gelu"},
        {"type": "avg_pool" + d, **window(3, 2, 1)},
        {"type": "flatten"},
        {"type": "linear", "name": "fc", "out_features": 2}]}


def test_signals_are_images_of_height_one():
    random = numpy.random.default_rng(8)
    signals, targets = random.normal(size=(48, 3, 40)), random.normal(size=(48, 2))
    runs = {}
    for dimensions, inputs in ((1, signals), (2, signals[:, :, None, :])):
        sections = regression()
        sections["model"] = signal_net(dimensions)
        runs[dimensions] = Folder(f"signals{dimensions}", sections)
        vectors(runs[dimensions], inputs, targets)
        runs[dimensions].train(2 if dimensions == 1 else 1)
    one, two = runs[1].losses(), runs[2].losses()
    assert one == pytest.approx(two, rel=1e-5)  # two ranks sum in another order
    with h5py.File(runs[1].checkpoints()[-1], "r") as file:
        weights = {name: file["model"][name][()] for name in ("conv/weight", "conv/bias", "grouped/weight", "grouped/bias",
                                                              "fc/weight", "fc/bias")}
    assert weights["conv/weight"].shape == (6, 3, 5) and weights["grouped/weight"].shape == (6, 2, 3)
    runs[1].configure({**regression(), "model": signal_net(1), "train": {"steps": 8, "global_batch_size": 20, "loss": "mse"}})
    runs[1].train()  # a checkpoint of these shapes is resumed
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Conv1d(3, 6, 5, padding=2), torch.nn.ReLU(), torch.nn.MaxPool1d(2),
                              torch.nn.Conv1d(6, 6, 3, stride=2, padding=1, groups=3), torch.nn.GELU(),
                              torch.nn.AvgPool1d(3, 2, 1), torch.nn.Flatten(), torch.nn.Linear(30, 2))
    net.load_state_dict(dict(zip(net.state_dict(), map(torch.from_numpy, weights.values()))))
    errors = net(torch.from_numpy(signals.astype("float32"))).detach().numpy() - targets
    vectors(runs[2], signals[:, :, None, :], targets, name="same.h5")
    two = runs[2]
    two.configure({**regression(data={"validation": "same.h5"}), "model": signal_net(2)})
    assert two.run(1, "eval", "run.toml", "--checkpoint", "newest") == 0, two.stderr
    # Both trained from the same seed on the same batches; sums of two ranks are in another order.
    assert float(two.stdout.split("loss")[1].split()[0]) == pytest.approx((errors ** 2).mean(), rel=1e-4)


def test_a_signal_layer_names_itself_on_images():
    sections = regression()
    sections["model"] = signal_net(1)
    folder = Folder("run", sections)
    random = numpy.random.default_rng(8)
    vectors(folder, random.normal(size=(48, 3, 4, 10)), random.normal(size=(48, 2)))
    assert folder.run(1) == USAGE
    assert "model.layers[0] conv1d: takes signals [N, C, 1, L], not images " in one_error(folder)


# ---- classes by name

def points(folder, names, labels, name):
    """Samples whose class shows in the inputs: class k of `names` is around 4 * its letter."""
    random = numpy.random.default_rng(len(names))
    centers = numpy.array([4.0 * (ord(text[0]) - ord("a")) for text in names])
    inputs = centers[labels][:, None] + random.normal(size=(len(labels), 3)) * 0.1
    return vectors(folder, inputs, labels=numpy.array(labels), name=name, class_names=names)


def classified(**data):
    return config({"name": "mlp", "hidden": [32]}, train={"steps": 150, "global_batch_size": 16}, optimizer={"lr": 0.02},
                  data={"train": "train.h5", "validation": "validation.h5", **data})


@pytest.mark.parametrize("ranks", (1, 2))
def test_validation_classes_are_matched_by_name(ranks):
    """Only the second class, and classes in another order: labels mean names."""
    folder = Folder("run", classified())
    points(folder, ["a", "b", "c"], [0, 1, 2] * 20, "train.h5")
    points(folder, ["c", "b"], [0, 1] * 10, "validation.h5")
    folder.train(ranks)
    assert folder.events("eval")[-1]["top1"] == 1
    assert "has 2 of the 3 classes of the training data, without a" in folder.stdout
    points(folder, ["a", "b", "c"], [1] * 20, "validation.h5")
    assert folder.run(1, "eval", "run.toml", "--checkpoint", "newest") == 0
    assert "top-1  100.0000 %" in folder.stdout


def test_a_class_that_training_does_not_know_is_an_error():
    folder = Folder("run", classified())
    points(folder, ["a", "b", "c"], [0, 1, 2] * 20, "train.h5")
    points(folder, ["b", "d"], [0, 1] * 10, "validation.h5")
    assert folder.run(1) == USAGE
    assert "data.validation: " in one_error(folder)
    assert "has classes that the training data has not: d (its classes: b, d; those of the training data: a, b, c)" \
        in one_error(folder)


def test_a_folder_with_the_second_class_alone(tmp_path):
    jpegs = pytest.importorskip("PIL.Image")
    for place, names in (("train", ("dark", "light")), ("validation", ("light",))):
        for name in names:
            os.makedirs(tmp_path / place / name)
            for i in range(12):
                shade = (20 if name == "dark" else 220) + i
                jpegs.new("RGB", (8, 8), (shade, shade, shade)).save(tmp_path / place / name / f"{i}.jpg")
    folder = Folder("run", config({"name": "mlp", "hidden": [16]}, train={"steps": 60, "global_batch_size": 8},
                                  data={"kind": "image_folder", "image_size": 8, "train": str(tmp_path / "train"),
                                        "validation": str(tmp_path / "validation")}))
    folder.train()
    assert folder.events("eval")[-1]["top1"] == 1
    assert "has 1 of the 2 classes of the training data, without dark" in folder.stdout


def test_image_folder_on_a_file_says_so():
    folder = Folder("run", config(MLP, data={"kind": "image_folder", "train": DIGITS, "validation": None}))
    assert folder.run(1) == USAGE
    assert "is a file (data.kind = \"image_folder\" reads a folder that holds a folder of images for each class)" \
        in one_error(folder)


def test_pack_takes_a_folder_of_train_and_val(tmp_path):
    jpegs = pytest.importorskip("PIL.Image")
    for place in ("train", "val"):
        for name in ("x", "y"):
            os.makedirs(tmp_path / "data" / place / name)
            for i in range(3 if place == "train" else 2):
                jpegs.new("RGB", (8, 8), (i * 40, 10, 10)).save(tmp_path / "data" / place / name / f"{i}.jpg")
    folder = Folder("run", {})
    assert folder.run(1, "pack", str(tmp_path / "data"), "out.h5") == 0, folder.stderr
    assert "10 samples (6 in /train, 4 in /validation)" in folder.stdout
    with h5py.File(folder.file("out.h5"), "r") as file:
        assert list(file) == ["train", "validation"]
        assert list(file["train"].attrs["class_names"]) == list(file["validation"].attrs["class_names"])
        assert len(file["train/labels"]) == 6 and len(file["validation/labels"]) == 4
    shutil.rmtree(tmp_path / "data" / "val" / "x")
    os.makedirs(tmp_path / "data" / "val" / "z")
    shutil.copy(tmp_path / "data" / "val" / "y" / "0.jpg", tmp_path / "data" / "val" / "z" / "0.jpg")
    assert folder.run(1, "pack", str(tmp_path / "data"), "other.h5") == USAGE
    assert "has classes that the training data has not: z" in one_error(folder)
