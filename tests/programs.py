# SPDX-License-Identifier: Apache-2.0
"""The programs and the data under test, as absolute paths. conftest.py sets them from the options of pytest before it
imports a test.
"""
import functools
import os
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # of the repository
BUILD = os.path.join(ROOT, "build")
CONVOY = DIGITS = MPIRUN = ""

# More ranks than cores, not bound to any, also as root: for Open MPI 4 (OMPI) and 5 (PRTE). MPICH needs no word.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
                   "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "PRTE_MCA_hwloc_default_binding_policy": "none"}
MPIRUN_NAMES = ("mpirun", "mpiexec", "mpiexec.hydra", "prterun")  # of processes; the last is Open MPI 5's


def configure(build, convoy, digits, mpirun):
    """Options that are None get their defaults."""
    global BUILD, CONVOY, DIGITS, MPIRUN
    BUILD = os.path.abspath(build or BUILD)
    CONVOY = os.path.abspath(convoy or os.path.join(BUILD, "app", "convoy"))
    DIGITS = os.path.abspath(digits or os.path.join(ROOT, "app", "configs", "digits.h5"))
    MPIRUN = os.path.abspath(mpirun or shutil.which("mpirun") or "/usr/bin/mpirun")


def helper_program(*path):
    """A program that the build makes for the tests, such as io/io_files."""
    return os.path.join(BUILD, "tests", *path)


@functools.lru_cache
def mpi_kind():
    """"orte" (Open MPI 4), "prrte" (Open MPI 5) or "hydra" (MPICH): whose mpirun this is."""
    version = subprocess.run([MPIRUN, "--version"], check=False, capture_output=True, text=True).stdout
    if "HYDRA" in version:
        return "hydra"
    return "orte" if "(Open MPI) 4" in version else "prrte"


def hosts_option(hosts):
    """Options of mpirun for "a:2,b:2": hosts and their numbers of ranks."""
    return ["-hosts" if mpi_kind() == "hydra" else "--host", hosts]


def remote_shell_environment(program):
    """Variables by which mpirun starts its daemons with this program in place of ssh."""
    return {"OMPI_MCA_plm_rsh_agent": program, "PRTE_MCA_plm_ssh_agent": program, "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": program}
