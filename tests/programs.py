# SPDX-License-Identifier: Apache-2.0
"""The programs and the data under test, as absolute paths. conftest.py sets them from the options of pytest before it
imports a test.
"""
import os
import shutil

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # of the repository
BUILD = os.path.join(ROOT, "build")
CONVOY = DIGITS = MPIRUN = ""

MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


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
