# SPDX-License-Identifier: Apache-2.0
"""`convoy launch` on hosts that come, go and crash. The hosts are namespaces on this machine."""
import os
import signal

from behaviour import Folder, check, config, main
from launching import Hosts, Launch, kill, wait_for

# Without batch norm and with a small step, so that ranks change the losses by rounding only; wide, to take its time.
WIDE = {"name": "mlp", "hidden": [768, 256]}
RUN = {"train": {"global_batch_size": 64, "eval_every_epochs": 0},
       "optimizer": {"lr": 0.001, "momentum": 0.0, "weight_decay": 0.0},
       "checkpoint": {"every_steps": 100, "every_epochs": 0, "keep": 3}}
SKIP = Hosts.missing()


def start(name, steps=10000000, **sections):
    folder = Folder(name, config(WIDE, **{**RUN, "train": {**RUN["train"], "steps": steps}, **sections}))
    return folder, Hosts(folder)


def ranks_by_generation(folder):
    return [event["ranks"] for event in folder.events("start")]


def sampled(folder):
    """What each step saw, by the sampler's record."""
    return {e["step"]: (e["epoch"], e["position"], e["samples"], e["samples_crc32c"]) for e in folder.events("step")}


def grow_and_shrink():
    """As in the torchrun tutorial: one host, then two, then one again."""
    if SKIP:
        return SKIP
    folder, hosts = start("hosts-elastic")
    hosts.list("nodea slots=2\n")
    with Launch(folder, "--nodes", "1:2", "--hosts", "hosts.txt", environment=hosts.environment()) as launch:
        launch.reached(100)
        hosts.list("nodea slots=2\nnodeb slots=2\n")
        launch.generation(2)
        hosts.list("nodeb slots=2  # and nodea goes\n")
        launch.generation(3)
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)
        launch.nothing_left()
        state = launch.state()
        check(state["restarts"] == 0, f"resizing counts as failing: {state}")
        check([g["hosts"] for g in state["generations"]] == ["nodea:2", "nodea:2 nodeb:2", "nodeb:2"], f"{state}")
    check(ranks_by_generation(folder) == [2, 4, 2], f"ranks: {ranks_by_generation(folder)}")
    check([event["reason"] for event in folder.events("end")] == ["signal"] * 3, "ends")
    starts = [event["step"] for event in folder.events("start")]
    ends = [event["step"] for event in folder.events("end")]
    check(starts[1:] == ends[:2], f"no step is lost: stopped after {ends}, went on from {starts}")
    whole, _ = start("hosts-whole", ends[2])
    whole.train(2)
    check(sampled(folder) == sampled(whole), "the samples of some steps differ from the undisturbed run's")
    actual, expected = folder.losses(), whole.losses()
    check(sorted(actual) == list(range(1, ends[2] + 1)), f"{len(actual)} steps of {ends[2]}")
    exact = [step for step in range(1, ends[0] + 1) if actual[step] != expected[step]]
    check(not exact, f"with equal ranks the losses differ from step {exact[:1]} on")
    worst = max(abs(actual[s] - expected[s]) / expected[s] for s in expected)
    check(worst < 1e-3, f"losses differ by {worst:.1e} relative")


def too_few_hosts():
    if SKIP:
        return SKIP
    folder, hosts = start("hosts-few")
    hosts.list("# nobody yet\n")
    with Launch(folder, "--nodes", "2:2", "--hosts", "hosts.txt", environment=hosts.environment()) as launch:
        wait_for("it says that it waits", lambda: "waits for hosts: 0 can be used" in launch.stderr())
        hosts.list("nodea\n")
        check(not folder.events("start"), "it has started with too few hosts")
        hosts.list("nodea\nnodeb\n")
        launch.generation(1)
        hosts.list("nodea\nno good line\n")  # is not followed
        wait_for("a bad line is named", lambda: "hosts.txt:2: unknown word" in launch.stderr())
        os.remove(folder.file("hosts.txt"))
        wait_for("a missing file is named", lambda: "cannot read hosts.txt" in launch.stderr())
        check(len(folder.events("start")) == 1, "a bad hosts file has disturbed the run")
        hosts.list("nodea\n")
        wait_for("it stops and waits", lambda: "waits for hosts: 1 can be used (nodea:1)" in launch.stderr())
        check(folder.events("end")[-1]["reason"] == "signal", "it has not stopped in order")
        check(not launch.ranks(), "ranks go on with too few hosts")
        hosts.list("nodea\nnodeb\n")
        launch.generation(2)
        check(launch.state()["restarts"] == 0, f"{launch.state()}")
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)


def crashed_host():
    """A host that dies is left out, and used again when it answers."""
    if SKIP:
        return SKIP
    folder, hosts = start("hosts-crash")
    hosts.list("nodea slots=2\nnodeb slots=2\n")
    with Launch(folder, "--nodes", "1:2", "--hosts-from", "cat hosts.txt", environment=hosts.environment()) as launch:
        launch.reached(150)
        hosts.crash("nodeb")
        launch.generation(2)
        check(ranks_by_generation(folder) == [4, 2], f"ranks: {ranks_by_generation(folder)}")
        check("host nodeb: nothing can be started there" in launch.stderr(), launch.stderr())
        state = launch.state()
        check(state["restarts"] == 1 and not state["generations"][0]["program_error"], f"{state}")
        hosts.repair("nodeb")
        launch.generation(3)
        check(ranks_by_generation(folder) == [4, 2, 4], f"ranks: {ranks_by_generation(folder)}")
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)
        launch.nothing_left()


def silent_host():
    """A host that hangs while ranks are being started holds nobody up once it is taken off the list."""
    if SKIP:
        return SKIP
    folder, hosts = start("hosts-silent")
    hosts.list("nodea slots=2\nnodeb slots=2\n")
    hosts.silence_after_next("nodeb")
    with Launch(folder, "--nodes", "1:2", "--hosts", "hosts.txt", environment=hosts.environment()) as launch:
        wait_for("mpirun starts", launch.mpirun)
        hosts.list("nodea slots=2\n")
        launch.generation(1)
        check(ranks_by_generation(folder) == [2], f"ranks: {ranks_by_generation(folder)}")
        state = launch.state()
        check(len(state["generations"]) == 2 and state["restarts"] == 0, f"{state}")
        check("which has not begun to train" in launch.stderr(), launch.stderr())
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)
        launch.nothing_left()
        left = [words for _, words in hosts.processes("nodea") + hosts.processes("nodeb")]
        check(not left, f"left on the hosts: {left}")


if __name__ == "__main__":
    main([grow_and_shrink, too_few_hosts, crashed_host, silent_host])
