# SPDX-License-Identifier: Apache-2.0
"""`convoy launch` on hosts that come, go and crash, and jobs with several members. The hosts are namespaces on this
machine.
"""
import os
import signal

from behaviour import Folder, check, config, kill_tree, main
from launching import Hosts, Launch, kill, processes, wait_for

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


# Whoever is left last kills what ranks there are: the others' must live on when one of them is left.
class Ranks:
    def __init__(self, folder):
        self.config = folder.file("run.toml")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for pid, _, words in processes():
            if self.config in words and words[1:2] == ["train"]:
                kill(pid)


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


def member(folder, hosts, host, *options):
    nodes = () if "--nodes" in options else ("--nodes", "1:2")
    return Launch(folder, *nodes, "--nproc-per-node", "2", "--job", folder.file("job"), *options, name=host,
                  prefix=(hosts.enter, host), alone=False)


def members_of_a_job():
    """The leader's host dies; the other one takes over, alone, and is joined again. What ends the leader ends all."""
    if SKIP:
        return SKIP
    folder, hosts = start("hosts-job")
    with Ranks(folder), member(folder, hosts, "nodea") as first:
        first.reached(50)
        with member(folder, hosts, "nodeb") as second:
            wait_for("the second stands by", lambda: "nodeb stands by; nodea" in second.stderr())
            with member(folder, hosts, "nodeb") as twin:  # on the same host
                twin.ends_with(2)
                check("has joined the job already" in twin.stderr(), twin.stderr())
            first.generation(2)
            check(ranks_by_generation(folder) == [2, 4], f"ranks: {ranks_by_generation(folder)}")
            ranks = [pid for pid, words in hosts.processes("nodeb") if words[1:2] == ["train"]]
            check(len(ranks) == 2, f"{len(ranks)} ranks on the second host")
            hosts.crash("nodea")
            second.generation(3)
            check(ranks_by_generation(folder) == [2, 4, 2], f"ranks: {ranks_by_generation(folder)}")
            hosts.repair("nodea")
            with member(folder, hosts, "nodea") as third:
                second.generation(4)
                check(ranks_by_generation(folder) == [2, 4, 2, 4], f"ranks: {ranks_by_generation(folder)}")
                kill(second.process.pid, signal.SIGTERM)
                second.ends_with(75)
                third.ends_with(75, 20)
            second.nothing_left()
            state = second.state("job")
            check([g["number"] for g in state["generations"]] == [1, 2, 3, 4], f"{state}")
            check(state["status"] == "stopped" and state["leader"].startswith("nodeb "), f"{state}")
            left = [name for _, _, names in os.walk(folder.file("job", "requests")) for name in names]
            check(not left, f"requests are left: {left}")
    series = sorted(folder.losses())
    check(series == list(range(1, len(series) + 1)), "steps are missing")


def finished_job():
    """A member that was never needed ends when the job is done."""
    if SKIP:
        return SKIP
    folder, hosts = start("hosts-done", 800)
    with Ranks(folder), member(folder, hosts, "nodea", "--nodes", "1") as first:
        first.reached(10)
        with member(folder, hosts, "nodeb", "--nodes", "1") as second:
            wait_for("the second stands by", lambda: "nodeb stands by; nodea" in second.stderr())
            first.ends_with(0)
            second.ends_with(0, 20)
            check("the job has ended with exit code 0" in second.stderr(), second.stderr())
            check(len(first.state("job")["generations"]) == 1, f"{first.state('job')}")


def member_that_leaves():
    """A standing member that is told to end takes its host away in order, one that is killed at once."""
    if SKIP:
        return SKIP
    folder, hosts = start("hosts-leave")
    with Ranks(folder), member(folder, hosts, "nodea") as first, member(folder, hosts, "nodeb") as second:
        wait_for("four ranks train", lambda: 4 in ranks_by_generation(folder) and len(first.ranks()) == 4)
        leader, other = (first, second) if "stands by" in second.stderr() else (second, first)
        before = len(folder.events("start"))
        kill(other.process.pid, signal.SIGTERM)
        other.ends_with(75)
        leader.generation(before + 1)
        check(ranks_by_generation(folder)[-1] == 2, f"ranks: {ranks_by_generation(folder)}")
        check(leader.state("job")["restarts"] == 0, f"{leader.state('job')}")
        with member(folder, hosts, other.name) as again:
            leader.generation(before + 2)
            check(ranks_by_generation(folder)[-1] == 4, f"ranks: {ranks_by_generation(folder)}")
            kill_tree(again.process)
            leader.generation(before + 3)
            check(ranks_by_generation(folder)[-1] == 2, f"ranks: {ranks_by_generation(folder)}")
            check(leader.state("job")["restarts"] == 1, f"{leader.state('job')}")
        kill(leader.process.pid, signal.SIGTERM)
        leader.ends_with(75)
        leader.nothing_left()


if __name__ == "__main__":
    main([grow_and_shrink, too_few_hosts, crashed_host, silent_host, members_of_a_job, finished_job, member_that_leaves])
