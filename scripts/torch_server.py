# SPDX-License-Identifier: Apache-2.0
"""A child process that keeps PyTorch loaded between measurements: the parent's side (TorchServer) and the child's
(serve). Requests are JSON lines on the child's stdin, answers JSON lines on its stdout; the first answer names the
versions, {"error": ...} says what failed. Standard library only. Invariant: no answer takes longer than was allowed,
since the child is killed then, and the child never outlives its parent.
"""
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading

PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>


class TorchError(Exception):
    """What PyTorch's side said, in one sentence."""


class TorchServer:
    """`command` as a child, in a process group of its own (compilers that it starts are in it); its messages go to
    `log`."""

    def __init__(self, command, log, environment=None, seconds=120):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                        env=environment, start_new_session=True)
        try:
            self.versions = self._answer(seconds)
        except BaseException:
            self.close()
            raise

    def measure(self, seconds, **request):
        """The answer; raises TorchError, after `seconds` too."""
        if self.process.poll() is not None:
            raise TorchError("PyTorch's process has ended")
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise TorchError("PyTorch's process has ended") from error
        return self._answer(seconds)

    def close(self):
        self._kill()
        self.process.wait()
        with contextlib.suppress(OSError):  # what was not sent has no reader
            self.process.stdin.close()
        self.process.stdout.close()

    def _kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _answer(self, seconds):
        late = threading.Timer(seconds, self._kill)
        late.start()
        try:
            line = self.process.stdout.readline()
            in_time = late.is_alive()
        finally:
            late.cancel()
        if not line:
            raise TorchError("PyTorch's process ended" if in_time else f"PyTorch took more than {seconds:.0f} s")
        answer = json.loads(line)
        if "error" in answer:
            raise TorchError(answer["error"])
        return answer


# ---- The child's side -----------------------------------------------------------------------------------------------


def answers_to_parent():
    """Where answers go. What else prints to stdout (compilers do) goes to stderr from here on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def attempt(run, request):
    """run(request), or what went wrong with it."""
    try:
        return run(request)
    except Exception as error:  # PyTorch fails in many ways: out of memory, no compiler, ...
        first = (str(error).strip() or "no message").splitlines()[0]
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return {"error": f"{type(error).__name__}: {first}"[:300]}


def import_torch(answers):
    """The module; without one the parent is told, and the process ends."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library that it loads is missing
        print(json.dumps({"error": f"{sys.executable} has no torch ({error})"}), file=answers, flush=True)
        sys.exit(1)
    return torch


def serve(run, versions, answers):
    """Answers requests until the parent closes the pipe."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    print(json.dumps(versions), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(attempt(run, json.loads(line))), file=answers, flush=True)
