# SPDX-License-Identifier: Apache-2.0
"""How many ranks compute never changes what is computed.

Bitwise where the parts of a batch are the same (ranks x microbatches), to rounding elsewhere.
"""
import os
import re
import shutil

import pytest

from behaviour import DIGITS, FAILURE, MLP, SMALL_NET, USAGE, Folder, close_series, config, error_lines, h5py, part_of, same_series
from pictures import NET, pictures


def train(name, ranks, microbatches, model, **sections):
    folder = Folder(f"{name}-{ranks}x{microbatches}", config(model, parallel={"microbatches": microbatches}, **sections))
    folder.train(ranks)
    return folder


@pytest.mark.parametrize("model, steps", (pytest.param(SMALL_NET, 100, id="small_net"),
                                          pytest.param({"name": "resnet18", "stem": "small"}, 6, id="resnet18")))
def test_same_parts_of_a_batch_give_the_same_bits(model, steps):
    """Two ranks, or one rank with two microbatches. Batch norm included."""
    one, two = (train("parts", ranks, 2 // ranks, model, train={"steps": steps}) for ranks in (1, 2))
    same_series("two ranks", two.losses(str), one.losses(str))


def test_four_parts_agree_to_rounding():
    """Sums of four parts may be taken in another order."""
    parts = [train("four", ranks, 4 // ranks, SMALL_NET, train={"steps": 20}, optimizer={"lr": 0.01}).losses()
             for ranks in (1, 2, 4)]
    close_series("2 ranks", parts[1], parts[0], 1e-5)
    close_series("4 ranks", parts[2], parts[0], 1e-5)
    whole = [train("four-mlp", ranks, 1, MLP, train={"steps": 20}, optimizer={"lr": 0.01}).losses() for ranks in (1, 4)]
    close_series("4 ranks, mlp", whole[1], whole[0], 1e-5)


def test_sync_batch_norm_does_what_one_rank_does():
    """With statistics over all ranks, two ranks do what one rank does with the whole batch."""
    sections = {"train": {"steps": 10}, "optimizer": {"lr": 0.01}}
    folder = Folder("sync", config(SMALL_NET, parallel={"sync_batch_norm": True}, **sections))
    folder.train(2)
    close_series("sync batch norm", folder.losses(), train("one", 1, 1, SMALL_NET, **sections).losses(), 1e-4)


def test_bucket_size_changes_no_bit_on_two_ranks():
    """A sum of two has one order."""
    large = train("large", 2, 1, SMALL_NET).losses(str)
    folder = Folder("small", config(SMALL_NET, parallel={"bucket_mb": 0.01, "first_bucket_mb": 0.001}))
    folder.train(2)
    same_series("small buckets", folder.losses(str), large)


def test_evaluation_counts_every_sample_once():
    """Also where the number of samples does not divide (357 = 3 x 7 x 17)."""
    samples = 357 if h5py else 360
    validation = part_of("data", "validation", samples)
    trained = Folder("trained", config(SMALL_NET, data={"validation": validation}, train={"steps": 60}))
    trained.train()
    checkpoint = trained.checkpoints()[-1]
    results = []
    for ranks in (1, 2, 4):
        code = trained.run(ranks, "eval", "run.toml", "--checkpoint", checkpoint)
        numbers = re.search(r"on (\d+) samples.*\nloss\s+(\S+)\ntop-1\s+(\S+) %\ntop-5\s+(\S+) %", trained.stdout)
        assert code == 0 and numbers, f"eval on {ranks} ranks: {trained.stdout} {trained.stderr}"
        results.append([float(number) for number in numbers.groups()])
    for ranks, (seen, loss, top1, top5) in zip((1, 2, 4), results):
        assert seen == samples, f"{ranks} ranks"
        assert [top1, top5] == results[0][2:], f"{ranks} ranks"
        assert abs(loss - results[0][1]) <= 1e-5 * abs(loss), f"{ranks} ranks"


# Rank 0 starts in the folder, the others in its sub-folder "other", where relative paths lead to other files.
APART = ("sh", "-c", '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || cd other; exec "$@"', "sh")


def test_rank_0_alone_lists_a_folder_of_images():
    """The other ranks would find more classes and more images in theirs, and other ones of the same names."""
    sections = config(NET, data={"kind": "image_folder", "train": "pictures", "validation": "", "image_size": 32},
                      train={"steps": 4, "global_batch_size": 8})
    together, apart = Folder("together", sections), Folder("apart", sections)
    for folder in (together, apart):
        pictures(folder, 24)
    together.train(4)
    shutil.copytree(apart.file("pictures"), apart.file("other", "pictures"))
    os.mkdir(apart.file("other", "pictures", "zzz"))
    for name in ("a/000-more.jpg", "zzz/1.jpg"):
        shutil.copy(apart.file("pictures", "b", "001.jpg"), apart.file("other", "pictures", name))
    apart.train(4, wrapper=APART)
    same_series("others list nothing", apart.losses(str), together.losses(str))

    shutil.rmtree(apart.file("pictures", "c"))
    os.mkdir(apart.file("pictures", "c"))
    shutil.rmtree(apart.file("runs"))
    assert apart.run(4, wrapper=APART) == USAGE
    assert len(error_lines(apart.stderr)) == 1 and "files for the class c" in apart.stderr


def test_rank_0_alone_reads_the_metadata_of_data_files():
    """The other ranks have files that HDF5 cannot open, and read samples from them; not from a file of another size."""
    sections = config(MLP, data={"train": "digits.h5:/train", "validation": "digits.h5:/validation"},
                      train={"steps": 4})
    together, apart = Folder("together-h5", sections), Folder("apart-h5", sections)
    for folder in (together, apart):
        shutil.copy(DIGITS, folder.file("digits.h5"))
    together.train(2)
    os.mkdir(apart.file("other"))
    with open(DIGITS, "rb") as file:
        samples = file.read()
    damaged = apart.file("other", "digits.h5")
    with open(damaged, "wb") as file:
        file.write(b"damaged!" + samples[8:])
    apart.train(2, wrapper=APART)
    same_series("others read samples only", apart.losses(str), together.losses(str))

    shutil.rmtree(apart.file("runs"))
    os.truncate(damaged, len(samples) - 1)
    assert apart.run(2, wrapper=APART) == FAILURE
    lines = error_lines(apart.stderr)
    assert len(lines) == 1 and f"digits.h5: {len(samples) - 1} bytes on " in lines[0] and "same file" in lines[0], lines
