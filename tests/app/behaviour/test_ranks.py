# SPDX-License-Identifier: Apache-2.0
"""How many ranks compute never changes what is computed.

Bitwise where the parts of a batch are the same (ranks x microbatches), to rounding elsewhere.
"""
import re

import pytest

from behaviour import MLP, SMALL_NET, Folder, close_series, config, h5py, part_of, same_series


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
