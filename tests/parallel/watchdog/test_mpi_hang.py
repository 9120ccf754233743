# SPDX-License-Identifier: Apache-2.0
"""Jobs whose last rank misbehaves: exactly one report, it names that rank and what it does, and the job ends with 1.

Standard library only. Usage: mpi_hang_test.py MPIRUN PROGRAM RANKS
"""
import os
import re
import subprocess
import sys
import time

MPIRUN, PROGRAM, RANKS = sys.argv[1], sys.argv[2], int(sys.argv[3])
LAST = RANKS - 1
LIMIT = 60  # seconds for a job to end; the deadline is 1 (at start-up 20), the report takes 2
LATE = rf"all_reduce 'gradient bucket 3' \(collective 2 on communicator 'replicas' of {RANKS} ranks\) is late: " \
       r"world rank 0 \(\S+\) waited 1 s for it"
MISSING = rf"world rank {LAST} \(\S+, pid \d+\) has not come: "
BARRIER = r"last: finished barrier 'all are here' \(collective 1 on 'replicas'\), \d+\.\d s ago"
SILENT = rf"world rank {LAST} \(node{LAST}\): no word from node{LAST} at all"
OTHERS = [rf"{LAST - 1} other ranks? ha(s|ve) come\."] if RANKS > 2 else []

# arguments, variables of Open MPI, what the report must say
CASES = [
    (["sleeps"], {}, [LATE, MISSING + r"it sleeps; last: reading data, since \d+\.\d s", *OTHERS]),
    (["spins"], {}, [LATE, MISSING + "it is running; " + BARRIER, *OTHERS]),
    (["stops"], {}, [LATE, MISSING + r"it is stopped \(SIGSTOP\); " + BARRIER, r"`kill -CONT \d+` on", *OTHERS]),
    (["order"], {}, [LATE, MISSING + r"last: waiting in barrier 'another order' \(collective 1 on 'other'\)",
                     "The ranks wait for each other"]),
    (["less"], {}, [rf"receive from rank {LAST} 'the second' \(message 2, tag 1 on communicator 'replicas' of",
                    MISSING + "last: waiting in barrier 'sent all'"]),
    (["stops", "apart"], {}, [LATE, SILENT, f"`ping node{LAST}`", *OTHERS]),
    (["order", "apart"], {}, [LATE, rf"world rank {LAST} \(node{LAST}, pid \d+\) has not come: last: waiting in barrier"]),
    # Without shared windows each rank is a node by itself: poorer, but the same report.
    (["stops"], {"OMPI_MCA_osc": "^sm"}, [LATE, rf"world rank {LAST} \(\S+\): no word from", *OTHERS]),
]
if RANKS == 2:  # that wait is enough once
    CASES.append((["absent"], {}, [r"barrier 'before making 'other'' \(collective 1 on communicator 'start-up' of 2",
                                   r"waited 20 s for it", MISSING + "it sleeps; last: "]))

failures = 0
for arguments, variables, wanted in CASES:
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}
    command = [MPIRUN, "-n", str(RANKS), "--oversubscribe", "--bind-to", "none", PROGRAM, *arguments]
    name = " ".join([*arguments, *(f"{key}={value}" for key, value in variables.items())])
    start = time.time()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        text, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpirun ends its ranks
        text, _ = process.communicate()
        text += f"\nstill running after {LIMIT} s"
    wrong = [f"{pattern} is not there" for pattern in wanted if not re.search(pattern, text)]
    reports = text.count("convoy: error:")
    wrong += [f"{reports} reports, not 1"] if reports != 1 else []
    wrong += [f"exit code {process.returncode}, not 1"] if process.returncode != 1 else []
    wrong += ["a rank came after all"] if "came after all" in text else []
    print(f"{name}: {'FAILED: ' + '; '.join(wrong) if wrong else 'passed'} ({time.time() - start:.1f} s)", flush=True)
    print(text, flush=True)
    failures += len(wrong)
sys.exit(f"{failures} checks failed" if failures else 0)
