# SPDX-License-Identifier: Apache-2.0
"""Training on a folder of JPEGs, augmented: the same samples for every number of ranks and loader threads and after a
resume; broken files are told once, and end the run when they are too many.
"""
import os

import pytest

from behaviour import DIGITS, FAILURE, USAGE, Folder, close_series, config, error_lines, same_series
from pictures import NET, add_pngs, pictures, png


def settings(threads=1, microbatches=1, steps=8, **data):
    return config(NET, data={"kind": "image_folder", "train": "pictures", "validation": "pictures", "image_size": 32,
                             "augment": ["crop", "flip", "jitter"], "loader_threads": threads, "max_broken": 0.1, **data},
                  train={"steps": steps, "global_batch_size": 8}, parallel={"microbatches": microbatches})


def train(name, ranks, threads, microbatches, **options):
    folder = Folder(f"{name}", settings(threads, microbatches, **options))
    pictures(folder, 24)
    folder.train(ranks)
    return folder


def test_ranks_and_loader_threads_change_no_sample():
    one = train("one", 1, 1, 2)
    assert len(set(one.losses().values())) == 8, "losses do not change: is there anything in the pictures?"
    same_series("3 loader threads", train("threads", 1, 3, 2).losses(str), one.losses(str))
    same_series("2 ranks", train("two", 2, 1, 1).losses(str), one.losses(str))
    # Sums of four parts may be taken in another order; other samples would differ in the first digits.
    close_series("4 ranks of 3 threads", train("four", 4, 3, 1).losses(), one.losses(), 1e-5)
    other = Folder("seed", settings(1, 2))
    other.configure({**settings(1, 2), "run": {"name": "run", "seed": 4}})
    pictures(other, 24)
    other.train(1)
    assert other.losses() != one.losses(), "another seed gives the same losses"


def test_resume_on_two_ranks_goes_on_with_the_same_samples():
    whole = train("whole", 1, 1, 2)
    folder = train("resumed", 1, 3, 2, steps=4)
    folder.configure(settings(1, 1))
    folder.train(2)
    same_series("resumed on 2 ranks", folder.losses(str), whole.losses(str))


def test_broken_files_are_named_once_and_end_the_run_when_too_many():
    folder = Folder("broken", settings(1, 1, steps=9))  # three epochs
    pictures(folder, 24)
    with open(folder.file("pictures", "b", "004.jpg"), "w") as file:
        file.write("this is no picture")
    with open(folder.file("pictures", "a", "000.jpg"), "r+b") as file:
        file.truncate(160)  # a little behind its header
    folder.train(2)
    for name in ("pictures/a/000.jpg", "pictures/b/004.jpg"):
        # Once from training and once from validation, which are data sets of their own.
        for where, text in (("stderr", folder.stderr), ("log.txt", open(folder.file("runs/run/log.txt")).read())):
            lines = [line for line in text.splitlines() if name in line and "warning" in line]
            assert len(lines) == 2, f"warnings about {name} in {where}: {lines}"
    folder.configure({**settings(max_broken=0.05), "run": {"name": "fewer", "seed": 3}})
    code = folder.run(1)
    errors = error_lines(folder.stderr)
    assert code == FAILURE and len(errors) == 1
    for words in ("2 broken files are more than the 1", "a/000.jpg", "b/004.jpg"):
        assert words in errors[0]


def test_pngs_beside_jpegs():
    """The same on two ranks; transparency is told once for training and once for validation."""
    def trained(name, ranks, microbatches):
        folder = Folder(name, settings(2, microbatches))
        pictures(folder, 24)
        add_pngs(folder)
        folder.train(ranks)
        return folder
    one, two = trained("pngs", 1, 2), trained("pngs-2", 2, 1)
    same_series("PNGs on 2 ranks", two.losses(str), one.losses(str))
    for folder in (one, two):
        notes = [line for line in folder.stderr.splitlines() if "transparency" in line]
        assert len(notes) == 2 and all("pictures/" in note and "has transparency, which is dropped" in note for note in notes), notes
        assert "broken" not in folder.stderr


def test_broken_pngs_are_named_once():
    folder = Folder("broken", settings(1, 1, max_broken=0.2))
    pictures(folder, 24)
    add_pngs(folder)
    good = png(40, 40, bytes(range(40)) * 120)
    checksum = bytearray(good)
    checksum[-14] ^= 1  # of the pixels
    broken = {"truncated": good[:-40], "empty": b"", "checksum": bytes(checksum), "text": b"no picture",
              "zero": png(0, 40, bytes(40)), "huge": png(65500, 65500, b"1" * 65500)}
    for name, content in broken.items():
        with open(folder.file("pictures", "b", f"{name}.png"), "wb") as file:
            file.write(content)
    with open(folder.file("pictures", "a", "000.jpg"), "rb") as source, \
            open(folder.file("pictures", "a", "jpeg.png"), "wb") as file:
        file.write(source.read())  # read as what it is
    with open(folder.file("pictures", "a", "png.jpg"), "wb") as file:
        file.write(good)
    folder.configure({**settings(1, 1, steps=9, max_broken=0.2, augment=[], resize=32), "run": {"name": "run", "seed": 3}})
    folder.train(2)
    for name in broken:
        lines = [line for line in folder.stderr.splitlines() if f"/{name}.png" in line and "warning" in line]
        assert len(lines) == 2, f"{name}: {lines}"  # of training and of validation
    assert "jpeg.png" not in folder.stderr and "png.jpg" not in folder.stderr
    folder.configure({**settings(max_broken=0.01), "run": {"name": "fewer", "seed": 3}})
    assert folder.run(1) == FAILURE and len(error_lines(folder.stderr)) == 1


@pytest.mark.parametrize("parallel", ({"microbatches": 1}, {"mode": "pipeline", "microbatches": 2, "schedule": "1f1b"},
                                      {"mode": "model"}, {"mode": "scatter"}), ids=str)
def test_balanced_sampling_is_the_same_in_every_mode(parallel):
    """Also after a resume on another number of ranks."""
    def trained(name, ranks, steps, parallel, folder=None):
        changed = settings(2, 1, steps=steps, sampler="balanced")
        changed["parallel"] = parallel
        folder = folder or Folder(name, changed)
        folder.configure(changed)
        if not os.path.exists(folder.file("pictures")):
            pictures(folder, 24)
            for i in range(3, 24, 3):
                os.remove(folder.file("pictures", "a", f"{i:03}.jpg"))  # one is left
        folder.train(ranks)
        return folder
    one = trained("one", 1, 6, {"microbatches": 2})
    samples = {event["step"]: event["samples_crc32c"] for event in one.events("step")}
    assert len(set(samples.values())) == 6
    other = trained("other", 2, 3, parallel)
    trained("other", 1, 6, {"microbatches": 2}, other)
    assert {event["step"]: event["samples_crc32c"] for event in other.events("step")} == samples
    close_series(str(parallel), other.losses(), one.losses(), 1e-5)  # sums in another order


def test_balanced_sampling_needs_labels():
    folder = Folder("run", config(model={"name": "toy"}, data={"kind": "synthetic", "train": None, "validation": None,
                                                             "features": 10, "targets": 5, "sampler": "balanced"},
                                  train={"steps": 1, "global_batch_size": 4, "loss": "mse"}))
    assert folder.run(1) == USAGE and len(error_lines(folder.stderr)) == 1
    assert "data.sampler: \"balanced\" needs class labels" in folder.stderr


def empty_class(folder):
    os.makedirs(folder.file("pictures", "d"))


def webp(folder):
    open(folder.file("pictures", "a", "x.webp"), "w").close()


def no_classes(folder):
    os.rename(folder.file("pictures"), folder.file("elsewhere"))
    os.makedirs(folder.file("pictures"))


@pytest.mark.parametrize("change, words", ((empty_class, ["data.train", "the class d"]), (webp, ["data.train", "x.webp"]),
                                           (no_classes, ["data.train", "pictures"])))
def test_bad_folder_is_a_usage_error(change, words):
    folder = Folder("run", settings())
    pictures(folder, 24)
    change(folder)
    code = folder.run(2)
    errors = error_lines(folder.stderr)
    assert code == USAGE and len(errors) == 1 and all(word in errors[0] for word in words), folder.stderr


def test_digits_are_augmented_in_training_only():
    """Augmentation of images of one size, and none of it in evaluation."""
    def digits(augment, ranks):
        folder = Folder(f"digits-{len(augment)}-{ranks}", config(
            data={"kind": "hdf5", "train": DIGITS + ":/train", "augment": augment},
            train={"steps": 12}, parallel={"microbatches": 2 // ranks}))
        folder.train(ranks)
        return folder
    plain, one, two = digits([], 1), digits(["crop", "flip"], 1), digits(["crop", "flip"], 2)
    same_series("digits on 2 ranks", two.losses(str), one.losses(str))
    assert plain.losses() != one.losses(), "augmentation changes nothing"
    checkpoint = one.checkpoints()[-1]
    one.run(1, "eval", "run.toml", "--checkpoint", checkpoint)
    with_augmentation = one.stdout
    plain.run(1, "eval", "run.toml", "--checkpoint", checkpoint)
    assert with_augmentation == plain.stdout and "loss" in plain.stdout, "evaluation is augmented"
