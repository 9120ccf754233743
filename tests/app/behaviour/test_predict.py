# SPDX-License-Identifier: Apache-2.0
"""convoy predict: the outputs are those of numpy for the same weights, top-1 is what eval counts, inputs need no labels,
the result does not depend on ranks and mode, and inputs that are none are refused."""
import json
import os
import shutil

import pytest

from behaviour import DIGITS, MLP, USAGE, Folder, config, error_lines, h5py
from packing import packed
from pictures import NET, jpeg, pictures

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(h5py is None, reason="needs h5py")
VALIDATION = DIGITS + ":/validation"
MODES = ((2, {"parallel.mode": "data"}), (2, {"parallel.mode": "pipeline", "parallel.microbatches": 2}),
         (4, {"parallel.mode": "model", "parallel.stages": 2}), (2, {"parallel.mode": "scatter"}))


def overrides(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def predict(folder, *words, ranks=1):
    code = folder.run(ranks, "predict", "run.toml", "--checkpoint", "newest", "--out", "out.h5", "--json", "out.json", *words)
    assert code == 0, folder.stderr
    with h5py.File(folder.file("out.h5"), "r") as file:
        outputs, names = file["outputs"][()], [name.decode() for name in file["names"][()]]
        classes = list(file.attrs.get("class_names", []))
    with open(folder.file("out.json")) as file:
        return outputs, names, classes, json.load(file)["predictions"]


def softmax(outputs):
    exps = numpy.exp(outputs.astype("float64") - outputs.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A trained MLP."""
    os.chdir(tmp_path_factory.mktemp("digits"))
    folder = Folder("digits", config(MLP))
    folder.train()
    return folder


def mlp_outputs(folder, images):
    with h5py.File(folder.checkpoints()[-1], "r") as file:
        model = {name: (file[f"model/{name}/weight"][()], file[f"model/{name}/bias"][()]) for name in ("fc1", "fc2")}
    x = images.reshape(len(images), -1) / 255.0  # [N, H, W, 1]: the order of channels does not matter
    hidden = numpy.maximum(x @ model["fc1"][0].T + model["fc1"][1], 0)
    return hidden @ model["fc2"][0].T + model["fc2"][1]


def test_outputs_are_those_of_numpy(digits):
    outputs, names, classes, predictions = predict(digits, VALIDATION)
    with h5py.File(DIGITS, "r") as file:
        images = file["validation/images"][()]
    expected = mlp_outputs(digits, images)
    # float32 against float64: sums of 64 products.
    numpy.testing.assert_allclose(outputs, expected, atol=1e-4)
    assert outputs.dtype == numpy.float32 and outputs.shape == (len(images), 10)
    assert names == [f"{VALIDATION}[{i}]" for i in range(len(images))]
    probabilities = softmax(outputs)
    for row, scores, prediction in zip(outputs, probabilities, predictions):
        order = numpy.argsort(-row, kind="stable")[:5]
        assert [one["index"] for one in prediction["top"]] == list(order)
        assert [one["class"] for one in prediction["top"]] == [classes[k] for k in order]
        # Both are float64 sums of ten exponentials, perhaps in another order.
        numpy.testing.assert_allclose([one["probability"] for one in prediction["top"]], scores[order], rtol=1e-12)


def test_top1_is_what_eval_counts_on_every_sample(digits):
    """Each sample alone, in a file of its own for eval: the prediction is its label exactly if eval says 100 %."""
    outputs, _, _, _ = predict(digits, VALIDATION)
    with h5py.File(DIGITS, "r") as file:
        images, labels = file["validation/images"][()], file["validation/labels"][()]
    for right in (True, False):
        chosen = (outputs.argmax(axis=1) == labels) == right
        assert chosen.any()
        with h5py.File(digits.file("some.h5"), "w") as file:
            file["images"], file["labels"] = images[chosen], labels[chosen]
        assert digits.run(1, "eval", "run.toml", "--checkpoint", "newest", "--set", "data.validation=some.h5") == 0
        assert f"top-1  {100 if right else 0:.4f} %" in digits.stdout


@pytest.mark.parametrize("ranks, mode", MODES)
def test_every_mode_gives_the_same_bits_in_the_same_order(digits, ranks, mode):
    inputs = (DIGITS + ":/validation", DIGITS + ":/train")
    # Each mode computes a batch in two parts, as one rank with two microbatches: equal bits.
    expected = predict(digits, *inputs, *overrides({"parallel.microbatches": 2}))
    actual = predict(digits, *inputs, *overrides(mode), ranks=ranks)
    assert (actual[0] == expected[0]).all()
    assert actual[1:] == expected[1:]


def test_a_batch_of_training_need_not_divide_among_the_ranks(digits):
    outputs, names, _, _ = predict(digits, VALIDATION)
    others, other_names, _, _ = predict(digits, VALIDATION, "--set", "train.global_batch_size=31", ranks=2)
    assert names == other_names and numpy.array_equal(outputs, others)
    assert digits.run(2, "eval", "run.toml", "--checkpoint", "newest", "--set", "train.global_batch_size=31") == 0


def test_labels_are_not_needed_and_shards_are_read(digits):
    expected = predict(digits, VALIDATION)[0]
    with h5py.File(DIGITS, "r") as file, h5py.File(digits.file("unlabelled.h5"), "w") as out:
        out["images"] = file["validation/images"][()]
    outputs, names, _, _ = predict(digits, "unlabelled.h5")
    assert (outputs == expected).all() and names[3] == "unlabelled.h5[3]"
    packed(digits, VALIDATION, "shards.h5", "--shards", "3", "--progress", "off")
    assert (predict(digits, "shards-*.h5")[0] == expected).all()


def test_table(digits):
    assert digits.run(1, "predict", "run.toml", "--checkpoint", "newest", VALIDATION, "--top", "2") == 0
    lines = digits.stdout.splitlines()
    assert lines[0].startswith(f"{VALIDATION}[0] ") and lines[0].count("%") == 2


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A net trained on JPEGs of three classes, and the same JPEGs packed."""
    os.chdir(tmp_path_factory.mktemp("photos"))
    folder = Folder("photos", config(NET, data={"kind": "image_folder", "train": "pictures", "validation": "pictures", "image_size": 24,
                                                "channels": 1}, train={"steps": 3, "global_batch_size": 6}))
    pictures(folder)
    folder.train()
    packed(folder, "pictures", "packed.h5", "--progress", "off")
    os.makedirs(folder.file("other", "deep"))
    shutil.copy(folder.file("pictures", "b", "001.jpg"), folder.file("other", "deep", "x.JPG"))
    with open(folder.file("other", "notes.txt"), "w") as file:
        file.write("no image")
    return folder


def test_files_folders_and_packed_files_are_the_same(photos):
    outputs, names, classes, _ = predict(photos, "packed.h5", *overrides({"parallel.microbatches": 2}))
    from_folder, paths, _, _ = predict(photos, "pictures", ranks=2)
    assert paths == sorted(paths) and paths[0] == "pictures/a/000.jpg" and len(paths) == 30
    assert (from_folder == outputs).all() and classes == ["a", "b", "c"]
    some = predict(photos, "pictures/c/002.jpg", "packed.h5", "other")
    assert some[1] == ["pictures/c/002.jpg", *names, "other/deep/x.JPG"]
    # Another place in the batch: sums in another order.
    numpy.testing.assert_allclose(some[0][[0, -1]], outputs[[paths.index(f"pictures/{n}.jpg") for n in ("c/002", "b/001")]], rtol=1e-4)


def test_regression_prints_the_outputs(digits):
    folder = Folder("regression", config(MLP, data={"kind": "hdf5", "train": "data.h5", "validation": None},
                                         train={"steps": 6, "global_batch_size": 20, "loss": "mse"}))
    random = numpy.random.default_rng(3)
    inputs = random.normal(size=(40, 5)).astype("float32")
    with h5py.File(folder.file("data.h5"), "w") as file:
        file["inputs"], file["targets"] = inputs, random.normal(size=(40, 2)).astype("float32")
    folder.train()
    with h5py.File(folder.file("new.h5"), "w") as file:
        file["inputs"] = inputs[:7]
    outputs, names, _, predictions = predict(folder, "new.h5", ranks=2)
    assert outputs.shape == (7, 2) and names[6] == "new.h5[6]"
    assert [one["outputs"] for one in predictions] == outputs.tolist()
    assert float(folder.stdout.splitlines()[2].split()[1]) == pytest.approx(float(outputs[2, 0]), rel=1e-5)


@pytest.mark.parametrize("name, content, words", (
    ("a.txt", b"text", "neither a JPEG, a PNG nor an HDF5 file"),
    ("a.png", b"\x89PNG\r\n\x1a\n", "a.png: broken image: "),
    ("cut.jpg", jpeg(6, 6, [100] * 36)[:60], "cut.jpg: broken image: "),
    ("empty.jpg", b"", "neither a JPEG, a PNG nor an HDF5 file"),
    ("missing.jpg", None, "there is no file or folder missing.jpg"),
    ("folder/a.bmp", b"BM", "folder/a.bmp is neither a JPEG nor a PNG"),
    ("folder/a.txt", b"text", "folder: no .jpg, .jpeg or .png files"),
    ("odd.h5", b"\x89HDF\r\n\x1a\n", "odd.h5"),
))
@pytest.mark.parametrize("ranks", (1, 2))
def test_what_is_no_input_is_refused_in_one_line(photos, name, content, words, ranks):
    path = photos.file(name)
    shutil.rmtree(photos.file("folder"), ignore_errors=True)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if content is not None:
        with open(path, "wb") as file:
            file.write(content)
    given = name.split("/")[0]
    assert photos.run(ranks, "predict", "run.toml", "--checkpoint", "newest", given) == USAGE
    lines = error_lines(photos.stderr)
    assert len(lines) == 1 and words in lines[0], photos.stderr


def test_samples_of_another_form_are_refused(photos, digits):
    assert photos.run(1, "predict", "run.toml", "--checkpoint", "newest", DIGITS + ":/train") == USAGE
    assert "samples are uint8 [1, 8, 8], those of the training data uint8 [1, 24, 24]" in error_lines(photos.stderr)[0]
    assert digits.run(1, "predict", "run.toml", DIGITS) == USAGE
    assert "predict: --checkpoint is missing" in error_lines(digits.stderr)[0]
