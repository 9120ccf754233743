# SPDX-License-Identifier: Apache-2.0
"""A run that is killed and started again computes what the uninterrupted run computes.

44 steps make an epoch (1,437 images in batches of 32), so most of these kills are in the middle of one.
"""
import time

from behaviour import (MLP, SMALL_NET, Folder, check, close_series, config, kill_tree, main, same_checkpoint, same_series)


def kill_after_step(folder, ranks, step, with_checkpoint):
    """Starts the run and kills it as soon as metrics.jsonl holds `step` (and, if wanted, a checkpoint is there: they are
    written in the background). False when it ended before."""
    process = folder.start(ranks)
    deadline = time.time() + 60
    while process.poll() is None and time.time() < deadline:
        steps = folder.events("step")
        if steps and steps[-1]["step"] >= step and (folder.checkpoints() or not with_checkpoint):
            kill_tree(process)
            return True
        time.sleep(0.002)
    ended = process.poll()
    kill_tree(process)
    folder.read_outputs()
    return check(ended == 0, f"killed after step {step}: exit code {ended} instead\n{folder.stderr[-1000:]}") and False


def killed_run(name, ranks, model, steps, kills, every_steps):
    sections = config(model, train={"steps": steps},
                      checkpoint={"every_steps": every_steps, "every_epochs": 1, "keep": 3})
    whole = Folder(f"resume-{name}-whole", sections)
    whole.train(ranks)
    expected = whole.losses(str)
    check(sorted(expected) == list(range(1, steps + 1)), f"{name}: the uninterrupted run has {len(expected)} steps")
    killed = Folder(f"resume-{name}-killed", sections)
    hits = [kill_after_step(killed, ranks, step, step > every_steps) for step in kills]
    check(any(hits), f"{name}: the run always ended before it was killed")
    killed.train(ranks)
    same_series(name, killed.losses(str), expected)
    starts = killed.events("start")
    check(any(start.get("resumed_from") for start in starts), f"{name}: no run said what it resumed from: {starts}")
    same_checkpoint(name, killed.checkpoints()[-1], whole.checkpoints()[-1])
    evaluations = [(e["step"], e["loss"], e["top1"]) for e in killed.events("eval", str)]
    check(evaluations == [(e["step"], e["loss"], e["top1"]) for e in whole.events("eval", str)],
          f"{name}: evaluations differ: {evaluations}")


def one_rank():
    killed_run("one-rank", 1, SMALL_NET, 300, [3, 47, 131, 250], 10)


def two_ranks():
    killed_run("two-ranks", 2, SMALL_NET, 300, [5, 120, 230], 10)


def large_state():
    killed_run("resnet18", 1, {"name": "resnet18", "stem": "small"}, 16, [6], 4)


def other_optimizers():
    """Every optimizer's state and a learning rate that changes every step come back, from the middle of an epoch."""
    for optimizer in ({"name": "adamw", "lr": 1e-3, "momentum": None},
                      {"name": "lars", "lr": 0.5},
                      {"name": "sgd", "nesterov": True}):
        name = optimizer["name"]
        sections = config(SMALL_NET, train={"steps": 100}, optimizer=optimizer,
                          lr_schedule={"name": "cosine", "warmup_epochs": 1}, checkpoint={"every_steps": 37})
        whole = Folder(f"resume-{name}", sections)
        whole.train()
        again = whole.copy(f"resume-{name}-again")
        again.drop_checkpoints_after(37)
        again.train()
        same_series(name, again.losses(str), whole.losses(str))
        same_checkpoint(name, again.checkpoints()[-1], whole.checkpoints()[-1])


def other_rank_count():
    """The samples left of an epoch are the same for every number of ranks, so the losses agree to rounding."""
    sections = config(MLP, train={"steps": 60}, optimizer={"lr": 0.01}, checkpoint={"every_steps": 23})
    whole = Folder("resume-ranks", sections)
    whole.train(2)
    for ranks in (1, 4):
        again = whole.copy(f"resume-ranks-{ranks}")
        again.drop_checkpoints_after(23)
        again.train(ranks)
        check(again.events("start")[-1]["ranks"] == ranks, f"{ranks} ranks: {again.events('start')[-1]}")
        close_series(f"from 2 ranks to {ranks}", again.losses(), whole.losses(), 1e-5)


def finished_run():
    """A finished run says so and changes nothing."""
    folder = Folder("resume-finished", config())
    folder.train(2)
    before = open(folder.file("runs", "run", "metrics.jsonl")).read()
    folder.train(2)
    check("already finished" in folder.stdout, f"a finished run says: {folder.stdout[-300:]!r}")
    check(before == open(folder.file("runs", "run", "metrics.jsonl")).read(), "a finished run changed metrics.jsonl")


main([one_rank, two_ranks, large_state, other_optimizers, other_rank_count, finished_run])
