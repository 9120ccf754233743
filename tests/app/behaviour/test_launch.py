# SPDX-License-Identifier: Apache-2.0
"""`convoy launch` on one host: what is killed is started again, what is hopeless is given up, and what is computed is
what an undisturbed run computes.
"""
import os
import shutil
import signal

from behaviour import SMALL_NET, Folder, check, config, main, same_series
from launching import Launch, kill, wait_for

RANKS = ("--nproc-per-node", "2")
STEPS = 3000  # several seconds, more than ranks need to end after their launcher
OFTEN = {"every_steps": 100, "every_epochs": 0, "keep": 3}
LONG = config(SMALL_NET, train={"steps": STEPS, "eval_every_epochs": 0}, checkpoint=OFTEN)
ENDLESS = config(SMALL_NET, train={"steps": 10000000, "eval_every_epochs": 0}, checkpoint=OFTEN)


def undisturbed():
    """Losses by step of a run that nobody kills."""
    if not hasattr(undisturbed, "losses"):
        whole = Folder("launch-whole", LONG)
        whole.train(2)
        undisturbed.losses = whole.losses(str)
        check(sorted(undisturbed.losses) == list(range(1, STEPS + 1)), "the undisturbed run has not all steps")
    return undisturbed.losses


def one_line(launch, *words):
    lines = [line for line in launch.stderr().splitlines() if line.startswith("convoy: error:")]
    if check(len(lines) == 1, f"{launch.folder.path}: {len(lines)} lines `convoy: error:`\n{launch.stderr()[-2000:]}"):
        check(all(word in lines[0] for word in words), f"{launch.folder.path}: {words} are not all in: {lines[0]}")


def killed_rank_and_mpirun():
    expected = undisturbed()
    folder = Folder("launch-kills", LONG)
    with Launch(folder, *RANKS, "--max-restarts", "3") as launch:
        launch.reached(300)
        kill(launch.ranks()[-1])
        launch.generation(2)
        kill(launch.mpirun())
        launch.generation(3)
        launch.ends_with(0)
        launch.nothing_left()
        state = launch.state()
        check(state["status"] == "done" and state["restarts"] == 2, f"state: {state}")
        first, second, third = state["generations"]
        check(first["exit"] == "a rank was killed by SIGKILL" and second["exit"] == "mpirun was killed by SIGKILL",
              f"exits: {first['exit']}, {second['exit']}")
        check(second["reason"] == first["exit"], f"reason: {second['reason']}")
        check(first["seconds_lost"] == 0 and second["seconds_lost"] > 0 and third["seconds_lost"] > 0, f"lost: {state}")
        check(0 < second["step_at_start"] <= third["step_at_start"] <= third["step_at_end"] == STEPS, f"steps: {state}")
        check(all(g["ranks"] == 2 and g["start"] and g["end"] for g in state["generations"]), f"state: {state}")
        log = open(folder.file("runs", "run", "launch", "launch.log")).read()
        check(log.count("failed: ") == 2 and "restart 2 of 3" in log, log)
    same_series("after two kills", folder.losses(str), expected)


def killed_launch():
    expected = undisturbed()
    folder = Folder("launch-launch-killed", LONG)
    with Launch(folder, *RANKS) as launch:
        launch.reached(300)
        kill(launch.ranks()[0])
        launch.generation(2)
        kill(launch.process.pid)
        launch.wait()
        launch.nothing_left(5)  # the ranks go with it, though nobody tells them to
        before = launch.state()
        check(before["status"] == "running" and before["restarts"] == 1, f"state of the killed launch: {before}")
    with Launch(folder, *RANKS) as launch:
        launch.ends_with(0)
        state = launch.state()
        check([g["number"] for g in state["generations"]] == [1, 2, 3], f"history: {state}")
        check(state["restarts"] == 1 and state["generations"][1]["exit"] == "its launch ended", f"history: {state}")
        check(state["generations"][2]["seconds_lost"] > 0, f"history: {state}")
        launch.nothing_left()
    same_series("after the launch was killed", folder.losses(str), expected)


def gives_up_after_restarts():
    folder = Folder("launch-give-up", ENDLESS)
    with Launch(folder, *RANKS, "--max-restarts", "2") as launch:
        for generation in (1, 2, 3):
            launch.generation(generation)
            kill(launch.ranks()[generation % 2])
        launch.ends_with(1)
        one_line(launch, "gives up", "2 restarts", "--max-restarts", "checkpoint")
        check(launch.state()["status"] == "failed" and len(launch.state()["generations"]) == 3, f"{launch.state()}")
        launch.nothing_left()


def same_checkpoint_twice():
    """A loss that is not finite every time, right after step 400's checkpoint, is not tried a hundred times."""
    folder = Folder("launch-hopeless", config(train={"steps": 400, "eval_every_epochs": 0}))
    folder.train(2)
    folder.configure(config(train={"steps": 1000, "eval_every_epochs": 0}, optimizer={"lr": 1e30}))
    with Launch(folder, *RANKS, "--max-restarts", "100") as launch:
        launch.ends_with(1)
        state = launch.state()
        check(len(state["generations"]) == 2 and state["restarts"] == 1, f"{state}")
        check(all(g["program_error"] and g["step_at_start"] == 400 for g in state["generations"]), f"{state}")
        check("the loss is" in state["generations"][0]["exit"], f"{state}")
        check("two generations in a row failed after the checkpoint of step 400" in launch.stderr(), launch.stderr())


def usage_error_is_not_restarted():
    folder = Folder("launch-usage", config(train={"global_batch_size": "32"}))
    with Launch(folder, *RANKS) as launch:
        launch.ends_with(2)
        one_line(launch, "train.global_batch_size")
        check(not os.path.exists(folder.file("runs")), "a launch that cannot start leaves a run folder")
    folder = Folder("launch-usage-rank", config(checkpoint={"resume": "auto"}))  # found by the ranks, not by launch
    folder.train(2)
    folder.configure(config(run={"seed": 4}, train={"steps": 40}))
    with Launch(folder, *RANKS) as launch:
        launch.ends_with(2)
        one_line(launch, "run.seed")
        check(len(launch.state()["generations"]) == 1, f"{launch.state()}")
    folder = Folder("launch-usage-ranks", config(train={"global_batch_size": 32}))
    with Launch(folder, "--nproc-per-node", "3", "--nodes", "1") as launch:
        launch.ends_with(2)
        one_line(launch, "3 ranks", "does not divide", "1, 2, 4, 8")
    folder = Folder("launch-usage-signals", config(run={"stop_signals": ["SIGTERM"]}))
    with Launch(folder, *RANKS) as launch:
        launch.ends_with(2)
        one_line(launch, "run.stop_signals", "SIGUSR2")


def stopped_and_interrupted():
    expected = undisturbed()
    folder = Folder("launch-stopped", LONG)
    for number, code in ((signal.SIGTERM, 75), (signal.SIGUSR2, 75), (signal.SIGINT, 130)):
        at = folder.events("step")[-1]["step"] if folder.events("step") else 0
        with Launch(folder, *RANKS) as launch:
            launch.reached(at + 100)
            kill(launch.process.pid, number)
            launch.ends_with(code, 20)
            launch.nothing_left(5)
            check(launch.state()["status"] == "stopped" and launch.state()["exit_code"] == code, f"{launch.state()}")
    reasons = [event["reason"] for event in folder.events("end")]
    check(reasons[:2] == ["signal", "signal"], f"ends: {reasons}")
    with Launch(folder, *RANKS) as launch:
        launch.ends_with(0)
    same_series("after three stops", folder.losses(str), expected)


def begins_once():
    """checkpoint.resume = "never" is for the first generation: those after it go on."""
    folder = Folder("launch-never", config(SMALL_NET, train={"steps": 300, "eval_every_epochs": 0}))
    folder.train(2)
    folder.configure({**ENDLESS, "checkpoint": {**OFTEN, "resume": "never"}})
    with Launch(folder, *RANKS) as launch:
        wait_for("it begins again", lambda: len(folder.events("start")) == 2)
        launch.reached(250)  # so the checkpoint of step 100 is written: that of 200 waits for it
        kill(launch.process.pid)  # the state remembers
        launch.wait()
    with Launch(folder, *RANKS) as launch:
        launch.generation(3)
        starts = [event["step"] for event in folder.events("start")]
        check(starts[:2] == [0, 0] and starts[2] >= 100, f"starts: {starts}")
        kill(launch.ranks()[0])
        launch.generation(4)
        starts = [event["step"] for event in folder.events("start")]
        check(starts[3] >= starts[2], f"starts: {starts}")
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)


def one_at_a_time():
    folder = Folder("launch-one", ENDLESS)
    with Launch(folder, *RANKS) as first:
        first.reached(50)
        with Launch(folder, *RANKS, name="second", alone=False) as second:
            second.ends_with(2, 20)
            one_line(second, "leads this run already", str(first.process.pid))
        code = folder.run(1, timeout=50)  # a plain training on the same folder
        check(code == 2, f"a second training: exit code {code}\n{folder.stderr}")
        check("another training writes to runs/run" in folder.stderr and folder.stderr.count("convoy: error:") == 1,
              folder.stderr)
        check(first.process.poll() is None, "the first launch has ended")
        at = folder.events("step")[-1]["step"]
        first.reached(at + 50)  # undisturbed
        # A lock that somebody removes is a lock lost: the run ends rather than write beside another.
        os.remove(folder.file("runs", "run", "run.lock"))
        first.generation(2)
        check("the run's lock is lost" in first.stderr(), first.stderr())
        check("the run's lock is lost" in first.state()["generations"][0]["exit"], f"{first.state()}")


def bad_state_and_folders():
    folder = Folder("launch-bad-state", config())
    os.makedirs(folder.file("runs", "run", "launch"))
    with open(folder.file("runs", "run", "launch", "state.json"), "w") as file:
        file.write("{")
    with Launch(folder, *RANKS) as launch:
        launch.ends_with(2)
        one_line(launch, "state.json", "is no state of a launch")
    shutil.rmtree(folder.file("runs"))
    with open(folder.file("runs"), "w"):
        pass
    with Launch(folder, *RANKS, name="file") as launch:
        launch.ends_with(2)
        one_line(launch, "cannot make the folder")
    os.remove(folder.file("runs"))
    for option, words in ((("--hosts", "nowhere.txt"), ("--hosts", "nowhere.txt")),
                          (("--hosts-from", "exit 3"), ("--hosts-from", "exit code 3")),
                          (("--hosts-from", "echo a slots=x"), ("--hosts-from", ":1:")),
                          (("--launcher", "srun"), ("--launcher", "Slurm"))):
        with Launch(folder, *RANKS, *option, name="-".join(option[0:1])) as launch:
            launch.ends_with(2)
            check(all(word in launch.stderr().splitlines()[-1] for word in words), launch.stderr())


if __name__ == "__main__":
    main([killed_rank_and_mpirun, killed_launch, gives_up_after_restarts, same_checkpoint_twice,
          usage_error_is_not_restarted, stopped_and_interrupted, begins_once, one_at_a_time, bad_state_and_folders])
