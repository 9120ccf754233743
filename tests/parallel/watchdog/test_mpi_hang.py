# SPDX-License-Identifier: Apache-2.0
"""Jobs whose last rank misbehaves: exactly one report, it names that rank and what it does, and the job ends with 1.

The deadline of these jobs is 1 s (at start-up 20 s), and the report takes 2 s.
"""
import os
import re
import subprocess
import time

import pytest

from programs import MPI_ENVIRONMENT, MPIRUN, helper_program, mpi_kind

PROGRAM = helper_program("parallel", "mpi_hang_program")
LIMIT = 60  # seconds for a job to end
BARRIER = r"last: finished barrier 'all are here' \(collective 1 on 'replicas'\), \d+\.\d s ago"


@pytest.fixture(params=(2, 4), ids="{}_ranks".format)
def job(request):
    return Job(request.param)


class Job:
    """A number of ranks, and how a report describes the last of them."""

    def __init__(self, ranks):
        self.ranks, self.last = ranks, ranks - 1
        self.late = rf"all_reduce 'gradient bucket 3' \(collective 2 on communicator 'replicas' of {ranks} ranks\) timed out: " \
                    r"world rank 0 \(\S+\) waited 1 s for it"
        self.missing = rf"world rank {self.last} \(\S+, pid \d+\) has not come: "
        self.others = [rf"{self.last - 1} other ranks? ha(s|ve) come\."] if ranks > 2 else []

    def reports(self, arguments, wanted, **variables):
        """Runs the program: the text of its one report matches all patterns of `wanted`."""
        command = [MPIRUN, "-n", str(self.ranks), PROGRAM, *arguments]
        start = time.time()
        process = subprocess.Popen(command, env={**os.environ, **MPI_ENVIRONMENT, **variables}, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        try:
            text, _ = process.communicate(timeout=LIMIT)
            ended = True
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends its ranks
            text, _ = process.communicate()
            ended = False
        print(f"{time.time() - start:.1f} s\n{text}", flush=True)
        assert ended, f"still running after {LIMIT} s"
        for pattern in wanted:
            assert re.search(pattern, text), pattern
        assert text.count("convoy: error:") == 1
        assert process.returncode == 1
        assert "came after all" not in text


def test_rank_that_sleeps(job):
    job.reports(["sleeps"], [job.late, job.missing + r"it sleeps; last: reading data, since \d+\.\d s", *job.others])


def test_rank_that_spins(job):
    job.reports(["spins"], [job.late, job.missing + "it is running; " + BARRIER, *job.others])


def test_rank_that_is_stopped(job):
    job.reports(["stops"], [job.late, job.missing + r"it is stopped \(SIGSTOP\); " + BARRIER, r"`kill -CONT \d+` on", *job.others])


def test_rank_in_another_order(job):
    job.reports(["order"], [job.late, job.missing + r"last: waiting in barrier 'another order' \(collective 1 on 'other'\)",
                            "The ranks wait for each other"])


def test_rank_that_sends_less(job):
    job.reports(["less"], [rf"receive from rank {job.last} 'the second' \(message 2, tag 1 on communicator 'replicas' of",
                           job.missing + "last: waiting in barrier 'sent all'"])


def test_stopped_rank_on_another_node(job):
    silent = rf"world rank {job.last} \(node{job.last}\): no word from node{job.last} at all"
    job.reports(["stops", "apart"], [job.late, silent, f"`ping node{job.last}`", *job.others])


def test_rank_in_another_order_on_another_node(job):
    job.reports(["order", "apart"],
                [job.late, rf"world rank {job.last} \(node{job.last}, pid \d+\) has not come: last: waiting in barrier"])


def test_without_shared_windows(job):
    """Each rank is a node by itself: poorer, but the same report."""
    if mpi_kind() == "hydra":
        pytest.skip("MPICH has no variable that turns shared windows off")
    job.reports(["stops"], [job.late, rf"world rank {job.last} \(\S+\): no word from", *job.others], OMPI_MCA_osc="^sm")


def test_rank_that_is_stopped_before_mpi_init(job):
    """Inside MPI_Init nobody can say who is missing, but the wait has an end."""
    job.reports(["start"], [r"the start of MPI \(MPI_Init\) did not end within 3 s on \S+ \(pid \d+\)"],
                CONVOY_START_TIMEOUT="3", HANG_RANKS=str(job.ranks))


@pytest.mark.parametrize("job", (2,), ids=("2_ranks",), indirect=True)  # 20 s are enough once
def test_rank_that_is_stopped_before_mpi_finalize(job):
    job.reports(["end"], [r"the end of MPI \(MPI_Finalize\) did not end within 20 s on \S+ \(pid \d+\)"])


@pytest.mark.parametrize("job", (2,), ids=("2_ranks",), indirect=True)  # that wait is enough once
def test_rank_that_is_absent_at_start_up(job):
    job.reports(["absent"], [r"barrier 'before making 'other'' \(collective 1 on communicator 'start-up' of 2",
                             r"waited 20 s for it", job.missing + "it sleeps; last: "])
