# SPDX-License-Identifier: Apache-2.0
"""How many ranks compute never changes what is computed.

Bitwise where the parts of a batch are the same (ranks x microbatches), to rounding elsewhere.
"""
import re

from behaviour import MLP, SMALL_NET, Folder, check, close_series, config, h5py, main, part_of, same_series


def train(name, ranks, microbatches, model, **sections):
    folder = Folder(f"ranks-{name}-{ranks}x{microbatches}",
                    config(model, parallel={"microbatches": microbatches}, **sections))
    folder.train(ranks)
    return folder


def same_parts():
    """Two ranks, or one rank with two microbatches: the same parts, so the same bits. Batch norm included."""
    for name, model in (("small-net", SMALL_NET), ("resnet18", {"name": "resnet18", "stem": "small"})):
        steps = {"steps": 100 if name == "small-net" else 6}
        one, two = (train(name, ranks, 2 // ranks, model, train=steps) for ranks in (1, 2))
        same_series(name, two.losses(str), one.losses(str))


def four_ranks():
    """Sums of four parts may be taken in another order: equal to rounding."""
    parts = [train("four", ranks, 4 // ranks, SMALL_NET, train={"steps": 20}, optimizer={"lr": 0.01}).losses()
             for ranks in (1, 2, 4)]
    close_series("2 ranks", parts[1], parts[0], 1e-5)
    close_series("4 ranks", parts[2], parts[0], 1e-5)
    whole = [train("four-mlp", ranks, 1, MLP, train={"steps": 20}, optimizer={"lr": 0.01}).losses() for ranks in (1, 4)]
    close_series("4 ranks, mlp", whole[1], whole[0], 1e-5)


def sync_batch_norm():
    """With statistics over all ranks, two ranks do what one rank does with the whole batch."""
    sections = {"train": {"steps": 10}, "optimizer": {"lr": 0.01}}
    folder = Folder("ranks-sync", config(SMALL_NET, parallel={"sync_batch_norm": True}, **sections))
    folder.train(2)
    close_series("sync batch norm", folder.losses(), train("sync", 1, 1, SMALL_NET, **sections).losses(), 1e-4)


def small_buckets():
    """How gradients are cut into buckets changes no bit with two ranks: a sum of two has one order."""
    large = train("buckets-large", 2, 1, SMALL_NET).losses(str)
    folder = Folder("ranks-buckets-small", config(SMALL_NET, parallel={"bucket_mb": 0.01, "first_bucket_mb": 0.001}))
    folder.train(2)
    same_series("small buckets", folder.losses(str), large)


def evaluation():
    """Every sample counts once, also where the number of samples does not divide (357 = 3 x 7 x 17)."""
    samples = 357 if h5py else 360
    validation = part_of("ranks-evaluation-data", "validation", samples)
    sections = config(SMALL_NET, data={"validation": validation}, train={"steps": 60})
    trained = Folder("ranks-evaluation", sections)
    trained.train()
    checkpoint = trained.checkpoints()[-1]
    results = []
    for ranks in (1, 2, 4):
        code = trained.run(ranks, "eval", "run.toml", "--checkpoint", checkpoint)
        numbers = re.search(r"on (\d+) samples.*\nloss\s+(\S+)\ntop-1\s+(\S+) %\ntop-5\s+(\S+) %", trained.stdout)
        if check(code == 0 and numbers, f"eval on {ranks} ranks: exit code {code}: {trained.stdout} {trained.stderr}"):
            results.append([float(number) for number in numbers.groups()])
    for ranks, (seen, loss, top1, top5) in zip((1, 2, 4), results):
        check(seen == samples, f"{ranks} ranks evaluated {seen} of {samples} samples")
        check([top1, top5] == results[0][2:], f"{ranks} ranks: top-1 {top1} and top-5 {top5}, one rank {results[0][2:]}")
        check(abs(loss - results[0][1]) <= 1e-5 * abs(loss), f"{ranks} ranks: loss {loss}, one rank {results[0][1]}")


main([same_parts, four_ranks, sync_batch_norm, small_buckets, evaluation])
