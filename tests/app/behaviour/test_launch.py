# SPDX-License-Identifier: Apache-2.0
"""`convoy launch` on one host: what is killed is started again, what is hopeless is given up, and what is computed is
what an undisturbed run computes.
"""
import functools
import glob
import os
import signal
import time

import pytest

from behaviour import SMALL_NET, USAGE, Folder, config, error_lines, h5py, same_checkpoint, same_series
from launching import Launch, kill, wait_for
from programs import mpi_kind

RANKS = ("--nproc-per-node", "2")
STEPS = 6000  # several seconds, more than ranks need to end after their launcher
OFTEN = {"every_steps": 100, "every_epochs": 0, "keep": 3}
LONG = config(SMALL_NET, train={"steps": STEPS, "eval_every_epochs": 0}, checkpoint=OFTEN)
ENDLESS = config(SMALL_NET, train={"steps": 10000000, "eval_every_epochs": 0}, checkpoint=OFTEN)


@functools.lru_cache(maxsize=None)
def undisturbed():
    """Losses by step of a run that nobody kills."""
    whole = Folder("whole", LONG)
    whole.train(2)
    losses = whole.losses(str)
    assert sorted(losses) == list(range(1, STEPS + 1))
    return losses


def one_line(launch, *words):
    lines = error_lines(launch.stderr())
    assert len(lines) == 1, launch.stderr()[-2000:]
    for word in words:
        assert word in lines[0]


def test_restarts_after_a_killed_rank_and_a_killed_mpirun():
    folder = Folder("kills", LONG)
    with Launch(folder, *RANKS, "--max-restarts", "3") as launch:
        launch.reached(300)
        kill(launch.ranks()[-1])
        launch.generation(2)
        left = launch.mpi_files()
        assert all(glob.glob(pattern) for pattern in left) and (left or mpi_kind() != "orte")
        kill(launch.mpirun())
        launch.generation(3)
        assert not [path for pattern in left for path in glob.glob(pattern)], "left by the killed mpirun"
        launch.ends_with(0)
        launch.nothing_left()
        state = launch.state()
    assert state["status"] == "done" and state["restarts"] == 2
    first, second, third = state["generations"]
    assert first["exit"] == "a rank was killed by SIGKILL" and second["exit"] == "mpirun was killed by SIGKILL"
    assert second["reason"] == first["exit"]
    assert first["seconds_lost"] == 0 and second["seconds_lost"] > 0 and third["seconds_lost"] > 0
    assert 0 < second["step_at_start"] <= third["step_at_start"] <= third["step_at_end"] == STEPS
    assert all(g["ranks"] == 2 and g["start"] and g["end"] for g in state["generations"])
    log = open(folder.file("runs", "run", "launch", "launch.log")).read()
    assert log.count("failed: ") == 2 and "restart 2 of 3" in log
    same_series("after two kills", folder.losses(str), undisturbed())


def test_goes_on_after_launch_was_killed():
    folder = Folder("launch-killed", LONG)
    with Launch(folder, *RANKS) as launch:
        launch.reached(300)
        kill(launch.ranks()[0])
        launch.generation(2)
        kill(launch.process.pid)
        launch.wait()
        launch.nothing_left(5)  # the ranks go with it, though nobody tells them to
        before = launch.state()
        assert before["status"] == "running" and before["restarts"] == 1
    with Launch(folder, *RANKS) as launch:
        launch.ends_with(0)
        state = launch.state()
        assert [g["number"] for g in state["generations"]] == [1, 2, 3]
        assert state["restarts"] == 1 and state["generations"][1]["exit"] == "its launch ended"
        assert state["generations"][2]["seconds_lost"] > 0
        launch.nothing_left()
    same_series("after the launch was killed", folder.losses(str), undisturbed())


def test_gives_up_after_max_restarts():
    folder = Folder("give-up", ENDLESS)
    with Launch(folder, *RANKS, "--max-restarts", "2") as launch:
        for generation in (1, 2, 3):
            launch.generation(generation)
            kill(launch.ranks()[generation % 2])
        launch.ends_with(1)
        one_line(launch, "gives up", "2 restarts", "--max-restarts", "checkpoint")
        assert launch.state()["status"] == "failed" and len(launch.state()["generations"]) == 3
        launch.nothing_left()


def test_gives_up_after_two_failures_at_the_only_checkpoint():
    """A loss that is not finite every time, right after step 400's checkpoint, is not tried a hundred times."""
    folder = Folder("hopeless", config(train={"steps": 400, "eval_every_epochs": 0}, checkpoint={"every_epochs": 0}))
    folder.train(2)
    folder.configure(config(train={"steps": 1000, "eval_every_epochs": 0}, optimizer={"lr": 1e30}))
    with Launch(folder, *RANKS, "--max-restarts", "100") as launch:
        launch.ends_with(1)
        state = launch.state()
        assert len(state["generations"]) == 2 and state["restarts"] == 1
        assert all(g["program_error"] and g["step_at_start"] == 400 for g in state["generations"])
        assert "the loss is" in state["generations"][0]["exit"]
        assert "two generations in a row failed after the checkpoint of step 400" in launch.stderr()
    assert [os.path.basename(path) for path in folder.checkpoints()] == ["step-00000400.h5"], "it was set aside"


@pytest.mark.parametrize("restarted", (False, True))
@pytest.mark.parametrize("delay", (0, 0.1, 0.25))
def test_a_signal_while_ranks_start_ends_them(restarted, delay):
    """mpirun or the ranks do not listen yet; the signal was lost, and the run went on."""
    folder = Folder(f"early-{restarted}-{delay}", ENDLESS)
    with Launch(folder, *RANKS) as launch:
        if restarted:
            launch.generation(1)
            kill(launch.ranks()[0])
        wait_for("the start", lambda: f"generation {1 + restarted}: 2 ranks" in launch.stderr())
        time.sleep(delay)
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75, 20)
        launch.nothing_left()


def test_a_full_disk_sets_no_checkpoint_aside():
    """It is no fault of the checkpoint from which the run resumed."""
    sections = dict(model={"name": "mlp", "hidden": [2048, 1024]}, checkpoint={"every_epochs": 0, "every_steps": 10})
    folder = Folder("full", config(train={"steps": 20, "eval_every_epochs": 0}, **sections))
    folder.train(1)
    folder.configure(config(train={"steps": 60, "eval_every_epochs": 0}, **sections))
    # Checkpoints take more, the files of MPI less.
    with Launch(folder, "--nproc-per-node", "1", "--max-restarts", "2", wrapper=("prlimit", "--fsize=12000000")) as launch:
        launch.ends_with(1)
        generations = launch.state()["generations"]
        assert len(generations) == 3 and not any(g["program_error"] for g in generations), generations
        assert all(g["step_at_start"] == 20 and "File too large" in g["exit"] for g in generations), generations
    names = [os.path.basename(path) for path in folder.checkpoints()]
    assert names == ["step-00000010.h5", "step-00000020.h5"], "one was set aside"


def test_gives_up_after_an_older_checkpoint_has_failed_too():
    folder = Folder("both", config(train={"steps": 400, "eval_every_epochs": 0},
                                   checkpoint={"every_epochs": 0, "every_steps": 100}))
    folder.train(2)
    folder.configure(config(train={"steps": 1000, "eval_every_epochs": 0}, optimizer={"lr": 1e30}))
    with Launch(folder, *RANKS, "--max-restarts", "100") as launch:
        launch.ends_with(1)
        state = launch.state()
        assert [g["step_at_start"] for g in state["generations"]] == [400, 400, 300, 300]
        assert ("two generations in a row failed after the checkpoint of step 300 without writing another; that of step "
                "400 was set aside before") in launch.stderr()
    names = sorted(os.listdir(folder.file("runs", "run", "checkpoints")))
    assert names == ["step-00000100.h5", "step-00000200.h5", "step-00000300.h5", "step-00000400.h5.failed"]


@pytest.mark.skipif(h5py is None, reason="no h5py")
@pytest.mark.parametrize("ranks", (1, 2))
def test_resumes_from_an_older_checkpoint_when_the_newest_fails_twice(ranks):
    """Its weights are finite, and too large for any step."""
    sections = config(train={"steps": 300, "eval_every_epochs": 0}, checkpoint={"every_epochs": 0, "every_steps": 100})
    whole = Folder("whole", sections)
    whole.train(ranks)
    folder = whole.copy("older")
    with h5py.File(folder.checkpoints()[-1], "r+") as file:
        file["model/fc1/weight"][...] = 1e38
    newest = open(folder.checkpoints()[-1], "rb").read()
    sections["train"]["steps"] = 400
    for other in (whole, folder):
        other.configure(sections)
    whole.train(ranks)
    sections["checkpoint"]["copy_to"] = "copies"  # a copy of the newest fails as well, and is set aside with it
    folder.configure(sections)
    with Launch(folder, "--nproc-per-node", str(ranks)) as launch:
        launch.ends_with(0)
        state = launch.state()
        assert [g["step_at_start"] for g in state["generations"]] == [300, 300, 200]
        assert state["restarts"] == 2
        assert "the next generation resumes from step 200" in launch.stderr()
    set_aside = folder.file("runs", "run", "checkpoints", "step-00000300.h5.failed")
    assert open(set_aside, "rb").read() == newest
    same_series("from the older one", folder.losses(str), whole.losses(str))
    assert [event["step"] for event in folder.events("step")] == list(range(1, 401)), "the metrics were cut there"
    same_checkpoint("from the older one", folder.checkpoints()[-1], whole.checkpoints()[-1])


# ---- usage errors are not restarted

def refused(folder, options, *words):
    with Launch(folder, *options) as launch:
        launch.ends_with(USAGE)
        one_line(launch, *words)
        return launch.state()


def test_wrong_config_is_a_usage_error():
    folder = Folder("config", config(train={"global_batch_size": "32"}))
    refused(folder, RANKS, "train.global_batch_size")
    assert not os.path.exists(folder.file("runs"))


def test_usage_error_of_the_ranks_is_not_restarted():
    """Found by the ranks, not by launch."""
    folder = Folder("seed", config(checkpoint={"resume": "auto"}))
    folder.train(2)
    folder.configure(config(run={"seed": 4}, train={"steps": 40}))
    assert len(refused(folder, RANKS, "run.seed")["generations"]) == 1


def test_ranks_that_do_not_divide_the_batch_are_a_usage_error():
    folder = Folder("ranks", config(train={"global_batch_size": 32}))
    refused(folder, ("--nproc-per-node", "3", "--nodes", "1"), "3 ranks", "does not divide", "1, 2, 4, 8")


def test_stop_signals_without_launchs_own_are_a_usage_error():
    folder = Folder("signals", config(run={"stop_signals": ["SIGHUP"]}))
    refused(folder, RANKS, "run.stop_signals", "SIGUSR1")


# ---- stops

def test_stopped_and_interrupted():
    folder = Folder("stopped", LONG)
    for number, code in ((signal.SIGTERM, 75), (signal.SIGUSR2, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 75)):
        at = folder.events("step")[-1]["step"] if folder.events("step") else 0
        with Launch(folder, *RANKS) as launch:
            launch.reached(at + 100)
            kill(launch.process.pid, number)
            launch.ends_with(code, 20)
            launch.nothing_left(5)
            assert launch.state()["status"] == "stopped" and launch.state()["exit_code"] == code
    reasons = [event["reason"] for event in folder.events("end")]
    assert reasons == ["signal"] * 4
    with Launch(folder, *RANKS) as launch:
        launch.ends_with(0)
    same_series("after four stops", folder.losses(str), undisturbed())


def test_gives_up_on_hosts_that_never_worked():
    folder = Folder("nowhere", LONG)
    with open(folder.file("hosts"), "w") as file:
        file.write("no-such-host.invalid slots=1\n")
    with Launch(folder, "--hosts", "hosts", *RANKS) as launch:
        launch.ends_with(USAGE, 90)
        assert "gives up: none of the hosts (from hosts) has ever worked; no-such-host.invalid: " in launch.stderr()
        assert "exit code" not in launch.stderr(), "mpirun's own reason"


def test_a_second_control_c_ends_all_ranks_at_once():
    folder = Folder("twice", LONG)
    with Launch(folder, *RANKS) as launch:
        launch.reached(100)
        for pid in launch.ranks():  # no rank can stop in order
            os.kill(pid, signal.SIGSTOP)
        kill(launch.process.pid, signal.SIGINT)
        time.sleep(1.5)  # within a second it would be a copy of the first
        kill(launch.process.pid, signal.SIGINT)
        launch.ends_with(130, 30)
        launch.nothing_left(5)


def test_never_is_for_the_first_start_under_launch():
    """checkpoint.resume = "never" is for the first start of a run: later generations and launches resume."""
    folder = Folder("never", {**ENDLESS, "checkpoint": {**OFTEN, "resume": "never"}})
    with Launch(folder, *RANKS) as launch:
        launch.reached(250)  # so the checkpoint of step 100 is written: that of 200 waits for it
        kill(launch.process.pid)
        launch.wait()
    os.remove(folder.file("runs", "run", "launch", "state.json"))  # the run remembers, whatever launch does
    with Launch(folder, *RANKS) as launch:
        launch.generation(2)
        starts = [event["step"] for event in folder.events("start")]
        assert starts[0] == 0 and starts[1] >= 100
        kill(launch.ranks()[0])
        launch.generation(3)
        starts = [event["step"] for event in folder.events("start")]
        assert starts[2] >= starts[1]
        kill(launch.process.pid, signal.SIGTERM)
        launch.ends_with(75)


def test_checkpoints_that_cannot_be_read_are_tried_again():
    """Exit code 1, and not 2: launch restarts the ranks, and the run continues once the folder is there again."""
    folder = Folder("unmounted", config(SMALL_NET, train={"steps": 300, "eval_every_epochs": 0}, checkpoint=OFTEN))
    folder.train()
    folder.configure(config(SMALL_NET, train={"steps": 400, "eval_every_epochs": 0}, checkpoint=OFTEN))
    checkpoints, away = folder.file("runs", "run", "checkpoints"), folder.file("away")
    os.rename(checkpoints, away)
    with Launch(folder, *RANKS) as launch:
        wait_for("a failed start", lambda: "has no checkpoint, but this run has written some" in launch.stderr())
        os.rename(away, checkpoints)
        launch.ends_with(0)
    assert [event["step"] for event in folder.events("start")] == [0, 300]


# ---- one at a time

@pytest.fixture
def first():
    """A launch that trains."""
    folder = Folder("one", ENDLESS)
    with Launch(folder, *RANKS) as launch:
        launch.reached(50)
        yield launch


def still_trains(launch):
    assert launch.process.poll() is None
    at = launch.folder.events("step")[-1]["step"]
    launch.reached(at + 50)


def test_second_launch_is_refused(first):
    with Launch(first.folder, *RANKS, name="second", alone=False) as second:
        second.ends_with(1, 20)
        one_line(second, "leads this run already", str(first.process.pid))
    still_trains(first)


def test_training_beside_a_launch_is_refused(first):
    """A plain training on the same folder."""
    folder = first.folder
    assert folder.run(1, timeout=50) == 1, folder.stderr
    assert "convoy: warning: another training has locked runs/run: " in folder.stderr, "it says at once that it waits"
    assert "another training writes to runs/run" in folder.stderr and folder.stderr.count("convoy: error:") == 1
    still_trains(first)


def test_run_without_its_lock_ends(first):
    """A lock that somebody removes is a lock lost: the run ends rather than write beside another."""
    os.remove(first.folder.file("runs", "run", "run.lock"))
    first.generation(2)
    assert "the run's lock is lost" in first.stderr()
    assert "the run's lock is lost" in first.state()["generations"][0]["exit"]


# ---- bad state and folders

def test_bad_state_is_a_usage_error():
    folder = Folder("bad-state", config())
    os.makedirs(folder.file("runs", "run", "launch"))
    with open(folder.file("runs", "run", "launch", "state.json"), "w") as file:
        file.write("{")
    refused(folder, RANKS, "state.json", "is no state of a launch")


def test_file_in_place_of_the_run_folder_is_a_usage_error():
    folder = Folder("file", config())
    with open(folder.file("runs"), "w"):
        pass
    refused(folder, RANKS, "cannot make the folder")


@pytest.mark.parametrize("option, words", (
    (("--hosts", "nowhere.txt"), ("--hosts", "nowhere.txt")),
    (("--hosts-from", "exit 3"), ("--hosts-from", "exit code 3")),
    (("--hosts-from", "echo a slots=x"), ("--hosts-from", ":1:")),
    (("--launcher", "srun"), ("--launcher", "Slurm"))))
def test_wrong_option_is_a_usage_error(option, words):
    folder = Folder("option", config())
    with Launch(folder, *RANKS, *option) as launch:
        launch.ends_with(USAGE)
        last = launch.stderr().splitlines()[-1]
        for word in words:
            assert word in last
