#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast PyTorch's elastic launcher is back after a rank was killed: what scripts/soak.py measures of convoy.

torchrun starts RANKS ranks of a toy network (DistributedDataParallel, gloo) that saves a checkpoint every five steps and
resumes from it. A rank is killed N times. Prints the time from the start to the first step, and from each kill to the next
step, in seconds: median (range).

    restart_torch.py [--kills N] [--ranks RANKS] [--monitor-interval SECONDS]
"""
import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

STEP_SECONDS = 0.02
SAVE_EVERY = 5


def worker(folder):
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5))
    model = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    saved, step = os.path.join(folder, "checkpoint.pt"), 0
    if os.path.exists(saved):
        state = torch.load(saved)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    with open(os.path.join(folder, f"pid{rank}"), "w") as file:
        file.write(str(os.getpid()))
    while not os.path.exists(os.path.join(folder, "stop")):
        loss = torch.nn.functional.mse_loss(model(torch.randn(20, 10)), torch.randn(20, 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            with open(os.path.join(folder, "steps"), "a") as file:
                file.write(f"{time.time():.3f} {step}\n")
            if step % SAVE_EVERY == 0:
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, saved + ".tmp")
                os.replace(saved + ".tmp", saved)
        time.sleep(STEP_SECONDS)
    os._exit(0)  # the others may wait in a reduction that does not come


def step_times(folder):
    try:
        with open(os.path.join(folder, "steps")) as file:
            return [float(line.split()[0]) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def wait_for_step_after(folder, moment, launcher):
    deadline = time.time() + 120
    while time.time() < deadline:
        if launcher.poll() is not None:
            with open(os.path.join(folder, "log")) as log:
                sys.exit(f"{log.read()}restart_torch: torchrun has ended with exit code {launcher.returncode}")
        later = [at for at in step_times(folder) if at > moment]
        if later:
            return later[0]
        time.sleep(0.02)
    sys.exit("restart_torch: no step within 120 s")


def summary(seconds):
    if not seconds:
        return "not measured"
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def main():
    parser = argparse.ArgumentParser(description="Restarts of PyTorch's elastic launcher after kills of a rank.")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--monitor-interval", type=float, help="of torchrun; default: its own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    import torch
    source = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={options.ranks}",
                 f"--max_restarts={options.kills + 1}",
                 # PyTorch 1.13 cannot parse its own defaults of these in Python 3.11.
                 "--redirects=1", "--tee=1", f"--log_dir={folder}/ranks"]
        if options.monitor_interval is not None:
            words.append(f"--monitor_interval={options.monitor_interval}")
        with open(os.path.join(folder, "log"), "w") as log:
            start = time.time()
            launcher = subprocess.Popen([*words, os.path.abspath(__file__), f"--worker={folder}"], stdout=log, stderr=log,
                                        env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            first = wait_for_step_after(folder, 0, launcher) - start
            back = []
            for _ in range(options.kills):
                time.sleep(1 + source.random())
                with open(os.path.join(folder, f"pid{source.randrange(options.ranks)}")) as file:
                    os.kill(int(file.read()), signal.SIGKILL)
                # A step that was under way may still end; a generation that is gone writes nothing after 0.2 s.
                killed = time.time()
                back.append(wait_for_step_after(folder, killed + 0.2, launcher) - killed)
        finally:
            open(os.path.join(folder, "stop"), "w").close()
            try:
                launcher.wait(20)
            except subprocess.TimeoutExpired:
                launcher.kill()
    print(f"PyTorch {torch.__version__}, {options.ranks} ranks: first step {first:.2f} s after the start; "
          f"from a kill to the next step {summary(back)}, {options.kills} kills")


if __name__ == "__main__":
    main()
