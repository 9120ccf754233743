# SPDX-License-Identifier: Apache-2.0
"""Runs a command under a time limit with its output in a log that is kept. Standard library only."""
import os
import shlex
import subprocess


def run_logged(command, log, limit, **options):
    """The exit code (None: it had to be stopped) and what was printed. log: open for reading and writing, in binary;
    the command and its output are added to it. options: for subprocess.Popen.
    """
    log.seek(0, os.SEEK_END)
    log.write(f"\n$ {shlex.join(command)}\n".encode())
    log.flush()
    start = log.tell()
    process = subprocess.Popen(command, stdout=log, stderr=log, **options)
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        if process.poll() is None:
            process.terminate()  # not kill: mpirun ends its ranks
            try:
                process.wait(8)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    log.seek(start)
    return code, log.read().decode(errors="replace")
